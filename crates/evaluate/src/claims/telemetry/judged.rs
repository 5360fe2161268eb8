//! Verdicts on claims about instruments (METRICS.md).

use super::super::verdict::{Bounds, Comparison, Judgement, Seeds, Verdict};
use super::experiment::Claim;
use crate::accuracy::Outcome;

/// Judges a claim by the outcomes of its experiment, of each seed.
#[must_use]
pub(super) fn judged(claim: &Claim, seeds: &[Vec<Outcome>]) -> Judgement {
    let over = |outcomes: &Vec<Outcome>, name: &str, to: Option<&str>| {
        let of = |name: &str| claim.figure.of(by_name(outcomes, name)?);
        Some(ratio(of(name)?, to.map_or(Some(1.0), of)?))
    };
    let each = |to: Option<&str>| {
        Seeds::of(seeds.iter().map(|outcomes| over(outcomes, &claim.contender, to)))
    };
    let Some(ours) = each(claim.to.as_deref()) else {
        return Judgement { ours: None, verdict: Verdict::NotTestable };
    };
    let bounds = Bounds { least: claim.least, most: claim.most };
    if bounds.least.is_none() && bounds.most.is_none() {
        return Judgement { ours: Some(ours), verdict: Verdict::NotTestable };
    }
    let against = |other: &Option<String>, above: bool| {
        let ratio = each(Some(other.as_deref()?))?;
        Some(Comparison { ratio, above, is_figure: false })
    };
    let comparison = match claim.to {
        Some(_) => Comparison::of_ratio(ours, bounds),
        None => against(&claim.below, false).or_else(|| against(&claim.above, true)),
    };
    Judgement { ours: Some(ours), verdict: bounds.judge(ours, comparison) }
}

/// The figure over the windows after each detection, if there were any for each seed.
pub(super) fn once_detected(claim: &Claim, seeds: &[Vec<Outcome>]) -> Option<Seeds> {
    let of =
        |outcomes: &Vec<Outcome>| claim.figure.once_detected(by_name(outcomes, &claim.contender)?);
    Seeds::of(seeds.iter().map(of))
}

/// A figure over another; 1 if they are alike, also where both are 0 or neither event happened.
fn ratio(ours: f64, other: f64) -> f64 {
    if ours == other { 1.0 } else { ours / other }
}

fn by_name<'a>(outcomes: &'a [Outcome], name: &str) -> Option<&'a Outcome> {
    outcomes.iter().find(|outcome| outcome.contender == name)
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
            looks: 0.0,
            cpu_budget: None,
            state_bytes: 0,
            traffic_bytes: 0.0,
            overflows: None,
            disturbed: 0.0,
            wall_seconds: 0.0,
            windows: Vec::new(),
        }
    }

    #[test]
    fn two_contenders_that_find_nothing_are_alike() {
        assert_eq!([ratio(0.0, 0.0), ratio(f64::INFINITY, f64::INFINITY)], [1.0, 1.0]);
        assert_eq!([ratio(0.5, 0.0), ratio(0.5, 1.0)], [f64::INFINITY, 0.5]);
    }

    #[test]
    fn inside_then_direction_then_neither() {
        let seeds = [vec![outcome("rates", 0.01), outcome("scan", 0.1)]];
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
            decided_by: Vec::new(),
        };
        let of = |claim: Claim| judged(&claim, &seeds).verdict;
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.02, "scan")), Verdict::Reproduced);
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.005, "scan")), Verdict::DirectionOnly);
        assert_eq!(of(claim(Figure::ProfilerCpu, 0.005, "rates")), Verdict::NoDifference);
        assert_eq!(of(claim(Figure::Recall, 0.005, "scan")), Verdict::NotTestable);
        let ratio = |most| Claim {
            to: Some("scan".into()),
            below: None,
            ..claim(Figure::ProfilerCpu, most, "scan")
        };
        let ours = judged(&ratio(0.2), &seeds).ours.expect("both are there");
        assert!((ours.mean - 0.1).abs() < 1e-9);
        assert_eq!(of(ratio(0.2)), Verdict::Reproduced);
        assert_eq!(of(ratio(0.05)), Verdict::DirectionOnly);
    }
}
