//! Rates over all memory, and the hot threshold.

use std::collections::BTreeMap;

use tierscope_core::{Level, Time};

use super::VisitOrder;
use super::chain::{Segment, VAGUE};
use super::grid::{cell_of, rate_of};
use super::looks::{Correlation, Looks};
use super::skew::Skew;
use super::sweeps::by_pages;
use super::table::{Key, Sums, Table};

/// Hot threshold as a multiple of the access-weighted mean rate (the rate of the memory that an
/// average access falls on).
const OF_ACCESSED: f64 = 0.25;
/// Lower limits of the hot threshold, as multiples of the mean rate: the first one if accesses are
/// skewed, up to the second one if they are even, so that memory busier by chance is not hot.
const LEAST_OVER_MEAN: (f64, f64) = (1.5, 2.0);
/// Ratio of the access-weighted mean rate to the mean rate above which accesses are skewed, so that
/// the first of the lower limits of the hot threshold applies.
const TWO_LEVELS: f64 = 2.0;
/// Upper limit of the hot threshold, as a multiple of the mean rate.
const MOST_OVER_MEAN: f64 = 4.0;
/// Upper limit of the rate assumed for unvisited tables, as a multiple of the mean rate by level 3.
const REST: f64 = 2.0;
/// Accesses per second of a page of 4 KiB that count: one per sampling interval of 5 ms.
pub(super) const MOST_OF_PAGE: f32 = 200.0;
/// Lowest hot threshold, in accesses per second of 2 MiB.
pub(super) const IDLE: f64 = 1.0;
/// Width in cells of the central 60 % of the probability, above which a rate may be undecided.
pub(super) const DOUBT: f32 = 4.0;
/// Maximum width in cells of the interval of a hot page's rate; wider ones need another visit.
const VAGUE_PAGES: f32 = 3.0;
/// Distance in cells at which a lower bound is certainly above the mean rate: the mean is an
/// estimate.
const ABOVE_MEAN: f32 = 1.0;
/// Changes of the hot threshold up to this number of cells are ignored.
const STEADY: f32 = 0.25;
/// Accesses per second of an entry of 2 MiB below which it takes too long to find out whether
/// accesses within entries are skewed; until that is known, they are taken to be even.
pub(super) const RARE: f32 = 32.0;
/// Lowest hot threshold of a page, as a cell: 0.03 accesses per second. Idle pages are in the
/// lowest cells.
pub(super) const LEAST_PAGE: f32 = 4.0;
/// Cells by which the rate of an entry and the sum of the rates of its pages contradict each other.
pub(super) const APART: f32 = 2.0;
/// Number of tables over which correlation is averaged; and the weight of that average, in tables,
/// when one table is judged.
const KIN_TABLES: f64 = 64.0;
const OTHERS: f64 = 4.0;
/// Minimum standard deviations above chance for correlation to be judged, over all tables and in
/// one; and the share of `own` below which `near` means that entries are uncorrelated.
const SURE_KIN: f64 = 3.0;
const SURE_HERE: f64 = 2.5;
const STRANGERS: f64 = 0.3;
/// Width in cells of a group of rates that are measured at the same time from clear to look.
const MUCH_ALIKE: f32 = 4.0;
/// Expected accesses of an average level-3 entry between clear and look, below which a young entry
/// flags its table.
const EARLY: f64 = 0.05;
/// Minimum rate of a level-3 entry that flags its table, as a multiple of the mean rate.
const POINTED: f32 = 2.0;

/// Rate from which memory is hot, given the mean rate and the access-weighted mean rate (of the
/// memory that an average access falls on), in any unit.
#[must_use]
pub fn hot_rate(mean: f64, accessed: f64) -> f64 {
    let (least, most) = LEAST_OVER_MEAN;
    let evenly = TWO_LEVELS - accessed / mean.max(f64::MIN_POSITIVE);
    let least = (least + evenly.max(0.0)).min(most);
    (OF_ACCESSED * accessed).clamp(least * mean, MOST_OVER_MEAN * mean)
}

