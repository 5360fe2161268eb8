//! Translation lookaside buffers of one core: two levels, arrays by page size.
//!
//! Translations are tagged with an address space, or global (Intel SDM volume 3, sections 4.10.1
//! and 4.10.2). As in hardware, entries are removed only by replacement and by invalidating
//! instructions: after a change of the page table, a stale translation stays until then.

use crate::config::{self, Inclusion, PageSize, Replacement, TlbArray};
use crate::sets::{INDEX_SHIFT, Sets, Slot};
use crate::translation::{Asid, Translation};

/// Level of a two-level TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// First level.
    L1,
    /// Second level.
    L2,
}

/// Set in every valid key, so that no key is zero.
const VALID: u64 = 1;
const SIZE_SHIFT: u32 = 1;
const SIZE_MASK: u64 = 3 << SIZE_SHIFT;
const ASID_SHIFT: u32 = 3;
const ASID_MASK: u64 = 0xfff << ASID_SHIFT;
const GLOBAL: u64 = 1 << 15;
/// Bits of page size and globality; keys that agree in them share a counter.
const KIND: u64 = VALID | SIZE_MASK | GLOBAL;

#[inline(always)]
fn key_of(linear: u64, size: PageSize, tag: u64) -> u64 {
    // 57 bits of a linear address minus the 12 of the smallest page: 45 bits, which just fit.
    let number = (linear & ((1 << 57) - 1)) >> size.shift();
    number << INDEX_SHIFT | tag | (size as u64) << SIZE_SHIFT | VALID
}

#[inline(always)]
fn tag_of(asid: Asid) -> u64 {
    u64::from(asid.number()) << ASID_SHIFT
}

#[inline(always)]
fn size_of(key: u64) -> usize {
    ((key & SIZE_MASK) >> SIZE_SHIFT) as usize
}

fn array(config: &TlbArray) -> Sets {
    Sets::new(config.entries as usize, config.ways as usize, config.replacement)
}

/// Placeholder for a missing array; always empty.
fn none() -> Sets {
    Sets::new(1, 1, Replacement::Lru)
}

/// A key and its translation.
type Line = (u64, Translation);

/// One level of the TLB: its arrays, the array of each page size, and counts of entries. 4 KiB
/// pages, if any, are in the first array.
#[derive(Clone, Debug)]
struct Bank {
    arrays: [Sets; 3],
    of_size: [Option<u8>; 3],
    /// Number of translations by page size; sizes without any are not searched.
    held: [u32; 3],
    /// Number of global translations among them.
    globals: u32,
}

impl Bank {
    fn new(configs: &[TlbArray]) -> Self {
        let mut configs: Vec<&TlbArray> = configs.iter().collect();
        configs.sort_by_key(|array| array.pages.iter().min().copied());
        let takes = |size| configs.iter().position(|array| array.pages.contains(&size));
        let arrays =
            std::array::from_fn(|n| configs.get(n).map_or_else(none, |config| array(config)));
        let of_size = PageSize::ALL.map(|size| takes(size).map(|index| index as u8));
        Self { arrays, of_size, held: [0; 3], globals: 0 }
    }

    #[inline(always)]
    fn takes(&self, key: u64) -> Option<usize> {
        self.of_size[size_of(key)].map(usize::from)
    }

    #[inline(always)]
    fn find_small(&self, linear: u64, tag: u64) -> Option<(usize, Slot)> {
        self.arrays[0].find(key_of(linear, PageSize::K4, tag)).map(|slot| (0, slot))
    }

    #[inline(always)]
    fn find_large(&self, linear: u64, tag: u64) -> Option<(usize, Slot)> {
        for size in [PageSize::M2, PageSize::G1] {
            if self.held[size as usize] == 0 {
                continue;
            }
            let key = key_of(linear, size, tag);
            let index = self.takes(key)?;
            if let Some(slot) = self.arrays[index].find(key) {
                return Some((index, slot));
            }
        }
        None
    }

