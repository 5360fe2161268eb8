//! NEMO's experiments (`experiments/nemo`): policies fed by counters in the memory controller,
//! compared with the same policies fed by samples; the sums of section 6.1; and the article's
//! claims that cannot be judged here. They have a page of their own.

mod neighbour;
mod sums;

use std::fmt::Write as _;

use serde::Deserialize;
use tierscope_core::units::about_size;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_policies::memtis::CANDIDATES;
use tierscope_sim::experiment::{Experiment, File, read};

use super::chapter::{self, Chapter, Extent, Frame};
use super::form::{self, CommonClaim};
use super::row::Section;
use super::verdict::{Bounds, Judgement, Verdict};
use crate::catalogue::{self, Kind, without_claims};
use crate::contest::{Contestant, Notes, Outcome, Row, contestants};
use crate::experiments::change;
use crate::runner::Runner;
use crate::workload::read_workload;

const HEAD: &str = "
Measured by `tierscope reproduce nemo -o .`, or with the names of single experiments. Everything is *simulated*, by densities or access by access as each section says; no parameter was fitted to a claim. Rates are memory accesses a
second after the warm-up. Recovery is the time from the shift of the hot set to the first of four rows in a row with at least 95 % of the last tenth of
the run: of the rate, or of the share of accesses that fast memory serves. Telemetry is the CPU time of looking, of interrupts for it and of the policy's
own steps, 100 % a CPU. Detection is the time from the start until 95 % of the huge pages are found that a policy finds in the whole run to be skewed.

";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    experiment: File,
    #[serde(default)]
    case: Vec<Case>,
    claim: Vec<Claim>,
}

/// A named variant of the experiment, with changed settings.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    set: Vec<String>,
}

impl Case {
    /// The experiment `name` in this case; `alone` is its text without claims.
    ///
    /// # Errors
    /// A change or the experiment is invalid.
    fn experiment(&self, name: &str, alone: &str) -> Result<Experiment> {
        let changes = self.set.iter().map(|set| change(set)).collect::<Result<Vec<_>, _>>();
        let changes = changes.map_err(|what| {
            let place = format!("experiment {name}, case {}", self.name);
            Error::new(ErrorKind::Data, place).cause(what)
        })?;
        Experiment::changed(name, alone, &changes, read_workload)
    }
}

/// A claim of the article about a policy.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Claim {
    paper: String,
    says: String,
    policy: String,
    /// Case that the claim is about; by default the first one.
    case: Option<String>,
    figure: Figure,
    to: Option<String>,
    /// Case of the policy in the denominator; by default the same.
    to_case: Option<String>,
    /// Time of the hot set's shift, in seconds.
    shift: Option<f64>,
    /// Factor by which the machine, and the measured quantity, are smaller than the paper's.
    smaller: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    reason: Option<String>,
}

impl Claim {
    /// Case of the policy in the denominator.
    fn to_case(&self) -> &Option<String> {
        if self.to_case.is_some() { &self.to_case } else { &self.case }
    }

    fn common(&self) -> CommonClaim<'_> {
        CommonClaim {
            paper: &self.paper,
            says: &self.says,
            policy: &self.policy,
            case: self.case.as_deref(),
            figure: form::Figure::name(self.figure),
            is_ratio: form::Figure::is_ratio(self.figure),
            to: self.to.as_deref(),
            bounds: Bounds { least: self.least, most: self.most },
            reason: self.reason.as_deref(),
            decided_by: &[],
        }
    }
}

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// Accesses per second relative to those of `to`.
    RateOver,
    /// Seconds from the shift until the rate has recovered.
    RecoverySeconds,
    /// Seconds until the rate has recovered, relative to those of `to`.
    RecoveryOver,
    /// Seconds from the shift until the share of accesses served by fast memory has recovered.
    ShareRecoverySeconds,
    /// Seconds until that share has recovered, relative to those of `to`.
    ShareRecoveryOver,
    /// CPU time of telemetry and policy, in per cent of a CPU.
    TelemetryPercent,
    /// CPU time of telemetry and policy, relative to that of `to`.
    TelemetryOver,
    /// Bytes of huge pages split, relative to those of `to`.
    SplitsOver,
    /// Skewed huge pages found, relative to those of `to`.
    CandidatesOver,
    /// Seconds until 95 % of the skewed huge pages are found.
    DetectionSeconds,
    /// Seconds until 95 % of the skewed huge pages are found, relative to those of `to`.
    DetectionOver,
    /// Mean access time relative to that of `to`.
    LatencyOver,
    /// Percentage of the accessed huge pages with skewness 0 at the end.
    UnskewedPercent,
}

