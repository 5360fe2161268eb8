//! NEMO's experiments (`experiments/nemo`): policies fed by counters in the memory controller beside the same
//! fed by samples, section 6.1's sums, and what of the article cannot be judged here. A page of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_nemo::Plan;
use tierscope_nemo::plan::Inputs;
use tierscope_sim::experiment::{Change, Experiment, File, read};

use super::claims::{self, Told};
use super::verdict::{Bounds, Judgement, Verdict};
use crate::sim::tier::contestant::{Contestant, contestants};
use crate::sim::tier::outcome::{Outcome, Row};
use crate::units::show_bytes;
use crate::work::read_workload;

macro_rules! texts {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../experiments/nemo/", $name, ".toml")))),*]
    };
}

/// The experiments, by the names of their files.
const ALL: &[(&str, &str)] =
    texts!("flexkvs", "flexkvs-rates", "faster-small", "faster-large", "silo-1-2", "silo-1-8",);

/// What they run.
const WORKLOADS: &[(&str, &str)] = texts!(
    "workloads/flexkvs",
    "workloads/faster-small",
    "workloads/faster-large",
    "workloads/silo",
);

/// What all of them together are called on the command line; one of them is `nemo-flexkvs`.
pub(super) const GROUP: &str = "nemo";

const HEAD: &str = "# NEMO: telemetry in the memory controller\n
Made by `tierscope reproduce nemo -o FILE`, or with the names of single experiments. Everything is *simulated*, by densities; no parameter was
fitted to a claim. Rates are memory accesses a second after the warm-up. Recovery is the time from the shift of the hot set to the first of four rows
in a row with at least 95 % of the rate of the last tenth of the run. Telemetry is the CPU time of looking, of interrupts for it and of the policy's own
steps, 100 % a CPU.

";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    experiment: File,
    #[serde(default)]
    case: Vec<Case>,
    claim: Vec<Claim>,
}

/// The experiment with something changed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    set: Vec<String>,
}

/// A claim of the article about a policy.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Claim {
    paper: String,
    says: String,
    policy: String,
    /// In which case; the first one unless told.
    case: Option<String>,
    figure: Figure,
    to: Option<String>,
    /// Seconds at which the hot set shifts.
    shift: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    reason: Option<String>,
}

impl Claim {
    fn told(&self) -> Told<'_> {
        Told {
            paper: &self.paper,
            says: &self.says,
            policy: &self.policy,
            case: self.case.as_deref(),
            figure: claims::Figure::name(self.figure),
            is_ratio: claims::Figure::is_ratio(self.figure),
            to: self.to.as_deref(),
            bounds: Bounds { least: self.least, most: self.most },
            reason: self.reason.as_deref(),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// Accesses a second over those of `to`.
    RateOver,
    /// Seconds from the shift until the rate is back.
    RecoverySeconds,
    /// The same over those of `to`.
    RecoveryOver,
    /// CPU time of telemetry and policy, in percent of a CPU.
    TelemetryPercent,
    /// The same over those of `to`.
    TelemetryOver,
    /// Bytes of huge pages split over those of `to`.
    SplitsOver,
}

impl claims::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::RateOver => "rate over",
            Figure::RecoverySeconds => "seconds to recover",
            Figure::RecoveryOver => "time to recover over",
            Figure::TelemetryPercent => "telemetry, % of a CPU",
            Figure::TelemetryOver => "telemetry over",
            Figure::SplitsOver => "pages split over",
        }
    }

    fn is_ratio(self) -> bool {
        !matches!(self, Figure::RecoverySeconds | Figure::TelemetryPercent)
    }
}

impl Figure {
    fn of(self, outcome: &Outcome, shift: f64) -> Option<f64> {
        match self {
            Figure::RateOver => Some(outcome.operations_per_second),
            Figure::RecoverySeconds | Figure::RecoveryOver => recovery(&outcome.rows, shift),
            Figure::TelemetryPercent | Figure::TelemetryOver => Some(telemetry(outcome) * 100.0),
            Figure::SplitsOver => Some(outcome.moves.split_bytes as f64),
        }
    }
}

/// CPU time of telemetry and policy, a share of a CPU.
fn telemetry(outcome: &Outcome) -> f64 {
    outcome.cpu.telemetry + outcome.cpu.interrupts + outcome.cpu.policy
}

/// Rows in a row that make a recovery.
const STEADY: usize = 4;
/// Share of the last rate from which it counts.
const BACK: f64 = 0.95;