    /// Finds a global translation.
    #[inline(always)]
    fn find_global(&self, linear: u64) -> Option<(usize, Slot)> {
        if self.globals == 0 {
            return None;
        }
        self.find_small(linear, GLOBAL).or_else(|| self.find_large(linear, GLOBAL))
    }

    /// Finds a translation of the address space, or a global one.
    #[inline(always)]
    fn find_any(&self, linear: u64, asid: Asid) -> Option<(usize, Slot)> {
        self.find_small(linear, tag_of(asid)).or_else(|| self.find_rest(linear, asid))
    }

    /// The part of [`Bank::find_any`] after 4 KiB pages of the address space.
    #[inline(always)]
    fn find_rest(&self, linear: u64, asid: Asid) -> Option<(usize, Slot)> {
        let [_, m2, g1] = self.held;
        if m2 | g1 | self.globals == 0 { None } else { self.find_other(linear, asid) }
    }

    #[inline(never)]
    fn find_other(&self, linear: u64, asid: Asid) -> Option<(usize, Slot)> {
        self.find_large(linear, tag_of(asid)).or_else(|| self.find_global(linear))
    }

    #[inline(always)]
    fn translation(&self, (index, slot): (usize, Slot)) -> Translation {
        Translation::from_bits(self.arrays[index].value(slot))
    }

    #[inline(always)]
    fn touch(&mut self, (index, slot): (usize, Slot)) {
        self.arrays[index].touch(slot);
    }

    /// Inserts a line, or updates its key's translation, if an array takes its page size. Returns
    /// the evicted line.
    fn put(&mut self, line: Line) -> Option<Line> {
        let index = self.takes(line.0)?;
        let array = &mut self.arrays[index];
        if let Some(slot) = array.find(line.0) {
            array.touch(slot);
            array.set_value(slot, line.1.bits());
            return None;
        }
        self.add(line)
    }

    /// As [`Bank::put`], for a line that is not present.
    #[inline(always)]
    fn add(&mut self, line: Line) -> Option<Line> {
        if size_of(line.0) == PageSize::K4 as usize && self.of_size[0] == Some(0) {
            return self.add_to(0, line);
        }
        self.add_other(line)
    }

    #[inline(never)]
    fn add_other(&mut self, line: Line) -> Option<Line> {
        self.add_to(self.takes(line.0)?, line)
    }

    #[inline(always)]
    fn add_to(&mut self, index: usize, (key, translation): Line) -> Option<Line> {
        let (evicted, value) = self.arrays[index].insert(key, translation.bits());
        if evicted & KIND != key & KIND {
            self.count(key, 1);
            if evicted == 0 {
                return None;
            }
            self.count(evicted, -1);
        }
        Some((evicted, Translation::from_bits(value)))
    }

    #[inline(always)]
    fn count(&mut self, key: u64, change: i32) {
        let held = &mut self.held[size_of(key)];
        *held = held.wrapping_add_signed(change);
        if key & GLOBAL != 0 {
            self.globals = self.globals.wrapping_add_signed(change);
        }
    }

    fn remove(&mut self, key: u64) -> Option<Line> {
        let index = self.takes(key)?;
        let slot = self.arrays[index].find(key)?;
        let translation = self.translation((index, slot));
        self.arrays[index].remove(slot);
        self.count(key, -1);
        Some((key, translation))
    }

    fn remove_if(&mut self, gone: impl Fn(u64) -> bool) {
        let mut keys = Vec::new();
        for array in &mut self.arrays {
            array.remove_if(|key| {
                let goes = gone(key);
                if goes {
                    keys.push(key);
                }
                goes
            });
        }
        keys.into_iter().for_each(|key| self.count(key, -1));
    }

    fn lines(&self) -> impl Iterator<Item = Line> + '_ {
        let line = |(key, value)| (key, Translation::from_bits(value));
        self.arrays.iter().flat_map(move |array| array.entries().map(line))
    }
}

/// A translation held by a TLB, for tests and listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlbEntry {
    /// First byte of the page, in the 57 bits of a linear address.
    pub linear: u64,
    /// Address space; `None` for a global translation.
    pub asid: Option<Asid>,
    /// The translation.
    pub translation: Translation,
}

