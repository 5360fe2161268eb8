//! Benchmark of the models in accesses per second, compared with a naive loop over the same
//! addresses.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierscope_core::{Access, Level, Rng};
use tierscope_hw::cache::Request;
use tierscope_hw::entry::{ACCESSED, PRESENT, WRITABLE};
use tierscope_hw::host::prefetch;
use tierscope_hw::{Asid, Cache, Machine, Mmu, PageTable, Root, Tlb, Translation};
use tierscope_hw::{PageSize, entry_address};

const COUNT: u64 = 1 << 16;
const GIB: u64 = 1 << 30;
/// Accesses between a prefetch and the walk that needs it.
const AHEAD: usize = 16;
/// Accesses after which the decision to prefetch is reviewed.
const BATCH: usize = 256;

/// Page tables that map 4 KiB pages one to one: one array per level, at consecutive physical
/// addresses from `BASE` on.
struct Flat {
    /// Table entries by level, level 1 first.
    tables: [Vec<u64>; 4],
    bases: [u64; 4],
}

const BASE: u64 = 1 << 44;

impl Flat {
    fn new(bytes: u64) -> Self {
        let entries =
            [12u32, 21, 30, 39].map(|shift| bytes.div_ceil(1 << shift).next_multiple_of(512));
        let mut bases = [BASE; 4];
        for level in 1..4 {
            bases[level] = bases[level - 1] + entries[level - 1] * 8;
        }
        let below =
            |level: usize, n: u64| if level == 0 { n << 12 } else { bases[level - 1] + (n << 12) };
        let entry = |level, n| below(level, n) | PRESENT | WRITABLE;
        let table = |level: usize| (0..entries[level]).map(|n| entry(level, n)).collect();
        Self { tables: [0, 1, 2, 3].map(table), bases }
    }

    fn root(&self) -> Root {
        Root { table: self.bases[3], asid: Asid::ZERO }
    }

    fn find(&self, address: u64) -> (usize, usize) {
        let level = self.bases.iter().rposition(|base| *base <= address).expect("a table's");
        (level, ((address - self.bases[level]) / 8) as usize)
    }
}

impl Flat {
    /// Prefetches on the host the entries that a walk for the address will read.
    #[inline(always)]
    fn prefetch_host(&self, linear: u64) {
        prefetch(&self.tables[0], (linear >> 12) as usize);
        prefetch(&self.tables[1], (linear >> 21) as usize);
    }
}

impl PageTable for Flat {
    #[inline(always)]
    fn read(&mut self, address: u64) -> u64 {
        let (level, index) = self.find(address);
        self.tables[level][index]
    }

    #[inline(always)]
    fn set(&mut self, address: u64, flags: u64) {
        let (level, index) = self.find(address);
        self.tables[level][index] |= flags;
    }
}

fn machine() -> Machine {
    Machine::ready_made("xeon-gold-6238m").expect("it is there")
}

fn uniform(bytes: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(bytes);
    (0..COUNT).map(|_| rng.below(bytes)).collect()
}

/// 99 of 100 accesses go to a hundredth of the bytes.
fn hotspot(bytes: u64) -> Vec<u64> {
    let mut rng = Rng::seeded(bytes);
    let mut one = || {
        let hot = rng.below(100) != 0;
        rng.below(if hot { bytes / 100 } else { bytes })
    };
    (0..COUNT).map(|_| one()).collect()
}

fn patterns() -> [(&'static str, u64, Vec<u64>); 4] {
    [
        ("128K", GIB, uniform(128 << 10)),
        ("4M", GIB, uniform(4 << 20)),
        ("64G hotspot", 64 * GIB, hotspot(64 * GIB)),
        ("64G uniform", 64 * GIB, uniform(64 * GIB)),
    ]
}

fn naive(c: &mut Criterion) {
    let addresses = uniform(GIB);
    let mut group = c.benchmark_group("naive loop");
    group.throughput(Throughput::Elements(COUNT));
    group.bench_function("sum", |b| {
        b.iter(|| black_box(&addresses).iter().fold(0u64, |sum, at| black_box(sum ^ at)));
    });
}

fn tlb(c: &mut Criterion) {
    let mut group = c.benchmark_group("tlb");
    group.throughput(Throughput::Elements(COUNT));
    for (name, _, addresses) in patterns() {
        let mut tlb = Tlb::new(&machine().translation).expect("it is possible");
        group.bench_function(name, |b| {
            b.iter(|| {
                for at in &addresses {
                    if tlb.lookup(*at, Asid::ZERO).is_none() {
                        let page = Translation::new(at & !0xfff, PageSize::K4);
                        tlb.insert_missed(*at, Asid::ZERO, page);
                    }
                }
            });
        });
    }
}

/// Translates in batches, and prefetches in a batch if the one before had many walks.
fn translate_all(mmu: &mut Mmu, memory: &mut Flat, addresses: &[u64]) {
    let root = memory.root();
    let (mut before, mut ahead) = (mmu.walks(), true);
    for (index, at) in addresses.iter().enumerate() {
        if index % BATCH == 0 {
            ahead = mmu.walks() - before > BATCH as u64 / 8;
            before = mmu.walks();
        }
        if ahead && index + AHEAD < addresses.len() {
            memory.prefetch_host(addresses[index + AHEAD]);
        }
        black_box(mmu.translate(memory, root, *at, Access::Load)).expect("mapped");
    }
}

fn translate(c: &mut Criterion) {
    let mut group = c.benchmark_group("translate");
    group.throughput(Throughput::Elements(COUNT));
    for (name, bytes, addresses) in patterns() {
        let mut memory = Flat::new(bytes);
        let mut mmu = Mmu::new(&machine().translation).expect("it is possible");
        group.bench_function(name, |b| {
            b.iter(|| translate_all(&mut mmu, &mut memory, &addresses));
        });
        let leaf = entry_address(memory.bases[0], addresses[0], Level::PTE);
        let table = addresses[0] >> 21 << 12;
        assert_ne!(memory.read(leaf + table) & ACCESSED, 0, "walks leave their mark");
    }
}

fn cache(c: &mut Criterion) {
    let config = machine().llc.expect("it has one");
    let mut group = c.benchmark_group("llc");
    group.throughput(Throughput::Elements(COUNT));
    for (name, _, addresses) in patterns() {
        let mut cache = Cache::new(&config, 46).expect("it is possible");
        group.bench_function(name, |b| {
            b.iter(|| {
                for (index, at) in addresses.iter().enumerate() {
                    if let Some(later) = addresses.get(index + AHEAD) {
                        cache.prefetch_host(cache.place(*later));
                    }
                    black_box(cache.access(*at, Request::Read));
                }
            });
        });
    }
}

criterion_group!(benches, naive, tlb, translate, cache);
criterion_main!(benches);
