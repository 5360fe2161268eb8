//! Builds a snapshot's regions from the inferred segments.

use std::collections::BTreeMap;

use tierscope_core::{Level, Range, Rate, Region, Unknown};

use super::chain::Segment;
use super::grid::rate_of;
use super::per_page;
use super::table::{Key, Table};
use super::tally::{DOUBT, Tally};

/// Expected accesses per sample of an entry at the hot threshold: it is found accessed in 5 of 40
/// samples.
const AT_THRESHOLD: f32 = 0.133_54;
/// Highest confidence that is reported: the model itself may be wrong.
const MOST_SURE: f32 = 0.999;
/// Factor within which rates of neighbours become one region: one and a half cells.
const ALIKE: f32 = 1.54;
/// Cells below the hot threshold at which a rate is reported that only appears to be above it.
const BELOW: f32 = 0.5;
/// The cell of 10^5 accesses per second, used as the hot threshold while that is unknown.
const NO_THRESHOLD: f32 = 56.0;
/// Cells by which the hot threshold may have changed since regions were built.
const CLOSE_THRESHOLDS: f32 = 1.0;
/// Accesses per second of a page below which rates are not distinguished: two per minute in 2 MiB.
const NEGLIGIBLE: f32 = 6.5e-5;

/// Input from which regions are built.
pub(super) struct RegionInput<'a> {
    pub(super) areas: &'a [Range],
    pub(super) upper: &'a [Table],
    pub(super) lower: &'a mut BTreeMap<Key, Table>,
    pub(super) leaves: &'a BTreeMap<Key, Table>,
    pub(super) tally: &'a Tally,
    pub(super) samples: u32,
    pub(super) windows: u32,
    /// Expected number of regions: that of the last window.
    pub(super) expected: usize,
    /// Limit of rebuilt segments per window: beyond it, tables for which only the hot threshold has
    /// changed wait for the next window.
    pub(super) rebuilt: usize,
}

