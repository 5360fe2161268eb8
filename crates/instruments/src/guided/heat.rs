//! Counts of the 512 level-2 entries beneath one level-3 entry.

use std::collections::BTreeMap;

use tierscope_core::{CONFIRMED, Level, Range, Region};

use super::leaf::{Leaves, Touched};

/// Level-2 entries beneath a level-3 entry.
pub(super) const ENTRIES: usize = Level::FANOUT as usize;

/// Samples that a count looks back over. Where a window holds fewer, older windows count on with
/// falling weight.
pub(super) const HORIZON: f32 = 8.0;

/// What the checked entries of a space say of those not checked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Peers {
    /// Entries checked, and touched at all while they were: where heat has just moved away, there
    /// are others, and they say nothing of those that it has moved to.
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

impl Peers {
    fn hear(&mut self, leaves: &Leaves) {
        self.checked += usize::from(leaves.is_touched());
        self.whole += usize::from(leaves.is_whole());
    }

    fn retract(&mut self, leaves: &Leaves) {
        self.checked -= usize::from(leaves.is_touched());
        self.whole -= usize::from(leaves.is_whole());
    }
}

/// One bit for each level-2 entry.
pub(super) type Bits = [u64; ENTRIES / 64];

/// Faded hits below this are forgotten.
const SCRAP: f32 = 1.0 / 64.0;

/// A level-3 entry whose level-2 entries are counted. Most of them were never hit where heat is
/// scattered, so that whatever is done in every window goes by the bits of those that were. Where
/// tables take turns, most of them stay as they are: whatever follows from their counts is kept.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What the level-3 entry covers.
    pub(super) range: Range,
    /// Counts or checks have changed since the table was last drawn.
    stale: bool,
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
    /// Entries that ever did.
    ever_changed: Bits,
    /// Leaf checks of hot entries.
    leaves: BTreeMap<u16, Leaves>,
    /// What they say together.
    said: Peers,
    /// Windows since a hit.
    pub(super) cold_for: u32,
    drawing: Drawing,
}

/// Regions of a whole table as they were last drawn.
#[derive(Clone, Debug, Default)]
struct Drawing {
    regions: Vec<Region>,
    /// In which of the table's windows; ages go on from there.
    turn: u32,
    /// Whether peers vouched for entries not checked.
    vouched: bool,
}

impl Table {
    pub(super) fn new(range: Range) -> Self {
        Self {
            range,
            stale: true,
            hits: Box::new([0.0; ENTRIES]),
            warm: Bits::default(),
            samples: 0.0,
            turns: 0,
            was_hot: Bits::default(),
            changed: Box::new([0; ENTRIES]),
            ever_changed: Bits::default(),
            leaves: BTreeMap::new(),
            said: Peers::default(),
            cold_for: 0,
            drawing: Drawing::default(),
        }
    }

    /// Makes room for `samples` new ones: the fuller the new window, the less the old ones count.
    pub(super) fn fade(&mut self, samples: u32) {
        self.stale = true;
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
        self.stale = true;
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

    /// Takes the outcome of a leaf check.
    pub(super) fn note(&mut self, entry: u16, touched: Touched) {
        self.stale = true;
        let leaves = self.leaves.entry(entry).or_default();
        self.said.retract(leaves);
        leaves.note(touched, self.turns);
        self.said.hear(leaves);
    }

    /// Ends a window: ages go on, what has gone cold is forgotten.
    pub(super) fn turn(&mut self, threshold: f64) {
        self.turns = self.turns.saturating_add(1);
        let hot = self.hot(threshold);
        self.cold_for = if hot == Bits::default() { self.cold_for + 1 } else { 0 };
        if hot == self.was_hot {
            return;
        }
        let sides: Bits = std::array::from_fn(|word| hot[word] ^ self.was_hot[word]);
        for entry in ones(sides) {
            self.changed[entry] = self.turns;
            put(&mut self.ever_changed, entry, true);
        }
        self.was_hot = hot;
        self.leaves.retain(|entry, _| is_one(&hot, usize::from(*entry)));
        self.hear_all();
    }

    fn hear_all(&mut self) {
        self.said = Peers::default();
        self.leaves.values().for_each(|leaves| self.said.hear(leaves));
    }

    /// Hits of an entry over the samples.
    pub(super) fn hits(&self, entry: usize) -> f32 {
        self.hits[entry]
    }

    /// Hits from which an entry is hot at `threshold`, a frequency; any where nothing was sampled.
    pub(super) fn bar(&self, threshold: f64) -> f32 {
        if self.samples == 0.0 {
            f32::INFINITY
        } else {
            (threshold * f64::from(self.samples)) as f32
        }
    }

    /// Windows for which all of these entries have been hot, or not.
    pub(super) fn age(&self, entries: std::ops::Range<usize>) -> u32 {
        let changed = ones_within(&self.ever_changed, entries).map(|entry| self.changed[entry]);
        self.turns - changed.max().unwrap_or(0)
    }

    /// Windows since an entry's leaves were checked.
    pub(super) fn since(&self, leaves: &Leaves) -> u32 {
        self.turns - leaves.checked_in
    }

    /// The entries with hits, ascending.
    pub(super) fn warm(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.warm)
    }

