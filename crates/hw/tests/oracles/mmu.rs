//! Compares TLBs, paging-structure caches and walker with naive models, while the page tables
//! change: mappings, unmappings, protections, splits, collapses, cleared flags, shootdowns.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tierscope_core::{Access, Level};
use tierscope_hw::config::{Inclusion, PageSize, Replacement};
use tierscope_hw::entry::{ACCESSED, DIRTY, GLOBAL, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{Asid, Mmu, Root, Stage};

use crate::naive_mmu::{Memory, Naive};
use crate::operations;
use crate::replay::{INCLUSIONS, POLICIES, small, words};

/// The MMU model and the naive one, each with page tables of its own.
struct Pair {
    fast: (Mmu, Memory),
    naive: (Naive, Memory),
    roots: Vec<Root>,
    levels: u8,
    /// Distinct outcomes of translations so far.
    seen: BTreeSet<String>,
}

/// An address out of a small set: eight pages in each of four tables, in each of two upper tables,
/// and so on up; some in the upper half.
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

    /// Performs the operation encoded in the word on both, and compares.
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

    /// Maps a new leaf, which splits or collapses the previous mapping. Some leaves are read-only,
    /// global, or old.
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

    /// Clears ACCESSED and DIRTY without a TLB invalidation, as software may.
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

/// Checks that the random words reach every outcome of the model.
#[test]
fn random_sequences_reach_every_source_and_fault() {
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