/// Segments of entries of 2 MiB whose pages are known: their number of entries, the entries' rate
/// by their own bits, and the sum of the rates of an entry's pages: more in sweeps, which set the
/// bit of the entry once. Accesses to a page within a sampling interval count once: few pages of a
/// program's own code, accessed millions of times a second, must not make all other memory cold.
fn corrections(
    lower: &BTreeMap<Key, Table>,
    leaves: &BTreeMap<Key, Table>,
    now: Time,
) -> Vec<(f64, f64, f64)> {
    let known = leaves.values().filter(|pages| !pages.segments.is_empty());
    let placed = known.filter_map(|pages| {
        let table = lower.get(&super::leaves::above(pages.key()))?;
        Some((table, table.segment(super::leaves::entry_of(pages.key()))?, pages))
    });
    let placed: Vec<(&Table, &Segment, &Table)> = placed.collect();
    let mut all = Vec::with_capacity(placed.len());
    for run in placed.chunk_by(|one, other| std::ptr::eq(one.1, other.1)) {
        let (table, segment, _) = run[0];
        let own = f64::from(segment.believed_rate());
        let found = by_pages(segment, table, run.iter().map(|known| known.2), now);
        if let Some(found) = found {
            let entries = segment.entries.len() as f64;
            all.push((entries, own, f64::from(found.believed_rate())));
            continue;
        }
        let rate = |pages: &Table| f64::from(pages.limited_rate(MOST_OF_PAGE));
        all.extend(run.iter().map(|known| (1.0, own, rate(known.2))));
    }
    all
}

/// Rates of entries as their bits show them: those of an entry that points to pages count as that
/// of one page does. A huge page has one bit for all of its parts, and counts in full, as does all
/// of a table whose huge pages were not found yet. Also returns the number of entries that are
/// accessed: huge pages, and those that point to pages, busy ones in full.
fn by_bits(table: &Table) -> (Sums, f64) {
    let most = f64::from(MOST_OF_PAGE);
    if table.huge > 0 && table.known_huge == 0 {
        return (table.sums, table.huge as f64);
    }
    if table.huge == 0 && table.sums.most < cell_of(MOST_OF_PAGE) {
        return (table.sums, table.sums.rate / most);
    }
    let (mut sums, mut accessed) = (Sums::default(), 0.0);
    for segment in &table.segments {
        let rate = f64::from(segment.believed_rate());
        let whole = table.count_whole(&segment.entries);
        sums.add_entries(whole, rate);
        let (rest, limited) = (segment.entries.len() as f64 - whole, rate.min(most));
        sums.add_entries(rest, limited);
        accessed += whole + rest * limited / most;
    }
    (sums, accessed)
}

/// Whether a segment may be above or below a hot threshold: its rate is known no closer than within
/// a factor of three, or no look came soon enough for an upper bound.
fn is_undecided(segment: &Segment, threshold: f32) -> bool {
    let [low, high] = segment.core;
    low < threshold && (segment.blunt || high - low > DOUBT && high >= threshold)
}

/// Sets a threshold to the cell of a rate. Regions depend on thresholds: small changes are not
/// worth rebuilding them.
fn set(threshold: &mut Option<f32>, rate: f64) {
    let cell = cell_of(rate.max(IDLE) as f32);
    if threshold.is_none_or(|known| (known - cell).abs() > STEADY) {
        *threshold = Some(cell);
    }
}

/// Rates over all memory, in entries of 2 MiB, and the hot threshold that follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Whether translations are not flushed: entries that look idle may be cached in TLBs.
    pub(super) blind: bool,
    /// Size of the target's memory, in entries of 2 MiB.
    entries: f64,
    mean: f64,
    /// The mean rate without accesses that only the bits of pages show.
    by_own_bits: f64,
    /// Cell of the mean rate.
    mean_cell: Option<f32>,
    /// Hot threshold: minimum rate of a hot entry of 2 MiB, as a cell; and that of which a hot page
    /// takes its share.
    hot_threshold: Option<f32>,
    page_hot: Option<f32>,
    /// Hot threshold of huge pages, as a cell, once there are any.
    whole_hot: Option<f32>,
    /// Mean rate of level-3 entries.
    above: f64,
    /// Accesses per second of all tables visited so far.
    total: f64,
    /// Skew of accesses within entries, weighted by accesses.
    pub(super) skew: Skew,
    /// Accesses per second of all visited tables when the average in `skew` was started.
    skew_of: f64,
    /// Correlation of entries of 2 MiB, as a moving average over tables.
    correlation: Correlation,
}