    /// Leaf checks of hot entries, by entry.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (usize, &Leaves)> {
        self.leaves.iter().map(|(entry, leaves)| (usize::from(*entry), leaves))
    }

    /// The regions of the whole table, ages up to date; drawn anew by `draw` if the table or the
    /// peers' word has changed since.
    pub(super) fn drawn(
        &mut self,
        vouched: bool,
        draw: impl FnOnce(&Self, Vec<Region>) -> Vec<Region>,
    ) -> &[Region] {
        if self.stale || self.drawing.vouched != vouched {
            let mut regions = std::mem::take(&mut self.drawing.regions);
            regions.clear();
            self.drawing = Drawing { regions: draw(self, regions), turn: self.turns, vouched };
            self.stale = false;
        }
        let passed = self.turns - std::mem::replace(&mut self.drawing.turn, self.turns);
        if passed > 0 {
            self.drawing.regions.iter_mut().for_each(|region| region.age += passed);
        }
        &self.drawing.regions
    }

    /// What entry `entry` covers.
    pub(super) fn entry(&self, entry: usize) -> Range {
        let start = self.range.start + entry as u64 * Level::PMD.entry_bytes();
        Range::new(self.range.space, start, start + Level::PMD.entry_bytes())
    }

    /// The hot entries.
    pub(super) fn hot(&self, threshold: f64) -> Bits {
        if !self.stale {
            return self.was_hot;
        }
        let bar = self.bar(threshold);
        let mut hot = Bits::default();
        ones(self.warm).for_each(|entry| put(&mut hot, entry, self.hits[entry] >= bar));
        hot
    }

    /// How many entries were hot at the end of the last window.
    pub(super) fn hot_before(&self) -> u32 {
        self.was_hot.iter().map(|word| word.count_ones()).sum()
    }

    /// Adds the table's checked entries to what is known of its space.
    pub(super) fn tell(&self, peers: &mut Peers) {
        peers.checked += self.said.checked;
        peers.whole += self.said.whole;
    }
}

#[cfg(test)]
impl Table {
    /// Nothing that was worked out from counts and checks is trusted any more.
    pub(super) fn forget(&mut self) {
        self.stale = true;
        self.hear_all();
    }
}

/// Those of the hot entries both of whose neighbours within the table are hot too.
pub(super) fn inside(hot: Bits) -> Bits {
    let word = |index: usize| hot.get(index).copied().unwrap_or(0);
    std::array::from_fn(|at| {
        let below = hot[at] << 1 | if at == 0 { 0 } else { word(at - 1) >> 63 };
        let above = hot[at] >> 1 | word(at + 1) << 63;
        hot[at] & below & above
    })
}

pub(super) fn is_one(bits: &Bits, entry: usize) -> bool {
    bits[entry / 64] >> (entry % 64) & 1 == 1
}

fn put(bits: &mut Bits, entry: usize, one: bool) {
    let bit = 1 << (entry % 64);
    if one { bits[entry / 64] |= bit } else { bits[entry / 64] &= !bit }
}

/// The entries whose bits are set, ascending.
pub(super) fn ones(bits: Bits) -> impl Iterator<Item = usize> {
    bits.into_iter().enumerate().flat_map(|(index, word)| ones_of(index, word))
}

