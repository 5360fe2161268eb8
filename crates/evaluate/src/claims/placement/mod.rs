//! The papers' experiments on placement: policies in comparison, and claims about them.

mod frequencies;
mod gains;
mod kinds;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::Result;
use tierscope_core::units::{about_size, time};

use super::chapter::{Chapter, Extent, Measured, Planned};
use super::form::{self, Ran};
use super::row::{Row, Section};
use super::verdict::Judgement;
use crate::catalogue::{self, Kind};
use crate::contest::{Outcome, Shares};
use crate::runner::Runner;

/// Text before the sections, after the command that makes them.
const HEAD: &str = "or with the names of single experiments. Everything is *simulated*; no parameter was
fitted to a claim. Rates are of the first process after the warm-up. Sizes and times of the exact runs are small ones of our own, so that each
takes minutes: ratios of footprint to fast memory are kept, sizes are not. The paces of the daemons (1024 pages a second) are in each source.

";

type Claim = form::Claim<Figure>;

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// Operations per second relative to those of `to`.
    RateOver,
    /// 95th percentile of latency relative to that of `to`.
    P95Over,
    /// Share of the promoted bytes touched afterwards, relative to that of `to`.
    ReuseOver,
    /// Pages of 4 KiB promoted per `interval` of the policy, which is one scan of its daemon.
    PagesAScan,
    /// Gigabytes promoted.
    PromotedGb,
    /// Bytes promoted, relative to those of `to`.
    PromotedOver,
    /// CPU time of telemetry, of the policy and of moving pages, relative to that of `to`.
    CpuOver,
}

impl form::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::RateOver => "rate over",
            Figure::P95Over => "P95 latency over",
            Figure::ReuseOver => "share re-used over",
            Figure::PagesAScan => "pages promoted a scan",
            Figure::PromotedGb => "GB promoted",
            Figure::PromotedOver => "bytes promoted over",
            Figure::CpuOver => "CPU over",
        }
    }

    /// Whether it is a ratio to the same quantity of another policy.
    fn is_ratio(self) -> bool {
        !matches!(self, Figure::PagesAScan | Figure::PromotedGb)
    }
}

impl Figure {
    /// Value for an outcome, or for a phase of it; latencies and shares of a phase are not known.
    fn of(self, outcome: &Outcome, phase: Option<&str>) -> Option<f64> {
        if let Some(name) = phase {
            let phase = outcome.phases.iter().find(|phase| phase.name == name)?;
            return match self {
                Figure::RateOver => Some(phase.operations_per_second),
                Figure::PromotedGb | Figure::PromotedOver => {
                    Some(phase.promoted_bytes as f64 / 1e9)
                }
                _ => None,
            };
        }
        match self {
            Figure::RateOver => Some(outcome.operations_per_second),
            // Of operations: that of single accesses is another quantity.
            Figure::P95Over => match &outcome.latency {
                Some(latency) => Some(latency.p95_ns as f64),
                None => outcome.request_latency.map(|latency| latency.p95_ns),
            },
            Figure::ReuseOver => outcome.moves.reaccess_share,
            Figure::PagesAScan => {
                let scans = outcome.seconds / interval(outcome)?.as_secs_f64();
                Some(outcome.moves.promoted_bytes as f64 / 4096.0 / scans)
            }
            Figure::PromotedGb | Figure::PromotedOver => {
                Some(outcome.moves.promoted_bytes as f64 / 1e9)
            }
            Figure::CpuOver => {
                let Shares { telemetry, interrupts, policy, mover } = outcome.cpu;
                Some(telemetry + interrupts + policy + mover)
            }
        }
    }
}

/// Interval of a policy's daemon; `None` if the policy has no such setting.
fn interval(outcome: &Outcome) -> Option<Duration> {
    let (_, text) = outcome.settings.iter().find(|(name, _)| name == "interval")?;
    time(text).ok().filter(|interval| !interval.is_zero())
}

/// An experiment that compares policies, with claims about them.
type Race = form::Planned<Figure>;

/// Experiments of MULTI-CLOCK on placement policies, and on pages without a policy.
pub(super) struct Placement;

impl Chapter for Placement {
    fn name(&self) -> &'static str {
        "placement"
    }

    fn title(&self) -> &'static str {
        "MULTI-CLOCK: claims about placement policies"
    }

    fn page(&self) -> &'static str {
        "experiments/multi-clock/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        let all = catalogue::of(Kind::Pages).chain(catalogue::of(Kind::Placement));
        all.map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, extent: Extent) -> Result<Box<dyn Planned>> {
        let Some(pages) = catalogue::find(Kind::Pages, name) else {
            let text = catalogue::text(Kind::Placement, name)?;
            return Ok(Box::new(Race::parse(name, text, extent)?));
        };
        // Both observe the pages that a text describes.
        let write = match name {
            "figure-1" => kinds::section,
            _ => frequencies::section,
        };
        Ok(Box::new(Look { name, text: pages.text, write }))
    }

    fn part(&self, sections: &str) -> Result<String> {
        Ok(part(self, sections))
    }
}

