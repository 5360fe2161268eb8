//! Verdicts on claims (METRICS.md), from figures of several seeds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure is within the paper's range.
    Reproduced,
    /// The figure is outside of the range, but its comparison with another contender has the
    /// claimed direction, for every seed.
    DirectionOnly,
    /// The seeds disagree on the direction of a comparison that the paper claims.
    NoDifference,
    /// The figure is outside of the range, and lacks the claimed direction.
    NotReproduced,
    /// The figure is undefined here, or the set-up cannot show what is claimed: the oracle falls
    /// short of it too.
    NotTestable,
    /// The figure follows from how a stand-in was made.
    ByConstruction,
}

impl Verdict {
    /// Verdict on a figure of a single run, by whether it is in range, and whether it has the
    /// claimed direction.
    #[must_use]
    pub fn of(inside: bool, direction: bool) -> Self {
        match (inside, direction) {
            (true, _) => Verdict::Reproduced,
            (false, true) => Verdict::DirectionOnly,
            (false, false) => Verdict::NotReproduced,
        }
    }

    /// All verdicts.
    pub const ALL: [Verdict; 6] = [
        Verdict::Reproduced,
        Verdict::DirectionOnly,
        Verdict::NoDifference,
        Verdict::NotReproduced,
        Verdict::NotTestable,
        Verdict::ByConstruction,
    ];

    /// Name as in METRICS.md.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::DirectionOnly => "direction only",
            Verdict::NoDifference => "no difference",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotTestable => "not testable here",
            Verdict::ByConstruction => "by construction",
        }
    }
}

/// A figure over several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    /// Mean over the seeds.
    #[serde(with = "or_never")]
    pub mean: f64,
    /// Smallest figure of a seed.
    #[serde(with = "or_never")]
    pub least: f64,
    /// Largest figure of a seed.
    #[serde(with = "or_never")]
    pub most: f64,
}

/// A number, or null for what never happens: JSON has no infinity.
mod or_never {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(value).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
    }
}

impl Seeds {
    /// Seeds of the figures of the seeds; `None` without any, or if one is undefined.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let figures = figures.into_iter().collect::<Option<Vec<f64>>>()?;
        (!figures.is_empty()).then(|| Self {
            mean: figures.iter().sum::<f64>() / figures.len() as f64,
            least: figures.iter().copied().fold(f64::INFINITY, f64::min),
            most: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// A comparison with another contender, as a ratio, and the side of 1 that is claimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The figure over that of the other contender.
    pub ratio: Seeds,
    /// Whether the ratio is claimed to be above 1, not below.
    pub above: bool,
    /// Whether the ratio is the figure itself.
    pub is_figure: bool,
}

impl Comparison {
    /// The direction of a ratio: the side of 1 that its range is on, if it is on one.
    #[must_use]
    pub fn of_ratio(ratio: Seeds, bounds: Bounds) -> Option<Self> {
        let above = bounds.least.is_some_and(|least| least >= 1.0);
        let below = bounds.most.is_some_and(|most| most <= 1.0);
        (above != below).then_some(Self { ratio, above, is_figure: true })
    }

    /// Whether the seeds disagree on the side. By chance five agree once in sixteen times.
    fn is_open(&self) -> bool {
        self.ratio.least <= 1.0 && self.ratio.most >= 1.0
    }

    fn is_right(&self) -> bool {
        if self.above { self.ratio.least > 1.0 } else { self.ratio.most < 1.0 }
    }
}

/// The range that a paper claims.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

impl Bounds {
    /// Whether a figure is in range.
    #[must_use]
    pub fn hold(self, ours: f64) -> bool {
        self.least.is_none_or(|least| ours >= least) && self.most.is_none_or(|most| ours <= most)
    }

    /// Whether a ratio of 1 is within the range, and not at its edge: a ratio of at most 1 is
    /// claimed to be less.
    fn allow_alike(self) -> bool {
        self.least.is_none_or(|least| least < 1.0) && self.most.is_none_or(|most| most > 1.0)
    }

    /// Judges the mean of a figure over the seeds, and a comparison if the claim has one.
    #[must_use]
    pub fn judge(self, ours: Seeds, comparison: Option<Comparison>) -> Verdict {
        match comparison {
            Some(of) if of.is_figure && of.is_open() && !self.allow_alike() => {
                Verdict::NoDifference
            }
            _ if self.hold(ours.mean) => Verdict::Reproduced,
            Some(of) if of.is_right() => Verdict::DirectionOnly,
            Some(of) if of.is_open() => Verdict::NoDifference,
            _ => Verdict::NotReproduced,
        }
    }
}

/// Range as shown in tables.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (Some(least), Some(most)) if least == most => write!(f, "{least}"),
            (Some(least), Some(most)) => write!(f, "{least} to {most}"),
            (Some(least), None) => write!(f, "≥ {least}"),
            (None, Some(most)) => write!(f, "≤ {most}"),
            (None, None) => f.write_str("any"),
        }
    }
}

