//! Histogram of operation latencies, of constant size for any number of operations.

/// Classes per power of two: the width of a class is at most a 256th of its times.
const CLASSES: u64 = 256;

/// Percentiles by nearest rank of the simulated durations of a process's operations, in ns. A
/// duration is reported as the largest of its class: never too short, and too long by at most a
/// 256th; below 512 ns it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Number of completed operations.
    pub operations: u64,
    /// The median.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The longest duration; exact.
    pub most: u64,
}

/// Histogram of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    /// Counts by class.
    counts: Vec<u64>,
    all: u64,
    most: u64,
}

impl Latencies {
    /// Counts a time in ns.
    pub(crate) fn count(&mut self, time: u64) {
        let class = class(time);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.all += 1;
        self.most = self.most.max(time);
    }

    /// Adds the times of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        let classes = self.counts.len().max(other.counts.len());
        self.counts.resize(classes, 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        self.all += other.all;
        self.most = self.most.max(other.most);
    }

    /// The percentiles; `None` without operations.
    pub(crate) fn percentiles(&self) -> Option<Latency> {
        (self.all > 0).then(|| Latency {
            operations: self.all,
            p50: self.at(500),
            p95: self.at(950),
            p99: self.at(990),
            p999: self.at(999),
            most: self.most,
        })
    }

    /// The time that `per_mille` of a thousand operations did not exceed.
    fn at(&self, per_mille: u64) -> u64 {
        let rank = (u128::from(self.all) * u128::from(per_mille)).div_ceil(1000);
        let mut below = 0u128;
        let found = self.counts.iter().position(|count| {
            below += u128::from(*count);
            below >= rank
        });
        found.map_or(self.most, |class| greatest(class).min(self.most))
    }
}

/// Times below 512 have a class of their own; larger ones are classified by their nine leading
/// bits.
fn class(time: u64) -> usize {
    let shift = (time | CLASSES).ilog2() - CLASSES.ilog2();
    (u64::from(shift) * CLASSES + (time >> shift)) as usize
}

/// The largest time of a class.
fn greatest(class: usize) -> u64 {
    let shift = (class as u64 / CLASSES).saturating_sub(1);
    let leading = class as u64 - shift * CLASSES;
    (leading << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(times: &[u64]) -> Latencies {
        let mut latencies = Latencies::default();
        times.iter().for_each(|time| latencies.count(*time));
        latencies
    }

    // 1 to 1000: ranks 500, 950, 990 and 999. From 512 on two times share a class: 950 is reported
    // as 951.
    #[test]
    fn a_thousand_times_by_hand() {
        let percentiles = counted(&(1..=1000).collect::<Vec<_>>()).percentiles().unwrap();
        let by_hand =
            Latency { operations: 1000, p50: 500, p95: 951, p99: 991, p999: 999, most: 1000 };
        assert_eq!(percentiles, by_hand);
        assert_eq!(counted(&[7]).percentiles().map(|one| (one.p50, one.p999)), Some((7, 7)));
        assert_eq!(Latencies::default().percentiles(), None);
    }

    #[test]
    fn classes_follow_one_another() {
        for time in (0..5000).chain([u64::MAX - 1, u64::MAX]) {
            let class = class(time);
            assert!(greatest(class) >= time && greatest(class) - time <= time / CLASSES, "{time}");
            assert!(class == 0 || greatest(class - 1) < time, "{time}");
        }
    }

    proptest! {
        // Compared with the percentiles of all times, sorted.
        #[test]
        fn percentiles_are_those_of_a_naive_sort(
            mut times in prop::collection::vec((0u64..1 << 40, 0u32..40).prop_map(|(time, by)| time >> by), 1..400),
            cut: prop::sample::Index,
        ) {
            let (one, other) = times.split_at(cut.index(times.len()));
            let mut latencies = counted(one);
            latencies.add(&counted(other));
            times.sort_unstable();
            for per_mille in [500, 950, 990, 999] {
                let rank = (times.len() * per_mille).div_ceil(1000);
                let (approximate, exact) = (latencies.at(per_mille as u64), times[rank - 1]);
                prop_assert!(approximate >= exact && approximate - exact <= exact / CLASSES, "{}: {} for {}", per_mille, approximate, exact);
            }
            prop_assert_eq!(latencies.most, times[times.len() - 1]);
        }
    }
}
