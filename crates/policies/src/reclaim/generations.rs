//! Generation of every page: one byte per page, in tables of 2 MiB that are allocated on demand.
//!
//! Sequence numbers of generations only rise; a page stores its number modulo four, so that aging
//! is an increment and touches no page (Linux mm/vmscan.c, `struct lru_gen_folio`: `max_seq`,
//! `min_seq`, `MAX_NR_GENS` 4, `MIN_NR_GENS` 2). A table whose pages all have the same byte stores
//! it once.

use std::collections::BTreeMap;

use tierscope_core::{Addr, Level, PAGE_SHIFT, PAGE_SIZE, Range, RangeSet, SpaceId};

/// Maximum number of generations at a time.
pub(crate) const MOST: u64 = 4;
/// Number of youngest generations that are never evicted from.
pub(crate) const LEAST: u64 = 2;
/// Number of pages of a table.
pub(crate) const PAGES: usize = 512;
/// Pages of a block: the bits of one word of a scan's result.
pub(crate) const BLOCK: usize = 64;
/// log2 of a block's bytes.
pub(crate) const BLOCK_SHIFT: u32 = PAGE_SHIFT + 6;

/// A page's state: its generation, or absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not resident: never seen present, or freed or found missing since.
    Absent,
    /// In a generation, by its sequence number modulo [`MOST`].
    In(u8),
    /// A reclaim of the page is pending.
    Reclaiming,
    /// Reclaimed; finding it present again is a refault.
    Reclaimed,
}

const STATES: usize = 7;

impl State {
    fn of_sequence(sequence: u64) -> Self {
        State::In((sequence % MOST) as u8)
    }

    fn code(self) -> usize {
        match self {
            State::Absent => 0,
            State::In(generation) => 1 + usize::from(generation),
            State::Reclaiming => 5,
            State::Reclaimed => 6,
        }
    }

    fn of_code(code: u8) -> Self {
        match code {
            1..=4 => State::In(code - 1),
            5 => State::Reclaiming,
            6 => State::Reclaimed,
            _ => State::Absent,
        }
    }
}

/// A page's state, and its accesses through file descriptors (`LRU_REFS_MASK`), in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page(u8);

/// Maximum counted accesses through file descriptors.
const REFS: u8 = 7;

impl Page {
    fn new(state: State, refs: u8) -> Self {
        Self(state.code() as u8 | refs.min(REFS) << 3)
    }

    pub(crate) fn state(self) -> State {
        State::of_code(self.0 & 7)
    }

    pub(crate) fn refs(self) -> u8 {
        self.0 >> 3 & REFS
    }

    /// `lru_tier_from_refs`: order_base_2(refs + 1), four tiers.
    pub(crate) fn tier(self) -> usize {
        let refs = u32::from(self.refs()) + 1;
        (refs.next_power_of_two().trailing_zeros() as usize).min(3)
    }
}

#[derive(Clone, Debug)]
enum Pages {
    Alike(Page),
    Each(Box<[Page; PAGES]>),
}

/// The pages of the 2 MiB that one PTE table maps.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pages: Pages,
    counts: [u16; STATES],
    /// Whether one PMD leaf maps the whole table.
    pub(crate) huge: bool,
    /// Leaf density, used by [`crate::mglru_telescope`] only.
    pub(crate) leaves: Leaves,
}

/// Density of a table's young leaves at their last scan, and whether an access below the upper
/// entry was seen since; one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaves(u8);

impl Leaves {
    /// Never scanned: bits found young may have been set long ago.
    pub(crate) const UNMET: Self = Self(0);
    /// Few leaves were young at the last scan.
    pub(crate) const SPARSE: Self = Self(1);
    const DOUBTFUL: u8 = 1 << 7;

    /// Many leaves were young at the last scan; they are not scanned for `rest` walks.
    pub(crate) fn dense(rest: u8) -> Self {
        Self(rest.saturating_add(2).min(Self::DOUBTFUL - 1))
    }

    /// Number of walks for which dense leaves are still not scanned; `None` if they are not dense.
    pub(crate) fn rest(self) -> Option<u8> {
        (self.0 & !Self::DOUBTFUL).checked_sub(2)
    }

