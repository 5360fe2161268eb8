//! Builds a snapshot's regions from the inferred segments.

use std::collections::BTreeMap;

use std::time::Duration;

use tierscope_core::{Level, Range, Rate, Region, Time, Unknown};

use super::chain::Segment;
use super::grid::{cell_of, rate_of};
use super::per_page;
use super::sweeps::{RECENT, by_pages, is_less_busy};
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

/// Age of the rates of an entry's pages up to which they are right where the entry's own rate
/// contradicts them: it may also be that of a neighbour, where processes map shared memory at
/// addresses that differ by less than an entry.
const FRESH: Duration = Duration::from_secs(3);

/// Cells by which the rate of a page may exceed the highest one of its entry, which is known less
/// closely in bursts.
const ABOVE_ENTRY: f32 = 4.0;

/// What the rates of an entry's pages are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Nothing: the entry's rate holds for all of them.
    Alike,
    /// They are reported separately.
    Apart,
    /// The entry's rate contradicts them, and they are old: one of the two is of another time.
    Outdated,
}

/// Input from which regions are built.
pub(super) struct RegionInput<'a> {
    pub(super) areas: &'a [Range],
    pub(super) upper: &'a [Table],
    pub(super) lower: &'a mut BTreeMap<Key, Table>,
    pub(super) leaves: &'a BTreeMap<Key, Table>,
    pub(super) tally: &'a Tally,
    pub(super) samples: u32,
    pub(super) now: Time,
    /// Expected number of regions: that of the last window.
    pub(super) expected: usize,
    /// Limit of rebuilt segments per window: beyond it, tables for which only the hot threshold has
    /// changed wait for the next window.
    pub(super) rebuilt: usize,
}

