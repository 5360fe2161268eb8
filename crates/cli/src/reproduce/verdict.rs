//! Verdicts on claims (METRICS.md).

use std::fmt;

use super::experiment::Claim;
use crate::bench::judge::Outcome;

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
    /// Verdict for a figure, by whether it is in range, and whether it has the claimed direction.
    #[must_use]
    pub(super) fn of(inside: bool, direction: bool) -> Self {
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
pub(super) struct Bounds {
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
}

impl Bounds {
    /// Whether a figure is in range.
    pub(super) fn hold(self, ours: f64) -> bool {
        self.least.is_none_or(|least| ours >= least) && self.most.is_none_or(|most| ours <= most)
    }

    /// Whether a ratio is on the same side of 1 as the range.
    pub(super) fn is_ahead(self, ours: f64) -> bool {
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

/// Judges a claim by the outcomes of its experiment.
#[must_use]
pub(super) fn judged(claim: &Claim, outcomes: &[Outcome]) -> Judgement {
    let of = |name: &str| {
        let outcome = outcomes.iter().find(|outcome| outcome.contender == name)?;
        claim.figure.of(outcome)
    };
    let over = claim.to.as_deref().map_or(Some(1.0), of);
    let Some(ours) = of(&claim.contender).zip(over).map(|(figure, over)| figure / over) else {
        return Judgement { ours: None, verdict: Verdict::NotTestable };
    };
    let inside = Bounds { least: claim.least, most: claim.most }.hold(ours);
    let below = claim.below.as_deref().and_then(of).map(|other| ours < other);
    let above = claim.above.as_deref().and_then(of).map(|other| ours > other);
    let direction = match (below, above) {
        (None, None) => false,
        (below, above) => below.unwrap_or(true) && above.unwrap_or(true),
    };
    Judgement { ours: Some(ours), verdict: Verdict::of(inside, direction) }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::Figure;
    use super::*;
    use crate::bench::judge::Shares;

    fn outcome(contender: &str, profiler_cpu: f64) -> Outcome {
        let all = Shares { precision: None, recall: None, f1: None, false_hot_share: None };
        Outcome {
            contender: contender.into(),
            seed: 1,
            times: Vec::new(),
            settings: Vec::new(),
            seconds: 1.0,
            complete: true,
            all,
            pages: [all; 2],
            slowdown: 0.0,
            settled: None,
            detections: Vec::new(),
            profiler_cpu,
            disturbed: 0.0,
            wall_seconds: 0.0,
            windows: Vec::new(),
        }
    }

    #[test]
    fn inside_then_direction_then_neither() {
        let outcomes = [outcome("rates", 0.01), outcome("scan", 0.1)];
        let claim = |figure, most, below: &str| Claim {
            paper: String::new(),
            says: String::new(),
            contender: "rates".into(),
            figure,
            least: None,
            most: Some(most),
            below: Some(below.into()),
            to: None,
            above: None,
            reason: None,
        };
        let of = |claim: Claim| judged(&claim, &outcomes).verdict;
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.02, "scan")), Verdict::Reproduced);
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.005, "scan")), Verdict::DirectionOnly);
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.005, "rates")), Verdict::NotReproduced);
        assert_eq!(of(claim(Figure::Recall, 0.005, "scan")), Verdict::NotTestable);
        let ratio =
            Claim { to: Some("scan".into()), ..claim(Figure::ProfilerCpuRatio, 0.2, "scan") };
        assert!((judged(&ratio, &outcomes).ours.unwrap_or(0.0) - 0.1).abs() < 1e-9);
    }
}