/// Likewise, of these entries alone.
fn ones_within(
    bits: &Bits,
    entries: std::ops::Range<usize>,
) -> impl Iterator<Item = usize> + use<'_> {
    let words = entries.start / 64..entries.end.div_ceil(64);
    words.flat_map(move |index| {
        let first = index * 64;
        let from = u64::MAX << entries.start.saturating_sub(first);
        let until = u64::MAX >> (first + 64).saturating_sub(entries.end);
        ones_of(index, bits[index] & from & until)
    })
}

/// The entries of a word whose bits are set, ascending.
fn ones_of(index: usize, word: u64) -> impl Iterator<Item = usize> {
    let some = |word: u64| (word != 0).then_some(word);
    let rest = std::iter::successors(some(word), move |word| some(word & (word - 1)));
    rest.map(move |word| index * 64 + word.trailing_zeros() as usize)
}

/// How sure a hot entry is: half a doubt less with every leaf check of its own; before the first
/// one, what its peers say.
pub(super) fn confidence(leaves: Option<&Leaves>, peers: Peers) -> f32 {
    match leaves {
        Some(leaves) => 1.0 - 1.0 / (1u32 << leaves.checks.min(8)) as f32,
        None if peers.vouch() => CONFIRMED,
        None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    fn table() -> Table {
        Table::new(Range::new(SpaceId(0), 1 << 30, 2 << 30))
    }

    fn frequency(table: &Table, entry: usize) -> f32 {
        table.hits(entry) / table.samples
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
        assert_eq!(frequency(&table, 3), 0.5);
        assert_eq!(frequency(&table, 500), 0.25);
        assert_eq!(ones(table.hot(0.3)).collect::<Vec<_>>(), [3]);
        assert_eq!(table.entry(500).start, (1 << 30) + 500 * (2 << 20));
    }

    // Eight samples replace all that was; four keep half of it.
    #[test]
    fn full_windows_forget_what_was_before() {
        let mut table = table();
        table.count(Some(&young(&[0])));
        table.fade(4);
        assert_eq!((frequency(&table, 0), table.samples), (1.0, 0.5));
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
            assert!(frequency(&table, 9) <= 0.125, "{}", frequency(&table, 9));
            table.turn(0.5);
            table.fade(4);
            (0..4).for_each(|_| table.count(None));
        }
        assert_eq!((frequency(&table, 9), table.warm().count()), (0.0, 0));
    }

    #[test]
    fn checked_entries_vouch_for_their_peers() {
        let mut table = table();
        table.count(Some(&young(&(0..20).collect::<Vec<_>>())));
        let sure = |table: &Table, entry| {
            let mut peers = Peers::default();
            table.tell(&mut peers);
            let own = table.leaves().find(|(at, _)| *at == entry).map(|(_, leaves)| leaves);
            confidence(own, peers)
        };
        (0..7).for_each(|entry| table.note(entry, [u64::MAX; 8]));
        assert_eq!((sure(&table, 3), sure(&table, 10)), (0.5, 0.0));
        table.note(7, [u64::MAX; 8]);
        assert_eq!(sure(&table, 10), CONFIRMED);
        (8..10).for_each(|entry| table.note(entry, [1, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(sure(&table, 10), 0.0, "needles among them: nobody vouches any more");
        (8..10).for_each(|entry| table.note(entry, [0; 8]));
        assert_eq!(sure(&table, 10), CONFIRMED, "heat that has moved away says nothing");
    }

    proptest! {
        #[test]
        fn bits_agree_with_going_through_entries(set in prop::collection::btree_set(0usize..ENTRIES, 0..200), ends in (0..=ENTRIES, 0..=ENTRIES)) {
            let mut bits = Bits::default();
            set.iter().for_each(|entry| put(&mut bits, *entry, true));
            let span = ends.0.min(ends.1)..ends.0.max(ends.1);
            let of = |bits| ones(bits).collect::<Vec<_>>();
            let naive = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> { set.iter().copied().filter(|e| keep(*e)).collect() };
            prop_assert_eq!(ones_within(&bits, span.clone()).collect::<Vec<_>>(), naive(&|e| span.contains(&e)));
            prop_assert_eq!(of(inside(bits)), naive(&|e| e > 0 && set.contains(&(e - 1)) && set.contains(&(e + 1))));
        }
    }
}