impl form::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::RateOver => "rate over",
            Figure::RecoverySeconds => "seconds to recover",
            Figure::RecoveryOver => "time to recover over",
            Figure::TelemetryPercent => "telemetry, % of a CPU",
            Figure::TelemetryOver => "telemetry over",
            Figure::ShareRecoverySeconds => "seconds until fast memory serves as much again",
            Figure::ShareRecoveryOver => "time until fast memory serves as much again over",
            Figure::SplitsOver => "pages split over",
            Figure::CandidatesOver => "skewed huge pages found over",
            Figure::DetectionSeconds => "seconds to detect",
            Figure::DetectionOver => "time to detect over",
            Figure::LatencyOver => "mean time of an access over",
            Figure::UnskewedPercent => "huge pages of skewness 0, %",
        }
    }

    fn is_ratio(self) -> bool {
        use Figure::{
            DetectionSeconds, RecoverySeconds, ShareRecoverySeconds, TelemetryPercent,
            UnskewedPercent,
        };
        let plain = matches!(self, RecoverySeconds | ShareRecoverySeconds | DetectionSeconds);
        !plain && !matches!(self, TelemetryPercent | UnskewedPercent)
    }
}

impl Figure {
    fn of(self, outcome: &Outcome, shift: f64) -> Option<f64> {
        let rate = |row: &Row| Some(row.operations_per_second);
        match self {
            Figure::RateOver => Some(outcome.operations_per_second),
            Figure::LatencyOver => Some(1.0 / outcome.operations_per_second),
            Figure::RecoverySeconds | Figure::RecoveryOver => recovery(&outcome.rows, shift, rate),
            Figure::ShareRecoverySeconds | Figure::ShareRecoveryOver => {
                recovery(&outcome.rows, shift, |row| row.fast_tier_share)
            }
            Figure::TelemetryPercent | Figure::TelemetryOver => Some(telemetry(outcome) * 100.0),
            Figure::SplitsOver => Some(outcome.moves.split_bytes as f64),
            Figure::CandidatesOver => noted(outcome.notes.last()?, CANDIDATES),
            Figure::DetectionSeconds | Figure::DetectionOver => detection(&outcome.notes),
            Figure::UnskewedPercent => {
                noted(outcome.notes.last()?, "share of skewness 0").map(|share| share * 100.0)
            }
        }
    }
}

/// A policy's internal figure by name.
fn noted(notes: &Notes, name: &str) -> Option<f64> {
    notes.figures.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure)
}

/// Share of the final number of skewed pages at which they count as found.
const FOUND: f64 = 0.95;

/// Seconds until 95 % of the skewed huge pages were found; `None` if there are none.
fn detection(notes: &[Notes]) -> Option<f64> {
    let all = noted(notes.last()?, CANDIDATES).filter(|all| *all > 0.0)?;
    let enough = |notes: &&Notes| noted(notes, CANDIDATES).is_some_and(|n| n >= FOUND * all);
    notes.iter().find(enough).map(|notes| notes.at_seconds)
}

/// CPU time of telemetry and policy, as a share of a CPU.
fn telemetry(outcome: &Outcome) -> f64 {
    outcome.cpu.telemetry + outcome.cpu.interrupts + outcome.cpu.policy
}

/// Number of consecutive rows that make a recovery.
const STEADY: usize = 4;
/// Share of the final value at which a row counts as recovered.
const BACK: f64 = 0.95;

