//! TLBs, paging-structure caches and walker against naive ones, with page tables that change
//! under them: maps, unmaps, protections, splits, collapses, cleared flags, shootdowns.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use tierscope_core::{Access, Level};
use tierscope_hw::config::{Inclusion, PageSize, Replacement, TlbArray, Translation as Config};
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, GLOBAL, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{
    Asid, Fault, Held, Mmu, PageTable, Root, Source, Stage, Table, Translation, is_canonical,
};

use crate::naive::Array;
use crate::operations;
use crate::replay::{INCLUSIONS, POLICIES, small, words};

/// Page tables as a map of entries, and the order in which they were read.
#[derive(Clone, Default)]
struct Memory {
    entries: BTreeMap<u64, u64>,
    reads: Vec<u64>,
    next_table: u64,
}

impl PageTable for Memory {
    fn read(&mut self, address: u64) -> u64 {
        self.reads.push(address);
        self.entries.get(&address).copied().unwrap_or(0)
    }

    fn set(&mut self, address: u64, flags: u64) {
        let entry = self.entries.get_mut(&address).expect("only present entries are marked");
        assert_ne!(*entry & flags, flags, "only if a flag was clear");
        *entry |= flags;
    }
}

fn slot(table: u64, linear: u64, level: u8) -> u64 {
    table + (linear / 4096 / 512u64.pow(u32::from(level) - 1)) % 512 * 8
}

impl Memory {
    fn new_table(&mut self) -> u64 {
        self.next_table += 4096;
        self.next_table
    }

    /// Address of the entry of `level`; makes tables on the way, instead of leaves too.
    fn reach(&mut self, root: u64, levels: u8, linear: u64, level: u8) -> u64 {
        let mut table = root;
        for upper in (level + 1..=levels).rev() {
            let at = slot(table, linear, upper);
            let entry = self.entries.get(&at).copied().unwrap_or(0);
            if entry & PRESENT == 0 || entry & HUGE != 0 {
                let below = self.new_table();
                self.entries.insert(at, below | PRESENT | WRITABLE);
            }
            table = self.entries[&at] & FRAME_MASK;
        }
        slot(table, linear, level)
    }

    /// Address of the entry of `level`, if all above it are there.
    fn find(&self, root: u64, levels: u8, linear: u64, level: u8) -> Option<u64> {
        let mut table = root;
        for upper in (level + 1..=levels).rev() {
            let entry = *self.entries.get(&slot(table, linear, upper))?;
            if entry & PRESENT == 0 || entry & HUGE != 0 {
                return None;
            }
            table = entry & FRAME_MASK;
        }
        Some(slot(table, linear, level)).filter(|at| self.entries.contains_key(at))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    number: u64,
    size: PageSize,
    /// `None` = global.
    asid: Option<Asid>,
}

/// One level of a TLB: arrays, and the sizes that each takes.
struct Bank(Vec<(Vec<PageSize>, Array<Key, Translation>)>);

impl Bank {
    fn new(configs: &[TlbArray]) -> Self {
        let array = |c: &TlbArray| {
            (c.pages.clone(), Array::new(c.entries as usize, c.ways as usize, c.replacement))
        };
        Self(configs.iter().map(array).collect())
    }

    fn array(&mut self, size: PageSize) -> Option<&mut Array<Key, Translation>> {
        self.0.iter_mut().find(|(sizes, _)| sizes.contains(&size)).map(|(_, array)| array)
    }

    fn find(&mut self, linear: u64, asid: Asid) -> Option<(Key, Translation)> {
        for tag in [Some(asid), None] {
            for size in PageSize::ALL {
                let key = key(linear, size, tag);
                let found = self.array(size).and_then(|array| array.get(key.number, key));
                if let Some(translation) = found {
                    return Some((key, translation));
                }
            }
        }
        None
    }

    fn touch(&mut self, key: Key) {
        self.array(key.size).expect("it was found there").touch(key.number, key);
    }