/// Experiments of Telescope on tiering guided by regions.
pub(super) struct Tiering;

impl Chapter for Tiering {
    fn name(&self) -> &'static str {
        "tiering"
    }

    fn title(&self) -> &'static str {
        "Telescope: claims about tiering"
    }

    fn page(&self) -> &'static str {
        "experiments/telescope/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        catalogue::of(Kind::Tiering).map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, extent: Extent) -> Result<Box<dyn Planned>> {
        Ok(Box::new(Race::parse(name, catalogue::text(Kind::Tiering, name)?, extent)?))
    }

    fn part(&self, sections: &str) -> Result<String> {
        Ok(part(self, sections))
    }
}

fn part(chapter: &dyn Chapter, sections: &str) -> String {
    format!("\nMeasured by `tierscope reproduce {} -o .`, {HEAD}{sections}", chapter.name())
}

/// An observation of pages, without a policy.
struct Look {
    name: &'static str,
    text: &'static str,
    /// Observes the pages that a TOML text describes, and writes the section.
    write: fn(&str, &str) -> Result<Section>,
}

impl Planned for Look {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let section = (self.write)(self.name, self.text)?;
        Ok((!runner.is_stopped()).then_some(section))
    }
}

impl Planned for Race {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        Ok(self.measure(runner)?.map(|measured| measured.section))
    }

    fn measure(&self, runner: &Runner<'_>) -> Result<Option<Measured>> {
        let ran = self.ran(runner)?;
        let measured = || Measured { section: section(self, &ran), outcomes: ran.seeds };
        Ok((!runner.is_stopped()).then(measured))
    }

    fn set_up(&self) -> &str {
        &self.set_up
    }

    fn judged(&self, outcomes: &[Vec<Outcome>]) -> Vec<Row> {
        rows(self, outcomes)
    }
}

/// Judges all claims by the outcomes of their experiment.
fn rows(race: &Race, seeds: &[Vec<Outcome>]) -> Vec<Row> {
    race.claims.iter().map(|claim| claim.common().row(judged(claim, seeds))).collect()
}

/// Judges a claim by the outcomes of its experiment.
fn judged(claim: &Claim, seeds: &[Vec<Outcome>]) -> Judgement {
    claim.common().judged(seeds, |outcome| claim.figure.of(outcome, claim.phase.as_deref()))
}