    /// Marks an access below the upper entry without a scan of the leaves.
    pub(crate) fn doubted(self) -> Self {
        Self(self.0 | Self::DOUBTFUL)
    }

    pub(crate) fn is_doubtful(self) -> bool {
        self.0 & Self::DOUBTFUL != 0
    }

    pub(crate) fn is_unmet(self) -> bool {
        self.0 & !Self::DOUBTFUL == 0
    }
}

impl Table {
    fn alike(page: Page) -> Self {
        let mut counts = [0; STATES];
        counts[page.state().code()] = PAGES as u16;
        Self { pages: Pages::Alike(page), counts, huge: false, leaves: Leaves::UNMET }
    }

    pub(crate) fn page(&self, index: usize) -> Page {
        match &self.pages {
            Pages::Alike(page) => *page,
            Pages::Each(pages) => pages[index],
        }
    }

    pub(crate) fn count(&self, state: State) -> u64 {
        u64::from(self.counts[state.code()])
    }

    pub(crate) fn is_alike(&self) -> bool {
        matches!(self.pages, Pages::Alike(_))
    }

    fn set(&mut self, index: usize, page: Page) {
        let before = self.page(index);
        if before == page {
            return;
        }
        if let Pages::Alike(all) = self.pages {
            self.pages = Pages::Each(Box::new([all; PAGES]));
        }
        if let Pages::Each(pages) = &mut self.pages {
            pages[index] = page;
        }
        self.counts[before.state().code()] -= 1;
        self.counts[page.state().code()] += 1;
    }

    /// Returns to one byte for all pages, if they are equal.
    fn tidy(&mut self) {
        if let Pages::Each(pages) = &self.pages
            && pages.iter().all(|page| *page == pages[0])
        {
            self.pages = Pages::Alike(pages[0]);
        }
    }
}

/// Identifies a table by its space and number.
pub(crate) type Key = (SpaceId, u64);

/// The table that contains an address.
pub(crate) fn key_of(at: Addr) -> Key {
    (at.space, at.at >> Level::PMD.shift())
}

/// Address range of a table.
pub(crate) fn range_of((space, number): Key) -> Range {
    Range::new(space, number << Level::PMD.shift(), (number + 1) << Level::PMD.shift())
}

/// Address range of a table's page.
pub(crate) fn page_at(key: Key, index: usize) -> Range {
    let start = range_of(key).start + ((index as u64) << PAGE_SHIFT);
    Range::new(key.0, start, start + PAGE_SIZE)
}

/// Indices of the table's pages that `range` overlaps.
pub(crate) fn pages_in(key: Key, range: &Range) -> std::ops::Range<usize> {
    let Some(part) = range_of(key).intersect(range) else { return 0..0 };
    let start = range_of(key).start;
    let index = |at: u64| ((at - start) >> PAGE_SHIFT) as usize;
    index(part.start)..index(part.end + 4095)
}

/// All page tables, and the number of pages in each state.
#[derive(Clone, Debug)]
pub(crate) struct Generations {
    tables: BTreeMap<Key, Table>,
    totals: [u64; STATES],
    /// Sequence number of the oldest generation.
    pub(crate) min_seq: u64,
    /// Sequence number of the youngest generation.
    pub(crate) max_seq: u64,
}

/// As `lru_gen_init_lruvec`: `max_seq` begins at `MIN_NR_GENS` + 1; empty generations below are
/// retired at once.
impl Default for Generations {
    fn default() -> Self {
        let max_seq = LEAST + 1;
        Self { tables: BTreeMap::new(), totals: [0; STATES], min_seq: max_seq - 1, max_seq }
    }
}

impl Generations {
    pub(crate) fn youngest(&self) -> State {
        State::of_sequence(self.max_seq)
    }

    pub(crate) fn oldest(&self) -> State {
        State::of_sequence(self.min_seq)
    }

    /// The generation to which protected pages of the oldest one are moved.
    fn second_oldest(&self) -> State {
        State::of_sequence(self.min_seq + 1)
    }

    pub(crate) fn table(&self, key: Key) -> Option<&Table> {
        self.tables.get(&key)
    }

