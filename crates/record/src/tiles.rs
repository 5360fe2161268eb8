//! The zoom pyramid: summaries of many windows, so that an hour can be displayed at once.
//!
//! A tile of zoom z summarises 8^z windows, in at most [`BINS`] bins. Bins begin as the ranges that
//! were observed alike, and neighbours are merged until the bins are few enough, those first whose
//! merging adds the least error (squared difference of frequency times bytes and time: Ward's
//! criterion). The mean of any range that no bin straddles is therefore exact. Bins are merged
//! across gaps only if there are more ranges without gaps than half of the bins, over the shortest
//! gaps: memory of two mappings is not mixed, and nothing is hot where nothing was observed. A
//! single hot page in a cold terabyte costs three bins, and keeps its place and its heat.
//!
//! A tile is written with the window that completes it. The newest windows, not yet in a tile, are
//! covered by finer tiles and finally by regions (see `Recording::heat`), so nothing is missing at
//! the end of a recording, however it ended.

use tierscope_core::{Range, Snapshot, SpaceId};

mod merging;

use merging::Merging;

/// Tiles of a zoom that make up one of the next.
pub const FANOUT: u64 = 8;

/// Maximum bins of a tile.
pub const BINS: usize = 2048;

/// A part of the address space in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Space of the addresses.
    pub space: SpaceId,
    /// First byte.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Mean frequency where and when it is known, in 1/255, rounded; never rounded down to 0.
    pub heat: u8,
    /// Share of the bin's bytes and the tile's time with a known frequency, in 1/255; never rounded
    /// down to 0.
    pub seen: u8,
    /// Mean confidence where and when the frequency is known, in 1/255, rounded.
    pub sure: u8,
    /// Share of the bin's bytes and the tile's time that was observed without a known frequency, in
    /// addition to `seen` and in the same unit.
    pub unknown: u8,
}

impl Bin {
    /// The address range of the bin.
    #[must_use]
    pub fn range(&self) -> Range {
        Range::new(self.space, self.start, self.start.saturating_add(self.bytes))
    }

    /// Whether it is a range of addresses.
    pub(crate) fn is_sane(&self) -> bool {
        self.bytes > 0 && self.start.checked_add(self.bytes).is_some()
    }
}

/// Heat over 8^zoom windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Level of the pyramid.
    pub(crate) zoom: u8,
    /// Position in time: its first window is `index * 8^zoom`.
    pub(crate) index: u64,
    /// Bins sorted by space and start, disjoint.
    pub(crate) bins: Vec<Bin>,
}

/// Number of windows in a tile of that zoom.
#[must_use]
pub fn windows_in(zoom: u8) -> u64 {
    FANOUT.saturating_pow(u32::from(zoom))
}

/// Quantises a share to 1/255, never rounded down to 0.
fn quantised(share: f64) -> u8 {
    if share <= 0.0 { 0 } else { (share * 255.0).round().clamp(1.0, 255.0) as u8 }
}

/// The share 0..=1 of a quantised value.
#[must_use]
pub fn share_of(quantised: u8) -> f64 {
    f64::from(quantised) / 255.0
}

/// Summarises windows in tiles, and emits each tile when it is complete.
#[derive(Debug, Default)]
pub(crate) struct Pyramid {
    /// Incomplete tiles, zoom 1 first.
    sums: Vec<Sum>,
    windows: u64,
}

impl Pyramid {
    /// Adds a window; returns the tiles that it completes, finest first.
    pub(crate) fn window(&mut self, snapshot: &Snapshot) -> Vec<Tile> {
        let time = snapshot.end.0.saturating_sub(snapshot.start.0).clamp(1, LONGEST);
        let looked_at = |r: &&tierscope_core::Region| !r.is_unseen() && !r.range.is_empty();
        let parts = snapshot.regions.iter().filter(looked_at);
        self.sum(1).add(parts.map(|r| Part::of(r, time)), time);
        self.windows += 1;
        self.complete()
    }

    fn sum(&mut self, zoom: u8) -> &mut Sum {
        let index = usize::from(zoom) - 1;
        if self.sums.len() == index {
            self.sums.push(Sum::default());
        }
        &mut self.sums[index]
    }

