//! What is hot: rates over all memory, and where the line lies.

use std::collections::BTreeMap;

use tierscope_core::Level;

use super::Round;
use super::chain::{Segment, VAGUE};
use super::grid::{cell_of, rate_of};
use super::looks::{Bits, Kinship, Looks, mask};
use super::table::{Key, Sums, Table};

/// Hot memory is accessed at least a fourth as often as the memory that an access falls on in the mean ...
const OF_ACCESSED: f64 = 0.25;
/// ... at least this many times as often as memory in the mean: the first, or up to the second where accesses fall
/// evenly, so that memory busier by chance is not taken for hot ...
const LEAST_OVER_MEAN: (f64, f64) = (1.5, 2.0);
/// Times that the memory that an access falls on is as busy as memory in the mean, from which on the first holds.
const TWO_LEVELS: f64 = 2.0;
/// ... and it is hot for certain if it is accessed so many times as often.
const MOST_OVER_MEAN: f64 = 4.0;
/// Times as busy as level 3 says of all memory in the mean, that tables not visited yet may be taken to be.
const REST: f64 = 2.0;
/// Accesses a second below which no 2 MiB are hot.
const IDLE: f64 = 1.0;
/// Cells of the core of the probability from which a rate is doubtful.
pub(super) const DOUBT: f32 = 4.0;
/// Cells that the interval of a hot page's rate may span.
const VAGUE_PAGES: f32 = 3.0;
/// Cells above the mean from which a rate is certainly above it: the mean is but estimated.
const ABOVE_MEAN: f32 = 1.0;
/// Cells by which the bar may be off.
const STEADY: f32 = 0.25;
/// Unevenness up to which entries speak for their pages.
const EVEN: f64 = 2.0;
/// Entries whose leaves must have been looked at before that is judged, and those that count.
const LEAST_LEAVES: f64 = 4.0;
const LEAF_MEMORY: f64 = 64.0;
/// Tables over which kinship is averaged, and as how many the others count where one is judged.
const KIN_TABLES: f64 = 64.0;
const OTHERS: f64 = 4.0;
/// Standard deviations beyond chance from which on kinship is judged; and the share of it that neighbours of
/// strangers reach at most.
const SURE_KIN: f64 = 3.0;
const SURE_HERE: f64 = 2.5;
const STRANGERS: f64 = 0.3;
/// Cells within which rates are measured at the same distance.
const MUCH_ALIKE: f32 = 4.0;
/// Expected accesses of a level-3 entry like the others, up to which one that was accessed is pointed out.
const EARLY: f64 = 0.05;
/// Level-3 entries this many times as busy as the mean point out their tables.
const POINTED: f32 = 2.0;

/// Rates over all memory, of entries of 2 MiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Translations are not flushed: what looks idle may be what caches hold.
    pub(super) blind: bool,
    mean: f64,
    /// The cell of that.
    mean_cell: Option<f32>,
    /// Cell of the rate from which an entry of 2 MiB is hot.
    bar: Option<f32>,
    /// Mean rate of level-3 entries.
    above: f64,
    /// All accesses a second, of the tables visited so far.
    total: f64,
    /// How unevenly accesses fall on the pages of the entry that an access falls on (`Looks::unevenness`), as a
    /// logarithm, and leaves looked at for that, fading.
    uneven: (f64, f64),
    /// All accesses a second when these leaves were looked at first.
    uneven_of: f64,
    /// Whether neighbouring entries of 2 MiB are alike, of a table in the mean, fading.
    kinship: Kinship,
}

impl Tally {
    /// Nothing is known yet; `blind` where translations are not flushed.
    pub(super) fn new(blind: bool) -> Self {
        Self { blind, ..Self::default() }
    }

