//! An experiment on TLB misses as data: a machine and a program, variants of them, and what a paper says of each.

use std::collections::BTreeMap;

use serde::Deserialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment, Mode, place, read};
use toml::Spanned;

use super::run::{Outcome, Way};
use crate::reproduce::verdict::{Bounds, Judgement, Verdict};
use crate::work::read_workload;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Text {
    experiment: toml::Table,
    #[serde(default)]
    monitor: Kind,
    #[serde(default)]
    variant: Vec<Variation>,
    claim: Vec<Spanned<Claim>>,
}

/// The monitor's boards.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kind {
    /// How many.
    pub(super) boards: u8,
    /// Bytes that they tell apart: 64 or 32.
    pub(super) grain: u8,
}

impl Default for Kind {
    fn default() -> Self {
        Self { boards: 2, grain: 64 }
    }
}

/// What a variant has otherwise: keys of an experiment, with dots.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variation {
    name: String,
    set: BTreeMap<String, toml::Value>,
}

/// An experiment with its settings.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) experiment: Experiment,
}

/// A claim of a paper.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Claim {
    /// Where it stands.
    pub(super) paper: String,
    /// What it says.
    pub(super) says: String,
    /// The variant that it is about.
    #[serde(rename = "of")]
    pub(super) variant: String,
    /// What is measured.
    pub(super) figure: Figure,
    /// The variant that the figure is held against.
    pub(super) to: Option<String>,
    /// So many of a hundred, where the figure takes that.
    pub(super) percent: Option<f64>,
    /// The figure is at least this.
    pub(super) least: Option<f64>,
    /// The figure is at most this.
    pub(super) most: Option<f64>,
    /// The direction of the claim: the figure is above this.
    pub(super) above: Option<f64>,
    /// The direction of the claim: the figure is below this.
    pub(super) below: Option<f64>,
    /// Why it comes out as it does, where that needs to be said.
    pub(super) reason: Option<String>,
}

/// What is measured of a variant.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Of the records that were predicted and that came, the share which is as predicted, in order.
    Predicted,
    /// 1 less what the monitor counts over what the cores' counters do, by operation.
    RelativeError,
    /// Time an operation takes with uncached page tables, over that without.
    PtatSlowdown,
    /// Time an operation takes with traps, over that without.
    BadgertrapSlowdown,
    /// The first of these over the second.
    SlowdownRatio,
    /// The same without the time that it takes anyway.
    AddedTimeRatio,
    /// Of the walks with cached page tables, the share that caches answer: what a monitor misses without an uncached region.
    AnsweredByCaches,
    /// Of the misses, the share of the `percent` pages that have most.
    ShareOfTop,
    /// Misses an operation over those of `to`.
    MissesOver,
    /// Operations a second over those of `to`, nobody watching.
    SpeedOver,
    /// Misses an operation of pages of 2 MiB over all of `to`.
    HugeMissesOver,
    /// Of pages that had misses, the share of 2 MiB.
    HugePagesShare,
    /// Of pages of 2 MiB, the misses of those at the 95th percentile over those at the 5th.
    HugePagesSpread,
    /// TLB misses over lines replaced in the first-level data cache.
    MissesOverReplacements,
}

