//! Accuracy of rates at given times, and its worst values over several seeds (METRICS.md,
//! `core::metrics::rates`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tierscope_core::metrics::rates::{
    GRANULE, RateAccuracy, TrueRates, oracle_share, reported_rate,
};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY};
use tierscope_core::{PAGE_SIZE, RangeSet, Region, Snapshot};

use super::judge::{Outcome, Row};

/// A kind of figure, with its direction: whether higher or lower values are better.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    high_is_good: bool,
}

const fn high(name: &'static str) -> Kind {
    Kind { name, high_is_good: true }
}

const fn low(name: &'static str) -> Kind {
    Kind { name, high_is_good: false }
}

/// All kinds of figures. A figure that is undefined for a scenario is left out.
///
/// - `precision`, `recall`: of the window; `…_after`: the minimum over this and all later windows.
/// - `oracle_hot`, `oracle_10gib`, `oracle_100gib`: oracle share at the size of the true hot set,
///   and at these sizes, in blocks of 2 MiB; `ceiling_…`: the best choice of such blocks relative
///   to the best choice of 4 KiB pages.
/// - `cover_hot`, `cover_warm`, `cover_cold`: share of the intervals, by bytes, that contain the
///   true rate, if the intervals cover at least 64 MiB: fewer entries cannot distinguish 85 % from
///   90 %.
/// - `width_hot`: upper over lower bound of hot regions, the median by bytes (at most 10^9).
/// - `bound_cold`: upper bound of cold regions over the hot rate, the median by bytes.
/// - `unknown`, `unknown_hot`: share of unknown bytes, overall and within the hot regions.
/// - `found_or_unknown`: share of the truly hot bytes that are reported hot, reported unknown, or
///   were not probed.
/// - `rate_factor`: error factor of the mean rate of memory that is accessed at the same rate; the
///   worst one, where the largest part is left out if there are several; `order`: 1 if the mean
///   rates are in the right order.
/// - `reported`: share of the mapped bytes that is reported hot; `hot_ratio`: bytes reported hot
///   over bytes truly hot.
/// - `cpu`: CPU time of the profiler up to the window relative to the time, 1 is one CPU.
/// - `false_sure`: bytes misclassified with a confidence of 0.995 or more, over the bytes truly
///   hot.
const KINDS: [Kind; 22] = [
    high("precision"),
    high("recall"),
    high("precision_after"),
    high("recall_after"),
    high("oracle_hot"),
    high("oracle_10gib"),
    high("oracle_100gib"),
    high("ceiling_10gib"),
    high("ceiling_100gib"),
    high("cover_hot"),
    high("cover_warm"),
    high("cover_cold"),
    low("width_hot"),
    low("bound_cold"),
    low("unknown"),
    low("unknown_hot"),
    high("found_or_unknown"),
    low("rate_factor"),
    high("order"),
    low("reported"),
    low("hot_ratio"),
    low("false_sure"),
];

/// Sizes of the oracle shares, with the names of the share and of its ceiling.
const SIZES: [(&str, &str, u64); 2] =
    [("oracle_10gib", "ceiling_10gib", 10 << 30), ("oracle_100gib", "ceiling_100gib", 100 << 30)];

/// Smallest sum of intervals, in bytes, for which coverage is judged: 32 entries of 2 MiB.
const JUDGED: u64 = 64 << 20;

/// Largest number of distinct true rates for the figures `rate_factor` and `order`.
const LEVELS: usize = 16;

/// Confidence that is rounded to 1.00 in reports.
const SURE: f32 = 0.995;

/// Cap on the width of an interval: JSON has no infinity.
const WIDEST: f64 = 1e9;

/// Inputs of one window's figures.
pub(super) struct Seen<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) truth: TrueRates,
    pub(super) hot: &'a RangeSet,
    pub(super) accuracy: Accuracy,
    pub(super) mapped: u64,
    pub(super) profiler: Duration,
}

/// Figures of a window, by name (`KINDS`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Requested time, in simulated seconds.
    pub at_seconds: f64,
    /// End of the window that the figures are from: the last one that ended by the requested time.
    pub end_seconds: f64,
    /// Values by name.
    pub values: BTreeMap<&'static str, f64>,
}

impl Figures {
    /// Computes the figures for a requested time from the given window.
    pub(super) fn of(at: Duration, seen: &Seen<'_>) -> Self {
        let mut figures = Self {
            at_seconds: at.as_secs_f64(),
            end_seconds: seen.snapshot.end.seconds(),
            values: BTreeMap::new(),
        };
        figures.accuracy(seen);
        figures.oracle(seen);
        figures.intervals(seen);
        figures.levels(seen);
        let time = figures.end_seconds.max(1e-9);
        figures.set("cpu", Some(seen.profiler.as_secs_f64() / time));
        figures
    }

