//! The exact and the naive machine, run in lockstep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    Access, AccessBits, AccessedSet, Addr, Clock, HintFaults, Level, Probe, Range, ScanMode,
    SpaceId, Target, Tier, Time,
};
use tierscope_hw::config::{Inclusion, PageSize, Replacement};
use tierscope_hw::{Machine as Hardware, Source, Stage};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Denied, Detail, Machine, Map, Process, Setup};
use tierscope_workloads::{Program, Stream, Touch, generate};

use crate::naive_mmu::Naive;
use crate::naive_os::{NaiveOs, Stale};
use crate::replay::small;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// MiB of the tiers: small enough to fill up, and with room for one 1 GiB page.
const TIERS: [u64; 2] = [24, 1100];
const CPUS: usize = 2;

pub(crate) struct Pair {
    fast: Machine,
    os: NaiveOs,
    mmus: Vec<Naive>,
    levels: u8,
    seen: BTreeMap<&'static str, u64>,
}

/// Addresses of mappings: 8 MiB each around borders of tables, and 2 GiB for giant pages.
fn areas(levels: u8) -> [u64; 4] {
    let far = if levels == 5 { 3 << 48 } else { 3 << 39 };
    [8 * MIB, GIB - 4 * MIB, far - 4 * MIB, 4 * GIB]
}

impl Pair {
    pub(crate) fn new(levels: u8) -> Self {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").expect("it is there");
        hardware.tiers.truncate(2);
        hardware.tiers.iter_mut().zip(TIERS).for_each(|(tier, mib)| tier.mib = mib);
        hardware.translation = small(levels, Inclusion::Neither, Replacement::Lru);
        let bits = hardware.processor.physical_bits;
        let mmu = || Naive::new(&hardware.translation);
        let mmus = (0..CPUS).map(|_| mmu()).collect();
        let mut setup =
            Setup::new(hardware.clone(), Costs::ready_made("linux").expect("they are there"));
        (setup.cpus, setup.detail, setup.tick) = (CPUS as u32, Detail::Translation, None);
        let fast = Machine::new(&setup).expect("it is possible");
        let os = NaiveOs::new(levels, bits, TIERS);
        let mut pair = Self { fast, os, mmus, levels, seen: BTreeMap::new() };
        (0..2).for_each(|_| pair.spawn());
        pair
    }