    /// Works out rates over all memory once more.
    pub(super) fn count(&mut self, upper: &[Table], lower: &BTreeMap<Key, Table>, round: &Round) {
        let mut above = Sums::default();
        upper.iter().for_each(|table| above.add(&table.sums));
        self.above = above.rate / above.entries.max(1.0);
        // Tables not visited yet are taken to be like the others, but for what made those be visited first.
        let (mut seen, mut plain) = (Sums::default(), Sums::default());
        let mut tables = 0.0;
        for table in lower.values().filter(|table| !table.segments.is_empty()) {
            seen.add(&table.sums);
            tables += 1.0;
            if table.visits > 0 && table.sums.most < self.bar() {
                plain.add(&table.sums);
            }
        }
        let all = (round.count as f64 * 512.0).max(seen.entries);
        if tables >= 0.9 * (round.count as f64) {
            plain = Sums::default();
        }
        let rest = if plain.entries > 0.0 { plain.rate / plain.entries } else { 0.0 };
        // Nor busier than level 3 has them: the first ones visited are those that it points out.
        let rest = if self.above > 0.0 { rest.min(REST * self.above / 512.0) } else { rest };
        let rate = seen.rate + (all - seen.entries) * rest;
        let square = seen.square + (all - seen.entries) * rest * rest;
        // What level 3 says of all memory counts where tables visited so far say less.
        self.mean = (rate / all).max(self.above / 512.0);
        self.mean_cell = Some(cell_of(self.mean as f32));
        self.total = seen.rate;
        // Chance has chosen among less than half of all accesses: leaves of the others are to be seen first.
        if self.total > 2.0 * self.uneven_of {
            (self.uneven, self.uneven_of) = ((0.0, 0.0), self.total);
        }
        // Of pages: within entries of 2 MiB accesses may fall on few of them.
        let accessed = if rate > 0.0 { square / rate * self.unevenness() } else { 0.0 };
        let (least, most) = LEAST_OVER_MEAN;
        let evenly = TWO_LEVELS - accessed / self.mean.max(f64::MIN_POSITIVE);
        let least = (least + evenly.max(0.0)).min(most);
        let bar =
            (OF_ACCESSED * accessed).clamp(least * self.mean, MOST_OVER_MEAN * self.mean).max(IDLE);
        // What is drawn depends on it: small changes are not worth that.
        let bar = cell_of(bar as f32);
        if self.bar.is_none_or(|known| (known - bar).abs() > STEADY) {
            self.bar = Some(bar);
        }
    }

    /// Takes in how unevenly accesses fall on the pages of an entry that chance has chosen.
    /// By logarithms: of hundreds of entries one looks uneven by chance, and must not outweigh the others.
    pub(super) fn note_leaves(&mut self, unevenness: f64) {
        let (mean, weight) = self.uneven;
        let weight = (weight + 1.0).min(LEAF_MEMORY);
        self.uneven = (mean + (unevenness.ln() - mean) / weight, weight);
    }

    /// Takes in how alike neighbours are in a table visited in turn.
    pub(super) fn note_kinship(&mut self, looks: &Looks, entries: usize) {
        let new = looks.kinship(entries);
        let mean = &mut self.kinship;
        mean.own += (new.own - mean.own) / KIN_TABLES;
        mean.near += (new.near - mean.near) / KIN_TABLES;
        mean.variance += (new.variance - mean.variance) / KIN_TABLES;
    }

    /// Whether neighbours say nothing of each other in tables in general.
    pub(super) fn are_strangers(&self) -> bool {
        let mean = &self.kinship;
        let unsure = (mean.variance / KIN_TABLES).sqrt();
        mean.own > SURE_KIN * unsure && mean.near < STRANGERS * mean.own
    }

    /// Whether neighbours say nothing of each other in a table with these looks: other tables count as some.
    pub(super) fn are_apart(&self, looks: &Looks, entries: usize) -> bool {
        let (mean, here) = (&self.kinship, looks.kinship(entries));
        let unsure = mean.variance / KIN_TABLES;
        let own = here.own + OTHERS * mean.own;
        let deviation = (here.variance + OTHERS * OTHERS * unsure).sqrt();
        // A table whose entries are alike has nothing to tell apart, whatever the others are.
        mean.own > SURE_KIN * unsure.sqrt()
            && here.own > SURE_HERE * here.variance.sqrt()
            && own > SURE_KIN * deviation
            && here.near + OTHERS * mean.near < STRANGERS * own
    }

    /// How unevenly accesses fall on pages within entries; 1 until enough is known.
    fn unevenness(&self) -> f64 {
        if self.uneven.1 < LEAST_LEAVES { 1.0 } else { self.uneven.0.exp().max(1.0) }
    }

    /// Whether pages within entries differ so that entries say little of pages.
    pub(super) fn is_uneven(&self) -> bool {
        self.unevenness() > EVEN
    }

    /// The cell from which entries may hold hot pages where pages differ.
    pub(super) fn worth_leaves(&self) -> f32 {
        let most = self.unevenness() as f32;
        self.bar() - cell_of(most.min(64.0)) + cell_of(1.0)
    }

    /// All accesses a second, as far as is known.
    pub(super) fn total_rate(&self) -> f64 {
        self.total
    }

    /// Accesses a second of an entry of 2 MiB in the mean; 0 while unknown.
    pub(super) fn mean_rate(&self) -> f32 {
        self.mean as f32
    }

    /// Likewise of an entry of 1 GiB.
    pub(super) fn above(&self) -> f32 {
        self.above as f32
    }