    fn put(&mut self, key: Key, translation: Translation) -> Option<(Key, Translation)> {
        self.array(key.size)?.put(key.number, key, translation)
    }

    fn remove(&mut self, key: Key) {
        if let Some(array) = self.array(key.size) {
            array.remove(key.number, key);
        }
    }

    fn remove_if(&mut self, gone: impl Fn(&Key) -> bool) {
        self.0.iter_mut().for_each(|(_, array)| array.remove_if(&gone));
    }

    fn contents(&self) -> BTreeSet<String> {
        let held = |(key, translation): (Key, Translation)| Held {
            linear: key.number * key.size.bytes(),
            asid: key.asid,
            translation,
        };
        self.0.iter().flat_map(|(_, a)| a.pairs()).map(|pair| format!("{:?}", held(pair))).collect()
    }
}

fn key(linear: u64, size: PageSize, asid: Option<Asid>) -> Key {
    Key { number: linear % (1 << 57) / size.bytes(), size, asid }
}

type PscKey = (u64, Asid);

/// The naive MMU.
struct Naive {
    l1: Bank,
    l2: Bank,
    inclusion: Inclusion,
    psc: HashMap<u8, Array<PscKey, Table>>,
    levels: u8,
}

impl Naive {
    fn new(config: &Config) -> Self {
        let psc = |c: &tierscope_hw::config::PscArray| {
            (c.level, Array::new(c.entries as usize, c.ways as usize, c.replacement))
        };
        Self {
            l1: Bank::new(&config.l1),
            l2: Bank::new(&config.l2),
            inclusion: config.inclusion,
            psc: config.psc.iter().map(psc).collect(),
            levels: config.levels,
        }
    }

    fn translate(
        &mut self,
        memory: &mut Memory,
        root: Root,
        linear: u64,
        access: Access,
    ) -> Result<(Translation, Source), Fault> {
        let store = access == Access::Store;
        match self.lookup(linear, root.asid) {
            Some((known, source)) if !store || known.is_writable() && known.is_dirty() => {
                return Ok((known, source));
            }
            Some((known, _)) if !known.is_writable() => {
                self.forget(linear, root.asid);
                return Err(Fault::ReadOnly);
            }
            _ => {}
        }
        let walked = self.walk(memory, root, linear, store);
        match walked {
            Ok(found) => self.insert(linear, root.asid, found),
            Err(_) => self.forget(linear, root.asid),
        }
        walked.map(|found| (found, Source::Walk))
    }

    fn lookup(&mut self, linear: u64, asid: Asid) -> Option<(Translation, Source)> {
        if let Some((key, translation)) = self.l1.find(linear, asid) {
            self.l1.touch(key);
            return Some((translation, Source::L1));
        }
        let (key, translation) = self.l2.find(linear, asid)?;
        self.l2.touch(key);
        if self.inclusion != Inclusion::Exclusive {
            self.l1.put(key, translation);
        } else if self.l1.array(key.size).is_some() {
            self.l2.remove(key);
            if let Some((key, translation)) = self.l1.put(key, translation) {
                self.l2.put(key, translation);
            }
        }
        Some((translation, Source::L2))
    }

    fn insert(&mut self, linear: u64, asid: Asid, found: Translation) {
        let tag = (!found.is_global()).then_some(asid);
        let key = key(linear, found.size(), tag);
        if self.inclusion == Inclusion::Exclusive {
            if self.l1.array(key.size).is_none() {
                self.l2.put(key, found);
                return;
            }
            self.l2.remove(key);
            if let Some((victim, said)) = self.l1.put(key, found) {
                self.l2.put(victim, said);
            }
            return;
        }
        let victim = self.l2.put(key, found);
        if let (Inclusion::Inclusive, Some((victim, _))) = (self.inclusion, victim) {
            self.l1.remove(victim);
        }
        self.l1.put(key, found);
    }