    pub(crate) fn table_mut(&mut self, key: Key) -> Option<&mut Table> {
        self.tables.get_mut(&key)
    }

    pub(crate) fn total(&self, state: State) -> u64 {
        self.totals[state.code()]
    }

    /// Number of pages known to be resident.
    pub(crate) fn resident(&self) -> u64 {
        self.totals[1..=5].iter().sum()
    }

    /// Keys of the tables with pages in the oldest generation, cyclically from `from` on.
    pub(crate) fn old_tables(&self, from: Key) -> impl Iterator<Item = Key> + '_ {
        let oldest = self.oldest();
        let turn = self.tables.range(from..).chain(self.tables.range(..from));
        turn.filter(move |(_, table)| table.count(oldest) > 0).map(|(key, _)| *key)
    }

    /// Keys of the known tables that overlap a range.
    pub(crate) fn keys_in(&self, range: &Range) -> Vec<Key> {
        if range.is_empty() {
            return Vec::new();
        }
        let last = (range.space, (range.end - 1) >> Level::PMD.shift());
        self.tables.range(key_of(range.at(0))..=last).map(|(key, _)| *key).collect()
    }

    /// Adds an unknown table: its pages in `mapped` are assumed to be resident and young.
    pub(crate) fn learn(&mut self, key: Key, mapped: &RangeSet) {
        let page = Page::new(self.youngest(), 0);
        if holds(mapped, &range_of(key)) {
            self.tables.insert(key, Table::alike(page));
            self.totals[page.state().code()] += PAGES as u64;
            return;
        }
        let parts = [range_of(key)].into_iter().collect::<RangeSet>().intersect(mapped);
        for part in parts.as_slice() {
            pages_in(key, part).for_each(|index| self.set(key, index, page.state()));
        }
    }

    /// Sets a page's state; its access count is kept.
    pub(crate) fn set(&mut self, key: Key, index: usize, state: State) {
        let absent = Page::new(State::Absent, 0);
        let table = self.tables.entry(key).or_insert_with(|| {
            self.totals[0] += PAGES as u64;
            Table::alike(absent)
        });
        let before = table.page(index);
        let refs = if state == State::Absent { 0 } else { before.refs() };
        table.set(index, Page::new(state, refs));
        self.totals[before.state().code()] -= 1;
        self.totals[state.code()] += 1;
    }

    /// Counts an access to a page through a file descriptor.
    pub(crate) fn refer(&mut self, key: Key, index: usize) {
        if let Some(table) = self.tables.get_mut(&key) {
            let page = table.page(index);
            table.set(index, Page::new(page.state(), page.refs() + 1));
        }
    }

    /// Sets the state of all pages of a table whose state satisfies `from`. Returns the number of
    /// pages changed.
    pub(crate) fn set_all(&mut self, key: Key, from: impl Fn(State) -> bool, to: State) -> u64 {
        let Some(table) = self.tables.get_mut(&key) else { return 0 };
        let mut changed = 0;
        if let Pages::Alike(page) = table.pages {
            if !from(page.state()) || page.state() == to {
                return 0;
            }
            let (huge, leaves) = (table.huge, table.leaves);
            *table = Table { huge, leaves, ..Table::alike(Page::new(to, page.refs())) };
            self.totals[page.state().code()] -= PAGES as u64;
            self.totals[to.code()] += PAGES as u64;
            return PAGES as u64;
        }
        for index in 0..PAGES {
            let page = table.page(index);
            if from(page.state()) && page.state() != to {
                table.set(index, Page::new(to, page.refs()));
                self.totals[page.state().code()] -= 1;
                changed += 1;
            }
        }
        self.totals[to.code()] += changed;
        table.tidy();
        changed
    }

    /// Moves all resident pages of a table to the youngest generation. Returns the number of pages
    /// moved.
    pub(crate) fn touch_all(&mut self, key: Key) -> u64 {
        self.set_all(key, |state| matches!(state, State::In(_)), self.youngest())
    }

    /// Returns to one byte for all pages of a table, if they are equal.
    pub(crate) fn tidy(&mut self, key: Key) {
        if let Some(table) = self.tables.get_mut(&key) {
            table.tidy();
        }
    }

    /// Forgets pages outside of `mapped`.
    pub(crate) fn keep(&mut self, mapped: &RangeSet) {
        let keys: Vec<Key> = self.tables.keys().copied().collect();
        for key in keys {
            let range = range_of(key);
            if holds(mapped, &range) {
                continue;
            }
            let gone = [range].into_iter().collect::<RangeSet>().minus(mapped);
            if gone.bytes() == range.bytes() {
                let table = self.tables.remove(&key).expect("its key is there");
                for (total, count) in self.totals.iter_mut().zip(table.counts) {
                    *total -= u64::from(count);
                }
                continue;
            }
            for part in gone.as_slice() {
                pages_in(key, part).for_each(|index| self.set(key, index, State::Absent));
            }
        }
    }

    /// Opens a new generation (`inc_max_seq`). At the maximum number of generations, the oldest two
    /// are merged. Returns whether the oldest generation changed.
    pub(crate) fn age(&mut self) -> bool {
        let full = self.max_seq - self.min_seq + 1 >= MOST;
        if full {
            let (from, to) = (self.oldest(), self.second_oldest());
            let keys: Vec<Key> = self.old_tables((SpaceId(0), 0)).collect();
            for key in keys {
                self.set_all(key, |state| state == from, to);
            }
            self.min_seq += 1;
        }
        self.max_seq += 1;
        self.retire() || full
    }

    /// Retires empty oldest generations (`try_to_inc_min_seq`). Returns whether there were any.
    pub(crate) fn retire(&mut self) -> bool {
        let before = self.min_seq;
        while self.min_seq + LEAST <= self.max_seq && self.total(self.oldest()) == 0 {
            self.min_seq += 1;
        }
        self.min_seq > before
    }

    /// Whether the oldest generation may be evicted from (`should_run_aging` is false).
    pub(crate) fn can_evict(&self) -> bool {
        self.min_seq + LEAST <= self.max_seq && self.total(self.oldest()) > 0
    }

    /// Protects a page of the oldest generation: moves it to the next one (`folio_inc_gen`).
    pub(crate) fn spare(&mut self, key: Key, index: usize) {
        self.set(key, index, self.second_oldest());
    }

    /// Moves the pages found young by the last walk to the youngest generation, without a scan,
    /// because their upper entry is young.
    pub(crate) fn renew(&mut self, key: Key) -> u64 {
        let (last, now) = (State::of_sequence(self.max_seq - 1), self.youngest());
        self.set_all(key, |state| state == last, now)
    }
}

