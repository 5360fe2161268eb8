//! The last looks at a table: which of its 512 entries were young, and when.

use std::time::Duration;

use tierscope_core::{Level, Time};

/// Number of entries of a table.
pub(super) const ENTRIES: usize = Level::FANOUT as usize;
/// Number of 64-bit words in a bitmap of a table's entries.
pub(super) const WORDS: usize = ENTRIES / 64;
/// Number of looks kept per table.
pub(super) const DEPTH: usize = 8;

/// Distance between two entries that a sketch probes.
pub(super) const SKETCH_STEP: usize = 32;

/// Minimum number of entries young in both of two looks for an estimate of skew: as expected by
/// chance; or as found, so many that fewer than those expected by chance would be skewed anyway: to
/// stop at a few found ones would make even entries look skewed.
const LEAST_EXPECTED: f64 = 4.0;
const LEAST_FOUND: f64 = 12.0;

/// A bit for each entry of a table.
pub(super) type Bits = [u64; WORDS];

/// One look at all entries of a table, which were cleared some time before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Time of the look.
    pub(super) at: Time,
    /// Seconds from the clear to the look.
    pub(super) seconds: f32,
    /// Entries found young.
    pub(super) young: Bits,
}

impl Look {
    /// Whether no entry was young.
    pub(super) fn is_old(&self) -> bool {
        self.young == [0; WORDS]
    }

    /// Number of young entries.
    pub(super) fn count(&self) -> u32 {
        self.young.iter().map(|word| word.count_ones()).sum()
    }
}

/// Correlation of a table's entries between looks: entries found young in both of two looks
/// (`own`), and entries whose neighbour was young in the other look (`near`), both in excess of
/// chance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Correlation {
    pub(super) own: f64,
    pub(super) near: f64,
    /// Variance of `own` if entries were young at random.
    pub(super) variance: f64,
}

/// The last looks at a table, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    kept: Vec<Look>,
}

/// Entries young in both of two looks, summed over pairs of looks: as found, and as expected if all
/// entries were accessed alike. The expectation is right however few entries are young.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shared {
    pub(super) both: f64,
    pub(super) chance: f64,
}

impl Shared {
    fn of(looks: &[&Look], entries: usize) -> Self {
        let mut all = Self::default();
        for (index, one) in looks.iter().enumerate() {
            for other in &looks[..index] {
                let both = one.young.iter().zip(&other.young).map(|(a, b)| (a & b).count_ones());
                let chance = f64::from(one.count()) * f64::from(other.count()) / entries as f64;
                all.add(&Self { both: f64::from(both.sum::<u32>()), chance });
            }
        }
        all
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.both += other.both;
        self.chance += other.chance;
    }

    /// Skew of accesses over entries: the access-weighted mean rate (of the entry that an average
    /// access falls on) over the mean rate; `None` if too few entries were young.
    pub(super) fn skew(&self) -> Option<f64> {
        let enough = self.both >= LEAST_FOUND || self.chance >= LEAST_EXPECTED;
        (enough && self.chance > 0.0).then(|| (self.both / self.chance).max(1.0))
    }
}

impl Looks {
    /// Adds a look, in place of the oldest one if there are `DEPTH` already.
    pub(super) fn add(&mut self, look: Look) {
        if self.kept.len() == DEPTH {
            self.kept.remove(0);
        }
        self.kept.push(look);
    }

    /// Adds a look; if there are `DEPTH` already, in place of the oldest one if that is older than
    /// `most`, or of the one that is closest to both of its neighbours in time: what is kept spans
    /// work and naps.
    pub(super) fn add_apart(&mut self, look: Look, most: Duration) {
        if self.kept.len() == DEPTH {
            let gap = |at: usize| self.kept[at + 1].at.since(self.kept[at - 1].at);
            let closest = (1..DEPTH - 1).min_by_key(|at| gap(*at)).unwrap_or(0);
            let is_late = look.at.since(self.kept[0].at) > most;
            self.kept.remove(if is_late { 0 } else { closest });
        }
        self.kept.push(look);
    }