impl Tally {
    /// Makes an empty tally; `blind` if translations are not flushed.
    pub(super) fn new(blind: bool) -> Self {
        Self { blind, ..Self::default() }
    }

    /// Sets the size of the memory over which the mean rate of pages is taken: what is resident,
    /// where that is known. The mean rate of entries of 2 MiB is over all of every GiB that has a
    /// mapping: entries are accessed by sweeps, which set the bit of each once, and by few pages, a
    /// program's own code, which would make all other memory of a small program cold.
    pub(super) fn set_memory(&mut self, bytes: u64) {
        self.entries = bytes as f64 / Level::PMD.entry_bytes() as f64;
    }

    /// Recomputes the rates over all memory and the hot threshold.
    pub(super) fn count(
        &mut self,
        upper: &[Table],
        lower: &BTreeMap<Key, Table>,
        leaves: &BTreeMap<Key, Table>,
        round: &VisitOrder,
        now: Time,
    ) {
        let mut above = Sums::default();
        upper.iter().for_each(|table| above.add(&table.sums));
        self.above = above.rate / above.entries.max(1.0);
        // Unvisited tables are assumed to be like the visited ones without hot entries: tables with
        // hot entries are visited first.
        let (mut seen, mut plain) = (Sums::default(), Sums::default());
        let (mut bits, mut accessed_entries) = (Sums::default(), 0.0);
        let has_huge = lower.values().any(|table| table.huge > 0);
        let mut tables = 0.0;
        for table in lower.values().filter(|table| !table.segments.is_empty()) {
            seen.add(&table.sums);
            if has_huge {
                let (sums, entries) = by_bits(table);
                bits.add(&sums);
                accessed_entries += entries;
            }
            tables += 1.0;
            if table.visits > 0 && table.sums.most < self.hot_threshold() {
                plain.add(&table.sums);
            }
        }
        let all_seen = tables >= 0.9 * (round.count as f64);
        if all_seen {
            plain = Sums::default();
        }
        let by_own_bits = seen.rate;
        for (entries, own, pages) in corrections(lower, leaves, now) {
            seen.rate -= entries * (own - pages);
            seen.square -= entries * (own * own - pages * pages);
        }
        let rest = if plain.entries > 0.0 { plain.rate / plain.entries } else { 0.0 };
        // Unvisited tables are not assumed to be busier than level 3 reports: the first visited
        // tables are flagged ones.
        let rest = if self.above > 0.0 { rest.min(REST * self.above / 512.0) } else { rest };
        let all = (round.count as f64 * 512.0).max(seen.entries).max(1.0);
        let rate = seen.rate + (all - seen.entries) * rest;
        let square = seen.square + (all - seen.entries) * rest * rest;
        // The mean rate by level 3 is used if it is above that of the tables visited so far.
        let least = if all_seen { 0.0 } else { self.above / 512.0 };
        self.mean = (rate / all).max(least);
        self.by_own_bits = ((by_own_bits + rate - seen.rate) / all).max(least);
        self.mean_cell = Some(cell_of(self.mean as f32));
        self.total = seen.rate;
        // The average skew was sampled from less than half of all accesses: the leaves of other
        // entries outweigh it soon.
        if self.total > 2.0 * self.skew_of {
            self.skew.doubt();
            self.skew_of = self.total;
        }
        // The access-weighted mean rate of pages: within entries of 2 MiB, accesses may fall on few
        // pages.
        let accessed = if rate > 0.0 { square / rate * self.skew.mean() } else { 0.0 };
        let accessed = accessed.min(512.0 * f64::from(MOST_OF_PAGE));
        set(&mut self.hot_threshold, hot_rate(self.mean, accessed));
        let memory = self.entries.clamp(1.0, all);
        set(&mut self.page_hot, hot_rate(self.mean * all / memory, accessed));
        if has_huge {
            let rate = (bits.rate + (all - seen.entries) * rest).max(least * all);
            let accessed = bits.square / bits.rate.max(f64::MIN_POSITIVE);
            // Of entries that hold a program's own code or stack, only few pages are resident:
            // there may be more entries than resident memory has.
            set(&mut self.whole_hot, hot_rate(rate / memory.max(accessed_entries), accessed));
        }
    }