    fn walk(
        &mut self,
        memory: &mut Memory,
        root: Root,
        linear: u64,
        store: bool,
    ) -> Result<Translation, Fault> {
        if !is_canonical(linear, self.levels) {
            return Err(Fault::NonCanonical);
        }
        let (mut level, mut table) = self.start(root, linear);
        loop {
            let at = slot(table.base, linear, level);
            let entry = memory.read(at);
            let named = Level::new(level).expect("1..=5");
            if entry & PRESENT == 0 {
                return Err(Fault::NotPresent(named));
            }
            let writable = table.writable && entry & WRITABLE != 0;
            if level == 1 || entry & HUGE != 0 {
                if level > 3 {
                    return Err(Fault::Reserved(named));
                }
                if store && !writable {
                    return Err(Fault::ReadOnly);
                }
                let flags = if store { ACCESSED | DIRTY } else { ACCESSED };
                *memory.entries.get_mut(&at).expect("present") |= flags;
                let size = PageSize::ALL[usize::from(level) - 1];
                let frame = (entry & FRAME_MASK) / size.bytes() * size.bytes();
                return Ok(Translation::new(frame, size)
                    .writable(writable)
                    .dirty(store || entry & DIRTY != 0)
                    .global(entry & GLOBAL != 0));
            }
            *memory.entries.get_mut(&at).expect("present") |= ACCESSED;
            table = Table { base: entry & FRAME_MASK, writable };
            self.keep(linear, root.asid, level, table);
            level -= 1;
        }
    }

    /// The lowest cached table, or the top.
    fn start(&mut self, root: Root, linear: u64) -> (u8, Table) {
        for level in 2..=self.levels {
            let Some(array) = self.psc.get_mut(&level) else { continue };
            let number = psc_number(linear, level);
            if let Some(table) = array.get(number, (number, root.asid)) {
                array.touch(number, (number, root.asid));
                return (level - 1, table);
            }
        }
        (self.levels, Table { base: root.table, writable: true })
    }

    fn keep(&mut self, linear: u64, asid: Asid, level: u8, table: Table) {
        let number = psc_number(linear, level);
        if let Some(array) = self.psc.get_mut(&level) {
            array.put(number, (number, asid), table);
        }
    }

    /// What a fault does.
    fn forget(&mut self, linear: u64, asid: Asid) {
        self.forget_tlb(linear, asid);
        for (level, array) in &mut self.psc {
            let number = psc_number(linear, *level);
            array.remove(number, (number, asid));
        }
    }

    fn forget_tlb(&mut self, linear: u64, asid: Asid) {
        for (size, tag) in PageSize::ALL.into_iter().flat_map(|s| [(s, Some(asid)), (s, None)]) {
            self.l1.remove(key(linear, size, tag));
            self.l2.remove(key(linear, size, tag));
        }
    }

    fn flush_psc(&mut self, gone: impl Fn(Asid) -> bool) {
        self.psc.values_mut().for_each(|array| array.remove_if(|(_, asid)| gone(*asid)));
    }

    fn flush_tlb(&mut self, gone: impl Fn(&Key) -> bool) {
        self.l1.remove_if(&gone);
        self.l2.remove_if(&gone);
    }

