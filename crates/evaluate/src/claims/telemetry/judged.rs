//! Verdicts on claims about instruments (METRICS.md).

use super::super::verdict::{Bounds, Judgement, Verdict};
use super::experiment::Claim;
use crate::accuracy::Outcome;

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
    use crate::accuracy::Shares;

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
