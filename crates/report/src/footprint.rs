//! Bytes mapped, resident, accessed and hot over time.

use serde::Serialize;

use crate::figures::Figures;

/// Maximum number of points of a line.
const POINTS: usize = 400;

/// An interval of time: means over its windows, and the range of hot bytes in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Start, since the recording began.
    pub from_ns: u64,
    /// End of the interval, since the recording began.
    pub to_ns: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes resident, if recorded.
    pub resident_bytes: Option<u64>,
    /// Resident bytes by tier; empty while unknown.
    pub tier_bytes: Vec<u64>,
    /// Bytes accessed per window.
    pub accessed_bytes: u64,
    /// Bytes hot per window.
    pub hot_bytes: u64,
    /// Bytes unknown per window: counted neither as accessed nor as hot.
    pub unknown_bytes: u64,
    /// Minimum of the hot bytes over the windows.
    pub hot_min: u64,
    /// Maximum of the hot bytes over the windows.
    pub hot_max: u64,
}

/// Figures over time, in at most [`POINTS`] points.
pub(crate) fn points(figures: &[Figures]) -> Vec<Point> {
    figures.chunks(figures.len().div_ceil(POINTS).max(1)).map(point).collect()
}

fn point(windows: &[Figures]) -> Point {
    let mean = |of: fn(&Figures) -> u64| mean_of(windows.iter().map(of)).unwrap_or(0);
    let hot = || windows.iter().map(|window| window.hot);
    // If only some windows have data, their mean is used for the whole point.
    let known = || windows.iter().filter_map(|window| window.in_memory.as_ref());
    let resident = || known().map(|memory| memory.bytes);
    let placed = known().filter(|memory| !memory.tiers.is_empty());
    let tiers = placed.clone().map(|memory| memory.tiers.len()).max().unwrap_or(0);
    let tier = |index: usize| {
        mean_of(placed.clone().map(|memory| memory.tiers.get(index).copied().unwrap_or(0)))
    };
    Point {
        from_ns: windows[0].from_ns,
        to_ns: windows[windows.len() - 1].to_ns,
        mapped_bytes: mean(|w| w.mapped),
        resident_bytes: mean_of(resident()),
        tier_bytes: (0..tiers).filter_map(tier).collect(),
        accessed_bytes: mean(|w| w.accessed),
        hot_bytes: mean(|w| w.hot),
        unknown_bytes: mean(|w| w.unknown),
        hot_min: hot().min().unwrap_or(0),
        hot_max: hot().max().unwrap_or(0),
    }
}

/// Mean of the values; `None` if there are none.
fn mean_of(values: impl Iterator<Item = u64>) -> Option<u64> {
    let (count, sum) =
        values.fold((0u128, 0u128), |(count, sum), value| (count + 1, sum + u128::from(value)));
    (count > 0).then(|| (sum / count) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::InMemory;

    fn window(number: u64, hot: u64) -> Figures {
        Figures { from_ns: number, to_ns: number + 1, mapped: 10, hot, ..Figures::default() }
    }

    // 801 windows in threes: 267 points.
    #[test]
    fn points_are_means_with_extremes() {
        let windows: Vec<_> = (0..801).map(|n| window(n, n % 3)).collect();
        let points = points(&windows);
        assert_eq!(points.len(), 267);
        let first = &points[0];
        assert_eq!((first.from_ns, first.to_ns), (0, 3));
        assert_eq!((first.hot_min, first.hot_bytes, first.hot_max), (0, 1, 2));
        assert_eq!((first.mapped_bytes, first.resident_bytes), (10, None));
        assert!(first.tier_bytes.is_empty());
    }

    // The first window has no residence data, the second only the total, the third all.
    #[test]
    fn a_point_shows_its_known_windows() {
        let memory =
            |bytes, tiers: &[u64]| InMemory { bytes, tiers: tiers.into(), ..InMemory::default() };
        let known = [None, Some(memory(4, &[])), Some(memory(8, &[6, 2]))];
        let windows: Vec<_> =
            (0..).zip(known).map(|(n, in_memory)| Figures { in_memory, ..window(n, 0) }).collect();
        let point = point(&windows);
        assert_eq!((point.resident_bytes, &*point.tier_bytes), (Some(6), &[6, 2][..]));
    }
}