    fn psc_contents(&self, level: u8) -> BTreeSet<String> {
        let bytes = 4096 * 512u64.pow(u32::from(level) - 1);
        let array = self.psc.get(&level);
        let pairs = array.into_iter().flat_map(Array::pairs);
        pairs
            .map(|((number, asid), table)| format!("{:?}", (number * bytes, asid, table)))
            .collect()
    }
}

fn psc_number(linear: u64, level: u8) -> u64 {
    linear % (1 << 57) / 4096 / 512u64.pow(u32::from(level) - 1)
}

/// Both machines, each with page tables of its own.
struct Pair {
    fast: (Mmu, Memory),
    naive: (Naive, Memory),
    roots: Vec<Root>,
    levels: u8,
    /// Kinds of answers so far.
    seen: BTreeSet<String>,
}

/// An address of few: eight pages in each of four tables in each of two, and so on up, and the
/// upper half too.
fn address(word: u64, levels: u8) -> u64 {
    let index = |level: u64| (word >> (3 * level)) & [7, 3, 1, 1, 1][level as usize];
    let low: u64 = (0..u64::from(levels)).map(|level| index(level) << (12 + 9 * level)).sum();
    let low = low | word >> 20 & 0xfff;
    let upper_half = !0 << (12 + 9 * u32::from(levels) - 1);
    if word >> 40 & 7 == 0 { low | upper_half } else { low }
}

impl Pair {
    fn new(levels: u8, inclusion: Inclusion, replacement: Replacement) -> Self {
        let config = small(levels, inclusion, replacement);
        let mut memory = Memory { next_table: 1 << 40, ..Memory::default() };
        let asid = |number| Asid::new(number).expect("small");
        let roots =
            [0, 1, 4095].map(|n| Root { table: memory.new_table(), asid: asid(n) }).to_vec();
        Self {
            fast: (Mmu::new(&config).expect("it is possible"), memory.clone()),
            naive: (Naive::new(&config), memory),
            roots,
            levels,
            seen: BTreeSet::new(),
        }
    }

    /// Does what the word says to both and compares.
    fn step(&mut self, word: u64) {
        let root = self.roots[(word >> 50 & 3).min(2) as usize];
        let linear = address(word, self.levels);
        let level = [1, 1, 1, 1, 1, 2, 2, 3][(word >> 45 & 7) as usize];
        match word >> 54 & 0x3ff {
            0..=899 => self.access(root, linear, word >> 53 & 1 == 1),
            900..=949 => self.map(root, linear, level, word),
            950..=959 => self.unmap(root, linear, level),
            960..=979 => self.clear(root, linear, (word >> 45 & 7) as u8 % self.levels + 1),
            980..=999 => self.invalidate(root, linear),
            1000..=1009 => self.flush_asid(root.asid),
            1010..=1015 => self.flush_local(),
            1016..=1019 => self.flush_all(),
            _ => self.access(root, 1 << 60 | linear, false),
        }
    }

    fn access(&mut self, root: Root, linear: u64, store: bool) {
        let access = if store { Access::Store } else { Access::Load };
        let (mmu, memory) = &mut self.fast;
        memory.reads.clear();
        let fast = mmu.translate(memory, root, linear, access);
        let (naive, naive_memory) = &mut self.naive;
        naive_memory.reads.clear();
        let expected = naive.translate(naive_memory, root, linear, access);
        assert_eq!(fast, expected, "{linear:#x} {access:?}");
        self.seen.insert(match fast {
            Ok((page, source)) => format!("{:?} {source:?}", page.size()),
            Err(fault) => format!("{fault:?}"),
        });
        assert_eq!(memory.reads, naive_memory.reads, "{linear:#x} {access:?}");
        if !memory.reads.is_empty() {
            assert_eq!(mmu.last_reads().as_slice(), memory.reads);
        }
    }

    fn write(&mut self, at: u64, entry: u64) {
        self.fast.1.entries.insert(at, entry);
        self.naive.1.entries.insert(at, entry);
    }

    /// A new leaf, which splits or collapses what was there. Some are read-only, global, clean.
    fn map(&mut self, root: Root, linear: u64, level: u8, word: u64) {
        let at = self.fast.1.reach(root.table, self.levels, linear, level);
        let same = self.naive.1.reach(root.table, self.levels, linear, level);
        assert_eq!(at, same, "both tables have the same shape");
        let bytes = PageSize::ALL[usize::from(level) - 1].bytes();
        let frame = (word % (1 << 39)) / bytes * bytes;
        let flag = |bit: u64, flag: u64| if word >> bit & 7 != 0 { flag } else { 0 };
        let global = if word >> 23 & 7 == 0 { GLOBAL } else { 0 };
        let huge = if level > 1 { HUGE } else { 0 };
        self.write(at, frame | PRESENT | huge | global | flag(29, WRITABLE) | flag(33, ACCESSED));
    }