    fn complete(&mut self) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for zoom in 1.. {
            let size = windows_in(zoom);
            if !self.windows.is_multiple_of(size) {
                break;
            }
            let sum = self.sum(zoom);
            let tile = Tile { zoom, bins: sum.bins(BINS), ..Tile::default() };
            let time = (sum.time / FANOUT).max(1);
            sum.clear();
            let above = self.sum(zoom + 1);
            above.add(tile.parts(time), time);
            above.tighten();
            tiles.push(Tile { index: self.windows / size - 1, ..tile });
        }
        tiles
    }
}

impl Tile {
    /// The bins as input of the next zoom's sum, with the tile's duration counted as `time`.
    fn parts(&self, time: u64) -> impl Iterator<Item = Part> + '_ {
        let span = move |share: u8| match share {
            0 => 0,
            share => ((share_of(share) * time as f64).round() as u64).max(1),
        };
        let part = move |b: &Bin| Part {
            unknown: span(b.unknown),
            ..Part::new(b.range(), span(b.seen), share_of(b.heat), share_of(b.sure) as f32)
        };
        self.bins.iter().map(part)
    }
}

/// A range whose bytes were observed alike. Sums are integers, so that a sum without heat stays
/// exactly 0 when parts are added and subtracted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    range: Range,
    /// Time with a known frequency: in nanoseconds at zoom 1; the unit grows eightfold with every
    /// further zoom.
    seen: u64,
    /// Frequency times known time, in units of 1/[`ONE`].
    hot: u64,
    /// Confidence times known time, in units of 1/[`ONE`].
    sure: u64,
    /// Time observed without a known frequency.
    unknown: u64,
}

/// Fixed-point 1.0 of a frequency or confidence.
const ONE: f64 = (1 << ONE_BITS) as f64;
const ONE_BITS: u32 = 16;

/// Limit on the duration that a window counts with, about five hours: eight of them times [`ONE`]
/// are less than 2^63.
const LONGEST: u64 = 1 << 44;

impl Part {
    fn new(range: Range, seen: u64, heat: f64, confidence: f32) -> Self {
        // Shortcuts for the common case: cold, with full confidence.
        let whole = |share: f64| u64::from((share * ONE + 0.5) as u32);
        let hot = if heat == 0.0 { 0 } else { whole(heat).max(1) * seen };
        let sure =
            if confidence >= 1.0 { seen << ONE_BITS } else { whole(confidence.into()) * seen };
        Self { range, seen, hot, sure, unknown: 0 }
    }

    /// The part for a region that was observed for `time`.
    fn of(region: &tierscope_core::Region, time: u64) -> Self {
        if region.is_unknown() {
            return Self { unknown: time, ..Self::empty(region.range) };
        }
        Self::new(region.range, time, region.frequency(), region.confidence)
    }

    /// A part without observations.
    fn empty(range: Range) -> Self {
        Self { range, seen: 0, hot: 0, sure: 0, unknown: 0 }
    }

    /// Splits off and returns the range below `at`, which lies within the part.
    fn split_off_below(&mut self, at: u64) -> Self {
        let below = Self { range: Range { end: at, ..self.range }, ..*self };
        self.range.start = at;
        below
    }

    fn add(&mut self, other: &Part) {
        self.seen += other.seen;
        self.hot += other.hot;
        self.sure += other.sure;
        self.unknown += other.unknown;
    }
}

/// Whether all of `a` precedes all of `b`.
fn before(a: &Range, b: &Range) -> bool {
    (a.space, a.end) <= (b.space, b.start)
}

/// Heat summed over time, by the elementary ranges of all added parts.
#[derive(Debug, Default)]
struct Sum {
    parts: Vec<Part>,
    /// The parts before the last split, kept to reuse their memory.
    spare: Vec<Part>,
    time: u64,
}