    /// Adds the correlation of entries in a table of a round-robin visit to the average.
    pub(super) fn note_correlation(&mut self, looks: &Looks, entries: usize) {
        let new = looks.correlation(entries);
        let mean = &mut self.correlation;
        mean.own += (new.own - mean.own) / KIN_TABLES;
        mean.near += (new.near - mean.near) / KIN_TABLES;
        mean.variance += (new.variance - mean.variance) / KIN_TABLES;
    }

    /// Whether entries are uncorrelated in most tables.
    pub(super) fn are_strangers(&self) -> bool {
        let mean = &self.correlation;
        let unsure = (mean.variance / KIN_TABLES).sqrt();
        mean.own > SURE_KIN * unsure && mean.near < STRANGERS * mean.own
    }

    /// Whether entries are uncorrelated in a table with these looks; the average over all tables
    /// counts as `OTHERS` further tables.
    pub(super) fn are_uncorrelated(&self, looks: &Looks, entries: usize) -> bool {
        let (mean, here) = (&self.correlation, looks.correlation(entries));
        let unsure = mean.variance / KIN_TABLES;
        let own = here.own + OTHERS * mean.own;
        let deviation = (here.variance + OTHERS * OTHERS * unsure).sqrt();
        // A table whose entries are alike is not inferred entry by entry, whatever the other tables
        // are.
        mean.own > SURE_KIN * unsure.sqrt()
            && here.own > SURE_HERE * here.variance.sqrt()
            && own > SURE_KIN * deviation
            && here.near + OTHERS * mean.near < STRANGERS * own
    }

    /// Skew within the entries of a table of level 2.
    pub(super) fn skew_in(&self, table: &Table) -> Skew {
        table.skew.among(&self.skew)
    }

    /// Minimum cell of an entry of 2 MiB that may contain hot pages, given the skew within entries.
    pub(super) fn worth_leaves(&self, skew: &Skew) -> f32 {
        let least = self.page_hot().min(self.hot_threshold());
        least - cell_of(skew.mean().min(64.0) as f32) + cell_of(1.0)
    }

    /// Whether an entry is accessed too rarely to contain hot pages.
    pub(super) fn is_idle(&self, entry: &Segment, skew: &Skew) -> bool {
        entry.high < self.worth_leaves(skew)
    }

    /// Whether an entry's rate and those of its pages cannot both be true, so that it matters: the
    /// pages are the busier ones, by sweeps, which set the entry's bit once; or the entry, unless
    /// it is `idle` anyway: it may also cover memory of others. Or one of them is of another time.
    pub(super) fn contradicts(&self, entry: &Segment, leaves: &Table, idle: bool) -> bool {
        let [low, high] = leaves.bounds().map(cell_of);
        low - APART > entry.high || !idle && high + APART < entry.low
    }

    /// Accesses per second of all visited tables.
    pub(super) fn total_rate(&self) -> f64 {
        self.total
    }

    /// Mean accesses per second of an entry of 2 MiB that its own bit shows; 0 while unknown.
    pub(super) fn mean_rate(&self) -> f32 {
        self.by_own_bits as f32
    }

    /// Mean accesses per second of an entry of 1 GiB.
    pub(super) fn above(&self) -> f32 {
        self.above as f32
    }

    /// Hot threshold: the minimum cell of a hot entry of 2 MiB; `f32::MAX` while unknown.
    pub(super) fn hot_threshold(&self) -> f32 {
        self.hot_threshold.unwrap_or(f32::MAX)
    }

    /// The hot threshold of pages, for 512 of them, as a cell; `f32::MAX` while unknown.
    pub(super) fn page_hot(&self) -> f32 {
        self.page_hot.unwrap_or(f32::MAX)
    }

    /// Hot threshold of entries of 2 MiB, as a cell. The accesses of an entry that points to pages
    /// are those of its pages; a huge page (`whole`) has one bit for all of its parts, and is
    /// compared with the bits of all memory.
    pub(super) fn entry_hot(&self, whole: bool) -> f32 {
        match self.whole_hot.filter(|_| whole) {
            Some(threshold) => threshold,
            None => self.page_hot().max(self.hot_threshold()),
        }
    }

    /// Whether huge pages and entries that point to pages have different hot thresholds.
    pub(super) fn tells_huge_pages(&self) -> bool {
        self.entry_hot(false) > self.entry_hot(true) + STEADY
    }

