//! Counts of the 512 level-2 entries beneath one level-3 entry.

use std::collections::BTreeMap;

use tierscope_core::{CONFIRMED, Level, Range};

use super::leaf::Leaves;

/// Level-2 entries beneath a level-3 entry.
pub(super) const ENTRIES: usize = Level::FANOUT as usize;

/// Samples that a count looks back over. Where a window holds fewer, older windows count on with
/// falling weight.
pub(super) const HORIZON: f32 = 8.0;

/// What the checked entries of a space say of those not checked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Peers {
    /// Entries checked.
    pub(super) checked: usize,
    /// Of these, hot all over.
    pub(super) whole: usize,
}

impl Peers {
    /// At least eight were checked, and seven eighths of them found hot all over.
    pub(super) fn vouch(self) -> bool {
        self.checked >= 8 && self.whole * 8 >= self.checked * 7
    }
}

/// A level-3 entry whose level-2 entries are counted.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What the level-3 entry covers.
    pub(super) range: Range,
    hits: Box<[f32; ENTRIES]>,
    /// Samples behind the hits.
    pub(super) samples: f32,
    ages: Box<[u16; ENTRIES]>,
    /// Leaf checks of hot entries.
    pub(super) leaves: BTreeMap<u16, Leaves>,
    /// Windows since a hit.
    pub(super) cold_for: u32,
}

impl Table {
    pub(super) fn new(range: Range) -> Self {
        Self {
            range,
            hits: Box::new([0.0; ENTRIES]),
            samples: 0.0,
            ages: Box::new([0; ENTRIES]),
            leaves: BTreeMap::new(),
            cold_for: 0,
        }
    }

    /// Makes room for `samples` new ones: the fuller the new window, the less the old ones count.
    pub(super) fn fade(&mut self, samples: u32) {
        let keep = (1.0 - samples as f32 / HORIZON).max(0.0);
        self.samples *= keep;
        if self.cold_for == 0 {
            self.hits.iter_mut().for_each(|hits| *hits *= keep);
        }
    }

    /// Counts one sample: a bit per entry, or none at all for a table found old from above.
    pub(super) fn count(&mut self, young: Option<&[u64]>) {
        self.samples += 1.0;
        for (word_index, word) in young.unwrap_or_default().iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                self.hits[word_index * 64 + word.trailing_zeros() as usize] += 1.0;
                word &= word - 1;
            }
        }
    }

    /// Ends a window: ages go on, what has gone cold is forgotten.
    pub(super) fn turn(&mut self, threshold: f64) {
        let mut any = false;
        for entry in 0..ENTRIES {
            let hot = self.frequency(entry) >= threshold;
            any |= hot;
            // A change of side starts the age anew; hotness is remembered in the low bit.
            let was_hot = self.ages[entry] & 1 == 1;
            let windows = if hot == was_hot { (self.ages[entry] >> 1).min(0x7ffe) + 1 } else { 0 };
            self.ages[entry] = windows << 1 | u16::from(hot);
        }
        self.cold_for = if any { 0 } else { self.cold_for + 1 };
        self.leaves.values_mut().for_each(|leaves| leaves.since += 1);
        let (hits, samples) = (&self.hits, self.samples);
        let is_hot = |entry: usize| f64::from(hits[entry]) >= threshold * f64::from(samples);
        self.leaves.retain(|entry, _| is_hot(usize::from(*entry)));
    }

    /// Hits over samples, 0..1.
    pub(super) fn frequency(&self, entry: usize) -> f64 {
        if self.samples == 0.0 { 0.0 } else { f64::from(self.hits[entry] / self.samples) }
    }

    /// Windows for which an entry has been hot, or not.
    pub(super) fn age(&self, entry: usize) -> u32 {
        u32::from(self.ages[entry] >> 1)
    }

    /// What entry `entry` covers.
    pub(super) fn entry(&self, entry: usize) -> Range {
        let start = self.range.start + entry as u64 * Level::PMD.entry_bytes();
        Range::new(self.range.space, start, start + Level::PMD.entry_bytes())
    }

    /// The hot entries, ascending.
    pub(super) fn hot(&self, threshold: f64) -> impl Iterator<Item = usize> + '_ {
        (0..ENTRIES).filter(move |entry| self.frequency(*entry) >= threshold)
    }

    /// Whether both neighbours within the table are hot too.
    pub(super) fn is_inside(&self, entry: usize, threshold: f64) -> bool {
        let hot = |entry: usize| self.frequency(entry) >= threshold;
        entry > 0 && entry + 1 < ENTRIES && hot(entry - 1) && hot(entry + 1)
    }

    /// Adds the table's checked entries to what is known of its space.
    pub(super) fn tell(&self, peers: &mut Peers) {
        peers.checked += self.leaves.len();
        peers.whole += self.leaves.values().filter(|leaves| leaves.is_whole()).count();
    }
}