/// Whether the set contains the whole range.
pub(crate) fn holds(set: &RangeSet, range: &Range) -> bool {
    let ranges = set.as_slice();
    let next = ranges.partition_point(|r| (r.space, r.end) <= (range.space, range.start));
    ranges.get(next).is_some_and(|found| found.covers(range))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn all() -> RangeSet {
        [Range::new(SpaceId(0), 0, 64 << 20)].into_iter().collect()
    }

    // Three generations; the third aging opens a fourth, the next would open a fifth: the oldest
    // two are merged.
    #[test]
    fn aging_touches_pages_only_where_generations_run_out() {
        let mut pages = Generations::default();
        pages.learn((SpaceId(0), 1), &all());
        assert_eq!((pages.min_seq, pages.max_seq, pages.resident()), (2, 3, 512));
        assert!(!pages.can_evict());
        assert!(pages.age(), "generation 2 is empty");
        assert_eq!((pages.min_seq, pages.max_seq, pages.can_evict()), (3, 4, false));
        pages.set((SpaceId(0), 1), 7, pages.youngest());
        pages.age();
        assert_eq!((pages.min_seq, pages.max_seq, pages.can_evict()), (3, 5, true));
        assert_eq!(pages.total(pages.oldest()), 511);
        pages.age();
        assert_eq!((pages.min_seq, pages.max_seq), (3, 6));
        pages.age();
        assert_eq!((pages.min_seq, pages.max_seq), (4, 7));
        assert_eq!(pages.total(pages.oldest()), 512, "page 7 was in generation 4");
    }

    #[test]
    fn unmapped_pages_are_absent() {
        let mut pages = Generations::default();
        let mapped: RangeSet = [Range::new(SpaceId(0), 4096, 3 * 4096)].into_iter().collect();
        pages.learn((SpaceId(0), 0), &mapped);
        assert_eq!(pages.resident(), 2);
        pages.keep(&RangeSet::default());
        assert_eq!((pages.resident(), pages.table((SpaceId(0), 0)).is_none()), (0, true));
    }

    #[test]
    fn tiers_are_logarithms_of_accesses() {
        let tiers = (0..=9).map(|refs| Page::new(State::Reclaimed, refs).tier());
        assert_eq!(tiers.collect::<Vec<_>>(), [0, 1, 2, 2, 3, 3, 3, 3, 3, 3]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u64, usize, bool),
        All(u64),
        Age,
        Spare,
        Renew(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..3, 0..PAGES, any::<bool>()).prop_map(|(t, p, out)| Step::Set(t, p, out)),
            (0u64..3).prop_map(Step::All),
            Just(Step::Age),
            Just(Step::Spare),
            (0u64..3).prop_map(Step::Renew),
        ]
    }

    /// Reference model: every page's sequence number; `None` for a reclaimed one.
    #[derive(Default)]
    struct Naive(BTreeMap<(u64, usize), Option<u64>>);

    proptest! {
        #[test]
        fn agrees_with_numbers_kept_page_by_page(steps in proptest::collection::vec(step(), 1..60)) {
            let mut pages = Generations::default();
            let mut naive = Naive::default();
            for table in 0..3 {
                pages.learn((SpaceId(0), table), &all());
                (0..PAGES).for_each(|page| { naive.0.insert((table, page), Some(3)); });
            }
            let (mut min, mut max) = (2, 3);
            let lowest = |naive: &Naive, min: u64, max: u64| {
                let there = |seq: u64| naive.0.values().any(|page| *page == Some(seq));
                (min..).find(|seq| seq + 2 > max || there(*seq)).unwrap_or(min)
            };
            for step in steps {
                match step {
                    Step::Set(table, page, out) => {
                        let state = if out { State::Reclaimed } else { pages.youngest() };
                        pages.set((SpaceId(0), table), page, state);
                        naive.0.insert((table, page), (!out).then_some(max));
                    }
                    Step::All(table) => {
                        let young = pages.youngest();
                        pages.set_all((SpaceId(0), table), |s| matches!(s, State::In(_)), young);
                        for page in 0..PAGES {
                            let entry = naive.0.get_mut(&(table, page)).unwrap();
                            *entry = entry.map(|_| max);
                        }
                    }
                    Step::Age => {
                        pages.age();
                        if max - min + 1 >= 4 {
                            for page in naive.0.values_mut() {
                                *page = page.map(|seq| seq.max(min + 1));
                            }
                            min += 1;
                        }
                        max += 1;
                        min = lowest(&naive, min, max);
                    }
                    Step::Spare => {
                        if pages.can_evict() {
                            let key = pages.old_tables((SpaceId(0), 0)).next().unwrap();
                            let old = pages.oldest();
                            let table = pages.table(key).unwrap();
                            let index = (0..PAGES).find(|i| table.page(*i).state() == old).unwrap();
                            pages.spare(key, index);
                            naive.0.insert((key.1, index), Some(min + 1));
                        }
                    }
                    Step::Renew(table) => {
                        pages.renew((SpaceId(0), table));
                        for page in 0..PAGES {
                            let entry = naive.0.get_mut(&(table, page)).unwrap();
                            *entry = entry.map(|seq| if seq + 1 == max { max } else { seq });
                        }
                    }
                }
                prop_assert_eq!((pages.min_seq, pages.max_seq), (min, max));
                for seq in min..=max {
                    let wanted = naive.0.values().filter(|page| **page == Some(seq)).count();
                    prop_assert_eq!(pages.total(State::of_sequence(seq)), wanted as u64, "{}", seq);
                }
                for ((table, page), seq) in &naive.0 {
                    let found = pages.table((SpaceId(0), *table)).unwrap().page(*page).state();
                    prop_assert_eq!(found, seq.map_or(State::Reclaimed, State::of_sequence));
                }
            }
        }
    }
}