    fn set(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| !value.is_nan()) {
            self.values.insert(name, value.min(WIDEST));
        }
    }

    fn accuracy(&mut self, seen: &Seen<'_>) {
        let accuracy = &seen.accuracy;
        self.set("precision", accuracy.precision());
        self.set("recall", accuracy.recall());
        self.set("reported", Some(accuracy.reported as f64 / seen.mapped.max(1) as f64));
        let ratio = accuracy.reported as f64 / accuracy.truth as f64;
        self.set("hot_ratio", (accuracy.truth > 0).then_some(ratio));
        let truth = seen.hot.bytes();
        self.set("false_sure", (truth > 0).then(|| false_sure(seen) as f64 / truth as f64));
        let share = |bytes: u64| bytes as f64 / truth as f64;
        self.set("found_or_unknown", (truth > 0).then(|| share(found_or_unknown(seen))));
    }

    fn oracle(&mut self, seen: &Seen<'_>) {
        let share = |bytes| oracle_share(seen.snapshot, &seen.truth, seen.mapped, bytes, GRANULE);
        let hot = seen.hot.bytes();
        self.set("oracle_hot", if hot > 0 { share(hot) } else { None });
        for (name, ceiling, bytes) in SIZES {
            if bytes < seen.mapped {
                self.set(name, share(bytes));
                let best = |granule| seen.truth.best_share(bytes, granule);
                let reached = best(GRANULE).zip(best(PAGE_SIZE)).map(|(block, page)| block / page);
                self.set(ceiling, reached);
            }
        }
    }

    fn intervals(&mut self, seen: &Seen<'_>) {
        let hot = seen.truth.mean_of(seen.hot);
        let judged = RateAccuracy::of(seen.snapshot, &seen.truth, hot, seen.mapped);
        for (name, coverage) in
            ["cover_hot", "cover_warm", "cover_cold"].into_iter().zip(judged.coverage)
        {
            self.set(name, coverage.share().filter(|_| coverage.bytes >= JUDGED));
        }
        self.set("width_hot", judged.hot_width);
        self.set("bound_cold", judged.cold_bound);
        self.set("unknown", Some(judged.unknown));
        self.set("unknown_hot", judged.hot_unknown);
    }

    fn levels(&mut self, seen: &Seen<'_>) {
        let Some(mut levels) = seen.truth.levels(LEVELS) else { return };
        let bytes =
            |ranges: &[tierscope_core::Range]| ranges.iter().map(|r| r.bytes()).sum::<u64>();
        let largest = (0..levels.len()).max_by_key(|index| bytes(&levels[*index].1));
        if let Some(largest) = largest.filter(|_| levels.len() > 1) {
            levels.remove(largest);
        }
        let given: Option<Vec<f64>> =
            levels.iter().map(|(_, ranges)| reported_rate(seen.snapshot, ranges)).collect();
        let Some(given) = given.filter(|given| !given.is_empty()) else { return };
        let wrong = levels.iter().zip(&given).map(|((truth, _), given)| off(*truth, *given));
        self.set("rate_factor", wrong.reduce(f64::max));
        let ordered = given.is_sorted_by(|a, b| a > b);
        self.set("order", Some(f64::from(u8::from(ordered))));
    }

    /// Adds the minimum of precision and recall over this and all later windows. Undefined
    /// precision in a window with hot memory counts as 0.
    pub(super) fn look_ahead(&mut self, rows: &[Row]) {
        let from = self.end_seconds;
        let rest = || rows.iter().filter(|row| row.end_seconds >= from && !row.changed);
        let least = |share: fn(&Accuracy) -> Option<f64>| {
            let shares = rest().map(Row::accuracy).filter(|accuracy| accuracy.truth > 0);
            shares.map(|accuracy| share(&accuracy).unwrap_or(0.0)).reduce(f64::min)
        };
        self.set("precision_after", least(Accuracy::precision));
        self.set("recall_after", least(Accuracy::recall));
    }
}

/// Truly hot bytes that are not classified as cold.
fn found_or_unknown(seen: &Seen<'_>) -> u64 {
    let is_such = |region: &&Region| region.is_unknown() || region.is_hot(HOT_FREQUENCY);
    let other: RangeSet =
        seen.snapshot.regions.iter().filter(|r| !is_such(r)).map(|r| r.range).collect();
    seen.hot.bytes() - other.intersect(seen.hot).bytes()
}