/// How sure a hot entry is: half a doubt less with every leaf check of its own; before the first
/// one, what its peers say.
pub(super) fn confidence(leaves: Option<&Leaves>, peers: Peers) -> f32 {
    match leaves {
        Some(leaves) => 1.0 - 0.5f32.powi(leaves.checks.min(8) as i32),
        None if peers.vouch() => CONFIRMED,
        None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    fn table() -> Table {
        Table::new(Range::new(SpaceId(0), 1 << 30, 2 << 30))
    }

    fn young(entries: &[usize]) -> [u64; 8] {
        let mut bits = [0; 8];
        entries.iter().for_each(|entry| bits[entry / 64] |= 1 << (entry % 64));
        bits
    }

    #[test]
    fn counts_bits_over_samples() {
        let mut table = table();
        table.fade(4);
        table.count(Some(&young(&[3, 500])));
        table.count(Some(&young(&[3])));
        table.count(None);
        table.count(None);
        assert_eq!(table.frequency(3), 0.5);
        assert_eq!(table.frequency(500), 0.25);
        assert_eq!(table.hot(0.3).collect::<Vec<_>>(), [3]);
        assert_eq!(table.entry(500).start, (1 << 30) + 500 * (2 << 20));
    }

    // Eight samples replace all that was; four keep half of it.
    #[test]
    fn full_windows_forget_what_was_before() {
        let mut table = table();
        table.count(Some(&young(&[0])));
        table.fade(4);
        assert_eq!((table.frequency(0), table.samples), (1.0, 0.5));
        table.fade(8);
        assert_eq!(table.samples, 0.0);
    }

    #[test]
    fn age_counts_windows_on_one_side() {
        let mut table = table();
        table.count(Some(&young(&[0])));
        table.turn(0.5);
        assert_eq!(table.age(0), 0, "just became hot");
        table.turn(0.5);
        table.turn(0.5);
        assert_eq!(table.age(0), 2);
        assert_eq!(table.age(1), 3, "cold all along");
    }

    #[test]
    fn checked_entries_vouch_for_their_peers() {
        let mut table = table();
        table.count(Some(&young(&(0..20).collect::<Vec<_>>())));
        let sure = |table: &Table, entry| {
            let mut peers = Peers::default();
            table.tell(&mut peers);
            confidence(table.leaves.get(&entry), peers)
        };
        (0..7).for_each(|entry| table.leaves.entry(entry).or_default().note([u64::MAX; 8]));
        assert_eq!((sure(&table, 3), sure(&table, 10)), (0.5, 0.0));
        table.leaves.entry(7).or_default().note([u64::MAX; 8]);
        assert_eq!(sure(&table, 10), CONFIRMED);
        (8..10).for_each(|entry| {
            table.leaves.entry(entry).or_default().note([1, 0, 0, 0, 0, 0, 0, 0])
        });
        assert_eq!(sure(&table, 10), 0.0, "needles among them: nobody vouches any more");
    }
}