/// Seconds from `shift` to the beginning of the first four consecutive rows that reach 95 % of the
/// final value.
fn recovery(rows: &[Row], shift: f64, of: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let last = rows.len() - rows.len().checked_div(10)?.max(1).min(rows.len());
    let tail = &rows[last..];
    let end = tail.iter().map(&of).sum::<Option<f64>>()? / tail.len() as f64;
    let after: Vec<&Row> = rows.iter().filter(|row| row.end_seconds > shift).collect();
    let back = |rows: &[&Row]| rows.iter().all(|row| of(row).is_some_and(|n| n >= BACK * end));
    let first = after.windows(STEADY).position(back)?;
    let begin = if first == 0 { shift } else { after[first - 1].end_seconds };
    Some(begin - shift)
}

/// An experiment in one of its cases.
struct Stage {
    case: Case,
    experiment: Experiment,
    contestants: Vec<Contestant>,
}

/// An experiment in all its cases, with the claims about it.
struct Planned {
    name: &'static str,
    stages: Vec<Stage>,
    claims: Vec<Claim>,
}

impl Planned {
    fn parse(name: &'static str, text: &str) -> Result<Self> {
        let Text { case, claim, experiment } = read(name, text)?;
        drop(experiment);
        let alone = without_claims(text)?;
        let cases = if case.is_empty() { vec![Case::default()] } else { case };
        let stage = |case: Case| -> Result<Stage> {
            let experiment = case.experiment(name, &alone)?;
            let contestants = contestants(&experiment, &[])?;
            Ok(Stage { case, experiment, contestants })
        };
        let stages = cases.into_iter().map(stage).collect::<Result<Vec<_>>>()?;
        let planned = Self { name, stages, claims: claim };
        planned.claims.iter().try_for_each(|claim| planned.check(claim))?;
        Ok(planned)
    }

    /// Checks that a claim's policies and cases exist, and that it can be judged.
    fn check(&self, claim: &Claim) -> Result<()> {
        let bad = |what: String| {
            let place = format!("experiment {}: claim \"{}\"", self.name, claim.says);
            Err(Error::new(ErrorKind::Data, place).cause(what))
        };
        let (Some(stage), Some(other)) = (self.stage(&claim.case), self.stage(claim.to_case()))
        else {
            return bad("there is no such case".into());
        };
        let known = |stage: usize, named: &str| {
            self.stages[stage].contestants.iter().any(|contestant| contestant.text == named)
        };
        let of = |named: &str| known(stage, named) || known(other, named);
        claim.common().check_names(of).or_else(bad)
    }

    /// Index of a case; by default the first.
    fn stage(&self, case: &Option<String>) -> Option<usize> {
        match case {
            None => Some(0),
            Some(name) => self.stages.iter().position(|stage| stage.case.name == *name),
        }
    }
}

/// NEMO's experiments.
pub(super) struct Nemo;

impl Chapter for Nemo {
    fn name(&self) -> &'static str {
        "nemo"
    }

    fn title(&self) -> &'static str {
        "NEMO: telemetry in the memory controller"
    }

    fn page(&self) -> &'static str {
        "experiments/nemo/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        let all = catalogue::of(Kind::Nemo).chain(catalogue::of(Kind::Neighbour));
        all.map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, _: Extent) -> Result<Box<dyn chapter::Planned>> {
        if let Some(entry) = catalogue::find(Kind::Neighbour, name) {
            return Ok(Box::new(neighbour::Planned::parse(name, entry.text)?));
        }
        Ok(Box::new(Planned::parse(name, catalogue::text(Kind::Nemo, name)?)?))
    }

    fn part(&self, sections: &str) -> Result<String> {
        let text = format!("{sections}\n{}", rest()?);
        Ok(format!("{HEAD}{}{text}", tally(&text)))
    }

    fn frame(&self, _: Extent) -> Result<Frame> {
        Ok(Frame { after: rest()?, ..Frame::default() })
    }
}

