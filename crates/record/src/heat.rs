//! Heat over periods of time, computed from tiles and regions.

use std::ops::Range as Span;

use tierscope_core::{Range, Region, Snapshot, Time};

use crate::tiles::{Bin, share_of, windows_in};

/// Heat over a period of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The period.
    pub time: Span<Time>,
    /// Heat of the observed ranges, sorted and disjoint.
    pub parts: Vec<HeatPart>,
}

/// Heat of an address range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatPart {
    /// The address range.
    pub range: Range,
    /// Mean frequency where and when it is known, 0..=1.
    pub heat: f64,
    /// Share of bytes and time that was observed with a known frequency, 0..=1.
    pub seen: f64,
    /// Mean confidence where and when the frequency is known, 0..=1.
    pub confidence: f64,
    /// Share of bytes and time that was observed with too little evidence to know the frequency.
    /// The sum of `seen` and this is above 0 and at most 1; the rest was not observed.
    pub unknown: f64,
}

impl HeatPart {
    /// A range without observations.
    fn unseen(range: Range) -> Self {
        Self { range, heat: 0.0, seen: 0.0, confidence: 0.0, unknown: 0.0 }
    }
}

impl Heat {
    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        let looked_at = snapshot.regions.iter().filter(|region| !region.is_unseen());
        let part = |region: &Region| match region.is_unknown() {
            true => HeatPart { unknown: 1.0, ..HeatPart::unseen(region.range) },
            false => HeatPart {
                heat: region.frequency(),
                seen: 1.0,
                confidence: region.confidence.into(),
                ..HeatPart::unseen(region.range)
            },
        };
        Self { time: snapshot.start..snapshot.end, parts: looked_at.map(part).collect() }
    }

    pub(crate) fn of_bins(time: Span<Time>, bins: &[Bin]) -> Self {
        let part = |bin: &Bin| HeatPart {
            range: bin.range(),
            heat: share_of(bin.heat),
            seen: share_of(bin.seen),
            confidence: share_of(bin.sure),
            unknown: share_of(bin.unknown),
        };
        Self { time, parts: bins.iter().map(part).collect() }
    }
}

/// The fewest aligned tiles of zoom 0 (windows) to `coarsest` that cover `windows`, of those that
/// may be taken: zoom and first window of each.
pub(crate) fn cover(
    windows: Span<usize>,
    coarsest: u8,
    may_take: impl Fn(u8, Span<usize>) -> bool,
) -> impl Iterator<Item = (u8, usize)> {
    let mut at = windows.start;
    std::iter::from_fn(move || {
        let left = windows.end.checked_sub(at).filter(|left| *left > 0)? as u64;
        let fits = |zoom: &u8| {
            let size = windows_in(*zoom);
            let is_whole = size <= left && (at as u64).is_multiple_of(size);
            is_whole && may_take(*zoom, at..at + size as usize)
        };
        let zoom = (0..=coarsest).rev().find(fits).unwrap_or(0);
        let piece = (zoom, at);
        at += windows_in(zoom) as usize;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // 0..8 is a tile of zoom 1; windows before or after a complete tile are read one by one.
    #[test]
    fn a_range_is_covered_by_the_coarsest_tiles_that_fit() {
        let all = |windows, coarsest| cover(windows, coarsest, |_, _| true).collect::<Vec<_>>();
        let cover = all;
        assert_eq!(cover(0..10, 3), [(1, 0), (0, 8), (0, 9)]);
        assert_eq!(cover(7..16, 3), [(0, 7), (1, 8)]);
        assert_eq!(cover(0..64, 3), [(2, 0)]);
        assert_eq!(cover(0..16, 0).len(), 16);
        assert_eq!(cover(5..5, 3), []);
        let apart = super::cover(0..24, 3, |zoom, windows| zoom == 0 || windows.start != 8);
        assert_eq!(apart.map(|(zoom, _)| zoom).collect::<Vec<_>>(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
