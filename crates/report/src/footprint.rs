//! Bytes mapped, resident, accessed and hot over time.

use serde::Serialize;

use crate::figures::Figures;

/// Points of a line at most.
const POINTS: usize = 400;

/// A stretch of time: means over its windows, and how hot bytes vary in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Start, since the recording began.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes resident, if the recording knows.
    pub resident_bytes: Option<u64>,
    /// Bytes accessed in a window.
    pub accessed_bytes: u64,
    /// Bytes hot in a window.
    pub hot_bytes: u64,
    /// Least hot bytes of a window.
    pub hot_min: u64,
    /// Most.
    pub hot_max: u64,
}

/// Figures over time, in at most [`POINTS`] points.
pub(crate) fn points(figures: &[Figures]) -> Vec<Point> {
    figures.chunks(figures.len().div_ceil(POINTS).max(1)).map(point).collect()
}

fn point(windows: &[Figures]) -> Point {
    let mean = |of: &dyn Fn(&Figures) -> u64| {
        let sum: u128 = windows.iter().map(|window| u128::from(of(window))).sum();
        (sum / windows.len() as u128) as u64
    };
    let hot = || windows.iter().map(|window| window.hot);
    let known = windows.iter().all(|window| window.resident.is_some());
    Point {
        from_ns: windows[0].from_ns,
        to_ns: windows[windows.len() - 1].to_ns,
        mapped_bytes: mean(&|w| w.mapped),
        resident_bytes: known.then(|| mean(&|w| w.resident.unwrap_or(0))),
        accessed_bytes: mean(&|w| w.accessed),
        hot_bytes: mean(&|w| w.hot),
        hot_min: hot().min().unwrap_or(0),
        hot_max: hot().max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(number: u64, hot: u64) -> Figures {
        Figures { from_ns: number, to_ns: number + 1, mapped: 10, hot, ..Figures::default() }
    }

    // 801 windows in threes: 267 points.
    #[test]
    fn points_are_means_with_extremes() {
        let windows: Vec<_> = (0..801).map(|n| window(n, n % 3)).collect();
        let points = points(&windows);
        assert_eq!(points.len(), 267);
        let first = points[0];
        assert_eq!((first.from_ns, first.to_ns), (0, 3));
        assert_eq!((first.hot_min, first.hot_bytes, first.hot_max), (0, 1, 2));
        assert_eq!((first.mapped_bytes, first.resident_bytes), (10, None));
    }
}
