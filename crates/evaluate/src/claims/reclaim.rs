//! The papers' experiments on reclaim: policies in comparison, and claims about them.

use std::fmt::Write as _;

use serde::Deserialize;
use tierscope_core::units::{about_size, time};
use tierscope_core::{Error, ErrorKind, Result};

use super::chapter::{Chapter, Extent, Planned};
use super::form::{self, Ran};
use super::row::Section;
use super::verdict::Judgement;
use crate::catalogue::{self, Kind};
use crate::contest::{Outcome, Row};
use crate::runner::Runner;

const HEAD: &str = "
Measured by `tierscope reproduce reclaim -o .`. Everything is *simulated*, by densities; no parameter was fitted to a claim. The first scan:
the time that the looks at page tables of the first walk took, which meets memory just populated. Cycles: of these looks and of the policy's own steps,
at the machine's clock.

";

type Claim = form::Claim<Figure>;

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// CPU seconds of the first walk, including the policy's own steps.
    ScanSeconds,
    /// CPU seconds of the first walk, relative to that of `to`.
    ScanSecondsOver,
    /// Billions of cycles of the first walk.
    ScanGcycles,
    /// Cycles of the first walk, relative to that of `to`.
    ScanGcyclesOver,
    /// CPU time of telemetry and policy over the run, relative to that of `to`.
    CpuOver,
    /// Seconds until a GB was given back, relative to those of `to`.
    FirstGbOver,
    /// Operations per second relative to those of `to`.
    RateOver,
    /// Mean resident bytes over the run, relative to those of `to`.
    ResidentOver,
}

impl form::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::ScanSeconds => "seconds of the first scan",
            Figure::ScanSecondsOver => "seconds of the first scan over",
            Figure::ScanGcycles => "G cycles of the first scan",
            Figure::ScanGcyclesOver => "cycles of the first scan over",
            Figure::CpuOver => "CPU of looking and deciding over",
            Figure::FirstGbOver => "time to the first GB over",
            Figure::RateOver => "rate over",
            Figure::ResidentOver => "mean resident bytes over",
        }
    }

    /// Whether it is a ratio to the same quantity of another policy.
    fn is_ratio(self) -> bool {
        !matches!(self, Figure::ScanSeconds | Figure::ScanGcycles)
    }
}

impl Figure {
    fn of(self, outcome: &Outcome, mhz: f64) -> Option<f64> {
        match self {
            Figure::ScanSeconds | Figure::ScanSecondsOver => {
                let row = after_first_walk(outcome)?;
                Some(row.telemetry_seconds + row.policy_seconds)
            }
            Figure::ScanGcycles | Figure::ScanGcyclesOver => {
                Some(Figure::ScanSeconds.of(outcome, mhz)? * mhz / 1e3)
            }
            Figure::CpuOver => Some(outcome.cpu.telemetry + outcome.cpu.policy),
            Figure::FirstGbOver => first_gb(outcome),
            Figure::RateOver => Some(outcome.operations_per_second),
            Figure::ResidentOver => mean_resident(outcome),
        }
    }
}

/// State at the end of the first walk, at the latest when the next one begins: the walk over memory
/// that was just populated, of which alone a paper's "one full scan" can be.
fn after_first_walk(outcome: &Outcome) -> Option<&Row> {
    let interval = outcome.settings.iter().find(|(name, _)| name == "interval")?;
    let next = time(&interval.1).ok()?.as_secs_f64();
    outcome.rows.iter().take_while(|row| row.end_seconds <= next).last()
}

/// Seconds until a GB was given back; infinite if that never happened.
fn first_gb(outcome: &Outcome) -> Option<f64> {
    let first = outcome.rows.first()?.resident_bytes?;
    let gone = |row: &&Row| row.resident_bytes.is_some_and(|left| left + 1_000_000_000 <= first);
    Some(outcome.rows.iter().find(gone).map_or(f64::INFINITY, |row| row.end_seconds))
}

fn mean_resident(outcome: &Outcome) -> Option<f64> {
    let known = outcome.rows.iter().filter_map(|row| row.resident_bytes);
    let (sum, rows) = known.fold((0.0, 0), |(sum, rows), bytes| (sum + bytes as f64, rows + 1));
    (rows > 0).then(|| sum / f64::from(rows))
}

/// An experiment that compares reclaim policies, with at least one claim.
type Race = form::Planned<Figure>;

fn parse(name: &'static str, text: &str, extent: Extent) -> Result<Race> {
    let race = Race::parse(name, text, extent)?;
    match race.claims.is_empty() {
        true => Err(Error::new(ErrorKind::Data, format!("experiment {name}"))
            .cause("nothing is claimed of it")),
        false => Ok(race),
    }
}

/// Experiments on reclaim policies.
pub(super) struct Reclaim;

impl Chapter for Reclaim {
    fn name(&self) -> &'static str {
        "reclaim"
    }

    fn title(&self) -> &'static str {
        "Telescope: claims about reclaim"
    }

    fn page(&self) -> &'static str {
        "experiments/telescope/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        catalogue::of(Kind::Reclaim).map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, extent: Extent) -> Result<Box<dyn Planned>> {
        Ok(Box::new(parse(name, catalogue::text(Kind::Reclaim, name)?, extent)?))
    }

    fn part(&self, sections: &str) -> Result<String> {
        Ok(format!("{HEAD}{sections}"))
    }
}

impl Planned for Race {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let ran = self.ran(runner)?;
        Ok((!runner.is_stopped()).then(|| section(self, &ran)))
    }
}