/// The TLBs of one core.
#[derive(Clone, Debug)]
pub struct Tlb {
    l1: Bank,
    l2: Bank,
    inclusion: Inclusion,
    /// Where pages of 4 KiB were found last in the first level, by the low bits of their number:
    /// only a guess, which spares a search.
    guesses: [Slot; GUESSES],
}

const GUESSES: usize = 256;

impl Tlb {
    /// Empty TLBs.
    ///
    /// # Errors
    /// The configuration is impossible: [`config::Translation::check`].
    pub fn new(config: &config::Translation) -> tierscope_core::Result<Self> {
        config.check()?;
        Ok(Self {
            l1: Bank::new(&config.l1),
            l2: Bank::new(&config.l2),
            inclusion: config.inclusion,
            guesses: [Slot::default(); GUESSES],
        })
    }

    /// Looks up a translation for a load or store: it becomes the most recently used, and a
    /// second-level hit is copied or moved to the first level.
    #[inline(always)]
    pub fn lookup(&mut self, linear: u64, asid: Asid) -> Option<(Translation, Stage)> {
        if let Some((slot, known)) = self.find_first(linear, asid) {
            self.touch_first(slot);
            return Some((known, Stage::L1));
        }
        self.lookup_rest(linear, asid)
    }

    /// Finds a 4 KiB page of the address space in the first level. Changes nothing.
    #[inline(always)]
    pub(crate) fn find_first(&mut self, linear: u64, asid: Asid) -> Option<(Slot, Translation)> {
        let first = &self.l1.arrays[0];
        let key = key_of(linear, PageSize::K4, tag_of(asid));
        let guess = &mut self.guesses[(linear >> 12) as usize % GUESSES];
        if !first.holds(*guess, key) {
            *guess = first.find(key)?;
        }
        Some((*guess, Translation::from_bits(first.value(*guess))))
    }

    /// Marks a result of [`Tlb::find_first`] as used.
    #[inline(always)]
    pub(crate) fn touch_first(&mut self, slot: Slot) {
        self.l1.arrays[0].touch(slot);
    }

    /// The part of [`Tlb::lookup`] after 4 KiB pages in the first level.
    #[inline(always)]
    pub(crate) fn lookup_rest(&mut self, linear: u64, asid: Asid) -> Option<(Translation, Stage)> {
        if let Some(at) = self.l1.find_rest(linear, asid) {
            self.l1.touch(at);
            return Some((self.l1.translation(at), Stage::L1));
        }
        let small = key_of(linear, PageSize::K4, tag_of(asid));
        let line = match self.l2.arrays[0].use_key(small) {
            Some(value) => (small, Translation::from_bits(value)),
            None => self.use_second(linear, asid)?,
        };
        self.bring_up(line);
        Some((line.1, Stage::L2))
    }

    /// Finds and uses a second-level translation other than a 4 KiB page of the address space.
    #[inline(always)]
    fn use_second(&mut self, linear: u64, asid: Asid) -> Option<Line> {
        let at = self.l2.find_rest(linear, asid)?;
        self.l2.touch(at);
        let translation = self.l2.translation(at);
        Some((key_for(linear, asid, translation), translation))
    }

    /// Copies or moves a second-level hit to the first level.
    fn bring_up(&mut self, line: Line) {
        match self.inclusion {
            Inclusion::Exclusive => self.swap_up(line),
            Inclusion::Neither | Inclusion::Inclusive => {
                // Evictions from the first level are in the second, or may be dropped. A size
                // without a first-level array is always served by the second.
                let _ = self.l1.add(line);
            }
        }
    }

    /// Moves a line from the second level to the first, and the evicted line the other way.
    fn swap_up(&mut self, line: Line) {
        if self.l1.takes(line.0).is_none() {
            return;
        }
        self.l2.remove(line.0);
        if let Some(victim) = self.l1.add(line) {
            let _ = self.l2.add(victim);
        }
    }

    /// Whether a lookup would hit. Changes nothing; used for prefetching ahead of a batch.
    #[inline]
    #[must_use]
    pub fn holds(&self, linear: u64, asid: Asid) -> bool {
        self.l1.find_any(linear, asid).is_some() || self.l2.find_any(linear, asid).is_some()
    }

