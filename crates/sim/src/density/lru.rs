//! Miss rate of a small set of a least-recently-used cache.
//!
//! Under independent accesses an entry is evicted when as many distinct others as there are ways
//! were used since its own last use. Others used within a time `t` are independent, each with `1 -
//! exp(-r t)`; so their number is a sum over groups of entries with equal rates, and the share of
//! uses that miss is the mean of its tail over the exponential time from one use to the next. A
//! characteristic time (`residency.rs`) is accurate enough for hundreds of ways; for four it is
//! wrong by orders of magnitude.
//!
//! At a timer tick the kernel uses `kernel` entries of its own at once: over a gap with a tick in
//! it, correspondingly fewer others are enough.

use std::sync::OnceLock;

use super::residency::Group;

/// Number of times for which tails are tabulated: four to a doubling, from a nanosecond to a
/// quarter of an hour.
const TIMES: usize = 160;
const FINE: f64 = 4.0;
/// Number of rates for which shares are computed: two to a doubling, from one use in ten days on.
const RATES: usize = 120;
const SLOWEST: f64 = 1e-6;
/// In groups of at most this many entries, the entry itself is not counted among the others.
const FEW: f64 = 64.0;
/// Largest number of groups treated so.
const OWN: usize = 8;
/// Groups whose rates differ by less than this factor are merged.
const BIN: f64 = 1.2;

fn time(step: usize) -> f64 {
    (step as f64 / FINE).exp2() / 1e9
}

/// Probabilities that a set has evicted an entry by the age of its last use: without a tick since,
/// and with one.
type Tails = Vec<[f64; 2]>;

/// A set.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    all: Tails,
    /// By rate: tails without one entry of that rate.
    own: Vec<(f64, Tails)>,
    /// Seconds between ticks, and between flushes.
    tick: f64,
    flush: f64,
    /// Shares of misses by rate, without flushes and with.
    shares: [Vec<OnceLock<f64>>; 2],
}

impl Lru {
    /// A set of `ways` ways, used by `groups` of entries and by `kernel` entries of the kernel.
    pub(super) fn new(
        groups: &[Group],
        ways: u32,
        kernel: usize,
        (tick, flush): (f64, f64),
    ) -> Self {
        let groups = binned(groups);
        let few = groups.iter().enumerate().rev().filter(|(_, group)| group.count <= FEW);
        let own = few.take(OWN).map(|(at, group)| {
            let mut rest = groups.clone();
            rest[at].count = (group.count - 1.0).max(0.0);
            (group.rate, tails(&rest, ways, kernel))
        });
        let fresh = || (0..RATES).map(|_| OnceLock::new()).collect();
        Self {
            own: own.collect(),
            all: tails(&groups, ways, kernel),
            tick,
            flush,
            shares: [fresh(), fresh()],
        }
    }

    /// Share of the uses, `rate` a second, that miss; with or without the first uses after a flush.
    pub(super) fn missed(&self, rate: f64, flushed: bool) -> f64 {
        let known = |(own, _): &&(f64, Tails)| (rate / own).max(own / rate) < BIN;
        let step = ((rate / SLOWEST).log2() * 2.0).round().clamp(0.0, (RATES - 1) as f64);
        self.shares[usize::from(flushed)][step as usize]
            .get_or_init(|| {
                let tails = self.own.iter().find(known).map_or(&self.all, |(_, tails)| tails);
                self.share(tails, rate.max(SLOWEST), flushed)
            })
            .to_owned()
    }

    fn share(&self, tails: &Tails, rate: f64, flushed: bool) -> f64 {
        let lost = |step: usize| {
            let [without, with] = tails[step];
            let ticks = (time(step) / self.tick).min(1.0);
            let flushes = if flushed { (time(step) / self.flush).min(1.0) } else { 0.0 };
            let kept = 1.0 - without - (with - without) * ticks;
            1.0 - kept * (1.0 - flushes)
        };
        let (mut sum, mut before) = (0.0, 1.0);
        for step in 0..TIMES {
            let after = (-rate * time(step)).exp();
            sum += (before - after) * (lost(step.saturating_sub(1)) + lost(step)) / 2.0;
            before = after;
        }
        sum + before * lost(TIMES - 1)
    }
}

/// Merges groups of nearly equal rates; ascending by rate.
fn binned(groups: &[Group]) -> Vec<Group> {
    let mut groups: Vec<Group> =
        groups.iter().copied().filter(|group| group.rate > 0.0 && group.count > 0.0).collect();
    groups.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    groups.dedup_by(|next, group| {
        let same = next.rate < group.rate * BIN;
        if same {
            let count = group.count + next.count;
            group.rate = (group.rate * group.count + next.rate * next.count) / count;
            group.count = count;
        }
        same
    });
    groups
}

