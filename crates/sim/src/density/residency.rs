//! Residency in the TLB and the paging-structure caches: which accesses and entries they hide.
//!
//! An access sets ACCESSED only if it walks the page table, and a walk loads an upper entry only if
//! no paging-structure cache holds it. For a least-recently-used cache under independent accesses
//! there is a *characteristic time*: an entry is held if it was used within that time. It is the
//! time in which the expected number of used entries equals the capacity (Che, Tung, Wang,
//! "Hierarchical Web caching systems", IEEE JSAC 2002; Fricker, Robert, Roberts, "A versatile and
//! accurate approximation for LRU cache performance", ITC 2012). A flush empties all of them.

/// Entries with equal rates of use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    /// Number of entries.
    pub(super) count: f64,
    /// Uses of each entry a second.
    pub(super) rate: f64,
}

/// Merges groups of equal rates.
pub(super) fn alike(groups: impl Iterator<Item = Group>) -> Vec<Group> {
    let mut groups: Vec<Group> = groups.filter(|g| g.rate > 0.0 && g.count > 0.0).collect();
    groups.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    groups.dedup_by(|next, group| {
        let same = next.rate == group.rate;
        group.count += if same { next.count } else { 0.0 };
        same
    });
    groups
}

/// The time in seconds for which a cache of `capacity` entries holds an entry since its last use;
/// infinite if all entries fit.
pub(super) fn characteristic_time(groups: &[Group], capacity: f64) -> f64 {
    let total: f64 = groups.iter().filter(|g| g.rate > 0.0).map(|g| g.count).sum();
    if total <= capacity {
        return f64::INFINITY;
    }
    // Number of entries used within a time, and its derivative. The number is concave: a tangent
    // reaches the capacity too early, but closer each time.
    let used = |time: f64| {
        groups.iter().fold([0.0, 0.0], |[used, more], group| {
            let rest = (-group.rate * time).exp();
            let part = -(-group.rate * time).exp_m1();
            [used + group.count * part, more + group.count * group.rate * rest]
        })
    };
    let mut time = LEAST;
    for _ in 0..TANGENTS {
        let [used, more] = used(time);
        let ahead = (capacity - used) / more;
        if !(ahead > time * 1e-12 && time < MOST) {
            break;
        }
        time = (time + ahead).min(MOST);
    }
    time
}

/// Bounds of characteristic times, in seconds: no entry is used as often, no run takes as long.
const LEAST: f64 = 1e-12;
const MOST: f64 = 1e12;
/// Number of tangents after which it is certainly found.
const TANGENTS: usize = 200;

/// Share of the uses of an entry that a cache does not hide: those more than `held` seconds after
/// the previous use, or the first after a flush. `flush` is the seconds between flushes, infinite
/// for never.
///
/// Uses `rate` a second, the last flush a uniform time ago: the mean of exp(-rate min(held, ago)).
pub(super) fn seen(rate: f64, held: f64, flush: f64) -> f64 {
    let gap = held.min(flush);
    if gap.is_infinite() {
        return 0.0;
    }
    let late = (-rate * gap).exp();
    if flush.is_infinite() {
        return late;
    }
    let busy = rate * gap;
    let first = if busy < 1e-6 { gap } else { -(-busy).exp_m1() / rate };
    (first + (flush - gap) * late) / flush
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Four entries of equal rate in a cache of two: half of them are held, 1 - exp(-t) = 1/2.
    #[test]
    fn half_of_the_entries_fit() {
        let time = characteristic_time(&[Group { count: 4.0, rate: 1.0 }], 2.0);
        assert!((time - 2f64.ln()).abs() < 1e-6, "{time}");
        assert!((seen(1.0, time, f64::INFINITY) - 0.5).abs() < 1e-6);
    }

    proptest! {
        // Compared with bisection, over twenty decades of rates.
        #[test]
        fn newton_and_bisection_find_the_same_root(
            groups in prop::collection::vec((1.0f64..1e6, -10.0f64..10.0), 1..20),
            share in 0.001f64..0.999,
        ) {
            let group = |(count, decade): &(f64, f64)| Group { count: *count, rate: 10f64.powf(*decade) };
            let groups: Vec<Group> = groups.iter().map(group).collect();
            let capacity = groups.iter().map(|group| group.count).sum::<f64>() * share;
            let used = |time: f64| -> f64 {
                groups.iter().map(|group| group.count * -(-group.rate * time).exp_m1()).sum()
            };
            let (mut low, mut high) = (LEAST, MOST);
            for _ in 0..100 {
                let middle = f64::sqrt(low * high);
                if used(middle) < capacity { low = middle } else { high = middle }
            }
            let time = characteristic_time(&groups, capacity);
            // Where the number of used entries hardly grows, rounding decides the time.
            let alike = (used(time) / capacity - 1.0).abs() < 1e-9;
            prop_assert!((time / high - 1.0).abs() < 1e-6 || alike, "{time} {high}");
        }
    }

    #[test]
    fn entries_that_fit_are_held_until_a_flush() {
        let time = characteristic_time(&[Group { count: 2.0, rate: 1.0 }], 2.0);
        assert_eq!(time, f64::INFINITY);
        assert_eq!(seen(1.0, time, f64::INFINITY), 0.0);
        // 1000 uses between flushes: one of them walks.
        assert!((seen(1000.0, time, 1.0) - 1e-3).abs() < 1e-6);
        // A use every 1000 flushes: nearly all of them walk.
        assert!((seen(1.0, time, 1e-3) - 0.9995).abs() < 1e-4);
    }

    #[test]
    fn a_short_hold_is_the_same_with_rare_flushes() {
        let (never, rare) = (seen(2.0, 0.5, f64::INFINITY), seen(2.0, 0.5, 1e6));
        assert!((never - rare).abs() < 1e-5, "{never} {rare}");
    }
}