    /// Whether a segment of entries of 2 MiB is hot with a probability of at least four fifths.
    pub(super) fn is_hot(&self, segment: &Segment, whole: bool) -> bool {
        segment.core[0] >= self.entry_hot(whole)
    }

    /// Whether a segment is certainly above the mean rate.
    pub(super) fn is_above_mean(&self, segment: &Segment) -> bool {
        self.mean_cell.is_none_or(|mean| segment.low >= mean + ABOVE_MEAN)
    }

    /// Cell from which entries of a table may contain hot pages that their own rate does not show:
    /// accesses within entries are skewed, or may be. Infinite if they are even.
    pub(super) fn veil(&self, table: &Table) -> f32 {
        let skew = self.skew_in(table);
        let worth = self.worth_leaves(&skew);
        match (skew.is_uneven(), skew.is_known()) {
            (true, _) => worth,
            (false, false) => worth.max(cell_of(RARE)),
            (false, true) => f32::INFINITY,
        }
    }

    /// Whether an entry's leaves need another visit: it is undecided which pages are hot, or their
    /// rates are not closely known.
    pub(super) fn wants_more_pages(&self, leaves: &Table) -> bool {
        let threshold = self.page_threshold();
        leaves.segments.iter().any(|segment| {
            let [low, high] = segment.core;
            let vague = segment.high - segment.low > VAGUE_PAGES;
            high >= threshold && (low < threshold && high - low > 1.5 || vague)
        })
    }

    /// Hot threshold of pages of 4 KiB, as a cell.
    pub(super) fn page_threshold(&self) -> f32 {
        (self.page_hot() - cell_of(512.0) + cell_of(1.0)).max(LEAST_PAGE)
    }

    /// Whether a segment is undecided, hot or not.
    pub(super) fn is_unknown(&self, segment: &Segment, whole: bool) -> bool {
        is_undecided(segment, self.entry_hot(whole))
    }

    /// Number of pages of an entry of which it is undecided whether they are hot.
    pub(super) fn undecided_pages(&self, leaves: &Table) -> usize {
        let threshold = self.page_threshold();
        let undecided = leaves.segments.iter().filter(|pages| is_undecided(pages, threshold));
        undecided.map(|pages| pages.entries.len()).sum()
    }

    /// Whether a table has hot entries, and whether it has undecided ones or an unconfirmed
    /// outlier.
    pub(super) fn wants_more(&self, table: &Table) -> [bool; 2] {
        let any = |is: &dyn Fn(&Segment) -> bool| table.segments.iter().any(is);
        let doubtful = table.surprise.is_some()
            || any(&|segment| self.is_unknown(segment, table.is_whole(&segment.entries)));
        [any(&|segment| self.is_hot(segment, table.is_whole(&segment.entries))), doubtful]
    }

    /// Whether no entry beneath a level-3 entry with this rate can be hot. Accesses in bursts set
    /// the bits of all levels at once: the entry of 1 GiB is then accessed no more often than its
    /// parts, and only entries that are idle, or below the mean of their level, are passed over.
    pub(super) fn is_quiet(&self, above: &Segment) -> bool {
        let is_below = |rate: f32| above.high < cell_of(rate);
        let cold = above.high < self.hot_threshold() && is_below(self.above as f32);
        !self.blind && !above.blunt && (cold || is_below(IDLE as f32))
    }

    /// Rates at which to measure a table's hot, undecided and swept segments, one for each group of
    /// like rates: for a rate with a wide interval its middle, so that a look halves the interval.
    pub(super) fn aims(&self, table: &Table) -> Vec<f32> {
        let threshold = if table.level == Level::PTE {
            self.page_threshold()
        } else {
            self.entry_hot(table.known_huge > 0)
        };
        let step = |segment: &Segment| {
            let vague = segment.high - segment.low > 2.0 * VAGUE;
            let aim = if vague { (segment.low + segment.high) / 2.0 } else { segment.believed() };
            (aim / MUCH_ALIKE) as i32
        };
        let wanted = |segment: &&Segment| {
            segment.core[0] >= threshold
                || self.is_unknown(segment, table.is_whole(&segment.entries))
        };
        let mut steps: Vec<i32> = table.segments.iter().filter(wanted).map(step).collect();
        steps.extend(table.swept.map(|rate| (cell_of(rate) / MUCH_ALIKE) as i32));
        steps.sort_unstable();
        steps.dedup();
        steps.into_iter().map(|step| rate_of((step as f32 + 0.5) * MUCH_ALIKE)).collect()
    }

