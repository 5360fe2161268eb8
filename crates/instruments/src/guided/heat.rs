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

/// One bit for each level-2 entry.
type Bits = [u64; ENTRIES / 64];

/// Faded hits below this are forgotten.
const SCRAP: f32 = 1.0 / 64.0;

/// A level-3 entry whose level-2 entries are counted. Most of them were never hit where heat is
/// scattered, so that whatever is done in every window goes by the bits of those that were.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What the level-3 entry covers.
    pub(super) range: Range,
    hits: Box<[f32; ENTRIES]>,
    /// Entries with hits.
    warm: Bits,
    /// Samples behind the hits.
    pub(super) samples: f32,
    /// Windows so far.
    turns: u32,
    /// Entries hot in the last window.
    was_hot: Bits,
    /// The window in which each entry last became hot, or cold.
    changed: Box<[u32; ENTRIES]>,
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
            warm: Bits::default(),
            samples: 0.0,
            turns: 0,
            was_hot: Bits::default(),
            changed: Box::new([0; ENTRIES]),
            leaves: BTreeMap::new(),
            cold_for: 0,
        }
    }

    /// Makes room for `samples` new ones: the fuller the new window, the less the old ones count.
    pub(super) fn fade(&mut self, samples: u32) {
        let keep = (1.0 - samples as f32 / HORIZON).max(0.0);
        self.samples *= keep;
        for entry in ones(self.warm) {
            self.hits[entry] *= keep;
            if self.hits[entry] < SCRAP {
                self.hits[entry] = 0.0;
                put(&mut self.warm, entry, false);
            }
        }
    }

    /// Counts one sample: a bit per entry, or none at all for a table found old from above.
    pub(super) fn count(&mut self, young: Option<&[u64]>) {
        self.samples += 1.0;
        for (word_index, word) in young.unwrap_or_default().iter().enumerate() {
            self.warm[word_index] |= word;
            let mut word = *word;
            while word != 0 {
                self.hits[word_index * 64 + word.trailing_zeros() as usize] += 1.0;
                word &= word - 1;
            }
        }
    }

    /// Ends a window: ages go on, what has gone cold is forgotten.
    pub(super) fn turn(&mut self, threshold: f64) {
        self.turns = self.turns.saturating_add(1);
        let mut hot = Bits::default();
        self.hot(threshold).for_each(|entry| put(&mut hot, entry, true));
        let sides: Bits = std::array::from_fn(|word| hot[word] ^ self.was_hot[word]);
        ones(sides).for_each(|entry| self.changed[entry] = self.turns);
        self.was_hot = hot;
        self.cold_for = if hot == Bits::default() { self.cold_for + 1 } else { 0 };
        self.leaves.values_mut().for_each(|leaves| leaves.since += 1);
        self.leaves.retain(|entry, _| is_one(&hot, usize::from(*entry)));
    }

    /// Hits over samples, 0..1.
    pub(super) fn frequency(&self, entry: usize) -> f64 {
        if self.samples == 0.0 { 0.0 } else { f64::from(self.hits[entry] / self.samples) }
    }

    /// Windows for which all of these entries have been hot, or not.
    pub(super) fn age(&self, entries: std::ops::Range<usize>) -> u32 {
        // A fold without branches: gaps between scattered heat are long.
        self.turns - self.changed[entries].iter().fold(0, |last, changed| last.max(*changed))
    }

    /// The entries with hits, ascending.
    pub(super) fn warm(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.warm)
    }

    /// What entry `entry` covers.
    pub(super) fn entry(&self, entry: usize) -> Range {
        let start = self.range.start + entry as u64 * Level::PMD.entry_bytes();
        Range::new(self.range.space, start, start + Level::PMD.entry_bytes())
    }

    /// The hot entries, ascending.
    pub(super) fn hot(&self, threshold: f64) -> impl Iterator<Item = usize> + '_ {
        ones(self.warm).filter(move |entry| self.frequency(*entry) >= threshold)
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

fn is_one(bits: &Bits, entry: usize) -> bool {
    bits[entry / 64] >> (entry % 64) & 1 == 1
}

fn put(bits: &mut Bits, entry: usize, one: bool) {
    let bit = 1 << (entry % 64);
    if one { bits[entry / 64] |= bit } else { bits[entry / 64] &= !bit }
}

/// The entries whose bits are set, ascending.
fn ones(bits: Bits) -> impl Iterator<Item = usize> {
    bits.into_iter().enumerate().flat_map(|(index, word)| {
        let some = |word: u64| (word != 0).then_some(word);
        let rest = std::iter::successors(some(word), move |word| some(word & (word - 1)));
        rest.map(move |word| index * 64 + word.trailing_zeros() as usize)
    })
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
        assert_eq!(table.age(0..1), 0, "just became hot");
        table.turn(0.5);
        table.turn(0.5);
        assert_eq!(table.age(0..1), 2);
        assert_eq!(table.age(1..2), 3, "cold all along");
    }

    // A hit in one sample of eight, then seven windows of four samples without: half each time.
    #[test]
    fn rare_hits_fade_with_their_samples() {
        let mut table = table();
        (0..8).for_each(|i| table.count(Some(&young(if i == 0 { &[9] } else { &[] }))));
        for _ in 0..7 {
            assert!(table.frequency(9) <= 0.125, "{}", table.frequency(9));
            table.turn(0.5);
            table.fade(4);
            (0..4).for_each(|_| table.count(None));
        }
        assert_eq!((table.frequency(9), table.warm().count()), (0.0, 0));
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