/// Seconds from `shift` to the beginning of the first of four rows at the rate of the end.
fn recovery(rows: &[Row], shift: f64) -> Option<f64> {
    let last = rows.len() - rows.len().checked_div(10)?.max(1).min(rows.len());
    let tail = &rows[last..];
    let end = tail.iter().map(|row| row.operations_per_second).sum::<f64>() / tail.len() as f64;
    let after: Vec<&Row> = rows.iter().filter(|row| row.end_seconds > shift).collect();
    let back = |rows: &[&Row]| rows.iter().all(|row| row.operations_per_second >= BACK * end);
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

/// An experiment, who places memory in it, and what is claimed.
pub(super) struct Planned {
    name: &'static str,
    stages: Vec<Stage>,
    claims: Vec<Claim>,
}

/// The text of a workload that stands beside the experiments, by its path: it is built in, whatever
/// directory this runs in.
pub(crate) fn workload_text(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("experiments/nemo/")?.strip_suffix(".toml")?;
    WORKLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The experiment of that name, without its claims, as a file of its own would tell it.
pub(crate) fn experiment_text(name: &str) -> Option<String> {
    let (_, text) = ALL.iter().find(|(known, _)| is(name, known))?;
    claims::alone(text).ok()
}

impl Planned {
    fn parse(name: &'static str, text: &str) -> Result<Self> {
        let Text { case, claim, experiment } = read(name, text)?;
        drop(experiment);
        let alone = claims::alone(text)?;
        let cases = if case.is_empty() { vec![Case::default()] } else { case };
        let stage = |case: Case| -> Result<Stage> {
            let changes: Vec<Change> = case.set.iter().filter_map(|set| change(set)).collect();
            let experiment = Experiment::changed(name, &alone, &changes, read_workload)?;
            let contestants = contestants(&experiment, &[])?;
            Ok(Stage { case, experiment, contestants })
        };
        let stages = cases.into_iter().map(stage).collect::<Result<Vec<_>>>()?;
        let planned = Self { name, stages, claims: claim };
        planned.claims.iter().try_for_each(|claim| planned.check(claim))?;
        Ok(planned)
    }

    /// Whom a claim is about, and that it can be judged.
    fn check(&self, claim: &Claim) -> Result<()> {
        let bad = |what: String| {
            let place = format!("experiment {}: claim \"{}\"", self.name, claim.says);
            Err(Error::new(ErrorKind::Data, place).cause(what))
        };
        let Some(stage) = self.stage(claim) else { return bad("there is no such case".into()) };
        claim.told().check(&stage.contestants).or_else(bad)
    }

    fn stage(&self, claim: &Claim) -> Option<&Stage> {
        match &claim.case {
            None => self.stages.first(),
            Some(name) => self.stages.iter().find(|stage| stage.case.name == *name),
        }
    }
}

/// `key=value`.
fn change(set: &str) -> Option<Change> {
    let (key, value) = set.split_once('=')?;
    Some(Change { key: key.into(), value: value.into() })
}

/// Whether a name is one of ours, or all of them.
pub(super) fn knows(name: &str) -> bool {
    name == GROUP || ALL.iter().any(|(known, _)| is(name, known))
}

fn is(name: &str, known: &str) -> bool {
    name.strip_prefix("nemo-") == Some(known)
}

/// The experiments of these names.
pub(super) fn choose(names: &[String]) -> Result<Vec<Planned>> {
    let wanted = |known: &str| names.iter().any(|name| name == GROUP || is(name, known));
    let chosen = ALL.iter().filter(|(name, _)| wanted(name));
    chosen.map(|(name, text)| Planned::parse(name, text)).collect()
}

/// An experiment and what its policies came to, stage by stage.
pub(super) struct Ran {
    planned: Planned,
    outcomes: Vec<Vec<Outcome>>,
}

/// Runs all.
pub(super) fn run(planned: Vec<Planned>, stop: &Arc<AtomicBool>) -> Result<Vec<Ran>> {
    let stages = planned.iter().flat_map(|plan| &plan.stages);
    let stages = stages.map(|stage| (&stage.experiment, &*stage.contestants));
    let mut outcomes = claims::run(&stages.collect::<Vec<_>>(), stop)?.into_iter();
    let ran = planned.into_iter().map(|planned| {
        let outcomes = outcomes.by_ref().take(planned.stages.len()).collect();
        Ran { planned, outcomes }
    });
    Ok(ran.collect())
}

/// Judges a claim by the outcomes of its case. Who never recovers, or splits nothing, has no such figure.
fn judged(claim: &Claim, outcomes: &[Outcome]) -> Judgement {
    let of = |outcome: &Outcome| claim.figure.of(outcome, claim.shift.unwrap_or(0.0));
    claim.told().judged(outcomes, Verdict::NotReproduced, of)
}

/// The section of an experiment.
fn section(ran: &Ran) -> String {
    let Planned { name, stages, claims } = &ran.planned;
    let experiment = &stages[0].experiment;
    let mut text = String::new();
    // Writing to a string does not fail, here and below.
    let _ = write!(
        text,
        "## nemo-{name}\n{about}. Simulated {how}, {mapped} mapped, {time:?} of which {warm:?} are not measured, seed {seed}.\n\
         Source: {source}.\nCommand: `tierscope reproduce nemo-{name}`\n\n",
        about = experiment.about,
        how = experiment.mode.how(),
        mapped = show_bytes(experiment.bytes()),
        time = experiment.time,
        warm = experiment.warm_up,
        seed = experiment.seed,
        source = experiment.source,
    );
    for (stage, outcomes) in stages.iter().zip(&ran.outcomes) {
        if !stage.case.name.is_empty() {
            let _ = writeln!(text, "{}:\n", stage.case.name);
        }
        table(&mut text, outcomes);
    }
    text.push_str(claims::TABLE);
    for claim in claims {
        let at = stages
            .iter()
            .position(|stage| claim.case.as_ref().is_none_or(|case| stage.case.name == *case));
        let outcomes = at.map_or(&[][..], |at| ran.outcomes[at].as_slice());
        claim.told().row(judged(claim, outcomes), &mut text);
    }
    text
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
            show_bytes(moves.promoted_bytes),
            show_bytes(moves.demoted_bytes),
            show_bytes(moves.split_bytes),
            telemetry(outcome) * 100.0,
        );
    }
    text.push('\n');
}

