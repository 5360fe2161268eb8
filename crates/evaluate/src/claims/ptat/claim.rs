//! An experiment on TLB misses as data: a machine and a program, variants of them, and a paper's
//! claims about each.

use std::collections::BTreeMap;

use super::super::verdict::{Bounds, Judgement, Seeds, Verdict};
use crate::workload::read_workload;
use serde::Deserialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment, Mode, place, read};
use toml::Spanned;

use super::run::{Outcome, Way};

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

/// Configuration of the monitor's boards.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kind {
    /// Number of boards.
    pub(super) boards: u8,
    /// Granularity in bytes: 64 or 32.
    pub(super) grain: u8,
}

impl Default for Kind {
    fn default() -> Self {
        Self { boards: 2, grain: 64 }
    }
}

/// Changed settings of a variant: dotted keys of an experiment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variation {
    name: String,
    set: BTreeMap<String, toml::Value>,
}

/// An experiment with a variant's settings.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) experiment: Experiment,
}

/// A claim of a paper about TLB misses.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Claim {
    /// Place in the paper.
    pub(super) paper: String,
    /// The claim in words.
    pub(super) says: String,
    /// The variant that it is about.
    #[serde(rename = "of")]
    pub(super) variant: String,
    /// The measured quantity.
    pub(super) figure: Figure,
    /// For a ratio, the variant in the denominator.
    pub(super) to: Option<String>,
    /// Percentage of pages, for a figure that needs one.
    pub(super) percent: Option<f64>,
    /// Lower bound of the figure.
    pub(super) least: Option<f64>,
    /// Upper bound of the figure.
    pub(super) most: Option<f64>,
    /// Direction of the claim: the figure is above this.
    pub(super) above: Option<f64>,
    /// Direction of the claim: the figure is below this.
    pub(super) below: Option<f64>,
    /// Explanation of the outcome, if it needs one.
    pub(super) reason: Option<String>,
}

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Share of correct records, in order, among the predicted and the observed ones.
    Predicted,
    /// 1 minus the ratio of the monitor's count to that of the cores' counters, per operation.
    RelativeError,
    /// Time per operation with uncached page tables, relative to that with cached ones.
    PtatSlowdown,
    /// Time per operation with traps, relative to that without.
    BadgertrapSlowdown,
    /// The slowdown with PTAT, relative to that with BadgerTrap.
    SlowdownRatio,
    /// The time added by PTAT, relative to the time added by BadgerTrap.
    AddedTimeRatio,
    /// Share of the walks with cached page tables that hit the caches: a monitor does not see them
    /// without an uncached region.
    AnsweredByCaches,
    /// Share of all misses in the top `percent` per cent of pages.
    ShareOfTop,
    /// Misses per operation relative to those of `to`.
    MissesOver,
    /// Operations per second relative to those of `to`, without a monitor or traps.
    SpeedOver,
    /// Misses per operation of pages of 2 MiB, relative to all misses of `to`.
    HugeMissesOver,
    /// Share of pages of 2 MiB among the pages that had misses.
    HugePagesShare,
    /// Misses of 2 MiB pages: 95th percentile relative to the 5th.
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

    /// Whether it is a ratio to another variant.
    fn takes_to(self) -> bool {
        matches!(self, Figure::MissesOver | Figure::SpeedOver | Figure::HugeMissesOver)
    }

    /// Ways to watch a run that the figure needs.
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

    /// Value of the figure, if the outcomes that it needs exist.
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

/// A checked experiment.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) name: &'static str,
    pub(super) monitor: Kind,
    /// Without named variants, the only one is the unchanged experiment.
    pub(super) variants: Vec<Variant>,
    pub(super) claims: Vec<Claim>,
}

impl Planned {
    /// Parses TOML; `name` is for error messages.
    ///
    /// # Errors
    /// A description of the problem, with line and column.
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

    /// The runs that the claims need: pairs of a variant and a way to watch, each once.
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
    Judgement { ours: Seeds::of([Some(ours)]), verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_tlb::attribution::Spread;

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

    // 100 ns per operation, 300 with PTAT, 500 with traps: the ratio of slowdowns is 3/5, that of
    // added times 2/4.
    #[test]
    fn ratios_of_slowdown_and_of_added_time_differ() {
        let outcomes = [
            outcome(Way::Nobody, 100_000.0),
            outcome(Way::Ptat, 300_000.0),
            outcome(Way::Badgertrap, 500_000.0),
        ];
        let of = |figure| judged(&claim(figure, 0.55, 0.65), &outcomes);
        let ratio = of(Figure::SlowdownRatio);
        let mean = |judgement: Judgement| judgement.ours.map(|ours| ours.mean);
        assert_eq!((mean(ratio), ratio.verdict), (Some(0.6), Verdict::Reproduced));
        let added = of(Figure::AddedTimeRatio);
        assert_eq!((mean(added), added.verdict), (Some(0.5), Verdict::DirectionOnly));
        let slower = of(Figure::BadgertrapSlowdown);
        assert_eq!((mean(slower), slower.verdict), (Some(5.0), Verdict::NotReproduced));
        let error = mean(of(Figure::RelativeError)).expect("both are there");
        assert!((error - 0.2).abs() < 1e-9);
        assert_eq!(of(Figure::MissesOverReplacements).verdict, Verdict::NotTestable);
    }

    // One of ten pages has 11 of 20 misses.
    #[test]
    fn shares_are_percent() {
        let spread = Spread::new(vec![1, 1, 1, 11, 1, 1, 1, 1, 1, 1]);
        let outcomes = [Outcome { spread, ..outcome(Way::Ptat, 1.0) }];
        let top = Claim { percent: Some(10.0), ..claim(Figure::ShareOfTop, 54.9, 55.1) };
        assert_eq!(judged(&top, &outcomes).verdict, Verdict::Reproduced);
    }
}
