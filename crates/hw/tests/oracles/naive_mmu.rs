//! A naive MMU: TLBs, paging-structure caches and a walk, each rule implemented plainly.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tierscope_core::{Access, Level};
use tierscope_hw::config::{Inclusion, PageSize, TlbArray, Translation as Config};
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, GLOBAL, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{
    Asid, Fault, PageTable, Root, Source, Table, TlbEntry, Translation, is_canonical,
};

use crate::naive::Array;

/// Page tables as a map of entries, with the order of reads.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) entries: BTreeMap<u64, u64>,
    pub(crate) reads: Vec<u64>,
    pub(crate) next_table: u64,
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

pub(crate) fn slot(table: u64, linear: u64, level: u8) -> u64 {
    table + (linear / 4096 / 512u64.pow(u32::from(level) - 1)) % 512 * 8
}

impl Memory {
    pub(crate) fn new_table(&mut self) -> u64 {
        self.next_table += 4096;
        self.next_table
    }

    /// Address of the entry of `level`; missing tables above it are created, and leaves are
    /// replaced by tables.
    pub(crate) fn reach(&mut self, root: u64, levels: u8, linear: u64, level: u8) -> u64 {
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

    /// Address of the entry of `level`, if all tables above it exist.
    pub(crate) fn find(&self, root: u64, levels: u8, linear: u64, level: u8) -> Option<u64> {
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
pub(crate) struct Key {
    number: u64,
    size: PageSize,
    /// Address space; `None` if global.
    pub(crate) asid: Option<Asid>,
}

/// One level of a TLB: arrays, each with its page sizes.
pub(crate) struct Bank(Vec<(Vec<PageSize>, Array<Key, Translation>)>);

impl Bank {
    pub(crate) fn new(configs: &[TlbArray]) -> Self {
        let array = |c: &TlbArray| {
            (c.pages.clone(), Array::new(c.entries as usize, c.ways as usize, c.replacement))
        };
        Self(configs.iter().map(array).collect())
    }

    fn array(&mut self, size: PageSize) -> Option<&mut Array<Key, Translation>> {
        self.0.iter_mut().find(|(sizes, _)| sizes.contains(&size)).map(|(_, array)| array)
    }

    pub(crate) fn find(&mut self, linear: u64, asid: Asid) -> Option<(Key, Translation)> {
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

    pub(crate) fn contents(&self) -> BTreeSet<String> {
        let held = |(key, translation): (Key, Translation)| TlbEntry {
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

/// A naive MMU.
pub(crate) struct Naive {
    pub(crate) l1: Bank,
    pub(crate) l2: Bank,
    inclusion: Inclusion,
    psc: HashMap<u8, Array<PscKey, Table>>,
    levels: u8,
}

impl Naive {
    pub(crate) fn new(config: &Config) -> Self {
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

    pub(crate) fn translate(
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

    /// The lowest cached table and its level, or the top table.
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

    /// Invalidates the cached entries for the address, as a page fault does.
    fn forget(&mut self, linear: u64, asid: Asid) {
        self.forget_tlb(linear, asid);
        for (level, array) in &mut self.psc {
            let number = psc_number(linear, *level);
            array.remove(number, (number, asid));
        }
    }

    pub(crate) fn forget_tlb(&mut self, linear: u64, asid: Asid) {
        for (size, tag) in PageSize::ALL.into_iter().flat_map(|s| [(s, Some(asid)), (s, None)]) {
            self.l1.remove(key(linear, size, tag));
            self.l2.remove(key(linear, size, tag));
        }
    }

    pub(crate) fn flush_psc(&mut self, gone: impl Fn(Asid) -> bool) {
        self.psc.values_mut().for_each(|array| array.remove_if(|(_, asid)| gone(*asid)));
    }

    pub(crate) fn flush_tlb(&mut self, gone: impl Fn(&Key) -> bool) {
        self.l1.remove_if(&gone);
        self.l2.remove_if(&gone);
    }

    pub(crate) fn psc_contents(&self, level: u8) -> BTreeSet<String> {
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