impl RegionInput<'_> {
    /// Builds the regions, which tile the areas. Returns them, and the numbers of regions that were
    /// built and that were copied unchanged.
    pub(super) fn regions(self) -> (Vec<Region>, [usize; 2]) {
        let mut list = RegionList::default();
        list.regions.reserve(self.expected);
        let mut built = 0;
        let mut tables = std::mem::take(self.lower);
        for area in self.areas {
            let mut at = area.start;
            let first = Level::PUD.align(area).start;
            let here = tables.range_mut((area.space, first)..(area.space, area.end));
            for table in here.map(|entry| entry.1) {
                if table.segments.is_empty() {
                    continue;
                }
                if at < table.range.start {
                    self.add_above(&mut list, Range::new(area.space, at, table.range.start));
                }
                built += self.build_table(table, built < self.rebuilt);
                self.add_table(&mut list, table, area);
                at = table.range.end.min(area.end);
            }
            if at < area.end {
                self.add_above(&mut list, Range::new(area.space, at, area.end));
            }
        }
        *self.lower = tables;
        (list.regions, [built + list.built, list.copied])
    }

    /// Rebuilds a table's regions and its set of hot entries if they are out of date. If only the
    /// hot threshold has changed, that may wait unless `at_once`. Returns the number of segments
    /// rebuilt.
    fn build_table(&self, table: &mut Table, at_once: bool) -> usize {
        let is_current = |threshold| !at_once || self.is_current(threshold, &table.segments);
        if table.built.as_ref().is_some_and(|(threshold, _)| is_current(*threshold)) {
            return 0;
        }
        let hot = self.tally.hot_bits(table);
        if hot != table.hot {
            table.hot = hot;
            table.changed = self.windows;
        }
        let mut list = RegionList::default();
        list.regions.reserve(table.segments.len());
        let mut at = table.range.start;
        for segment in &table.segments {
            let part = table.cover(&segment.entries);
            if at < part.start {
                list.add(self.unseen(Range { start: at, end: part.start, ..part }));
            }
            self.build_segment(&mut list, part, segment, table);
            at = part.end;
        }
        if at < table.range.end {
            list.add(self.unseen(Range { start: at, ..table.range }));
        }
        table.built = Some((self.tally.hot_threshold(), list.regions));
        table.segments.len()
    }

    /// Whether regions built for the hot threshold `built` are valid for the current one: the two
    /// are close, and no bound of a segment is between them.
    fn is_current(&self, built: f32, segments: &[Segment]) -> bool {
        let threshold = self.tally.hot_threshold();
        let sides = |cell: f32| (cell >= built) == (cell >= threshold);
        let same = |s: &Segment| sides(s.core[0]) && sides(s.core[1]);
        threshold == built
            || (threshold - built).abs() < CLOSE_THRESHOLDS && segments.iter().all(same)
    }

    /// Adds the regions of a segment of 2 MiB entries; entries whose pages are known and differ are
    /// added by their pages.
    fn build_segment(&self, list: &mut RegionList, part: Range, segment: &Segment, table: &Table) {
        let mut at = part.start;
        let known = self.leaves.range((part.space, part.start)..(part.space, part.end));
        for leaves in known.map(|(_, leaves)| leaves) {
            if leaves.segments.is_empty() || !self.is_spotted(leaves) {
                continue;
            }
            if at < leaves.range.start {
                let rest = Range { start: at, end: leaves.range.start, ..part };
                list.add(self.region(rest, segment, table));
            }
            for pages in &leaves.segments {
                list.add(self.region(leaves.cover(&pages.entries), pages, leaves));
            }
            at = leaves.range.start + leaves.range.bytes();
        }
        if at < part.end {
            list.add(self.region(Range { start: at, ..part }, segment, table));
        }
    }

    /// Whether the pages of an entry are worth reporting separately: some are hot and some are not,
    /// or accesses within entries are skewed in general.
    fn is_spotted(&self, leaves: &Table) -> bool {
        let hot = |segment: &Segment| segment.core[0] >= self.tally.page_threshold();
        let hot_pages: usize =
            leaves.segments.iter().filter(|s| hot(s)).map(|s| s.entries.len()).sum();
        self.tally.is_uneven() || (hot_pages > 0 && hot_pages < leaves.span.len())
    }

    /// Adds the part of a table's regions inside an area; only the first one may merge with the
    /// region before it.
    fn add_table(&self, list: &mut RegionList, table: &Table, area: &Range) {
        let Some((_, regions)) = &table.built else { return };
        let age = self.windows - table.changed;
        let clipped = regions.iter().filter_map(|region| {
            Some(Region { range: region.range.intersect(area)?, age, ..*region })
        });
        for (index, region) in clipped.enumerate() {
            if index == 0 {
                list.add(region);
            } else {
                list.copied += 1;
                list.regions.push(region);
            }
        }
    }

    /// Adds regions for a range without level-2 evidence, from level-3 segments.
    fn add_above(&self, list: &mut RegionList, range: Range) {
        let before = |t: &Table| (t.range.space, t.range.end) <= (range.space, range.start);
        let first = self.upper.partition_point(before);
        let mut at = range.start;
        for table in &self.upper[first..] {
            if (table.range.space, table.range.start) >= (range.space, range.end) {
                break;
            }
            for segment in &table.segments {
                let Some(part) = table.cover(&segment.entries).intersect(&range) else { continue };
                if at < part.start {
                    list.add(self.unseen(Range { start: at, end: part.start, ..range }));
                }
                list.add(self.region(part, segment, table));
                at = part.end;
            }
        }
        if at < range.end {
            list.add(self.unseen(Range { start: at, ..range }));
        }
    }

    /// A region of memory that was never looked at.
    fn unseen(&self, range: Range) -> Region {
        Region {
            range,
            hits: 0.0,
            samples: 0,
            age: self.windows,
            level: None,
            confidence: 0.0,
            rate: None,
            unknown: Some(Unknown::Evidence),
            resident: None,
        }
    }

    fn region(&self, range: Range, segment: &Segment, table: &Table) -> Region {
        let rate = Rate {
            low: per_page(segment.low, table.level),
            mean: per_page(segment.mean, table.level),
            high: per_page(segment.high, table.level),
        };
        let (threshold, hot, unknown) = match table.level {
            // The accesses of an entry of 1 GiB may be due to any 2 MiB of it: such memory is known
            // only if the entry is accessed too rarely to contain hot memory.
            Level::PUD => {
                let unknown = self.tally.blind || segment.high >= self.tally.hot_threshold();
                (self.tally.hot_threshold(), false, unknown)
            }
            Level::PTE => {
                let threshold = self.tally.page_threshold();
                let [low, high] = segment.core;
                (
                    threshold,
                    low >= threshold,
                    high - low > DOUBT && low < threshold && high >= threshold,
                )
            }
            _ => {
                let veiled = self.tally.is_veiled(segment);
                let hot = self.tally.is_hot(segment) && !veiled;
                // Without flushes the translation of a huge page in use may stay in a TLB: its
                // entry looks idle.
                let hidden = self.tally.blind && table.huge && !hot;
                let unknown = veiled || hidden || self.tally.is_unknown(segment);
                (self.tally.hot_threshold(), hot, unknown)
            }
        };
        // Memory that may be at the mean rate is not reported as hot, however busy it appears.
        let most = if self.tally.is_above_mean(segment) { f32::MAX } else { threshold - BELOW };
        let shown = if hot { segment.mean.max(threshold) } else { segment.mean.min(most) };
        let entries = if table.level == Level::PUD { 512.0 } else { 1.0 };
        let expected =
            AT_THRESHOLD * (rate_of(shown) / rate_of(threshold.min(NO_THRESHOLD))) / entries;
        let frequency = 1.0 - (-expected).exp();
        let half = ((segment.high - segment.low) / 2.0).max(0.5);
        let sure = 1.0 / (1.0 + (-2.8 * (segment.mean - threshold) / half).exp());
        let sure = sure.clamp(1.0 - MOST_SURE, MOST_SURE);
        Region {
            range,
            hits: self.samples as f32 * frequency,
            samples: self.samples,
            age: self.windows - table.changed,
            level: Some(table.level),
            confidence: if hot { sure.max(0.5) } else { 1.0 - sure.min(0.5) },
            rate: Some(rate),
            unknown: unknown.then_some(Unknown::Evidence),
            resident: None,
        }
    }
}