/// A sum of section 6.1 beside ours.
struct Sum {
    says: &'static str,
    paper: f64,
    /// How far off it may be: what rounding explains.
    within: f64,
    ours: f64,
    of: String,
}

/// Section 6.1: what each assumption gives.
fn scalability() -> Result<String> {
    const MIB: f64 = 1024.0 * 1024.0;
    let plan = Plan::new(Inputs::PROTOTYPE)?;
    let mut text = String::from(
        "## Section 6.1: sums\nCommand: `tierscope nemo plan`\n\n\
         | SRAM counted | MiB | sweep by M·τ·W / (SRAM·G), s | for 1 TiB, MiB |\n|---|---|---|---|\n",
    );
    for reading in &plan.readings {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.1} |",
            reading.assumption,
            reading.sram / MIB,
            reading.sweep,
            reading.for_a_tebibyte / MIB
        );
    }
    let nearest = |paper: f64, of: &dyn Fn(&tierscope_nemo::plan::Reading) -> f64| {
        let off = |reading: &&tierscope_nemo::plan::Reading| (of(reading) - paper).abs();
        plan.readings
            .iter()
            .min_by(|a, b| off(a).total_cmp(&off(b)))
            .map(|reading| (of(reading), format!("if SRAM is {}", reading.assumption)))
    };
    let per_pipeline = |reading: &tierscope_nemo::plan::Reading| {
        reading.sram / plan.inputs.pipelines as f64 / 1024.0
    };
    let mib = nearest(1.4, &|reading| reading.sram / MIB).unwrap_or_default();
    let tebibyte = nearest(90.0, &|reading| reading.for_a_tebibyte / MIB).unwrap_or_default();
    let pipeline = nearest(150.0, &per_pipeline).unwrap_or_default();
    let sums = [
        Sum {
            says: "a sweep over 16 GiB takes 37 s",
            paper: 37.0,
            within: 0.5,
            ours: plan.sweep_in_periods,
            of: "in whole periods".into(),
        },
        Sum { says: "1.4 MiB of SRAM", paper: 1.4, within: 0.05, ours: mib.0, of: mib.1 },
        Sum {
            says: "90 MiB for 1 TiB",
            paper: 90.0,
            within: 5.0,
            ours: tebibyte.0,
            of: tebibyte.1,
        },
        Sum {
            says: "150 KiB a pipeline",
            paper: 150.0,
            within: 8.0,
            ours: pipeline.0,
            of: pipeline.1,
        },
    ];
    text.push_str("\n| claim | paper | ours | verdict |\n|---|---|---|---|\n");
    for Sum { says, paper, within, ours, of } in sums {
        let verdict = if (ours - paper).abs() <= within {
            Verdict::Reproduced
        } else {
            Verdict::NotReproduced
        };
        let _ = writeln!(text, "| {says} | {paper} | {ours:.2} {of} | {} |", verdict.name());
    }
    text.push_str(
        "\nNo single way to count gives all four: the 37 s need the states of one channel, the 1.4 MiB and 90 MiB the memory blocks that the \
         FPGA spends (4.4 % of 32 MiB).\n",
    );
    Ok(text)
}

