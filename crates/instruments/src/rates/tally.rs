//! Rates over all memory, and the hot threshold.

use std::collections::BTreeMap;

use tierscope_core::Level;

use super::VisitOrder;
use super::chain::{Segment, VAGUE};
use super::grid::{cell_of, rate_of};
use super::looks::{Bits, Correlation, Looks, mask};
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
/// Lowest hot threshold, in accesses per second of 2 MiB.
const IDLE: f64 = 1.0;
/// Width in cells of the central 60 % of the probability, above which a rate may be undecided.
pub(super) const DOUBT: f32 = 4.0;
/// Maximum width in cells of the interval of a hot page's rate; wider ones need another visit.
const VAGUE_PAGES: f32 = 3.0;
/// Distance in cells at which a lower bound is certainly above the mean rate: the mean is an
/// estimate.
const ABOVE_MEAN: f32 = 1.0;
/// Changes of the hot threshold up to this number of cells are ignored.
const STEADY: f32 = 0.25;
/// Skew within entries up to which an entry's rate holds for its pages.
const EVEN: f64 = 2.0;
/// Minimum number of entries with visited leaves for an estimate of skew, and number of entries
/// that the estimate averages.
const LEAST_LEAVES: f64 = 4.0;
const LEAF_MEMORY: f64 = 64.0;
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

/// Rates over all memory, in entries of 2 MiB, and the hot threshold that follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Whether translations are not flushed: entries that look idle may be cached in TLBs.
    pub(super) blind: bool,
    mean: f64,
    /// Cell of the mean rate.
    mean_cell: Option<f32>,
    /// Hot threshold: minimum rate of a hot entry of 2 MiB, as a cell.
    hot_threshold: Option<f32>,
    /// Mean rate of level-3 entries.
    above: f64,
    /// Accesses per second of all tables visited so far.
    total: f64,
    /// Mean logarithm of the skew of accesses within an entry (`Looks::unevenness`), weighted by
    /// accesses; and the number of entries averaged, fading.
    uneven: (f64, f64),
    /// Accesses per second of all visited tables when the average in `uneven` was started.
    uneven_of: f64,
    /// Correlation of entries of 2 MiB, as a moving average over tables.
    correlation: Correlation,
}

impl Tally {
    /// Makes an empty tally; `blind` if translations are not flushed.
    pub(super) fn new(blind: bool) -> Self {
        Self { blind, ..Self::default() }
    }

    /// Recomputes the rates over all memory and the hot threshold.
    pub(super) fn count(
        &mut self,
        upper: &[Table],
        lower: &BTreeMap<Key, Table>,
        round: &VisitOrder,
    ) {
        let mut above = Sums::default();
        upper.iter().for_each(|table| above.add(&table.sums));
        self.above = above.rate / above.entries.max(1.0);
        // Unvisited tables are assumed to be like the visited ones without hot entries: tables with
        // hot entries are visited first.
        let (mut seen, mut plain) = (Sums::default(), Sums::default());
        let mut tables = 0.0;
        for table in lower.values().filter(|table| !table.segments.is_empty()) {
            seen.add(&table.sums);
            tables += 1.0;
            if table.visits > 0 && table.sums.most < self.hot_threshold() {
                plain.add(&table.sums);
            }
        }
        let all = (round.count as f64 * 512.0).max(seen.entries);
        if tables >= 0.9 * (round.count as f64) {
            plain = Sums::default();
        }
        let rest = if plain.entries > 0.0 { plain.rate / plain.entries } else { 0.0 };
        // Unvisited tables are not assumed to be busier than level 3 reports: the first visited
        // tables are flagged ones.
        let rest = if self.above > 0.0 { rest.min(REST * self.above / 512.0) } else { rest };
        let rate = seen.rate + (all - seen.entries) * rest;
        let square = seen.square + (all - seen.entries) * rest * rest;
        // The mean rate by level 3 is used if it is above that of the tables visited so far.
        self.mean = (rate / all).max(self.above / 512.0);
        self.mean_cell = Some(cell_of(self.mean as f32));
        self.total = seen.rate;
        // The average skew was sampled from less than half of all accesses: start again, to include
        // the leaves of the other entries.
        if self.total > 2.0 * self.uneven_of {
            (self.uneven, self.uneven_of) = ((0.0, 0.0), self.total);
        }
        // The access-weighted mean rate of pages: within entries of 2 MiB, accesses may fall on few
        // pages.
        let accessed = if rate > 0.0 { square / rate * self.unevenness() } else { 0.0 };
        let (least, most) = LEAST_OVER_MEAN;
        let evenly = TWO_LEVELS - accessed / self.mean.max(f64::MIN_POSITIVE);
        let least = (least + evenly.max(0.0)).min(most);
        let threshold =
            (OF_ACCESSED * accessed).clamp(least * self.mean, MOST_OVER_MEAN * self.mean).max(IDLE);
        // Regions depend on the hot threshold: small changes are not worth rebuilding them.
        let threshold = cell_of(threshold as f32);
        if self.hot_threshold.is_none_or(|known| (known - threshold).abs() > STEADY) {
            self.hot_threshold = Some(threshold);
        }
    }