    /// Whether the next look will replace another one.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() == DEPTH
    }

    /// All kept looks, oldest first.
    pub(super) fn all(&self) -> &[Look] {
        &self.kept
    }

    /// Entries that its looks share: the fewest looks that are enough, those with the fewest young
    /// entries first. The busiest entries are young in all looks after a long time, and so are most
    /// others: such looks show little of the skew.
    pub(super) fn shared(&self, entries: usize) -> Shared {
        let mut looks: Vec<&Look> = self.kept.iter().collect();
        looks.sort_by_key(|look| look.count());
        let few = (2..looks.len()).map(|number| Shared::of(&looks[..number], entries));
        let enough = few.into_iter().find(|shared| shared.skew().is_some());
        enough.unwrap_or_else(|| Shared::of(&looks, entries))
    }

    /// Correlation over all pairs of looks: `own` is the number of entries young in both looks
    /// beyond chance, `near` the number of entries young in one whose neighbour is young in the
    /// other. They are equal if neighbours are alike; `near` is zero if entries say nothing about
    /// their neighbours.
    pub(super) fn correlation(&self, entries: usize) -> Correlation {
        let mut correlation = Correlation::default();
        for (index, one) in self.kept.iter().enumerate() {
            for other in &self.kept[..index] {
                let all = entries as f64;
                let counts = [one, other].map(|look| f64::from(look.count()));
                let chance = counts[0] * counts[1] / all;
                let (mut own, mut near) = (0, 0);
                for (a, b) in one.young.iter().zip(&other.young) {
                    own += (a & b).count_ones();
                    near += (a & b >> 1).count_ones() + (a >> 1 & b).count_ones();
                }
                correlation.own += f64::from(own) - chance;
                // Pairs of neighbours in different words are not counted.
                correlation.near += f64::from(near) / 2.0 - chance * 63.0 / 64.0;
                correlation.variance +=
                    chance * (all - counts[0]) * (all - counts[1]) / (all * all);
            }
        }
        correlation
    }

    /// Bitmap of the entries in a word that were young in more than one look.
    pub(super) fn young_often(&self, word: usize) -> u64 {
        let (mut once, mut often) = (0, 0);
        for young in self.kept.iter().map(|look| look.young[word]) {
            often |= once & young;
            once |= young;
        }
        often
    }

    /// Number of entries that are young in any look, or in `young`.
    pub(super) fn young_once(&self, young: &Bits) -> u32 {
        let add = |all: Bits, look: &Look| std::array::from_fn(|word| all[word] | look.young[word]);
        self.kept.iter().fold(*young, add).iter().map(|word| word.count_ones()).sum()
    }

    /// Number of entries that were young in all of the last `looks` looks.
    pub(super) fn young_in_last(&self, looks: usize) -> u32 {
        let last = self.kept.iter().rev().take(looks);
        let always = last.fold([u64::MAX; WORDS], |always, look| {
            std::array::from_fn(|word| always[word] & look.young[word])
        });
        if self.kept.is_empty() { 0 } else { always.iter().map(|word| word.count_ones()).sum() }
    }

    /// Bitmap of the entries in a word that are followed by an entry with another pattern.
    pub(super) fn turns(&self, word: usize) -> u64 {
        self.kept
            .iter()
            .map(|look| look.young[word])
            .fold(0, |turns, young| turns | young ^ young >> 1)
    }

    /// Mapped entries in two parts: old in most looks, and young in at least half of the looks.
    pub(super) fn parted(&self, span: &std::ops::Range<usize>) -> [Vec<usize>; 2] {
        let mut parts = [Vec::new(), Vec::new()];
        for entry in span.clone() {
            let young = self.pattern(entry).count_ones() as usize;
            parts[usize::from(2 * young >= self.kept.len())].push(entry);
        }
        parts
    }

    /// Pattern of an entry: a bit for each look in which it was young, the oldest look lowest.
    pub(super) fn pattern(&self, entry: usize) -> u8 {
        let bit = |look: &Look| (look.young[entry / 64] >> (entry % 64) & 1) as u8;
        self.kept.iter().enumerate().fold(0, |sum, (index, look)| sum | bit(look) << index)
    }
}