/// Bytes classified wrongly, as hot or cold, with confidence of at least `SURE`.
fn false_sure(seen: &Seen<'_>) -> u64 {
    let of = |hot: bool| -> RangeSet {
        let is_such = |region: &&Region| {
            !region.is_unknown() && region.confidence >= SURE && region.is_hot(HOT_FREQUENCY) == hot
        };
        seen.snapshot.regions.iter().filter(is_such).map(|region| region.range).collect()
    };
    let (hot, cold) = (of(true), of(false));
    hot.bytes() - hot.intersect(seen.hot).bytes() + cold.intersect(seen.hot).bytes()
}

/// Ratio of two rates, at least 1.
fn off(truth: f64, given: f64) -> f64 {
    if given > 0.0 { (truth / given).max(given / truth) } else { f64::INFINITY }
}

/// Worst, best and mean of a figure over several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The worst value.
    pub worst: f64,
    /// The best value.
    pub best: f64,
    /// The mean, by which coverage is judged: a 90 % interval misses in a tenth of all runs.
    pub mean: f64,
    /// Number of seeds that have the figure.
    pub seeds: usize,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>, high_is_good: bool) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (worst, best) = if high_is_good { (least, most) } else { (most, least) };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { worst, best, mean, seeds: values.len() })
    }
}

/// A contender's figures over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Name of the contender.
    pub contender: String,
    /// Number of seeds that were run.
    pub seeds: usize,
    /// Number of seeds with a failed detection, after attach or after a change.
    pub undetected: usize,
    /// Time of each other seed's slowest detection, in seconds.
    pub detected_seconds: Option<Spread>,
    /// CPU time of the profiler relative to the time, 1 is one CPU.
    pub profiler_cpu: Option<Spread>,
    /// Slowdown of the target, assuming that it is not paced.
    pub slowdown: Option<Spread>,
    /// Figures at the requested times.
    pub times: Vec<Worst>,
}

/// Spread of the figures at a requested time.
#[derive(Clone, Debug, Serialize)]
pub struct Worst {
    /// Requested time, in simulated seconds.
    pub at_seconds: f64,
    /// Spread of each figure, by name.
    pub figures: BTreeMap<&'static str, Spread>,
}

/// One summary for each contender, in order of first appearance.
pub(super) fn summaries(outcomes: &[Outcome]) -> Vec<Summary> {
    let mut names: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !names.contains(&outcome.contender.as_str()) {
            names.push(&outcome.contender);
        }
    }
    names.into_iter().map(|name| summary(name, outcomes)).collect()
}

fn summary(name: &str, outcomes: &[Outcome]) -> Summary {
    let mine: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.contender == name).collect();
    let detected: Vec<f64> = mine.iter().filter_map(|o| o.slowest_detection()).collect();
    let low = |value: fn(&Outcome) -> f64| Spread::of(mine.iter().map(|o| value(o)), false);
    let mut ats: Vec<f64> = mine.iter().flat_map(|o| &o.times).map(|f| f.at_seconds).collect();
    ats.sort_by(f64::total_cmp);
    ats.dedup();
    Summary {
        contender: name.into(),
        seeds: mine.len(),
        undetected: mine.len() - detected.len(),
        detected_seconds: Spread::of(detected.into_iter(), false),
        profiler_cpu: low(|outcome| outcome.profiler_cpu),
        slowdown: low(|outcome| outcome.slowdown),
        times: ats.into_iter().map(|at| worst(at, &mine)).collect(),
    }
}