fn tails(groups: &[Group], ways: u32, kernel: usize) -> Tails {
    let ways = ways as usize;
    let at = |step: usize| {
        let mut counts = vec![0.0; ways];
        counts[0] = 1.0;
        for group in groups {
            add(&mut counts, group.count, -(-group.rate * time(step)).exp_m1());
        }
        let fewer = |than: usize| counts[..than].iter().sum::<f64>();
        [1.0 - fewer(ways), 1.0 - fewer(ways.saturating_sub(kernel))].map(|p| p.clamp(0.0, 1.0))
    };
    (0..TIMES).map(at).collect()
}

/// Adds `count` entries, each used with probability `used`, to the distribution of the number of
/// used entries, truncated to its first terms.
fn add(counts: &mut [f64], count: f64, used: f64) {
    let terms = counts.len();
    let mut law = vec![0.0; terms];
    // Binomial distribution; if its first term underflows, so do all terms that are kept.
    law[0] = (count * (-used).ln_1p()).exp();
    if used >= 1.0 {
        law[0] = f64::from(u8::from(count == 0.0));
        if count < terms as f64 {
            law[count as usize] = 1.0;
        }
    } else {
        for k in 1..terms {
            let left = (count - k as f64 + 1.0).max(0.0);
            law[k] = law[k - 1] * left / k as f64 * used / (1.0 - used);
        }
    }
    for k in (0..terms).rev() {
        counts[k] = (0..=k).map(|at| counts[at] * law[k - at]).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: (f64, f64) = (f64::INFINITY, f64::INFINITY);

    fn lru(groups: &[(f64, f64)], ways: u32) -> Lru {
        let groups: Vec<Group> =
            groups.iter().map(|(count, rate)| Group { count: *count, rate: *rate }).collect();
        Lru::new(&groups, ways, 0, NEVER)
    }

    // Eight entries of equal rate in four ways: half of the uses hit.
    #[test]
    fn half_of_alike_entries_are_held() {
        let missed = lru(&[(8.0, 1000.0)], 4).missed(1000.0, false);
        assert!((missed - 0.5).abs() < 0.02, "{missed}");
        assert!(lru(&[(4.0, 1000.0)], 4).missed(1000.0, false) < 1e-6);
    }

    // Two hot entries of 660,000 uses and a thousand cold ones of 140 each in four ways: a hot one
    // is evicted if three cold ones, and the other hot one, are used between two of its uses: (140
    // / 800)^3 at most, with the other hot one a little less. The characteristic time would give
    // 8e-5.
    #[test]
    fn a_hot_entry_is_lost_by_chance() {
        let set = lru(&[(2.0, 660e3), (1000.0, 140.0)], 4);
        let missed = set.missed(660e3, false);
        assert!(missed > 0.0025 && missed < 0.0054, "{missed}");
    }

    // Simulates an LRU set use by use and compares with the formula: 5 and 3 entries of rates 10
    // and 40, in four ways.
    #[test]
    fn the_formula_agrees_with_a_simulated_set() {
        let mut rng = tierscope_core::Rng::seeded(1);
        let (mut order, mut uses, mut missed): (Vec<u64>, _, _) = (Vec::new(), [0.0; 2], [0.0; 2]);
        for _ in 0..400_000 {
            let draw = rng.below(5 * 10 + 3 * 40);
            let (class, entry) = if draw < 50 { (0, draw / 10) } else { (1, 5 + (draw - 50) / 40) };
            uses[class] += 1.0;
            match order.iter().position(|known| *known == entry) {
                Some(at) => _ = order.remove(at),
                None => missed[class] += 1.0,
            }
            order.insert(0, entry);
            order.truncate(4);
        }
        let set = lru(&[(5.0, 10.0), (3.0, 40.0)], 4);
        for (class, rate) in [10.0, 40.0].into_iter().enumerate() {
            let seen: f64 = missed[class] / uses[class];
            let computed = set.missed(rate, false);
            println!("rate {rate}: {seen:.4} by uses, {computed:.4} by the formula");
            assert!((seen - computed).abs() < 0.02, "{rate}: {seen} {computed}");
        }
    }

    // Two entries that are always in use and three of the kernel's in four ways: a tick evicts the
    // one of the two that was used less recently. Four of the kernel's evict both.
    #[test]
    fn ticks_take_places() {
        let groups = [Group { count: 2.0, rate: 1e5 }];
        let share = |kernel| Lru::new(&groups, 4, kernel, (4e-3, f64::INFINITY)).missed(1e5, false);
        assert!(share(2) < 1e-9);
        // 250 ticks among 100,000 uses.
        let [three, four] = [share(3), share(4)].map(|share| share * 1e5 / 250.0);
        assert!((0.3..0.9).contains(&three), "{three}");
        assert!((four - 1.0).abs() < 0.05, "{four}");
    }
}