impl chapter::Planned for Planned {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let stages = self.stages.iter().map(|stage| (&stage.experiment, &*stage.contestants));
        let outcomes = form::run(&stages.collect::<Vec<_>>(), runner)?;
        Ok((!runner.is_stopped()).then(|| section(self, &outcomes)))
    }
}

/// Judges a claim by the outcomes of its own case, and of the case of the policy in the
/// denominator. The figure is undefined for a policy that never recovers, or splits nothing.
fn judged(claim: &Claim, own: &[Outcome], other: &[Outcome]) -> Judgement {
    let times = claim.smaller.unwrap_or(1.0);
    let figure = |name: &str, outcomes: &[Outcome]| {
        let outcome = outcomes.iter().find(|outcome| outcome.policy == name)?;
        Some(claim.figure.of(outcome, claim.shift.unwrap_or(0.0))? * times)
    };
    claim.common().judge(
        Verdict::NotReproduced,
        figure(&claim.policy, own),
        claim.to.as_deref().map(|to| figure(to, other)),
    )
}

/// Writes the section of an experiment, from the outcomes of its policies, stage by stage.
fn section(planned: &Planned, outcomes: &[Vec<Outcome>]) -> Section {
    let Planned { name, stages, claims } = planned;
    let experiment = &stages[0].experiment;
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "{about}. Simulated {how}, {mapped} mapped, {time:?} of which {warm:?} are not measured, seed {seed}.\n\
         Source: {source}.\nCommand: `tierscope reproduce {name}`\n\n",
        about = experiment.about,
        how = experiment.mode.how(),
        mapped = about_size(experiment.bytes()),
        time = experiment.time,
        warm = experiment.warm_up,
        seed = experiment.seed,
        source = experiment.source,
    );
    for (stage, outcomes) in stages.iter().zip(outcomes) {
        if !stage.case.name.is_empty() {
            let _ = writeln!(text, "{}:\n", stage.case.name);
        }
        table(&mut text, outcomes);
    }
    let of =
        |case: &Option<String>| planned.stage(case).map_or(&[][..], |at| outcomes[at].as_slice());
    let row =
        |claim: &Claim| claim.common().row(judged(claim, of(&claim.case), of(claim.to_case())));
    let rows = claims.iter().map(row).collect();
    Section { name: (*name).to_owned(), before: text, rows, ..Section::default() }
}

fn table(text: &mut String, outcomes: &[Outcome]) {
    text.push_str(
        "| policy | accesses a second | over the first | fast-tier share | promoted | demoted | split | p50, p95, p99 ns | telemetry |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let first = outcomes.first().map_or(0.0, |outcome| outcome.operations_per_second);
    for outcome in outcomes {
        let moves = &outcome.moves;
        let share = outcome.fast_tier_share.map_or("–".into(), |s| format!("{:.1} %", s * 100.0));
        let latency = outcome
            .access_latency
            .map_or("–".into(), |l| format!("{:.0}, {:.0}, {:.0}", l.p50_ns, l.p95_ns, l.p99_ns));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.3} | {share} | {} | {} | {} | {latency} | {:.3} % |",
            outcome.policy,
            outcome.operations_per_second,
            outcome.operations_per_second / first.max(1e-9),
            about_size(moves.promoted_bytes),
            about_size(moves.demoted_bytes),
            about_size(moves.split_bytes),
            telemetry(outcome) * 100.0,
        );
    }
    text.push('\n');
}

/// Section on claims that cannot be judged here, with the reasons.
const ELSEWHERE: &str = "## What is not judged here\n
| claim | verdict | why |
|---|---|---|
| bandwidth by MBM within 0.1 % of the stores made (section 5.3.1) | not testable here | the simulated processor's counters are taken to be right; resctrl's are not emulated |
| the same by NEMO on a real kernel | measured there | `make bench-counters`, rows *tenants*; the simulated machine's are in nemo-neighbour |
| a neighbour held to its cap on a real kernel, and its victim's latency | measured there | `make bench-counters`, rows *qos*: latencies are the emulator's |
| table 2: share of the FPGA's logic and registers | not testable here | there is no circuit; ports and cycles are what one could be held against (`crates/nemo/src/cycle/ports.rs`) |
| FlexKVS, FASTER, Silo in requests a second (figures 3, 5, 6) | not testable here | figures' axes are not in the text; rates are judged by their ratios |
";