/// A spread as text: the mean, and the extremes if they differ from it.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", number(self.mean))?;
        match self.least == self.most {
            true => Ok(()),
            false => write!(f, " ({} to {})", number(self.least), number(self.most)),
        }
    }
}

/// A figure as text.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if value.is_infinite() => "never".into(),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Our figure for a claim, and the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Our figure, if it is defined.
    pub ours: Option<Seeds>,
    /// Verdict on the claim.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(figures: &[f64]) -> Seeds {
        Seeds::of(figures.iter().copied().map(Some)).expect("there are some")
    }

    fn ratio(least: f64, most: Option<f64>, figures: &[f64]) -> Verdict {
        let (bounds, ours) = (Bounds { least: Some(least), most }, spread(figures));
        bounds.judge(ours, Comparison::of_ratio(ours, bounds))
    }

    // Claimed: a gain of a fifth or more. 1.05 in the mean is nothing if a seed lost.
    #[test]
    fn a_ratio_is_judged_beyond_the_spread_of_its_seeds() {
        assert_eq!(ratio(1.2, None, &[1.2, 1.3, 1.25]), Verdict::Reproduced);
        assert_eq!(ratio(1.2, None, &[1.05, 1.1, 1.06]), Verdict::DirectionOnly);
        assert_eq!(ratio(1.2, None, &[0.99, 1.1, 1.06]), Verdict::NoDifference);
        assert_eq!(ratio(1.2, None, &[0.99, 3.0, 3.0]), Verdict::NoDifference);
        assert_eq!(ratio(1.2, None, &[0.9, 0.95, 0.99]), Verdict::NotReproduced);
        // A range that holds 1 claims no difference; one that begins there claims one.
        assert_eq!(ratio(0.96, Some(1.01), &[0.99, 1.02, 1.0]), Verdict::Reproduced);
        assert_eq!(ratio(1.0, None, &[1.0, 1.0]), Verdict::NoDifference);
        assert_eq!(ratio(1.0, None, &[1.01, 1.2]), Verdict::Reproduced);
    }

    // Precision of at least 0.9, above another contender's.
    #[test]
    fn a_range_counts_before_a_comparison() {
        let bounds = Bounds { least: Some(0.9), most: None };
        let to =
            |figures: &[f64]| Comparison { ratio: spread(figures), above: true, is_figure: false };
        let of = |ours: f64, ratio: &[f64]| bounds.judge(spread(&[ours]), Some(to(ratio)));
        assert_eq!(of(0.95, &[0.9, 1.1]), Verdict::Reproduced);
        assert_eq!(of(0.8, &[1.1, 1.2]), Verdict::DirectionOnly);
        assert_eq!(of(0.8, &[0.9, 1.2]), Verdict::NoDifference);
        assert_eq!(of(0.8, &[0.8, 0.9]), Verdict::NotReproduced);
        assert_eq!(bounds.judge(spread(&[0.8]), None), Verdict::NotReproduced);
    }

    #[test]
    fn a_spread_needs_all_seeds() {
        assert_eq!(Seeds::of([Some(1.0), None]), None);
        assert_eq!(Seeds::of([]), None);
        let all = spread(&[1.0, 3.0, 2.0]);
        assert_eq!((all.mean, all.least, all.most), (2.0, 1.0, 3.0));
        assert_eq!(all.to_string(), "2.000 (1.000 to 3.000)");
        assert_eq!(spread(&[f64::INFINITY]).to_string(), "never");
    }
}