fn worst(at_seconds: f64, outcomes: &[&Outcome]) -> Worst {
    let times = || outcomes.iter().flat_map(|o| &o.times).filter(|f| f.at_seconds == at_seconds);
    let kinds = KINDS.into_iter().chain([low("cpu")]);
    let figures = kinds.filter_map(|kind| {
        let values = times().filter_map(|figures| figures.values.get(kind.name).copied());
        Some((kind.name, Spread::of(values, kind.high_is_good)?))
    });
    Worst { at_seconds, figures: figures.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Unknown;
    use tierscope_core::{Range, Rate, Region, SpaceId, Time};

    const BLOCK: u64 = JUDGED;

    fn range(from: u64, to: u64) -> Range {
        Range::new(SpaceId(0), from * BLOCK, to * BLOCK)
    }

    fn region(from: u64, to: u64, mean: f32) -> Region {
        Region {
            rate: Some(Rate { low: mean / 2.0, mean, high: mean * 2.0 }),
            ..Region::sampled(range(from, to), 0.0, 40)
        }
    }

    // Three blocks with rates of 8, 4 and 2 a second, and 97 blocks of background with 0.1.
    fn figures(given: [f32; 3]) -> Figures {
        figures_of(BLOCK, given)
    }

    fn figures_of(block: u64, given: [f32; 3]) -> Figures {
        let range = |from: u64, to: u64| Range::new(SpaceId(0), from * block, to * block);
        let region = |from, to, mean| Region { range: range(from, to), ..region(from, to, mean) };
        let steps = [(range(0, 1), 8.0), (range(1, 2), 4.0), (range(2, 3), 2.0)];
        let ground = [(range(3, 100), 0.1)];
        let truth = TrueRates::of(steps.into_iter().chain(ground));
        let [a, b, c] = given;
        let regions = vec![region(0, 1, a), region(1, 2, b), region(2, 3, c), region(3, 100, 0.1)];
        let end = Time(2_000_000_000);
        let snapshot = Snapshot { end, regions, ..Default::default() };
        let hot: RangeSet = [range(0, 2)].into_iter().collect();
        let accuracy = Accuracy { reported: 3 * block, truth: 2 * block, both: 2 * block };
        Figures::of(
            Duration::from_secs(2),
            &Seen {
                snapshot: &snapshot,
                truth,
                hot: &hot,
                accuracy,
                mapped: 100 * block,
                profiler: Duration::from_millis(20),
            },
        )
    }

    #[test]
    fn a_window_s_figures_by_hand() {
        let figures = figures([8.0, 3.2, 2.0]);
        let value = |name| figures.values.get(name).copied();
        assert_eq!((value("precision"), value("recall")), (Some(2.0 / 3.0), Some(1.0)));
        assert_eq!((value("reported"), value("hot_ratio")), (Some(0.03), Some(1.5)));
        assert_eq!((value("oracle_hot"), value("cpu")), (Some(1.0), Some(0.01)));
        // No region has any hits: both hot blocks are classified as cold, with confidence 1.
        assert_eq!((value("false_sure"), value("found_or_unknown")), (Some(1.0), Some(0.0)));
        assert!((value("rate_factor").unwrap() - 1.25).abs() < 1e-6, "{figures:?}");
        assert_eq!((value("order"), value("width_hot")), (Some(1.0), Some(4.0)));
        // The mean hot rate is 6: 8 and 4 are hot, 2 is warm, 0.1 is cold; all are within a factor
        // of two.
        for name in ["cover_hot", "cover_warm", "cover_cold"] {
            assert_eq!(value(name), Some(1.0), "{name}");
        }
        assert!((value("bound_cold").unwrap() - 0.2 / 6.0).abs() < 1e-6, "{figures:?}");
        // Less than 10 GiB is mapped.
        assert_eq!(value("oracle_10gib"), None);
    }

    // One of two hot blocks is reported hot; the other one first unknown, then cold.
    #[test]
    fn hot_memory_is_found_or_admitted_to_be_unknown() {
        let share = |other: Region| {
            let hot: RangeSet = [range(0, 2)].into_iter().collect();
            let regions = vec![Region { hits: 40.0, ..region(0, 1, 8.0) }, other];
            let snapshot = Snapshot { regions, ..Default::default() };
            let accuracy = Accuracy { reported: BLOCK, truth: 2 * BLOCK, both: BLOCK };
            let (truth, profiler) = (TrueRates::of([(range(0, 2), 8.0)]), Duration::ZERO);
            let seen = Seen {
                snapshot: &snapshot,
                truth,
                hot: &hot,
                accuracy,
                mapped: 2 * BLOCK,
                profiler,
            };
            Figures::of(Duration::ZERO, &seen).values["found_or_unknown"]
        };
        assert_eq!(share(Region { unknown: Some(Unknown::Evidence), ..region(1, 2, 8.0) }), 1.0);
        assert_eq!(share(region(1, 2, 0.1)), 0.5);
    }

    // Two blocks of 2 MiB are too little memory to judge intervals by.
    #[test]
    fn intervals_of_little_memory_are_not_judged() {
        let figures = figures_of(GRANULE, [8.0, 4.0, 2.0]);
        assert!(
            !figures.values.contains_key("cover_hot") && figures.values.contains_key("cover_cold")
        );
    }

    #[test]
    fn a_wrong_order_and_a_wrong_rate_are_seen() {
        let figures = figures([4.0, 8.5, 0.0]);
        assert_eq!(figures.values["order"], 0.0);
        assert_eq!(figures.values["rate_factor"], WIDEST);
        assert!(figures.values["cover_hot"] < 1.0, "{figures:?}");
    }

    #[test]
    fn the_worst_is_on_the_side_that_is_bad() {
        let of = |high| Spread::of([0.9, 0.7, 0.8].into_iter(), high).unwrap();
        assert_eq!((of(true).worst, of(true).best, of(true).seeds), (0.7, 0.9, 3));
        assert_eq!((of(false).worst, of(false).best, of(false).seeds), (0.9, 0.7, 3));
        assert!((of(true).mean - 0.8).abs() < 1e-12);
        assert_eq!(Spread::of(std::iter::empty(), true), None);
    }
}