    /// Adds the skew of accesses within a randomly chosen entry to the average. By logarithms: of
    /// hundreds of entries one is very skewed by chance, and must not outweigh the others.
    pub(super) fn note_leaves(&mut self, unevenness: f64) {
        let (mean, weight) = self.uneven;
        let weight = (weight + 1.0).min(LEAF_MEMORY);
        self.uneven = (mean + (unevenness.ln() - mean) / weight, weight);
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

    /// Average skew of accesses over the pages of an entry; 1 until it is known.
    fn unevenness(&self) -> f64 {
        if self.uneven.1 < LEAST_LEAVES { 1.0 } else { self.uneven.0.exp().max(1.0) }
    }

    /// Whether accesses within entries are so skewed that an entry's rate does not hold for its
    /// pages.
    pub(super) fn is_uneven(&self) -> bool {
        self.unevenness() > EVEN
    }

    /// Minimum cell of an entry of 2 MiB that may contain hot pages, given the skew within entries.
    pub(super) fn worth_leaves(&self) -> f32 {
        let most = self.unevenness() as f32;
        self.hot_threshold() - cell_of(most.min(64.0)) + cell_of(1.0)
    }

    /// Accesses per second of all visited tables.
    pub(super) fn total_rate(&self) -> f64 {
        self.total
    }

    /// Mean accesses per second of an entry of 2 MiB; 0 while unknown.
    pub(super) fn mean_rate(&self) -> f32 {
        self.mean as f32
    }

    /// Mean accesses per second of an entry of 1 GiB.
    pub(super) fn above(&self) -> f32 {
        self.above as f32
    }

    /// Hot threshold: the minimum cell of a hot entry of 2 MiB; `f32::MAX` while unknown.
    pub(super) fn hot_threshold(&self) -> f32 {
        self.hot_threshold.unwrap_or(f32::MAX)
    }

    /// Whether a segment is hot with a probability of at least four fifths.
    pub(super) fn is_hot(&self, segment: &Segment) -> bool {
        segment.core[0] >= self.hot_threshold()
    }

    /// Whether a segment is certainly above the mean rate.
    pub(super) fn is_above_mean(&self, segment: &Segment) -> bool {
        self.mean_cell.is_none_or(|mean| segment.low >= mean + ABOVE_MEAN)
    }

    /// Whether entries of 2 MiB may contain hot pages that their own rate does not show: accesses
    /// within entries are skewed, and these pages were not looked at.
    pub(super) fn is_veiled(&self, segment: &Segment) -> bool {
        self.is_uneven() && segment.high >= self.worth_leaves()
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
        self.hot_threshold() - cell_of(512.0) + cell_of(1.0)
    }

    /// Whether a segment is undecided, hot or not: its rate is known no closer than within a factor
    /// of three, or no look came soon enough for an upper bound.
    pub(super) fn is_unknown(&self, segment: &Segment) -> bool {
        let [low, high] = segment.core;
        low < self.hot_threshold()
            && (segment.blunt || high - low > DOUBT && high >= self.hot_threshold())
    }

    /// Whether a table has hot entries, and whether it has undecided ones or an unconfirmed
    /// outlier.
    pub(super) fn wants_more(&self, table: &Table) -> [bool; 2] {
        let any = |is: &dyn Fn(&Segment) -> bool| table.segments.iter().any(is);
        let doubtful = table.surprise.is_some() || any(&|segment| self.is_unknown(segment));
        [any(&|segment| self.is_hot(segment)), doubtful]
    }

    /// Whether no entry beneath a level-3 entry with this rate can be hot.
    pub(super) fn is_quiet(&self, above: &Segment) -> bool {
        !self.blind && above.high < self.hot_threshold().max(cell_of(IDLE as f32))
    }

    /// Rates at which to measure a table's hot and undecided segments, one for each group of like
    /// rates: for a rate with a wide interval its middle, so that a look halves the interval.
    pub(super) fn aims(&self, table: &Table) -> Vec<f32> {
        let threshold =
            if table.level == Level::PTE { self.page_threshold() } else { self.hot_threshold() };
        let step = |segment: &Segment| {
            let vague = segment.high - segment.low > 2.0 * VAGUE;
            let aim = if vague { (segment.low + segment.high) / 2.0 } else { segment.believed() };
            (aim / MUCH_ALIKE) as i32
        };
        let wanted = |segment: &&Segment| segment.core[0] >= threshold || self.is_unknown(segment);
        let mut steps: Vec<i32> = table.segments.iter().filter(wanted).map(step).collect();
        steps.sort_unstable();
        steps.dedup();
        steps.into_iter().map(|step| rate_of((step as f32 + 0.5) * MUCH_ALIKE)).collect()
    }

    pub(super) fn hot_bits(&self, table: &Table) -> Bits {
        let mut hot = Bits::default();
        for segment in table.segments.iter().filter(|segment| self.is_hot(segment)) {
            let here = mask(&segment.entries);
            hot.iter_mut().zip(&here).for_each(|(word, here)| *word |= here);
        }
        hot
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
    use crate::rates::looks::Look;
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