/// Counts the verdicts in a text.
fn tally(text: &str) -> String {
    use Verdict::{DirectionOnly, NotReproduced, NotTestable, Reproduced};
    let count = |verdict: Verdict| {
        let count = |end: &str| text.matches(&format!("| {}{end}", verdict.name())).count();
        format!("{} {}", count(" |") + count(": "), verdict.name())
    };
    let all = [Reproduced, DirectionOnly, NotReproduced, NotTestable].map(count);
    format!("Verdicts on this page: {}.\n\n", all.join(", "))
}

/// The sections of every page: section 6.1, and claims that are not judged.
fn rest() -> Result<String> {
    Ok(format!("{}\n{ELSEWHERE}", sums::section()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_claims() {
        for entry in catalogue::of(Kind::Nemo) {
            let planned = Planned::parse(entry.name, entry.text);
            assert!(planned.is_ok_and(|planned| !planned.claims.is_empty()), "{}", entry.name);
        }
        for entry in catalogue::of(Kind::Neighbour) {
            let planned = neighbour::Planned::parse(entry.name, entry.text);
            assert!(planned.is_ok_and(|planned| planned.claims() > 0), "{}", entry.name);
        }
    }

    #[test]
    fn a_change_without_a_value_is_refused() {
        let alone = catalogue::experiment("nemo-flexkvs-rates").expect("it is one of ours");
        let case = |set: &str| Case { name: "fast".into(), set: vec![set.into()] };
        assert!(case("seed=8").experiment("x", &alone).is_ok());
        let error = case("seed").experiment("x", &alone).map(drop).expect_err("it has no value");
        assert!(error.to_string().contains("case fast"), "{error}");
    }

    fn row(end_seconds: f64, rate: f64) -> Row {
        Row { end_seconds, operations_per_second: rate, ..Row::default() }
    }

    // Rows of 10 s; the hot set shifts at 20 s; the rate falls to 50 and has recovered from 50 s
    // on, after a short dip.
    #[test]
    fn recovery_needs_four_rows() {
        let rates = [100.0, 100.0, 50.0, 96.0, 60.0, 99.0, 100.0, 100.0, 100.0, 100.0];
        let rows: Vec<Row> =
            rates.iter().enumerate().map(|(n, rate)| row(10.0 * (n + 1) as f64, *rate)).collect();
        let rate = |row: &Row| Some(row.operations_per_second);
        assert_eq!(recovery(&rows, 20.0, rate), Some(30.0));
        assert_eq!(recovery(&rows[..6], 20.0, rate), None, "too little is left to tell");
        assert_eq!(recovery(&[], 20.0, rate), None);
        assert_eq!(recovery(&rows, 20.0, |row| row.fast_tier_share), None, "nobody tells");
    }

    #[test]
    fn verdicts_are_counted() {
        let text =
            "| a | reproduced |\n| b | not reproduced: so it is |\n| c | reproduced: well |\n";
        let counts = "2 reproduced, 0 direction only, 1 not reproduced, 0 not testable here";
        assert!(tally(text).contains(counts), "{}", tally(text));
    }

    // 38 of 40 pages are 95 %.
    #[test]
    fn detection_is_when_nearly_all_are_found() {
        let notes: Vec<Notes> = [0.0, 37.0, 38.0, 40.0]
            .into_iter()
            .enumerate()
            .map(|(n, found)| Notes {
                at_seconds: 5.0 * n as f64,
                figures: vec![(CANDIDATES, found)],
            })
            .collect();
        assert_eq!(detection(&notes), Some(10.0));
        assert_eq!(detection(&notes[..1]), None, "none is found");
    }
}