    /// Whether a level-3 entry is much busier than the mean.
    pub(super) fn points_out(&self, above: &Segment) -> bool {
        self.hot_threshold.is_some()
            && above.mean >= cell_of((self.above as f32 * POINTED).max(1.0))
    }

    /// Tables to flag beneath a level-3 table, with the cell of their level-3 rate and its lower
    /// bound: beneath entries that are much busier than others, and beneath entries that became
    /// young too soon to be average.
    pub(super) fn hints(&self, table: &Table) -> Vec<(f32, f32, Key)> {
        let Some(last) = table.looks.all().last() else { return Vec::new() };
        let early = self.above * f64::from(last.seconds) < EARLY;
        let mut hints = Vec::new();
        for segment in &table.segments {
            let pointed = self.points_out(segment);
            for entry in segment.entries.clone() {
                let pattern = table.looks.pattern(entry);
                let start = table.range.start + ((entry as u64) << Level::PUD.shift());
                let key = (table.range.space, start);
                if pointed && pattern != 0 {
                    hints.push((segment.mean, segment.low, key));
                } else if early && pattern.leading_zeros() as usize + table.looks.all().len() == 8 {
                    hints.push((cell_of(1.0 / last.seconds), segment.low, key));
                }
            }
        }
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::looks::{Bits, Look};
    use tierscope_core::Time;

    /// Looks in which the given entries are young.
    fn looks(sets: &[&[usize]]) -> Looks {
        let mut looks = Looks::default();
        for entries in sets {
            let mut young = Bits::default();
            entries.iter().for_each(|entry| young[entry / 64] |= 1 << (entry % 64));
            looks.add(Look { at: Time(0), seconds: 0.1, young });
        }
        looks
    }

    // 20 processes wake up 13 times a second, and then touch all of their memory: 1 GiB is accessed
    // as often as each of its parts. It is not passed over; what is accessed less often than the
    // mean is.
    #[test]
    fn bursts_are_not_quiet() {
        let above = |rate: f32| {
            let cell = cell_of(rate);
            let (low, high, core) = (cell - 1.0, cell + 1.0, [cell; 2]);
            Segment { entries: 0..1, low, mean: cell, high, core, blunt: false }
        };
        let tally = Tally { above: 13.0, hot_threshold: Some(cell_of(60.0)), ..Tally::default() };
        let quiet = [0.1, 2.0, 13.0, 100.0].map(|rate| tally.is_quiet(&above(rate)));
        assert_eq!(quiet, [true, true, false, false]);
        assert!(!tally.is_quiet(&Segment { blunt: true, ..above(2.0) }), "no upper bound");
        let idle = Tally { above: 0.0, ..tally };
        assert_eq!([0.1, 2.0].map(|rate| idle.is_quiet(&above(rate))), [true, false]);
    }

    // 3 entries with 10 accesses a second, one of them in each of 3 GiB that are mapped, of which 6
    // MiB are resident: the mean of pages is 10 in 2 MiB, however large the holes are, and twice as
    // much is hot. The mean of entries is over the holes, too.
    #[test]
    fn the_mean_of_pages_is_over_memory_not_over_holes() {
        let mut tally = Tally::default();
        tally.set_memory(6 << 20);
        let sums = Sums { entries: 512.0, rate: 10.0, square: 100.0, most: cell_of(10.0) };
        let gib = |number: u64| {
            let key = (tierscope_core::SpaceId(0), number << 30);
            let range = tierscope_core::Range::new(key.0, key.1, key.1 + (1 << 30));
            let mut table = Table::new(key.0, key.1, Level::PMD, &[range]);
            let (cell, core) = (cell_of(10.0), [cell_of(10.0); 2]);
            let segment =
                Segment { entries: 0..1, low: cell, mean: cell, high: cell, core, blunt: false };
            (table.segments, table.sums, table.visits) = (vec![segment], sums, 1);
            (key, table)
        };
        let lower: BTreeMap<Key, Table> = (0..3).map(gib).collect();
        tally.count(
            &[],
            &lower,
            &BTreeMap::new(),
            &VisitOrder { count: 3, ..VisitOrder::default() },
            Time(0),
        );
        assert_eq!([tally.page_hot(), tally.hot_threshold()], [cell_of(20.0), cell_of(1.0)]);
    }

    // All hot memory is swept 100 times a second: 4 of 16 huge pages, and 4 of 16 entries that
    // point to pages, of which one is known to have 100 accesses a second to each of its pages. A
    // mean of 25 by bits makes huge pages hot at 37.5; the one of pages, 1,622, would hide them.
    #[test]
    fn huge_pages_are_compared_by_bits() {
        let (space, cell) = (tierscope_core::SpaceId(0), cell_of(100.0));
        let whole = tierscope_core::Range::new(space, 0, 1 << 30);
        let hot = |entries, cell| {
            let (low, high, core) = (cell, cell, [cell; 2]);
            Segment { entries, low, mean: cell, high, core, blunt: false }
        };
        let mut table = Table::new(space, 0, Level::PMD, &[whole]);
        table.segments =
            vec![hot(0..4, cell), hot(4..16, -9.0), hot(16..20, cell), hot(20..32, -9.0)];
        table.sums = Sums { entries: 32.0, rate: 800.0, square: 80_000.0, most: cell };
        (table.huge, table.known_huge, table.whole[0]) = (16, 16, 0xffff);
        let mut pages = Table::new(space, 16 << 21, Level::PTE, &[whole]);
        pages.segments = vec![hot(0..512, cell)];
        let (lower, leaves) =
            (BTreeMap::from([((space, 0), table)]), BTreeMap::from([((space, 16 << 21), pages)]));
        let mut tally = Tally::default();
        tally.set_memory(64 << 20);
        tally.count(
            &[],
            &lower,
            &leaves,
            &VisitOrder { count: 1, ..VisitOrder::default() },
            Time(0),
        );
        assert!((tally.entry_hot(true) - cell_of(37.5)).abs() < 0.5, "{}", tally.entry_hot(true));
        assert!(tally.entry_hot(false) > cell_of(1_000.0), "{}", tally.entry_hot(false));
    }

    // Half of 32 huge pages are swept 300 times a second. Code and stack are in 5 more entries,
    // that point to few pages, accessed all the time. They do not make accesses even: of a mean of
    // 157, 1.7 times as much is hot; over resident memory alone, 1.9 times 178 would be.
    #[test]
    fn few_pages_of_code_do_not_hide_huge_pages() {
        let space = tierscope_core::SpaceId(0);
        let range = tierscope_core::Range::new(space, 0, 1 << 30);
        let segment = |entries, rate| {
            let cell = cell_of(rate);
            Segment { entries, low: cell, mean: cell, high: cell, core: [cell; 2], blunt: false }
        };
        let mut table = Table::new(space, 0, Level::PMD, &[range]);
        table.segments =
            vec![segment(0..16, 300.0), segment(16..32, 0.01), segment(100..105, 10_000.0)];
        table.sums = Sums { entries: 37.0, rate: 54_800.0, square: 5e8, most: cell_of(10_000.0) };
        (table.huge, table.known_huge, table.whole[0]) = (32, 32, 0xffff_ffff);
        let lower = BTreeMap::from([((space, 0), table)]);
        let mut tally = Tally::default();
        tally.set_memory(65 << 20);
        let round = VisitOrder { count: 1, ..VisitOrder::default() };
        tally.count(&[], &lower, &BTreeMap::new(), &round, Time(0));
        let threshold = rate_of(tally.entry_hot(true));
        assert!((250.0..285.0).contains(&threshold), "{threshold}");
    }

    // In all tables the same few uncorrelated entries are young in every look: such tables are
    // inferred entry by entry. A table whose entries are young at random is not.
    #[test]
    fn a_uniform_table_is_not_inferred_entry_by_entry() {
        let mut tally = Tally::default();
        let few = looks(&[&[10, 100, 200, 300][..]; 8]);
        (0..200).for_each(|_| tally.note_correlation(&few, 512));
        assert!(tally.are_uncorrelated(&few, 512));
        let thirds: [Vec<usize>; 3] = std::array::from_fn(|look| {
            (0..512).filter(|entry| (entry / 3 + entry) % 3 == look).collect()
        });
        let alike = looks(&[&thirds[0], &thirds[1], &thirds[2]]);
        assert!(!tally.are_uncorrelated(&alike, 512));
    }
}