impl Sum {
    /// Adds sorted, disjoint parts of a period of `time`. Most regions persist from window to
    /// window, so that nothing is moved unless ranges change.
    fn add(&mut self, new: impl Iterator<Item = Part>, time: u64) {
        self.spare.clear();
        // Parts before `index` are done; those before `kept` are in `spare`.
        let (mut index, mut kept) = (0, 0);
        for part in new {
            match self.parts.get_mut(index) {
                Some(own) if own.range == part.range => {
                    own.add(&part);
                    index += 1;
                }
                _ => self.fit_in(&part, &mut index, &mut kept),
            }
        }
        if !self.spare.is_empty() {
            self.spare.extend_from_slice(&self.parts[kept..]);
            std::mem::swap(&mut self.parts, &mut self.spare);
        }
        self.time += time;
    }

    /// Adds a part whose range covers several existing parts, fragments of them, or none.
    fn fit_in(&mut self, part: &Part, index: &mut usize, kept: &mut usize) {
        let Range { space, end, .. } = part.range;
        while self.parts.get(*index).is_some_and(|own| before(&own.range, &part.range)) {
            *index += 1;
        }
        let mut at = part.range.start;
        while at < end {
            let next = self.parts.get_mut(*index);
            let next = next.filter(|own| own.range.space == space && own.range.start < end);
            let mut piece = match next {
                Some(own) if own.range.start == at && own.range.end <= end => {
                    own.add(part);
                    at = own.range.end;
                    *index += 1;
                    continue;
                }
                Some(own) if own.range.start == at => own.split_off_below(end),
                Some(own) if own.range.start < at => own.split_off_below(at),
                Some(own) => Part::empty(Range::new(space, at, own.range.start)),
                None => Part::empty(Range::new(space, at, end)),
            };
            if piece.range.start == at {
                piece.add(part);
                at = piece.range.end;
            }
            self.spare.extend_from_slice(&self.parts[*kept..*index]);
            self.spare.push(piece);
            *kept = *index;
        }
    }

    /// Resets the sum. Keeps memory for twice the parts needed, so that one burst of many parts
    /// does not hold its memory forever.
    fn clear(&mut self) {
        let ample = 2 * self.parts.len();
        self.parts.clear();
        self.parts.shrink_to(ample);
        self.spare.clear();
        self.spare.shrink_to(ample);
        self.time = 0;
    }

    /// Frees memory that is not needed until the next parts are added, many windows later.
    fn tighten(&mut self) {
        self.parts.shrink_to_fit();
        self.spare = Vec::new();
    }