impl RegionInput<'_> {
    /// Builds the regions, which tile the areas, without ages. Returns them, and the numbers of
    /// regions that were built and that were copied unchanged.
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
        let now = [self.tally.entry_hot(true), self.tally.veil(table), self.tally.entry_hot(false)];
        let is_current = |built| !at_once || is_current(built, now, &table.segments);
        if table.built.as_ref().is_some_and(|(built, _)| is_current(*built)) {
            return 0;
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
        table.built = Some((now, list.regions));
        table.segments.len()
    }

    /// Adds the regions of a segment of 2 MiB entries; entries whose pages are known and differ are
    /// added by their pages.
    fn build_segment(&self, list: &mut RegionList, part: Range, segment: &Segment, table: &Table) {
        let mut at = part.start;
        let known = || {
            let known = self.leaves.range((part.space, part.start)..(part.space, part.end));
            known.map(|(_, leaves)| leaves).filter(|leaves| !leaves.segments.is_empty())
        };
        if let Some(swept) = self.swept(segment, table, known()) {
            return self.build_swept(list, part, (&swept, table), known());
        }
        for leaves in known() {
            let pages = self.pages(segment, leaves, table);
            if pages == Pages::Alike {
                continue;
            }
            if at < leaves.range.start {
                let rest = Range { start: at, end: leaves.range.start, ..part };
                self.add_entries(list, rest, segment, table);
            }
            if pages == Pages::Outdated {
                let entry = Region {
                    unknown: Some(Unknown::Evidence),
                    ..self.region(leaves.cover(&leaves.span), segment, table, false)
                };
                list.add(entry);
            } else {
                for pages in &leaves.segments {
                    list.add(self.region(leaves.cover(&pages.entries), pages, leaves, false));
                }
            }
            at = leaves.range.start + leaves.range.bytes();
        }
        if at < part.end {
            self.add_entries(list, Range { start: at, ..part }, segment, table);
        }
    }

    /// Adds the regions of a segment whose pages are swept: all with the mean rate of the pages
    /// that were looked at, but for those that are certainly accessed less often than others of
    /// their entry. Entries cannot be compared: their looks were at other times, in a burst or
    /// between two.
    fn build_swept<'t>(
        &self,
        list: &mut RegionList,
        part: Range,
        (swept, table): (&Segment, &Table),
        known: impl Iterator<Item = &'t Table>,
    ) {
        let mut at = part.start;
        for leaves in known.filter(|leaves| self.is_recent(leaves, RECENT)) {
            for pages in leaves.segments.iter().filter(|pages| is_less_busy(pages, leaves)) {
                let range = leaves.cover(&pages.entries);
                if at < range.start {
                    let rest = Range { start: at, end: range.start, ..part };
                    list.add(self.region(rest, swept, table, true));
                }
                list.add(self.region(range, pages, leaves, false));
                at = range.end;
            }
        }
        if at < part.end {
            list.add(self.region(Range { start: at, ..part }, swept, table, true));
        }
    }

    /// Adds entries of a segment with the segment's rate; it holds for all of a huge page.
    fn add_entries(&self, list: &mut RegionList, part: Range, segment: &Segment, table: &Table) {
        if table.known_huge == 0 {
            return list.add(self.region(part, segment, table, false));
        }
        let is_whole = |entry: usize| table.is_whole(&(entry..entry + 1));
        let entries: Vec<usize> = table.entries_of(&part).collect();
        for run in entries.chunk_by(|one, other| is_whole(*one) == is_whole(*other)) {
            let range = table.cover(&(run[0]..run[run.len() - 1] + 1));
            let Some(range) = range.intersect(&part) else { continue };
            list.add(self.region(range, segment, table, false));
        }
    }

    /// A segment with the rate of its pages, unless its own rate makes it hot, or accesses are
    /// even.
    fn swept<'t>(
        &self,
        segment: &Segment,
        table: &Table,
        known: impl Iterator<Item = &'t Table>,
    ) -> Option<Segment> {
        if self.tally.is_hot(segment, table.is_whole(&segment.entries)) {
            return None;
        }
        by_pages(segment, table, known, self.now)
    }

    fn is_recent(&self, leaves: &Table, age: Duration) -> bool {
        leaves.seen.is_some_and(|seen| self.now.since(seen) <= age)
    }

    /// Number of pages of an entry that are hot by themselves.
    fn hot_pages(&self, leaves: &Table) -> usize {
        let hot = |segment: &&Segment| segment.core[0] >= self.tally.page_threshold();
        leaves.segments.iter().filter(hot).map(|segment| segment.entries.len()).sum()
    }

    /// What the rates of an entry's pages are good for: they are reported if some are hot and some
    /// are not, if accesses within entries are skewed, or if the entry's rate is not theirs.
    fn pages(&self, segment: &Segment, leaves: &Table, table: &Table) -> Pages {
        let skew = self.tally.skew_in(table);
        let idle = self.tally.is_idle(segment, &skew);
        if self.tally.contradicts(segment, leaves, idle) {
            let most = if is_swept(segment, leaves) { RECENT } else { FRESH };
            return if self.is_recent(leaves, most) { Pages::Apart } else { Pages::Outdated };
        }
        if idle {
            return Pages::Alike;
        }
        let hot_pages = self.hot_pages(leaves);
        let differ = hot_pages > 0 && hot_pages < leaves.span.len();
        if skew.is_uneven() || differ { Pages::Apart } else { Pages::Alike }
    }

    /// Adds the part of a table's regions inside an area; only the first one may merge with the
    /// region before it.
    fn add_table(&self, list: &mut RegionList, table: &Table, area: &Range) {
        let Some((_, regions)) = &table.built else { return };
        let clipped = regions
            .iter()
            .filter_map(|region| Some(Region { range: region.range.intersect(area)?, ..*region }));
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
                list.add(self.region(part, segment, table, false));
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
            age: 0,
            level: None,
            confidence: 0.0,
            rate: None,
            unknown: Some(Unknown::Evidence),
            resident: None,
        }
    }

    /// The region of a segment; `even` if its pages are known to be alike.
    fn region(&self, range: Range, segment: &Segment, table: &Table, even: bool) -> Region {
        let rate = Rate {
            low: per_page(segment.low, table.level),
            mean: per_page(segment.mean, table.level),
            high: per_page(segment.high, table.level),
        };
        let (threshold, hot, unknown) = match table.level {
            // The accesses of an entry of 1 GiB may be due to any 2 MiB of it: such memory is known
            // only if the entry is accessed too rarely to contain hot memory.
            Level::PUD => (self.tally.hot_threshold(), false, !self.tally.is_quiet(segment)),
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
                let whole = table.is_whole(&table.entries_of(&range));
                let veiled = !even && !whole && segment.high >= self.tally.veil(table);
                let hot = self.tally.is_hot(segment, whole) && !veiled;
                // Without flushes the translation of a huge page in use may stay in a TLB: its
                // entry looks idle.
                let hidden = self.tally.blind && table.huge > 0 && !hot;
                let unknown = veiled || hidden || self.tally.is_unknown(segment, whole);
                (self.tally.entry_hot(whole), hot, unknown)
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
            age: 0,
            level: Some(table.level),
            confidence: if hot { sure.max(0.5) } else { 1.0 - sure.min(0.5) },
            rate: Some(rate),
            unknown: unknown.then_some(Unknown::Evidence),
            resident: None,
        }
    }
}