    /// The cell from which entries of 2 MiB are hot.
    pub(super) fn bar(&self) -> f32 {
        self.bar.unwrap_or(f32::MAX)
    }

    /// Hot with a probability of at least four fifths.
    pub(super) fn is_hot(&self, segment: &Segment) -> bool {
        segment.core[0] >= self.bar()
    }

    /// Certainly busier than memory in the mean.
    pub(super) fn is_above_mean(&self, segment: &Segment) -> bool {
        self.mean_cell.is_none_or(|mean| segment.low >= mean + ABOVE_MEAN)
    }

    /// Entries of 2 MiB whose pages were not looked at, though these differ: any of them may be hot.
    pub(super) fn is_veiled(&self, segment: &Segment) -> bool {
        self.is_uneven() && segment.high >= self.worth_leaves()
    }

    /// Whether it is in doubt which pages of an entry are hot, or how hot.
    pub(super) fn wants_more_pages(&self, leaves: &Table) -> bool {
        let bar = self.page_bar();
        leaves.segments.iter().any(|segment| {
            let [low, high] = segment.core;
            let vague = segment.high - segment.low > VAGUE_PAGES;
            high >= bar && (low < bar && high - low > 1.5 || vague)
        })
    }

    /// The cell from which pages are hot.
    pub(super) fn page_bar(&self) -> f32 {
        self.bar() - cell_of(512.0) + cell_of(1.0)
    }

    /// It may well be hot or not: its rate is known no closer than within a factor of three, or no look came soon
    /// enough to tell it from a higher one.
    pub(super) fn is_unknown(&self, segment: &Segment) -> bool {
        let [low, high] = segment.core;
        low < self.bar() && (segment.blunt || high - low > DOUBT && high >= self.bar())
    }

    /// Whether a table has hot entries, and whether it has doubtful ones.
    pub(super) fn wants_more(&self, table: &Table) -> [bool; 2] {
        let any = |is: &dyn Fn(&Segment) -> bool| table.segments.iter().any(is);
        let doubtful = table.surprise.is_some() || any(&|segment| self.is_unknown(segment));
        [any(&|segment| self.is_hot(segment)), doubtful]
    }

    /// Whether nothing beneath a level-3 entry of this segment can be hot.
    pub(super) fn is_quiet(&self, above: &Segment) -> bool {
        !self.blind && above.high < self.bar().max(cell_of(IDLE as f32))
    }

    /// Rates to measure a table's hot and doubtful segments at, such as are alike once: the middle of what a
    /// rate may be, where little is known of it, so that a look halves that.
    pub(super) fn aims(&self, table: &Table) -> Vec<f32> {
        let bar = if table.level == Level::PTE { self.page_bar() } else { self.bar() };
        let step = |segment: &Segment| {
            let vague = segment.high - segment.low > 2.0 * VAGUE;
            let aim = if vague { (segment.low + segment.high) / 2.0 } else { segment.believed() };
            (aim / MUCH_ALIKE) as i32
        };
        let wanted = |segment: &&Segment| segment.core[0] >= bar || self.is_unknown(segment);
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

    /// Whether a level-3 entry is much busier than others.
    pub(super) fn points_out(&self, above: &Segment) -> bool {
        self.bar.is_some() && above.mean >= cell_of((self.above as f32 * POINTED).max(1.0))
    }

    /// Tables beneath level-3 entries that are much busier than others, with the cell of the rate there and
    /// its lower bound; also beneath those that were young too soon to be like the others.
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

    /// Looks of which the entry numbers are given.
    fn looks(sets: &[&[usize]]) -> Looks {
        let mut looks = Looks::default();
        for entries in sets {
            let mut young = Bits::default();
            entries.iter().for_each(|entry| young[entry / 64] |= 1 << (entry % 64));
            looks.add(Look { at: Time(0), seconds: 0.1, young });
        }
        looks
    }

    // Tables in which the same few strangers are young in every look: their like is inferred entry by entry. A table
    // whose entries are young by chance has nothing to tell apart.
    #[test]
    fn a_table_that_is_alike_is_not_taken_apart_for_the_others() {
        let mut tally = Tally::default();
        let few = looks(&[&[10, 100, 200, 300][..]; 8]);
        (0..200).for_each(|_| tally.note_kinship(&few, 512));
        assert!(tally.are_apart(&few, 512));
        let thirds: [Vec<usize>; 3] = std::array::from_fn(|look| {
            (0..512).filter(|entry| (entry / 3 + entry) % 3 == look).collect()
        });
        let alike = looks(&[&thirds[0], &thirds[1], &thirds[2]]);
        assert!(!tally.are_apart(&alike, 512));
    }
}