    /// At most `budget` bins, or one for each space if that is more.
    fn bins(&self, budget: usize) -> Vec<Bin> {
        Merging::of(&self.parts, self.time).bins(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::Unknown;
    use tierscope_core::{Region, Time};

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn region(start: u64, end: u64, hits: f32) -> Region {
        let range = Range::new(SpaceId(0), start, end);
        Region::sampled(range, hits, 40)
    }

    fn snapshot(window: u64, regions: Vec<Region>) -> Snapshot {
        Snapshot { start: Time(window * 200), end: Time(window * 200 + 200), samples: 40, regions }
    }

    fn tiles(windows: u64, regions: impl Fn(u64) -> Vec<Region>) -> Vec<Tile> {
        let mut pyramid = Pyramid::default();
        (0..windows).flat_map(|w| pyramid.window(&snapshot(w, regions(w)))).collect()
    }

    /// Bytes that were observed all the time and are cold.
    fn bin(start: u64, bytes: u64) -> Bin {
        Bin { space: SpaceId(0), start, bytes, heat: 0, seen: 255, sure: 255, unknown: 0 }
    }

    #[test]
    fn a_tile_is_written_with_the_window_that_completes_it() {
        let tiles = tiles(64, |_| vec![region(0, GIB, 40.0)]);
        let names: Vec<_> = tiles.iter().map(|tile| (tile.zoom, tile.index)).collect();
        let ones = (0..8).map(|index| (1, index));
        assert_eq!(names, ones.chain([(2, 0)]).collect::<Vec<_>>());
        let whole = Bin { heat: 255, ..bin(0, GIB) };
        assert!(tiles.iter().all(|tile| tile.bins == [whole]));
    }

    // 1 TiB, cold except for one page: the page keeps its place and its heat.
    #[test]
    fn one_hot_page_in_a_terabyte_keeps_its_heat() {
        let needle = 777 * GIB + 123 * 4096;
        let regions = |_| {
            vec![
                region(0, needle, 0.0),
                region(needle, needle + 4096, 40.0),
                region(needle + 4096, 1 << 40, 0.0),
            ]
        };
        for tile in tiles(512, regions) {
            let page = Bin { heat: 255, ..bin(needle, 4096) };
            let rest = needle + 4096;
            let bins = [bin(0, needle), page, bin(rest, (1 << 40) - rest)];
            assert_eq!(tile.bins, bins, "zoom {}", tile.zoom);
        }
    }

    // Hot for one window in eight; the upper half observed in one window in eight.
    #[test]
    fn heat_is_averaged_over_time_and_gaps_are_kept() {
        let tiles = tiles(8, |window| {
            let mut regions = vec![region(0, MIB, if window == 0 { 40.0 } else { 0.0 })];
            if window == 7 {
                regions.push(region(MIB, 2 * MIB, 40.0));
            }
            regions
        });
        let shown: Vec<_> =
            tiles[0].bins.iter().map(|b| (b.start / MIB, b.bytes, b.heat, b.seen)).collect();
        assert_eq!(shown, [(0, MIB, 32, 255), (1, MIB, 255, 32)]);
    }

    // Four MiB: the first is cold, the second unknown in every window, the third unknown in two
    // windows of eight and hot in the others, the fourth not observed. Hits of unknown regions are
    // not heat.
    #[test]
    fn unknown_memory_keeps_its_state() {
        let unknown = |region: Region| Region { unknown: Some(Unknown::Evidence), ..region };
        let tiles = tiles(64, |window| {
            let third = region(2 * MIB, 3 * MIB, 40.0);
            vec![
                region(0, MIB, 0.0),
                unknown(region(MIB, 2 * MIB, 40.0)),
                if window % 8 < 2 { unknown(third) } else { third },
                Region { samples: 0, ..unknown(region(3 * MIB, 4 * MIB, 0.0)) },
            ]
        });
        let mib = |index: u64| bin(index * MIB, MIB);
        let second = Bin { seen: 0, sure: 0, unknown: 255, ..mib(1) };
        // Six eighths and two eighths of 255.
        let third = Bin { heat: 255, seen: 191, unknown: 64, ..mib(2) };
        assert_eq!(tiles.len(), 9);
        for tile in &tiles {
            assert_eq!(tile.bins, [mib(0), second, third], "zoom {}", tile.zoom);
        }
    }

    #[test]
    fn the_smallest_heat_is_not_cold() {
        let hits = |window| if window == 5 { 0.001 } else { 0.0 };
        let tiles = tiles(512, |window| vec![region(0, MIB, hits(window))]);
        assert!(tiles.iter().filter(|t| t.index == 0).all(|tile| tile.bins[0].heat == 1));
    }

    prop_compose! {
        /// Up to eight windows of a few regions of whole pages.
        fn some_windows()(
            windows in prop::collection::vec(prop::collection::vec((0u64..12, 0u64..12, 0u32..=40), 0..8), 1..9)
        ) -> Vec<Vec<Region>> {
            let of = |parts: Vec<(u64, u64, u32)>| {
                let mut at = 0;
                let place = |(gap, pages, hits): (u64, u64, u32)| {
                    let start = at + gap;
                    at = start + pages;
                    let confidence = [1.0, 0.5, 0.25][hits as usize % 3];
                    let unknown = (hits % 5 == 4).then_some(Unknown::Evidence);
                    Region { confidence, unknown, ..region(start * 4096, at * 4096, hits as f32) }
                };
                parts.into_iter().map(place).filter(|r| !r.range.is_empty()).collect()
            };
            windows.into_iter().map(of).collect()
        }
    }

    /// Frequency and confidence of a page, and the windows in which it is known and unknown, by
    /// iterating over all windows.
    fn naive(windows: &[Vec<Region>], page: u64) -> (f64, f64, f64, f64) {
        let holds = |r: &&Region| r.range.start <= page * 4096 && page * 4096 < r.range.end;
        let seen = windows.iter().filter_map(|regions| regions.iter().find(holds));
        seen.fold((0.0, 0.0, 0.0, 0.0), |(hot, sure, known, unknown), region| {
            if region.unknown.is_some() {
                return (hot, sure, known, unknown + 1.0);
            }
            (hot + region.frequency(), sure + f64::from(region.confidence), known + 1.0, unknown)
        })
    }

    proptest! {
        // With enough bins, a tile equals the naive sums for every page.
        #[test]
        fn a_tile_equals_the_windows_page_by_page(windows in some_windows()) {
            let all = |window: u64| windows.get(window as usize).cloned().unwrap_or_default();
            let tile = tiles(8, all).remove(0);
            for page in 0..200 {
                let (hot, sure, seen, unknown) = naive(&windows, page);
                let bin = tile.bins.iter().find(|b| b.range().start <= page * 4096 && page * 4096 < b.range().end);
                match bin {
                    None => prop_assert_eq!(seen + unknown, 0.0, "page {}", page),
                    Some(bin) => {
                        prop_assert!((share_of(bin.unknown) - unknown / 8.0).abs() < 0.003, "page {page}");
                        prop_assert!((share_of(bin.seen) - seen / 8.0).abs() < 0.003, "page {page}");
                        prop_assert!((share_of(bin.sure) - sure / seen.max(1.0)).abs() < 0.003, "page {page}");
                        prop_assert!((share_of(bin.heat) - hot / seen.max(1.0)).abs() < 0.005, "page {page}");
                    }
                }
            }
        }

        // However few the bins, they are disjoint, and cover everything that was observed.
        #[test]
        fn few_bins_cover_all(windows in some_windows(), budget in 1usize..12) {
            let mut sum = Sum::default();
            for regions in &windows {
                sum.add(regions.iter().map(|r| Part::of(r, 200)), 200);
            }
            let bins = sum.bins(budget);
            prop_assert!(bins.len() <= budget.max(1));
            prop_assert!(bins.iter().all(Bin::is_sane));
            prop_assert!(bins.windows(2).all(|pair| pair[0].range().end <= pair[1].start));
            let bytes: u64 = bins.iter().map(|b| b.range().bytes()).sum();
            for region in windows.iter().flatten() {
                let inside: u64 = bins.iter().filter_map(|b| b.range().intersect(&region.range)).map(|r| r.bytes()).sum();
                prop_assert_eq!(inside, region.range.bytes());
            }
            prop_assert!(windows.iter().flatten().next().is_none() || bytes > 0);
        }

        // Parts are sorted and disjoint, and each byte's sums are those of the windows that contain
        // it.
        #[test]
        fn parts_add_up(windows in some_windows(), others in some_windows()) {
            let elsewhere = |r: &Region| Region { range: Range { space: SpaceId(3), ..r.range }, ..*r };
            let none = Vec::new();
            let mut sum = Sum::default();
            let mut added = Vec::new();
            for index in 0..windows.len().max(others.len()) {
                let here = windows.get(index).unwrap_or(&none).iter().copied();
                let there = others.get(index).unwrap_or(&none).iter().map(elsewhere);
                let parts: Vec<Part> = here.chain(there).map(|r| Part::of(&r, 200)).collect();
                sum.add(parts.iter().copied(), 200);
                added.extend(parts);
            }
            prop_assert!(sum.parts.windows(2).all(|pair| before(&pair[0].range, &pair[1].range)));
            for (space, page) in [0, 3].into_iter().flat_map(|space| (0..200).map(move |page| (SpaceId(space), page * 4096))) {
                let holds = |p: &&Part| p.range.space == space && p.range.start <= page && page < p.range.end;
                let mut naive = Part::empty(Range::new(space, page, page + 4096));
                added.iter().filter(holds).for_each(|part| naive.add(part));
                let found = sum.parts.iter().find(holds).map(|part| Part { range: naive.range, ..*part });
                prop_assert_eq!(found, (naive.seen + naive.unknown > 0).then_some(naive));
            }
        }
    }
}