    pub(crate) fn seen(&self, what: &str) -> u64 {
        self.seen.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn all_seen(&self) -> &BTreeMap<&'static str, u64> {
        &self.seen
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn spawn(&mut self) {
        self.fast.spawn("random", false).expect("there is room");
        self.os.spawn();
    }

    /// Performs the operation of a random word on both machines, and compares the results: 97 of
    /// 100 are accesses, since the naive machine is a thousand times slower for operations on
    /// ranges.
    pub(crate) fn step(&mut self, word: u64) {
        let alive: Vec<usize> =
            (0..self.os.spaces.len()).filter(|at| self.os.spaces[*at].alive).collect();
        let space = alive[(word >> 10 & 0xff) as usize % alive.len()];
        let at = self.address(word);
        match word % 4093 {
            0..=3968 => self.access(space, at, word >> 60 & 1 == 1, (word >> 61 & 1) as usize),
            3969..=3988 => self.map(self.range(space, word), word),
            3989..=3998 => self.unmap(self.range(space, word)),
            3999..=4008 => self.protect(self.range(space, word), word >> 61 & 3 != 0),
            4009..=4018 => self.split(space, at),
            4019..=4028 => self.collapse(space, at),
            4029..=4038 => self.migrate(self.range(space, word), (word >> 61 & 1) as usize),
            4039..=4048 => self.arm(self.range(space, word)),
            4049..=4078 => {
                self.probe(space, at, (word >> 60 & 7) as u8 % self.levels + 1, word >> 59 & 1 == 1)
            }
            4079..=4088 => self.scan(self.range(space, word), word),
            4089..=4091 => self.flush(space, (word >> 61 & 1) as usize),
            _ if alive.len() > 1 || word >> 63 == 1 => self.exit(space),
            _ => self.spawn(),
        }
    }

    /// An address in one of few pages: the first and last eight of each of four tables; or anywhere
    /// in the giant area.
    fn address(&self, word: u64) -> u64 {
        let area = areas(self.levels)[(word >> 18 & 3) as usize];
        if area == 4 * GIB {
            return area + (word >> 20) % (2 * GIB);
        }
        let page = word >> 20 & 15;
        let page = if page < 8 { page } else { 496 + page };
        area + (word >> 24 & 3) * 2 * MIB + page * 4096 + (word >> 26 & 0xfff)
    }

    fn range(&self, space: usize, word: u64) -> Range {
        let id = SpaceId(space as u32);
        let at = self.address(word);
        if (4 * GIB..6 * GIB).contains(&at) {
            return Range::new(id, at / GIB * GIB, at / GIB * GIB + GIB);
        }
        let pages = [1, 5, 40, 512, 600, 1536, 2048, 2048][(word >> 56 & 7) as usize];
        let area =
            areas(self.levels).into_iter().rev().find(|area| *area <= at && at - area < 8 * MIB);
        let area = area.expect("it lies in one");
        let huge = word >> 55 & 1 == 1;
        let start = if huge { at / (2 * MIB) * (2 * MIB) } else { at / 4096 * 4096 };
        Range::new(id, start, (start + pages * 4096).min(area + 8 * MIB))
    }

    /// Runs a process with threads on the fast machine, and executes the same accesses one by one
    /// on the naive one; returns their number.
    pub(crate) fn run(&mut self, spec: &str, until: Time) -> u64 {
        let workload = generate::from_spec(spec).expect("it makes sense");
        let process = Process { seed: 3, ..Process::new(workload.clone()) };
        let id = self.fast.start(&process).expect("it fits");
        self.os.spawn();
        assert_eq!(id.0 as usize + 1, self.os.spaces.len());
        let mappings = self.fast.mappings(Duration::ZERO).expect("they are known");
        let range = mappings.mappings.iter().find(|mapping| mapping.range.space == id);
        let range = range.expect("it maps its area").range;
        self.os.map(range, PageSize::K4);
        while self.fast.now() < until {
            self.fast.wait(until);
        }
        let count = self.fast.account().counts.accesses;
        let program = Arc::new(Program::new(&workload));
        let mut stream = Stream::new(&program, &[range.start], process.seed, 0, 1);
        for _ in 0..count {
            let mut touch = [Touch::default()];
            stream.fill(&mut touch);
            let touch = touch[0];
            assert!(touch.reads() != touch.writes(), "one access a touch");
            self.naive_access(id.0 as usize, touch.address(), touch.writes(), 0)
                .expect("it is mapped");
        }
        count
    }

    fn access(&mut self, space: usize, at: u64, store: bool, cpu: usize) {
        let addr = Addr { space: SpaceId(space as u32), at };
        let fast = self.fast.access(cpu, addr, store);
        let naive = self.naive_access(space, at, store, cpu);
        assert_eq!(fast, naive, "{addr} {}", if store { "store" } else { "load" });
    }

    fn naive_access(
        &mut self,
        space: usize,
        at: u64,
        store: bool,
        cpu: usize,
    ) -> Result<u64, Denied> {
        let access = if store { Access::Store } else { Access::Load };
        let root = self.os.spaces[space].root;
        self.os.spaces[space].cpus.insert(cpu);
        loop {
            match self.mmus[cpu].translate(&mut self.os.memory, root, at, access) {
                Ok((page, source)) => {
                    self.saw(if source == Source::Walk { "walk" } else { "hit" });
                    if store {
                        self.saw("store");
                    }
                    return Ok(page.physical(at));
                }
                Err(_) => match self.os.fault(space, at, store) {
                    Ok(how) => self.saw(how),
                    Err(denied) => {
                        let how = match denied {
                            Denied::Unmapped => "unmapped",
                            Denied::ReadOnly => "read-only",
                            Denied::OutOfMemory => "out of memory",
                        };
                        self.saw(how);
                        return Err(denied);
                    }
                },
            }
        }
    }

    fn map(&mut self, range: Range, word: u64) {
        let giant = range.bytes() == GIB;
        let pages = match (giant, word >> 61 & 1) {
            (true, _) => PageSize::G1,
            (false, 0) => PageSize::K4,
            (false, _) => PageSize::M2,
        };
        let map = Map { at: Some(range.start), pages, ..Map::anonymous(range.bytes()) };
        let mapped = self.fast.map(range.space, &map);
        assert_eq!(mapped.is_ok(), self.os.is_free(&range), "{range}");
        if mapped.is_ok() {
            self.os.map(range, pages);
        }
    }

    fn unmap(&mut self, range: Range) {
        let done = self.fast.unmap(range).is_ok();
        assert_eq!(done, !self.os.cuts_a_giant(&range), "{range}");
        if done {
            let stale = self.os.unmap(range);
            self.shoot(stale);
            self.saw("unmap");
        }
    }

    fn protect(&mut self, range: Range, writable: bool) {
        let done = self.fast.protect(range, writable).is_ok();
        assert_eq!(done, !self.os.cuts_a_giant(&range), "{range}");
        if done {
            let stale = self.os.protect(range, writable);
            self.shoot(stale);
            self.saw("protect");
        }
    }

    fn split(&mut self, space: usize, at: u64) {
        let at = at / (2 * MIB) * (2 * MIB);
        let range = Range::new(SpaceId(space as u32), at, at + 2 * MIB);
        let fast = self.fast.split(range).expect("the host has memory");
        let naive = self.os.split(space, at);
        assert_eq!(fast, u64::from(naive.is_some()));
        if let Some(stale) = naive {
            self.shoot(stale);
            self.saw("split");
        }
    }

    fn collapse(&mut self, space: usize, at: u64) {
        let at = at / (2 * MIB) * (2 * MIB);
        let range = Range::new(SpaceId(space as u32), at, at + 2 * MIB);
        let fast = self.fast.collapse(range);
        let naive = self.os.collapse(space, at);
        assert_eq!(fast, u64::from(naive.is_some()));
        if let Some(stale) = naive {
            self.shoot(stale);
            self.saw("collapse");
        }
    }

    fn migrate(&mut self, range: Range, tier: usize) {
        let fast = self.fast.migrate(range, Tier(tier as u8));
        let (naive, stale) = self.os.migrate(range, tier);
        assert_eq!(fast, naive, "{range}");
        self.shoot(stale);
        if naive > 0 {
            self.saw("migrate");
        }
    }

    fn arm(&mut self, range: Range) {
        HintFaults::arm(&mut self.fast, &[range]).expect("it can");
        let stale = self.os.arm(range);
        self.shoot(stale);
    }

    /// Shoots down like the kernel: page by page up to 33 pages, otherwise the whole space.
    fn shoot(&mut self, (range, pages, size): Stale) {
        if pages == 0 {
            return;
        }
        let space = &self.os.spaces[range.space.0 as usize];
        let asid = space.root.asid;
        for cpu in &space.cpus {
            let mmu = &mut self.mmus[*cpu];
            if range.bytes() / size.bytes() > 33 {
                mmu.flush_tlb(|key| key.asid == Some(asid));
            } else {
                let pages = (range.start..range.end).step_by(size.bytes() as usize);
                pages.for_each(|page| mmu.forget_tlb(page, asid));
            }
            mmu.flush_psc(|other| other == asid);
        }
    }

    fn probe(&mut self, space: usize, at: u64, level: u8, clear: bool) {
        let addr = Addr { space: SpaceId(space as u32), at };
        let named = Level::new(level).expect("1..=5");
        let mut probe =
            if clear { Probe::test_and_clear(addr, named) } else { Probe::test(addr, named) };
        self.fast.probe(std::slice::from_mut(&mut probe)).expect("it answers");
        let naive = self.os.probe(space, at, level, clear);
        assert_eq!(probe.is_young(), naive == Some(true), "{addr} {named}");
        if clear && naive == Some(true) {
            self.saw("clear");
        }
    }

    fn scan(&mut self, range: Range, word: u64) {
        let flag = |bit: u64| word >> bit & 1 == 1;
        let mode = ScanMode { clear: flag(61), prune: flag(62), present: flag(63) };
        let giant = range.bytes() == GIB;
        let level = if giant { 2 } else { [1, 1, 1, 2][(word >> 59 & 3) as usize] };
        let mut set = AccessedSet::default();
        let named = Level::new(level).expect("1..=5");
        let stats = self.fast.scan(&range, named, mode, &mut set).expect("it scans");
        let (naive, pruned) = self.os.scan(range, level, mode);
        assert_eq!(set, naive, "{range} {named} {mode:?}");
        assert_eq!((stats.young, stats.pruned > 0), (set.young_count(), pruned));
        self.saw(if pruned { "pruned" } else { "scan" });
    }

    fn flush(&mut self, space: usize, cpu: usize) {
        self.fast.flush(cpu, SpaceId(space as u32));
        let asid = self.os.spaces[space].root.asid;
        self.mmus[cpu].flush_tlb(|key| key.asid == Some(asid));
        self.mmus[cpu].flush_psc(|other| other == asid);
    }

    fn exit(&mut self, space: usize) {
        self.fast.exit(SpaceId(space as u32)).expect("it is alive");
        let asid = self.os.spaces[space].root.asid;
        self.os.exit(space);
        for mmu in &mut self.mmus {
            mmu.flush_tlb(|key| key.asid == Some(asid));
            mmu.flush_psc(|other| other == asid);
        }
        self.spawn();
        self.saw("exit");
    }

    pub(crate) fn compare_state(&self) {
        let mut entries = BTreeMap::new();
        for space in 0..self.os.spaces.len() {
            for entry in self.fast.page_table(SpaceId(space as u32)) {
                entries.insert(entry.address, entry.entry);
            }
        }
        assert_eq!(&entries, self.os.entries(), "page tables");
        for (cpu, naive) in self.mmus.iter().enumerate() {
            let mmu = self.fast.mmu(cpu);
            let held = |stage| -> BTreeSet<String> {
                mmu.tlb().contents(stage).map(|held| format!("{held:?}")).collect()
            };
            assert_eq!(held(Stage::L1), naive.l1.contents(), "first-level TLB");
            assert_eq!(held(Stage::L2), naive.l2.contents(), "second-level TLB");
            for number in 2..=self.levels {
                let level = Level::new(number).expect("2..=5");
                let psc: BTreeSet<String> =
                    mmu.psc().contents(level).map(|entry| format!("{entry:?}")).collect();
                assert_eq!(psc, naive.psc_contents(number), "{level} cache");
            }
        }
    }
}