/// The list of regions; like neighbours merge when they are added.
#[derive(Default)]
struct RegionList {
    regions: Vec<Region>,
    built: usize,
    copied: usize,
}

impl RegionList {
    fn add(&mut self, region: Region) {
        self.built += 1;
        match self.regions.last_mut() {
            Some(last) if alike(last, &region) => {
                let (old, new) = (last.range.bytes() as f32, region.range.bytes() as f32);
                let mix = |a: f32, b: f32| (a * old + b * new) / (old + new);
                last.hits = mix(last.hits, region.hits);
                last.age = last.age.min(region.age);
                last.confidence = mix(last.confidence, region.confidence);
                // If one of two merged regions may have no accesses at all, so may the result.
                let least = |a: f32, b: f32| if a.min(b) > 0.0 { mix(a, b) } else { 0.0 };
                last.rate = last.rate.zip(region.rate).map(|(a, b)| Rate {
                    low: least(a.low, b.low),
                    mean: mix(a.mean, b.mean),
                    high: mix(a.high, b.high),
                });
                last.range.end = region.range.end;
            }
            _ => self.regions.push(region),
        }
    }
}

/// Whether two neighbours merge into one region.
fn alike(a: &Region, b: &Region) -> bool {
    if !a.range.touches(&b.range)
        || a.unknown != b.unknown
        || a.level != b.level
        || (a.hits >= a.samples as f32 / 8.0) != (b.hits >= b.samples as f32 / 8.0)
    {
        return false;
    }
    match (a.rate, b.rate) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            let (a, b) = (a.mean.max(NEGLIGIBLE), b.mean.max(NEGLIGIBLE));
            a < ALIKE * b && b < ALIKE * a
        }
        _ => false,
    }
}