    /// Inserts the result of a walk, replacing any previous translation of the page.
    pub fn insert(&mut self, linear: u64, asid: Asid, translation: Translation) {
        let line = (key_for(linear, asid, translation), translation);
        match self.inclusion {
            Inclusion::Exclusive => self.insert_exclusive(line),
            Inclusion::Inclusive => {
                if let Some((victim, _)) = self.l2.put(line) {
                    self.l1.remove(victim);
                }
                let _ = self.l1.put(line);
            }
            Inclusion::Neither => {
                let _ = self.l2.put(line);
                let _ = self.l1.put(line);
            }
        }
    }

    /// As [`Tlb::insert`], right after a lookup of the same address missed.
    #[inline(always)]
    pub fn insert_missed(&mut self, linear: u64, asid: Asid, translation: Translation) {
        if self.inclusion != Inclusion::Neither {
            return self.insert(linear, asid, translation);
        }
        let line = (key_for(linear, asid, translation), translation);
        let _ = self.l2.add(line);
        let _ = self.l1.add(line);
    }

    fn insert_exclusive(&mut self, line: Line) {
        if self.l1.takes(line.0).is_none() {
            let _ = self.l2.put(line);
            return;
        }
        self.l2.remove(line.0);
        if let Some(victim) = self.l1.put(line) {
            let _ = self.l2.put(victim);
        }
    }

    /// INVLPG: invalidates every translation of the address, of any page size, in the address space
    /// or global (Intel SDM volume 3, section 4.10.4.1).
    pub fn invalidate_page(&mut self, linear: u64, asid: Asid) {
        for tag in [tag_of(asid), GLOBAL] {
            for key in PageSize::ALL.map(|size| key_of(linear, size, tag)) {
                self.l1.remove(key);
                self.l2.remove(key);
            }
        }
    }

    /// MOV to CR3 with bit 63 clear, INVPCID type 1: invalidates the address space; global
    /// translations stay.
    pub fn flush_asid(&mut self, asid: Asid) {
        let tag = tag_of(asid);
        self.remove_if(|key| key & (ASID_MASK | GLOBAL) == tag);
    }

    /// INVPCID type 3: invalidates everything except global translations.
    pub fn flush_local(&mut self) {
        self.remove_if(|key| key & GLOBAL == 0);
    }

    /// A change of CR4.PGE, INVPCID type 2: invalidates everything.
    pub fn flush_all(&mut self) {
        self.remove_if(|_| true);
    }

    fn remove_if(&mut self, gone: impl Fn(u64) -> bool) {
        self.l1.remove_if(&gone);
        self.l2.remove_if(&gone);
    }

    /// Translations held by a level, in unspecified order.
    pub fn contents(&self, stage: Stage) -> impl Iterator<Item = TlbEntry> + '_ {
        let bank = match stage {
            Stage::L1 => &self.l1,
            Stage::L2 => &self.l2,
        };
        bank.lines().map(|(key, translation)| held(key, translation))
    }
}

#[inline(always)]
fn key_for(linear: u64, asid: Asid, translation: Translation) -> u64 {
    let tag = if translation.is_global() { GLOBAL } else { tag_of(asid) };
    key_of(linear, translation.size(), tag)
}

