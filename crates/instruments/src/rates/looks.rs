//! What was seen of the 512 entries of a table, look by look.

use tierscope_core::{Level, Time};

/// Entries of a table.
pub(super) const ENTRIES: usize = Level::FANOUT as usize;
/// Words of a bitmap of entries.
pub(super) const WORDS: usize = ENTRIES / 64;
/// Looks that are kept of a table.
pub(super) const DEPTH: usize = 8;

/// Entries from one that a sketch looks at to the next.
pub(super) const SKETCH_STEP: usize = 32;

/// Entries young in two looks, or expected to be by chance, from which on unevenness is judged.
const LEAST_SHARED: f64 = 4.0;

/// A bit for each entry of a table.
pub(super) type Bits = [u64; WORDS];

/// One look at all entries, each cleared some time before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// When.
    pub(super) at: Time,
    /// Seconds from the clear to the look.
    pub(super) seconds: f32,
    /// Entries found young.
    pub(super) young: Bits,
}

impl Look {
    /// Whether none was young.
    pub(super) fn is_old(&self) -> bool {
        self.young == [0; WORDS]
    }

    /// How many were young.
    fn count(&self) -> u32 {
        self.young.iter().map(|word| word.count_ones()).sum()
    }
}

/// Entries found young together more often than by chance: the same ones, and neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kinship {
    pub(super) own: f64,
    pub(super) near: f64,
    /// Variance of the first if all were by chance.
    pub(super) variance: f64,
}

/// The last looks at a table, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    kept: Vec<Look>,
}

impl Looks {
    /// Keeps one more; the oldest goes.
    pub(super) fn add(&mut self, look: Look) {
        if self.kept.len() == DEPTH {
            self.kept.remove(0);
        }
        self.kept.push(look);
    }

    /// Whether another one takes the place of the oldest.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() == DEPTH
    }

    /// The looks, the oldest first.
    pub(super) fn all(&self) -> &[Look] {
        &self.kept
    }

    /// How unevenly accesses fall on entries: the rate of the entry that an access falls on in the mean, over
    /// the rate of an entry in the mean. From pairs of looks: entries young in both, over as many as would be
    /// by chance, which is right in the mean however few are young; none if these are too few to tell.
    pub(super) fn unevenness(&self, entries: usize) -> Option<f64> {
        let (mut both, mut chance) = (0.0, 0.0);
        for (index, one) in self.kept.iter().enumerate() {
            for other in &self.kept[..index] {
                let shared = one.young.iter().zip(&other.young).map(|(a, b)| (a & b).count_ones());
                both += f64::from(shared.sum::<u32>());
                chance += f64::from(one.count()) * f64::from(other.count()) / entries as f64;
            }
        }
        let enough = both >= LEAST_SHARED || chance >= LEAST_SHARED;
        (enough && chance > 0.0).then(|| (both / chance).max(1.0))
    }

    /// How many entries more than by chance are young in two looks, and how many are young in one whose neighbour is
    /// young in the other, over all pairs of looks: as many where neighbours are alike, none where an entry says
    /// nothing of the next.
    pub(super) fn kinship(&self, entries: usize) -> Kinship {
        let mut kinship = Kinship::default();
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
                kinship.own += f64::from(own) - chance;
                // The neighbour of the last entry of a word is not counted.
                kinship.near += f64::from(near) / 2.0 - chance * 63.0 / 64.0;
                kinship.variance += chance * (all - counts[0]) * (all - counts[1]) / (all * all);
            }
        }
        kinship
    }

    /// A bit for each of 64 entries that was young in more than one look.
    pub(super) fn young_often(&self, word: usize) -> u64 {
        let (mut once, mut often) = (0, 0);
        for young in self.kept.iter().map(|look| look.young[word]) {
            often |= once & young;
            once |= young;
        }
        often
    }

    /// How many entries were young in each of the last so many looks.
    pub(super) fn young_in_last(&self, looks: usize) -> u32 {
        let last = self.kept.iter().rev().take(looks);
        let always = last.fold([u64::MAX; WORDS], |always, look| {
            std::array::from_fn(|word| always[word] & look.young[word])
        });
        if self.kept.is_empty() { 0 } else { always.iter().map(|word| word.count_ones()).sum() }
    }

    /// A bit for each of 64 entries after which an entry with another pattern follows.
    pub(super) fn turns(&self, word: usize) -> u64 {
        self.kept
            .iter()
            .map(|look| look.young[word])
            .fold(0, |turns, young| turns | young ^ young >> 1)
    }

    /// Entries that were old in most looks, and those that were young in at least half of them.
    pub(super) fn parted(&self, span: &std::ops::Range<usize>) -> [Vec<usize>; 2] {
        let mut parts = [Vec::new(), Vec::new()];
        for entry in span.clone() {
            let young = self.pattern(entry).count_ones() as usize;
            parts[usize::from(2 * young >= self.kept.len())].push(entry);
        }
        parts
    }

    /// Whether an entry was young, as a bit for each look, the oldest lowest.
    pub(super) fn pattern(&self, entry: usize) -> u8 {
        let bit = |look: &Look| (look.young[entry / 64] >> (entry % 64) & 1) as u8;
        self.kept.iter().enumerate().fold(0, |sum, (index, look)| sum | bit(look) << index)
    }
}

/// The entries that a sketch looks at: the middle one of each stretch.
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

    // Two looks that share two of four entries each, of 512: by chance they would share 1/32; four looks
    // at the same four entries share all: 512 / 4.
    #[test]
    fn unevenness_counts_what_looks_share() {
        let of = |sets: &[&[usize]]| {
            let mut looks = Looks::default();
            sets.iter().for_each(|set| looks.add(look(set)));
            looks.unevenness(ENTRIES)
        };
        assert_eq!(of(&[&[1, 2, 3, 4], &[3, 4, 5, 6]]), None);
        assert_eq!(of(&[&[1, 2, 3, 4][..]; 4]), Some(128.0));
        let all: Vec<usize> = (0..ENTRIES).collect();
        assert_eq!(of(&[&all, &all]), Some(1.0));
        assert_eq!(of(&[]), None);
    }

    // Four entries young in both of two looks, of 512: by chance 1/32; as neighbours six pairs, each way half.
    #[test]
    fn kinship_tells_neighbours_from_strangers() {
        let of = |entries: &[usize]| {
            let mut looks = Looks::default();
            (0..2).for_each(|_| looks.add(look(entries)));
            looks.kinship(ENTRIES)
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
        assert_eq!(of(&[]), Kinship::default());
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