    fn unmap(&mut self, root: Root, linear: u64, level: u8) {
        if let Some(at) = self.fast.1.find(root.table, self.levels, linear, level) {
            self.write(at, 0);
        }
    }

    /// Clears ACCESSED and DIRTY without telling the TLBs, as software may.
    fn clear(&mut self, root: Root, linear: u64, level: u8) {
        if let Some(at) = self.fast.1.find(root.table, self.levels, linear, level) {
            let entry = self.fast.1.entries[&at] & !(ACCESSED | DIRTY);
            self.write(at, entry);
        }
    }

    fn invalidate(&mut self, root: Root, linear: u64) {
        self.fast.0.invalidate_page(linear, root.asid);
        self.naive.0.forget_tlb(linear, root.asid);
        self.naive.0.flush_psc(|asid| asid == root.asid);
    }

    fn flush_asid(&mut self, asid: Asid) {
        self.fast.0.flush_asid(asid);
        self.naive.0.flush_tlb(|key| key.asid == Some(asid));
        self.naive.0.flush_psc(|other| other == asid);
    }

    fn flush_local(&mut self) {
        self.fast.0.flush_local();
        self.naive.0.flush_tlb(|key| key.asid.is_some());
        self.naive.0.flush_psc(|_| true);
    }

    fn flush_all(&mut self) {
        self.fast.0.flush_all();
        self.naive.0.flush_tlb(|_| true);
        self.naive.0.flush_psc(|_| true);
    }

    fn compare_state(&self) {
        assert_eq!(self.fast.1.entries, self.naive.1.entries, "ACCESSED and DIRTY in memory");
        let tlb = self.fast.0.tlb();
        let held = |stage| tlb.contents(stage).map(|held| format!("{held:?}")).collect();
        let (l1, l2): (BTreeSet<String>, BTreeSet<String>) = (held(Stage::L1), held(Stage::L2));
        assert_eq!(l1, self.naive.0.l1.contents());
        assert_eq!(l2, self.naive.0.l2.contents());
        for number in 2..=self.levels {
            let level = Level::new(number).expect("2..=5");
            let psc: BTreeSet<String> =
                self.fast.0.psc().contents(level).map(|entry| format!("{entry:?}")).collect();
            assert_eq!(psc, self.naive.0.psc_contents(number), "{level} cache");
        }
    }
}

fn machines() -> Vec<(u8, Inclusion, Replacement)> {
    let pairs = INCLUSIONS.into_iter().flat_map(|i| POLICIES.map(|p| (i, p)));
    pairs.flat_map(|(i, p)| [(4, i, p), (5, i, p)]).collect()
}

#[test]
fn equals_the_naive_mmu_for_long() {
    let each = operations() / 6;
    for (index, (levels, inclusion, replacement)) in machines().into_iter().enumerate() {
        let mut pair = Pair::new(levels, inclusion, replacement);
        for (step, word) in words(index as u64, each).enumerate() {
            pair.step(word);
            if step % 1024 == 0 {
                pair.compare_state();
            }
        }
        pair.compare_state();
    }
}

/// The random words really reach every outcome that the model has.
#[test]
fn the_sequences_reach_everything() {
    let mut pair = Pair::new(5, Inclusion::Neither, Replacement::Lru);
    for word in words(1, 100_000) {
        pair.step(word);
    }
    let expected =
        ["K4 L1", "K4 L2", "K4 Walk", "M2 Walk", "G1 L1", "ReadOnly", "NotPresent(Level(1))"];
    for outcome in expected {
        assert!(pair.seen.contains(outcome), "{outcome} in {:?}", pair.seen);
    }
    assert!(pair.seen.contains("NonCanonical"));
}

proptest! {
    #[test]
    fn equals_the_naive_mmu(
        words in prop::collection::vec(any::<u64>(), 0..300),
        machine in prop::sample::select(machines()),
    ) {
        let mut pair = Pair::new(machine.0, machine.1, machine.2);
        for word in words {
            pair.step(word);
        }
        pair.compare_state();
    }
}
