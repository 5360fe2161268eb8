//! Verdicts on claims (METRICS.md).

use std::fmt;

/// Outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The figure is within the paper's range.
    Reproduced,
    /// The figure is outside of the range, but its comparison with another contender has the
    /// claimed direction.
    DirectionOnly,
    /// The figure is outside of the range, and lacks the claimed direction.
    NotReproduced,
    /// The figure is undefined here.
    NotTestable,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 4] =
        [Verdict::Reproduced, Verdict::DirectionOnly, Verdict::NotReproduced, Verdict::NotTestable];

    /// Verdict for a figure, by whether it is in range, and whether it has the claimed direction.
    #[must_use]
    pub fn of(inside: bool, direction: bool) -> Self {
        match (inside, direction) {
            (true, _) => Verdict::Reproduced,
            (false, true) => Verdict::DirectionOnly,
            (false, false) => Verdict::NotReproduced,
        }
    }

    /// Name as in METRICS.md.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::DirectionOnly => "direction only",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotTestable => "not testable here",
        }
    }
}

/// The range that a paper claims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Lower bound.
    pub least: Option<f64>,
    /// Upper bound.
    pub most: Option<f64>,
}

impl Bounds {
    /// Whether a figure is in range.
    #[must_use]
    pub fn hold(self, ours: f64) -> bool {
        self.least.is_none_or(|least| ours >= least) && self.most.is_none_or(|most| ours <= most)
    }

    /// Whether a ratio is on the same side of 1 as the range.
    #[must_use]
    pub fn is_ahead(self, ours: f64) -> bool {
        let ahead = self.least.is_some_and(|least| least >= 1.0) && ours > 1.0;
        let behind = self.most.is_some_and(|most| most <= 1.0) && ours < 1.0;
        ahead || behind
    }
}

/// Range as shown in tables.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (Some(least), Some(most)) => write!(f, "{least} to {most}"),
            (Some(least), None) => write!(f, "≥ {least}"),
            (None, Some(most)) => write!(f, "≤ {most}"),
            (None, None) => f.write_str("any"),
        }
    }
}

/// Our figure for a claim, and the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Our figure, if it is defined.
    pub ours: Option<f64>,
    /// Verdict on the claim.
    pub verdict: Verdict,
}