impl Figure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Predicted => "records as predicted",
            Figure::RelativeError => "relative error to counters",
            Figure::PtatSlowdown => "slowdown of PTAT",
            Figure::BadgertrapSlowdown => "slowdown of BadgerTrap",
            Figure::SlowdownRatio => "slowdown of PTAT over BadgerTrap's",
            Figure::AddedTimeRatio => "time added by PTAT over BadgerTrap's",
            Figure::AnsweredByCaches => "walks that caches answer",
            Figure::ShareOfTop => "share of misses of the top pages, %",
            Figure::MissesOver => "misses over those of",
            Figure::SpeedOver => "speed over that of",
            Figure::HugeMissesOver => "misses of 2 MiB pages over all of",
            Figure::HugePagesShare => "2 MiB pages among those missed",
            Figure::HugePagesSpread => "misses of 2 MiB pages, P95 over P5",
            Figure::MissesOverReplacements => "TLB misses over L1 replacements",
        }
    }

    /// Whether it is held against another variant.
    fn takes_to(self) -> bool {
        matches!(self, Figure::MissesOver | Figure::SpeedOver | Figure::HugeMissesOver)
    }

    /// Who has to watch for it.
    pub(super) fn ways(self) -> &'static [Way] {
        match self {
            Figure::RelativeError | Figure::PtatSlowdown => &[Way::Nobody, Way::Ptat],
            Figure::BadgertrapSlowdown => &[Way::Nobody, Way::Badgertrap],
            Figure::SlowdownRatio | Figure::AddedTimeRatio => {
                &[Way::Nobody, Way::Ptat, Way::Badgertrap]
            }
            Figure::AnsweredByCaches | Figure::SpeedOver => &[Way::Nobody],
            Figure::MissesOverReplacements => &[Way::FirstLevel],
            _ => &[Way::Ptat],
        }
    }

    /// Its value, if what it needs is there.
    fn of(self, claim: &Claim, outcomes: &[Outcome]) -> Option<f64> {
        let of = |variant: &str, way| {
            outcomes.iter().find(|outcome| outcome.variant == variant && outcome.way == way)
        };
        let here = |way| of(&claim.variant, way);
        let there = |way| of(claim.to.as_deref()?, way);
        let slowdown = |way| Some(here(way)?.nanos_each()? / here(Way::Nobody)?.nanos_each()?);
        let spread = || Some(&here(Way::Ptat)?.spread);
        match self {
            Figure::Predicted => here(Way::Ptat)?.predicted,
            Figure::RelativeError => {
                Some(1.0 - here(Way::Ptat)?.misses_each()? / here(Way::Nobody)?.counted_each()?)
            }
            Figure::PtatSlowdown => slowdown(Way::Ptat),
            Figure::BadgertrapSlowdown => slowdown(Way::Badgertrap),
            Figure::SlowdownRatio => Some(slowdown(Way::Ptat)? / slowdown(Way::Badgertrap)?),
            Figure::AddedTimeRatio => {
                Some((slowdown(Way::Ptat)? - 1.0) / (slowdown(Way::Badgertrap)? - 1.0))
            }
            Figure::AnsweredByCaches => here(Way::Nobody)?.answered,
            Figure::ShareOfTop => Some(100.0 * spread()?.share_of_top(claim.percent?)),
            Figure::MissesOver => {
                Some(here(Way::Ptat)?.misses_each()? / there(Way::Ptat)?.misses_each()?)
            }
            Figure::SpeedOver => {
                Some(there(Way::Nobody)?.nanos_each()? / here(Way::Nobody)?.nanos_each()?)
            }
            Figure::HugeMissesOver => {
                Some(here(Way::Ptat)?.huge_misses_each()? / there(Way::Ptat)?.misses_each()?)
            }
            Figure::HugePagesShare => {
                let outcome = here(Way::Ptat)?;
                Some(outcome.huge.len() as f64 / outcome.spread.len().max(1) as f64)
            }
            Figure::HugePagesSpread => {
                let huge = &here(Way::Ptat)?.huge;
                let few = huge.percentile(5.0);
                (few > 0).then(|| huge.percentile(95.0) as f64 / few as f64)
            }
            Figure::MissesOverReplacements => here(Way::FirstLevel)?.over_replacements,
        }
    }
}

/// An experiment, checked.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) name: &'static str,
    pub(super) monitor: Kind,
    /// The first is the experiment as it stands, unless all have names.
    pub(super) variants: Vec<Variant>,
    pub(super) claims: Vec<Claim>,
}