/// What cannot be judged here, and why.
const ELSEWHERE: &str = "## What is not judged here\n
| claim | verdict | why |
|---|---|---|
| 10.4 times faster detection of 95 % of the split candidates, independent of the fast tier's size (section 5.2.1, figure 7) | not testable here | how many candidates there are by MEMTIS's own score is not recorded; how many pages each policy splits is, above |
| 23 % lower latency (abstract) | not testable here | of which figure it is told is not said; latencies of memory accesses stand in the tables above |
| bandwidth by NEMO within 0.1 % of the stores made (section 5.3.1) | measured on a real kernel | `make bench-count`, rows *tenants* |
| p99 +22 % unthrottled, 5.2 % by NEMO and 5.5 % by MBM (figure 8) | not testable here | the neighbour is held to its cap on a real kernel (`make bench-count`, rows *qos*), but emulated: latencies are the emulator's, and it has no MBM |
| 350 times less CPU than polling MBM at 1 ms (figure 9) | not testable here | resctrl's monitoring is not emulated; what notifications cost is in rows *qos* |
";

/// The page of these.
pub(super) fn page(ran: &[Ran], whole: bool) -> Result<String> {
    let sections: Vec<String> = ran.iter().map(section).collect();
    let mut text = format!("{HEAD}{}", sections.join("\n"));
    if whole {
        let _ = write!(text, "\n{}\n{ELSEWHERE}", scalability()?);
    }
    Ok(text)
}

/// Whether the page holds each experiment's section as it would be written now.
pub(super) fn check(path: &Path, ran: &[Ran]) -> Result<()> {
    let text = super::read_page(path)?;
    match ran.iter().find(|ran| !text.contains(&section(ran))) {
        None => Ok(()),
        Some(ran) => {
            let name = format!("nemo-{}", ran.planned.name);
            Err(super::stale(path, &name, "reproduce nemo"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_whole() {
        let all = choose(&[GROUP.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(all.len(), ALL.len());
        assert!(all.iter().all(|plan| !plan.claims.is_empty()));
        assert!(knows("nemo-flexkvs") && knows("nemo") && !knows("flexkvs"));
        assert!(experiment_text("nemo-silo-1-8").is_some_and(|text| !text.contains("claim")));
    }

    fn row(end_seconds: f64, rate: f64) -> Row {
        Row {
            end_seconds,
            operations_per_second: rate,
            fast_tier_share: None,
            promoted_bytes: 0,
            demoted_bytes: 0,
            reaccessed_bytes: None,
            resident_bytes: None,
            refaulted_bytes: None,
        }
    }

    // Rows of 10 s; the set shifts at 20, the rate falls to 50 and is back from 50 s on, but for a dent.
    #[test]
    fn recovery_needs_four_rows() {
        let rates = [100.0, 100.0, 50.0, 96.0, 60.0, 99.0, 100.0, 100.0, 100.0, 100.0];
        let rows: Vec<Row> =
            rates.iter().enumerate().map(|(n, rate)| row(10.0 * (n + 1) as f64, *rate)).collect();
        assert_eq!(recovery(&rows, 20.0), Some(30.0));
        assert_eq!(recovery(&rows[..6], 20.0), None, "too little is left to tell");
        assert_eq!(recovery(&[], 20.0), None);
    }

    #[test]
    fn the_sums_of_section_6_1_are_judged() {
        let text = scalability().expect("the prototype can be planned");
        assert!(text.contains("| a sweep over 16 GiB takes 37 s | 37 | 37.00"), "{text}");
        assert_eq!(text.matches("| reproduced |").count(), 4, "{text}");
    }
}