/// Writes the section of an experiment.
fn section(race: &Race, ran: &Ran) -> Section {
    let seeds = &ran.seeds[..];
    let Race { name, experiment, claims, variant_of, .. } = race;
    let outcomes = seeds.first().map_or(&[][..], |outcomes| outcomes);
    let hardware = &experiment.setup.hardware;
    let tiers: Vec<String> = hardware
        .tiers
        .iter()
        .map(|tier| format!("{} of {}", about_size(tier.mib << 20), tier.name))
        .collect();
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "{about}. {how}, {mapped} mapped, {hardware} with {tiers}, {time:?} of which {warm:?} are not measured, \
         {seeds}.\nSource: {source}.\nCommand: `tierscope reproduce {name}`\n\n\
         | policy | {unit} a second | over the first | fast-tier share | promoted | demoted | wasted | re-used | telemetry, policy, mover CPU |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        about = experiment.about,
        how = experiment.mode.how(),
        mapped = about_size(experiment.bytes()),
        hardware = hardware.name,
        tiers = tiers.join(" and "),
        time = experiment.time,
        warm = experiment.warm_up,
        seeds = form::of_seeds(experiment.seed, seeds.len()),
        source = experiment.source,
        unit = outcomes.first().map_or("operations", |outcome| outcome.unit.as_str()),
    );
    let first = outcomes.first().map_or(0.0, |outcome| outcome.operations_per_second);
    for outcome in outcomes {
        let (moves, cpu) = (&outcome.moves, &outcome.cpu);
        let percent =
            |share: Option<f64>| share.map_or("–".into(), |s| format!("{:.1} %", s * 100.0));
        let telemetry = cpu.telemetry + cpu.interrupts;
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.3} | {} | {} | {} | {} | {} | {:.2}, {:.2}, {:.2} % |",
            outcome.policy,
            outcome.operations_per_second,
            outcome.operations_per_second / first.max(1e-9),
            percent(outcome.fast_tier_share),
            about_size(moves.promoted_bytes),
            about_size(moves.demoted_bytes),
            about_size(moves.wasted_bytes),
            percent(moves.reaccess_share),
            telemetry * 100.0,
            cpu.policy * 100.0,
            cpu.mover * 100.0
        );
    }
    form::over_time(outcomes, "Promoted until", |row| Some(row.promoted_bytes), &mut text);
    gains::write(seeds, &mut text);
    text.push_str(if claims.is_empty() { "\nThe paper asks, and claims nothing.\n" } else { "\n" });
    let after = race.at_ends(ran, |seeds| rows(race, seeds));
    let (name, variant_of) = ((*name).to_owned(), variant_of.clone());
    Section { name, variant_of, before: text, rows: rows(race, seeds), after }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;

    #[test]
    fn every_experiment_is_whole() {
        for entry in catalogue::of(Kind::Placement).chain(catalogue::of(Kind::Tiering)) {
            let race = Race::parse(entry.name, entry.text, Extent::QUICK);
            let race = race.unwrap_or_else(|error| panic!("{error}"));
            let first = &race.contestants[0].text;
            assert_eq!(first, "static", "{}: rates are compared with it", race.name);
            assert_eq!(race.experiment.name, race.name);
        }
    }

    fn outcome(policy: &str, rate: f64) -> Outcome {
        Outcome { policy: policy.into(), operations_per_second: rate, ..Outcome::default() }
    }

    fn claim(policy: &str, to: &str, least: f64, most: Option<f64>) -> Claim {
        Claim {
            paper: String::new(),
            says: String::new(),
            policy: policy.into(),
            figure: Figure::RateOver,
            to: Some(to.into()),
            phase: None,
            least: Some(least),
            most,
            reason: None,
            decided_by: Vec::new(),
        }
    }

    #[test]
    fn inside_then_direction_then_neither() {
        let seeds = [vec![outcome("static", 100.0), outcome("multi-clock", 125.0)]];
        let of = |claim: Claim| judged(&claim, &seeds).verdict;
        let over = |least, most| claim("multi-clock", "static", least, most);
        assert_eq!(of(over(1.2, Some(2.32))), Verdict::Reproduced);
        assert_eq!(of(over(1.3, None)), Verdict::DirectionOnly);
        assert_eq!(of(claim("static", "multi-clock", 1.2, None)), Verdict::NotReproduced);
        assert_eq!(of(claim("nimble", "static", 1.2, None)), Verdict::NotTestable);
    }

    // Claimed: a fifth. The oracle gains a tenth, so half of that says nothing about the claim, but
    // a loss does; what another policy gains can be gained.
    #[test]
    fn a_gain_beyond_the_oracle_s_cannot_be_tested() {
        let of = |ours: f64, other: f64| {
            let rates = [("static", 100.0), ("x", ours), ("y", other), ("oracle", 110.0)];
            let outcomes = rates.map(|(policy, rate)| outcome(policy, rate));
            judged(&claim("x", "static", 1.2, None), &[outcomes.to_vec()]).verdict
        };
        assert_eq!(of(105.0, 100.0), Verdict::NotTestable);
        assert_eq!(of(95.0, 100.0), Verdict::NotReproduced);
        assert_eq!(of(105.0, 120.0), Verdict::DirectionOnly);
        assert_eq!(of(120.0, 100.0), Verdict::Reproduced);
    }

    // 100 pages in 10 s are 10 per interval of a second, and 1 per 100 ms.
    #[test]
    fn a_scan_is_as_long_as_the_policy_waits() {
        let mut outcome = Outcome { seconds: 10.0, ..outcome("multi-clock", 1.0) };
        outcome.moves.promoted_bytes = 100 * 4096;
        assert_eq!(Figure::PagesAScan.of(&outcome, None), None, "it has no interval");
        for (interval, pages) in [("1s", 10.0), ("100ms", 1.0)] {
            outcome.settings = vec![("interval".into(), interval.into())];
            let ours = Figure::PagesAScan.of(&outcome, None).unwrap();
            assert!((ours - pages).abs() < 1e-9, "{ours}");
        }
    }

    #[test]
    fn a_section_has_a_row_for_each_policy() {
        let entry = catalogue::of(Kind::Placement).next().expect("there is one");
        let race = Race::parse(entry.name, entry.text, Extent::QUICK);
        let race = race.unwrap_or_else(|error| panic!("{error}"));
        let ran = Ran { seeds: vec![vec![outcome("static", 1.0)]], ..Ran::default() };
        let text = section(&race, &ran).before;
        assert!(text.contains("| static | 1 |"), "{text}");
    }
}