impl Planned {
    /// Reads TOML; `name` is for errors.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Self> {
        let read: Text = read(name, text)?;
        let own = toml::to_string(&read.experiment).unwrap_or_default();
        let plain = Variation { name: "as it is".into(), set: BTreeMap::new() };
        let variations = if read.variant.is_empty() { vec![plain] } else { read.variant };
        let bad =
            |claim: &Spanned<Claim>, what: String| Err(place(name, text, claim.span().start, what));
        let mut variants = Vec::new();
        for Variation { name: variant, set } in variations {
            let change =
                |(key, value): (String, toml::Value)| Change { key, value: value.to_string() };
            let changes: Vec<Change> = set.into_iter().map(change).collect();
            let experiment = Experiment::changed(name, &own, &changes, read_workload)?;
            if experiment.mode != Mode::Exact {
                return Err(place(name, text, 0, "only exact machines have walks"));
            }
            variants.push(Variant { name: variant, experiment });
        }
        for claim in &read.claim {
            let Claim { variant, to, figure, percent, least, most, .. } = claim.get_ref();
            for named in [Some(variant), to.as_ref()].into_iter().flatten() {
                if !variants.iter().any(|variant| variant.name == *named) {
                    return bad(claim, format!("`{named}` is no variant"));
                }
            }
            if figure.takes_to() != to.is_some() {
                return bad(
                    claim,
                    "a figure over another variant's, and only that, has a `to`".into(),
                );
            }
            if (*figure == Figure::ShareOfTop) != percent.is_some() {
                return bad(claim, "the share of top pages, and only that, has a `percent`".into());
            }
            if least.is_none() && most.is_none() {
                return bad(claim, "a claim has a least or a most".into());
            }
        }
        let claims = read.claim.into_iter().map(Spanned::into_inner).collect();
        Ok(Self { name, monitor: read.monitor, variants, claims })
    }

    /// Who has to watch which variant, each once.
    pub(super) fn runs(&self) -> Vec<(&Variant, Way)> {
        let mut runs = Vec::new();
        for variant in &self.variants {
            for way in Way::ALL {
                let wanted = |claim: &Claim| {
                    let about = claim.variant == variant.name;
                    let against = claim.to.as_deref() == Some(&*variant.name);
                    (about || against) && claim.figure.ways().contains(&way)
                };
                if self.claims.iter().any(wanted) {
                    runs.push((variant, way));
                }
            }
        }
        runs
    }
}

/// Judges a claim by the outcomes of its experiment.
pub(super) fn judged(claim: &Claim, outcomes: &[Outcome]) -> Judgement {
    let Some(ours) = claim.figure.of(claim, outcomes).filter(|ours| ours.is_finite()) else {
        return Judgement { ours: None, verdict: Verdict::NotTestable };
    };
    let within = |least: Option<f64>, most: Option<f64>| Bounds { least, most }.hold(ours);
    let directed = claim.above.is_some() || claim.below.is_some();
    let direction = directed && within(claim.above, claim.below);
    let verdict = Verdict::of(within(claim.least, claim.most), direction);
    Judgement { ours: Some(ours), verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tlb::spread::Spread;

    fn outcome(way: Way, nanos: f64) -> Outcome {
        let counts =
            Outcome { operations: 1000, misses: 800, counted: 1000, ..Outcome::new("a", way) };
        Outcome { nanos, measured: 1000, ..counts }
    }

    fn claim(figure: Figure, least: f64, most: f64) -> Claim {
        Claim {
            paper: String::new(),
            says: String::new(),
            variant: "a".into(),
            figure,
            to: None,
            percent: None,
            least: Some(least),
            most: Some(most),
            above: Some(0.0),
            below: Some(1.0),
            reason: None,
        }
    }

    // 100 ns an operation, 300 with PTAT, 500 with traps: 3 over 5 of slowdown, 2 over 4 of added time.
    #[test]
    fn ratios_of_slowdown_and_of_added_time_differ() {
        let outcomes = [
            outcome(Way::Nobody, 100_000.0),
            outcome(Way::Ptat, 300_000.0),
            outcome(Way::Badgertrap, 500_000.0),
        ];
        let of = |figure| judged(&claim(figure, 0.55, 0.65), &outcomes);
        let ratio = of(Figure::SlowdownRatio);
        assert_eq!((ratio.ours, ratio.verdict), (Some(0.6), Verdict::Reproduced));
        let added = of(Figure::AddedTimeRatio);
        assert_eq!((added.ours, added.verdict), (Some(0.5), Verdict::DirectionOnly));
        let slower = of(Figure::BadgertrapSlowdown);
        assert_eq!((slower.ours, slower.verdict), (Some(5.0), Verdict::NotReproduced));
        let error = of(Figure::RelativeError).ours.expect("both are there");
        assert!((error - 0.2).abs() < 1e-9);
        assert_eq!(of(Figure::MissesOverReplacements).verdict, Verdict::NotTestable);
    }

    // Of 20 misses one page of ten has 11.
    #[test]
    fn shares_are_percent() {
        let spread = Spread::new(vec![1, 1, 1, 11, 1, 1, 1, 1, 1, 1]);
        let outcomes = [Outcome { spread, ..outcome(Way::Ptat, 1.0) }];
        let top = Claim { percent: Some(10.0), ..claim(Figure::ShareOfTop, 54.9, 55.1) };
        assert_eq!(judged(&top, &outcomes).verdict, Verdict::Reproduced);
    }
}