/// Entries that a sketch probes: the middle one of each group of `SKETCH_STEP`.
pub(super) fn sketched() -> impl Iterator<Item = usize> {
    (SKETCH_STEP / 2..ENTRIES).step_by(SKETCH_STEP)
}

/// A bitmap with the entries of a range set.
pub(super) fn mask(entries: &std::ops::Range<usize>) -> Bits {
    std::array::from_fn(|word| {
        let first = word * 64;
        let from = entries.start.clamp(first, first + 64) - first;
        let to = entries.end.clamp(first, first + 64) - first;
        let below = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        below(to) & !below(from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(entries: &[usize]) -> Look {
        let mut young = [0; WORDS];
        entries.iter().for_each(|entry| young[entry / 64] |= 1 << (entry % 64));
        Look { at: Time(0), seconds: 0.1, young }
    }

    #[test]
    fn patterns_hold_the_looks_in_order() {
        let mut looks = Looks::default();
        for entries in [&[3][..], &[], &[3, 500]] {
            looks.add(look(entries));
        }
        assert_eq!([looks.pattern(3), looks.pattern(500), looks.pattern(4)], [0b101, 0b100, 0]);
        assert_eq!([looks.young_often(0), looks.young_often(7)], [0b1000, 0]);
        assert_eq!([1, 2, 3].map(|last| looks.young_in_last(last)), [2, 0, 0]);
        assert_eq!(Looks::default().young_in_last(3), 0);
        assert_eq!(
            [looks.turns(0), looks.turns(1), looks.turns(7)],
            [0b1100, 0, 1 << 51 | 1 << 52]
        );
        (0..DEPTH).for_each(|_| looks.add(look(&[])));
        assert_eq!((looks.pattern(3), looks.all().len()), (0, DEPTH));
    }

    // Two looks, each with four of 512 entries young, share two: too few to judge. Four looks with
    // the same four entries share all four in each pair, by chance 1/32: a skew of 512 / 4.
    #[test]
    fn skew_is_that_of_shared_entries() {
        let of = |sets: &[&[usize]]| {
            let mut looks = Looks::default();
            sets.iter().for_each(|set| looks.add(look(set)));
            looks.shared(ENTRIES).skew()
        };
        assert_eq!(of(&[&[1, 2, 3, 4], &[3, 4, 5, 6]]), None);
        assert_eq!(of(&[&[1, 2, 3, 4][..]; 4]), Some(128.0));
        let all: Vec<usize> = (0..ENTRIES).collect();
        assert_eq!(of(&[&all, &all]), Some(1.0));
        assert_eq!(of(&[]), None);
    }

    // Four of 512 entries are young in both of two looks, by chance 1/32. If adjacent, they have
    // three pairs of neighbours in each direction, and each pair counts half.
    #[test]
    fn correlation_separates_like_neighbours_from_unlike_ones() {
        let of = |entries: &[usize]| {
            let mut looks = Looks::default();
            (0..2).for_each(|_| looks.add(look(entries)));
            looks.correlation(ENTRIES)
        };
        let chance = 16.0 / 512.0;
        let near = |entries: &[usize]| {
            let found = of(entries);
            assert_eq!(found.own, 4.0 - chance);
            assert!((found.variance - chance * (508.0f64 / 512.0).powi(2)).abs() < 1e-12);
            found.near + chance * 63.0 / 64.0
        };
        assert_eq!(near(&[10, 11, 12, 13]), 3.0);
        assert_eq!(near(&[10, 100, 200, 300]), 0.0);
        assert_eq!(of(&[]), Correlation::default());
    }

    #[test]
    fn a_sketch_looks_at_the_middle_of_each_stretch() {
        let entries: Vec<usize> = sketched().collect();
        assert_eq!((entries.len(), entries[0], entries[1], entries[15]), (16, 16, 48, 496));
    }

    #[test]
    fn masks_cover_their_entries() {
        assert_eq!(mask(&(0..ENTRIES)), [u64::MAX; WORDS]);
        assert_eq!(mask(&(3..5))[0], 0b11000);
        let over = mask(&(60..130));
        assert_eq!((over[0], over[1], over[2], over[3]), (0xf << 60, u64::MAX, 0b11, 0));
        assert_eq!(mask(&(7..7)), [0; WORDS]);
    }
}