/// Whether the pages of an entry are busier than the entry, and none of them by itself: sweeps over
/// its pages set its bit once each.
fn is_swept(entry: &Segment, leaves: &Table) -> bool {
    let is_possible = |page: &Segment| page.low <= entry.high + ABOVE_ENTRY;
    cell_of(leaves.bounds()[0]) > entry.high && leaves.segments.iter().all(is_possible)
}

/// Whether regions `built` for a threshold of huge pages, a veil and a threshold of pages are valid
/// for those of `now`: the thresholds are close, and no bound of a segment is between them or
/// between the veils.
fn is_current(built: [f32; 3], now: [f32; 3], segments: &[Segment]) -> bool {
    let sides = |of: usize, cell: f32| (cell >= built[of]) == (cell >= now[of]);
    let same = |s: &Segment| {
        [0, 2].iter().all(|of| sides(*of, s.core[0]) && sides(*of, s.core[1])) && sides(1, s.high)
    };
    let close = |of: usize| (now[of] - built[of]).abs() < CLOSE_THRESHOLDS;
    built == now || close(0) && close(2) && segments.iter().all(same)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::VisitOrder;
    use crate::rates::looks::{Look, Looks, mask};
    use crate::rates::table::Sums;
    use tierscope_core::SpaceId;

    /// The regions of the first GiB of space 0 in a window of 40 samples, 5 s after the start.
    fn regions(
        lower: &mut BTreeMap<Key, Table>,
        leaves: &BTreeMap<Key, Table>,
        tally: &Tally,
    ) -> Vec<Region> {
        let input = RegionInput {
            areas: &[Range::new(SpaceId(0), 0, 1 << 30)],
            upper: &[],
            lower,
            leaves,
            tally,
            samples: 40,
            now: Time(5_000_000_000),
            expected: 1,
            rebuilt: 100,
        };
        input.regions().0
    }

    /// Entries with the same rate, in accesses per second, known within two cells.
    fn segment(entries: std::ops::Range<usize>, rate: f32) -> Segment {
        let cell = cell_of(rate);
        let (low, high, core) = (cell - 2.0, cell + 2.0, [cell; 2]);
        Segment { entries, low, mean: cell, high, core, blunt: false }
    }

    /// Looks 10 ms after the clear: the first entries, or none, were young.
    fn looks(young: &[usize]) -> Looks {
        let mut all = Looks::default();
        let bits = |young: usize| mask(&(0..young));
        let look = |(at, young): (u64, &usize)| Look {
            at: Time(at * 1_000_000),
            seconds: 0.01,
            young: bits(*young),
        };
        (0..).zip(young).map(look).for_each(|look| all.add(look));
        all
    }

    // Entries of 2 MiB are young in half of the looks, all of them, and so are the pages of one of
    // them: that is due to 69 sweeps a second. All ten entries are hot.
    #[test]
    fn memory_that_is_swept_is_as_hot_as_its_pages() {
        let space = SpaceId(0);
        let whole = Range::new(space, 0, 1 << 30);
        const YOUNG: [usize; 8] = [0, 10, 10, 0, 0, 10, 0, 10];
        let sums = |rate: f64| Sums {
            entries: 512.0,
            rate: 512.0 * rate,
            square: 512.0 * rate * rate,
            most: cell_of(rate as f32),
        };
        let mut table = Table::new(space, 0, Level::PMD, &[whole]);
        (table.segments, table.sums) = (vec![segment(0..10, 69.0)], sums(69.0));
        table.looks = looks(&YOUNG);
        let mut lower = BTreeMap::from([((space, 0), table)]);
        let mut tally = Tally::default();
        tally.set_memory(1 << 30);
        tally.count(
            &[],
            &lower,
            &BTreeMap::new(),
            &VisitOrder { count: 1, ..VisitOrder::default() },
            Time(0),
        );
        let mut leaves = Table::new(space, 2 << 20, Level::PTE, &[whole]);
        (leaves.segments, leaves.sums) = (vec![segment(0..512, 69.0)], sums(69.0));
        leaves.looks = looks(&YOUNG.map(|young| young * 512 / 10));
        leaves.seen = Some(Time(0));
        let mut hot = |leaves: &BTreeMap<Key, Table>| {
            lower.values_mut().for_each(|table| table.built = None);
            let first = regions(&mut lower, leaves, &tally)[0];
            (first.range.end, first.is_hot(0.125), first.rate.unwrap().mean.round())
        };
        assert_eq!(hot(&BTreeMap::new()), (20 << 20, false, 0.0));
        let known = BTreeMap::from([((space, 2 << 20), leaves.clone())]);
        let (end, is_hot, rate) = hot(&known);
        assert!((end, is_hot) == (20 << 20, true) && (60.0..80.0).contains(&rate), "{rate}");
        // A hundred of the pages are known to be idle: they are reported as they are.
        leaves.segments = vec![segment(0..412, 69.0), segment(412..512, 0.01)];
        leaves.looks = looks(&YOUNG.map(|young| young * 412 / 10));
        let known = BTreeMap::from([((space, 2 << 20), leaves)]);
        assert_eq!(hot(&known).0, (2 << 20) + (412 << 12));
    }

    // Ten entries are accessed at least 2,000 times a second each, at a hot threshold of 17,000:
    // all looks came too late for an upper bound. The pages of one of them are accessed 5,000 times
    // a second each, of which 200 count: all ten are hot, since accesses come in sweeps.
    #[test]
    fn pages_decide_where_looks_at_entries_came_too_late() {
        let space = SpaceId(0);
        let whole = Range::new(space, 0, 1 << 30);
        let [low, mean, high] = [2_000.0, 40_000.0, 500_000.0].map(cell_of);
        let core = [cell_of(2_500.0), cell_of(200_000.0)];
        let busy = Segment { entries: 0..10, low, mean, high, core, blunt: true };
        let mut leaves = Table::new(space, 2 << 20, Level::PTE, &[whole]);
        leaves.segments = vec![Segment { blunt: true, ..segment(0..512, 5_000.0) }];
        (leaves.seen, leaves.looks) = (Some(Time(0)), looks(&[512; 8]));
        let hot = |leaves: &BTreeMap<Key, Table>| {
            let mut table = Table::new(space, 0, Level::PMD, &[whole]);
            let idle = segment(10..512, 0.01);
            (table.segments, table.sums.most) = (vec![busy.clone(), idle], mean);
            table.looks = looks(&[10; 8]);
            (table.sums.entries, table.sums.rate) = (512.0, 10.0 * 102_400.0);
            (table.visits, table.sums.square) = (1, 10.0 * 102_400.0f64.powi(2));
            let mut lower = BTreeMap::from([((space, 0), table)]);
            let mut tally = Tally::default();
            tally.set_memory(1 << 30);
            let order = VisitOrder { count: 1, ..VisitOrder::default() };
            tally.count(&[], &lower, &BTreeMap::new(), &order, Time(0));
            let first = regions(&mut lower, leaves, &tally)[0];
            (first.range.end >> 20, first.is_unknown(), first.is_hot(0.125))
        };
        assert_eq!(hot(&BTreeMap::new()), (20, true, false));
        let known = |leaves: &Table| BTreeMap::from([((space, 2 << 20), leaves.clone())]);
        assert_eq!(hot(&known(&leaves)), (20, false, true));
        // The same if pages are accessed evenly, 100 times a second each: 63 of 100 are young.
        (leaves.segments, leaves.looks) = (vec![segment(0..512, 100.0)], looks(&[323; 8]));
        assert_eq!(hot(&known(&leaves)), (20, false, true));
    }

    // Half of the pages of an entry were accessed 50 times a second each, 5 s ago; the entry is
    // accessed 100 times a second. That is possible in sweeps, and the pages are known. An entry
    // with 2 accesses a second cannot have them: they are of another time.
    #[test]
    fn pages_that_are_swept_stay_known() {
        let space = SpaceId(0);
        let whole = Range::new(space, 0, 1 << 30);
        let mut leaves = Table::new(space, 0, Level::PTE, &[whole]);
        leaves.segments = vec![segment(0..256, 50.0), segment(256..512, 0.01)];
        leaves.seen = Some(Time(0));
        let leaves = BTreeMap::from([((space, 0), leaves)]);
        let ends = |rate| {
            let mut table = Table::new(space, 0, Level::PMD, &[whole]);
            table.segments = vec![segment(0..1, rate)];
            table.sums.most = cell_of(rate);
            let mut lower = BTreeMap::from([((space, 0), table)]);
            let mut tally = Tally::default();
            tally.set_memory(1 << 30);
            let order = VisitOrder { count: 1, ..VisitOrder::default() };
            tally.count(&[], &lower, &leaves, &order, Time(0));
            let first = &regions(&mut lower, &leaves, &tally)[0];
            (first.range.end >> 20, first.is_hot(0.125), first.is_unknown())
        };
        assert_eq!([ends(100.0), ends(2.0)], [(1, true, false), (2, false, true)]);
    }

    // Entries 0..4 of 2 MiB are accessed 100 times a second each, at a hot threshold of one; 1 and
    // 2 are huge pages. Accesses to other entries of the table are skewed: only of the huge pages
    // is it known that all of their memory is hot.
    #[test]
    fn the_rate_of_a_huge_page_holds_next_to_skewed_entries() {
        let space = SpaceId(0);
        let whole = Range::new(space, 0, 1 << 30);
        let (low, high, core) = (cell_of(80.0), cell_of(120.0), [cell_of(100.0); 2]);
        let segment = Segment { entries: 0..4, low, mean: core[0], high, core, blunt: false };
        let (low, high, core) = (-9.0, -9.0, [-9.0; 2]);
        let idle = Segment { entries: 4..14, low, mean: low, high, core, blunt: false };
        let mut table = Table::new(space, 0, Level::PMD, &[whole]);
        (table.segments, table.known_huge, table.whole[0]) = (vec![segment, idle], 12, 0x3ff6);
        (0..8).for_each(|_| table.skew.add(64.0));
        let mut lower = BTreeMap::from([((space, 0), table)]);
        let mut tally = Tally::default();
        let order = VisitOrder { count: 1, ..VisitOrder::default() };
        tally.count(&[], &lower, &BTreeMap::new(), &order, Time(0));
        let known = |r: &Region| (r.range.start >> 21, r.is_unknown(), r.is_hot(0.125));
        let known: Vec<_> =
            regions(&mut lower, &BTreeMap::new(), &tally)[..3].iter().map(known).collect();
        assert_eq!(known, [(0, true, false), (1, false, true), (3, true, false)]);
    }
}