fn held(key: u64, translation: Translation) -> TlbEntry {
    let asid = Asid::new(((key & ASID_MASK) >> ASID_SHIFT) as u16);
    TlbEntry {
        linear: key >> INDEX_SHIFT << translation.size().shift(),
        asid: asid.filter(|_| key & GLOBAL == 0),
        translation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(pages: &[PageSize], entries: u32, ways: u32) -> TlbArray {
        TlbArray {
            pages: pages.to_vec(),
            entries,
            ways,
            replacement: Replacement::Lru,
            source: "toy".into(),
            assumed: vec![],
        }
    }

    /// First level: 2 entries of 4K, 1 of 2M; second: 4 of 4K and 2M; 1G: 1 in the first.
    fn toy(inclusion: Inclusion) -> Tlb {
        use PageSize::{G1, K4, M2};
        Tlb::new(&config::Translation {
            levels: 4,
            inclusion,
            l1: vec![array(&[K4], 2, 2), array(&[M2], 1, 1), array(&[G1], 1, 1)],
            l2: vec![array(&[K4, M2], 4, 4)],
            psc: vec![],
            source: "toy".into(),
            assumed: vec![],
        })
        .expect("the toy is possible")
    }

    const A: Asid = Asid::ZERO;

    fn b() -> Asid {
        Asid::new(2).expect("small")
    }

    fn page(number: u64) -> Translation {
        Translation::new(number << 12, PageSize::K4)
    }

    fn fill(tlb: &mut Tlb, pages: &[u64]) {
        pages.iter().for_each(|n| tlb.insert(n << 12, A, page(100 + n)));
    }

    #[test]
    fn a_victim_of_the_first_level_hits_in_the_second() {
        let mut tlb = toy(Inclusion::Neither);
        fill(&mut tlb, &[1, 2, 3]);
        assert_eq!(tlb.lookup(1 << 12, A), Some((page(101), Stage::L2)));
        assert_eq!(tlb.lookup(1 << 12, A), Some((page(101), Stage::L1)));
        assert_eq!(tlb.lookup(9 << 12, A), None);
    }

    #[test]
    fn inclusive_levels_lose_together() {
        // The second level holds 4: the fifth page evicts page 1, which the first level still had.
        let mut tlb = toy(Inclusion::Inclusive);
        fill(&mut tlb, &[1, 2]);
        for number in [3, 4, 5] {
            tlb.lookup(1 << 12, A);
            fill(&mut tlb, &[number]);
        }
        assert_eq!(tlb.lookup(1 << 12, A), None);
    }

    #[test]
    fn exclusive_levels_hold_their_sum() {
        let mut tlb = toy(Inclusion::Exclusive);
        fill(&mut tlb, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(tlb.contents(Stage::L1).count() + tlb.contents(Stage::L2).count(), 6);
        assert_eq!(tlb.lookup(1 << 12, A), Some((page(101), Stage::L2)));
        assert!(tlb.contents(Stage::L2).all(|held| held.linear != 1 << 12), "it moved");
    }

    #[test]
    fn address_spaces_share_global_pages_only() {
        let (mut tlb, b) = (toy(Inclusion::Neither), b());
        fill(&mut tlb, &[1]);
        tlb.insert(2 << 12, A, page(7).global(true));
        assert_eq!(tlb.lookup(1 << 12, b), None);
        assert_eq!(tlb.lookup(2 << 12, b), Some((page(7).global(true), Stage::L1)));
        tlb.flush_asid(A);
        assert!(!tlb.holds(1 << 12, A) && tlb.holds(2 << 12, A));
        tlb.flush_all();
        assert!(!tlb.holds(2 << 12, A));
    }

    #[test]
    fn invlpg_hits_every_size_and_global_pages() {
        let mut tlb = toy(Inclusion::Neither);
        let huge = Translation::new(4 << 21, PageSize::M2);
        tlb.insert(0x5000, A, huge);
        fill(&mut tlb, &[5]);
        tlb.insert(0x6000, A, page(9).global(true));
        tlb.invalidate_page(0x5123, A);
        tlb.invalidate_page(0x6000, b());
        assert!(!tlb.holds(0x5000, A) && !tlb.holds(0x6000, A));
        assert_eq!(tlb.contents(Stage::L1).count() + tlb.contents(Stage::L2).count(), 0);
    }

    #[test]
    fn a_page_without_second_level_lives_in_the_first() {
        let mut tlb = toy(Inclusion::Neither);
        let giant = |number: u64| Translation::new(number << 30, PageSize::G1);
        tlb.insert(5 << 30, A, giant(1));
        assert_eq!(tlb.lookup((5 << 30) + 12345, A), Some((giant(1), Stage::L1)));
        tlb.insert(6 << 30, A, giant(2));
        assert_eq!(tlb.lookup(5 << 30, A), None);
    }
}