/// Judges a claim by the outcomes of its experiment.
fn judged(claim: &Claim, seeds: &[Vec<Outcome>], mhz: f64) -> Judgement {
    claim.common().judged(seeds, |outcome| claim.figure.of(outcome, mhz))
}

/// Writes the section of an experiment.
fn section(race: &Race, ran: &Ran) -> Section {
    let seeds = &ran.seeds[..];
    let Race { name, experiment, claims, .. } = race;
    let outcomes = seeds.first().map_or(&[][..], |outcomes| outcomes);
    let hardware = &experiment.setup.hardware;
    let mhz = f64::from(hardware.processor.mhz);
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "{about}. {how}, {mapped} mapped, {hardware}, {time:?}, {seeds}.\nSource: {source}.\n\
         Command: `tierscope reproduce {name}`\n\n\
         | policy | {unit} a second | seconds of the first scan | G cycles of the first scan | reclaimed | refaulted | mover CPU |\n\
         |---|---|---|---|---|---|---|\n",
        about = experiment.about,
        how = experiment.mode.how(),
        mapped = about_size(experiment.bytes()),
        hardware = hardware.name,
        time = experiment.time,
        seeds = form::of_seeds(experiment.seed, seeds.len()),
        source = experiment.source,
        unit = outcomes.first().map_or("operations", |outcome| outcome.unit.as_str()),
    );
    for outcome in outcomes {
        let shown =
            |figure: Figure| figure.of(outcome, mhz).map_or("–".into(), |f| format!("{f:.3}"));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {} | {} | {} | {} | {:.1} % |",
            outcome.policy,
            outcome.operations_per_second,
            shown(Figure::ScanSeconds),
            shown(Figure::ScanGcycles),
            about_size(outcome.moves.reclaimed_bytes),
            about_size(outcome.moves.refaulted_bytes),
            outcome.cpu.mover * 100.0,
        );
    }
    form::over_time(outcomes, "In memory at", |row| row.resident_bytes, &mut text);
    text.push('\n');
    let judge = |claim: &Claim, seeds: &[_]| claim.common().row(judged(claim, seeds, mhz));
    let rows = |seeds: &[_]| claims.iter().map(|claim| judge(claim, seeds)).collect();
    let after = race.at_ends(ran, rows);
    Section {
        name: (*name).to_owned(),
        before: text,
        rows: rows(seeds),
        after,
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;
    use crate::contest::Shares;

    fn entry() -> &'static catalogue::Entry {
        catalogue::of(Kind::Reclaim).next().expect("there is one")
    }

    #[test]
    fn an_experiment_without_claims_is_refused() {
        let (experiment, _) = entry().text.split_once("[[claim]]").expect("it has claims");
        let error = parse("x", experiment, Extent::QUICK).expect_err("it has none now");
        assert!(error.to_string().contains("nothing is claimed"), "{error}");
    }

    fn outcome(policy: &str, telemetry: f64, resident: u64) -> Outcome {
        let row = |end_seconds: f64, bytes| Row {
            end_seconds,
            resident_bytes: Some(bytes),
            telemetry_seconds: telemetry * end_seconds,
            ..Row::default()
        };
        Outcome {
            policy: policy.into(),
            settings: vec![("interval".into(), "60s".into())],
            seconds: 120.0,
            operations_per_second: 1.0,
            cpu: Shares { telemetry, ..Shares::default() },
            rows: vec![row(60.0, resident), row(120.0, resident / 2)],
            ..Outcome::default()
        }
    }

    // A tenth of a CPU for 120 s, and a walk each 60 s: 6 s of the first, 18 G cycles at 3 GHz. All
    // of two GB is there after 60 s, half of it after 120 s.
    #[test]
    fn the_first_scan_and_the_first_gb_are_judged() {
        let slow = outcome("linear", 0.1, 2_000_000_000);
        assert_eq!(Figure::FirstGbOver.of(&slow, 3000.0), Some(120.0));
        let slow = outcome("linear", 0.1, 1000);
        assert_eq!(Figure::FirstGbOver.of(&slow, 3000.0), Some(f64::INFINITY));
        assert_eq!(Figure::ScanSeconds.of(&slow, 3000.0), Some(6.0));
        assert_eq!(Figure::ScanGcycles.of(&slow, 3000.0), Some(18.0));
        assert_eq!(Figure::ResidentOver.of(&slow, 3000.0), Some(750.0));
    }

    #[test]
    fn verdicts_are_given_and_memory_is_shown_over_time() {
        let seeds = [vec![outcome("linear", 0.1, 1000), outcome("above", 0.02, 900)]];
        let claim = |figure, most: f64, least: Option<f64>| Claim {
            paper: String::new(),
            says: String::new(),
            policy: "above".into(),
            figure,
            to: Some("linear".into()),
            phase: None,
            least,
            most: Some(most),
            reason: None,
            decided_by: Vec::new(),
        };
        let of = |claim: Claim| judged(&claim, &seeds, 3000.0).verdict;
        assert_eq!(of(claim(Figure::ScanSecondsOver, 0.96, Some(0.79))), Verdict::DirectionOnly);
        assert_eq!(of(claim(Figure::ResidentOver, 1.0, None)), Verdict::Reproduced);
        let race = parse(entry().name, entry().text, Extent::QUICK)
            .unwrap_or_else(|error| panic!("{error}"));
        let ran = Ran { seeds: seeds.to_vec(), ..Ran::default() };
        let text = section(&race, &ran).before;
        assert!(text.contains("| above | 900 B | 450 B |"), "{text}");
    }
}
