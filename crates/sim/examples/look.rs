//! Reads of a look at a page-table entry on this host, measured and predicted (`src/look.rs`):
//! `cargo run --release -p tierscope-sim --example look [-- GIB…]`.
//!
//! A radix tree like a page table's stands in for it: tables of 512 entries of 8 bytes, on huge
//! pages of the host if it has them, for 1, 64 and 1024 GiB of small pages. A look reads one entry
//! a level from the top down, and ends with a locked operation, as a probe does; addresses are
//! random. Between looks are as many instructions as the module executes for a probe (`lab run
//! look-cost`): without them, looks overlap. The prediction takes the latencies of this host, from
//! chains of dependent reads in 1 MiB, in 4 MiB and in 4 GiB, and the sizes of its caches. In a
//! virtual machine reads of more than some 16 MiB also miss the TLB of nested paging.

#[path = "words/huge.rs"]
mod huge;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use huge::words;
use tierscope_core::{Error, ErrorKind, Level, Result, Rng};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::LookPrice;
use tierscope_sim::config::Costs;

/// Looks, and links of a chain, that are measured.
const LOOKS: usize = 2_000_000;
/// Turns of six instructions between two looks.
const TURNS: u64 = 60;
/// Entries of a table.
const FANOUT: u64 = 512;
const LEVELS: u8 = 4;

/// Tables by level: an entry is the position of the first entry of the table below it.
struct Tree(Vec<Vec<AtomicU64>>);

impl Tree {
    fn new(gib: u64) -> Self {
        let level = |number: u8| {
            let level = Level::new(number).expect("1 to 4");
            let entries = ((gib << 30) / level.entry_bytes()).max(FANOUT);
            let mut next = (0..).step_by(FANOUT as usize).map(AtomicU64::new);
            words(entries as usize, true, || next.next().expect("without end"))
        };
        Self((1..=LEVELS).map(level).collect())
    }

    /// Reads the entries down to a level, the last one with a locked operation.
    fn look(&self, at: u64, to: u8) -> u64 {
        let within = |level: u8| at >> (12 + 9 * (level - 1)) & (FANOUT - 1);
        let mut table = 0;
        for level in (to + 1..=LEVELS).rev() {
            let entry = &self.0[usize::from(level) - 1][(table + within(level)) as usize];
            table = entry.load(Ordering::Relaxed);
        }
        let entry = &self.0[usize::from(to) - 1][(table + within(to)) as usize];
        entry.fetch_and(!0x20 | table, Ordering::Relaxed)
    }
}

/// Instructions that read no memory.
#[inline(always)]
fn work(seed: u64) -> u64 {
    (0..TURNS).fold(seed, |sum, turn| (sum ^ turn).wrapping_mul(3).rotate_left(7))
}

/// Nanoseconds of each of many calls.
fn timed(mut work: impl FnMut(usize)) -> f64 {
    (0..LOOKS / 10).for_each(&mut work);
    let began = Instant::now();
    (0..LOOKS).for_each(work);
    began.elapsed().as_secs_f64() * 1e9 / LOOKS as f64
}

/// Nanoseconds of a dependent read in `bytes`: a random cycle through its lines.
fn chain(bytes: usize, rng: &mut Rng) -> f64 {
    let lines = bytes / 64;
    let table = words(lines * 8, true, AtomicU64::default);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for at in (1..lines).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for (at, line) in order.iter().enumerate() {
        let next = u64::from(order[(at + 1) % lines]) * 8;
        table[*line as usize * 8].store(next, Ordering::Relaxed);
    }
    let mut at = 0;
    timed(|_| at = table[black_box(at) as usize].load(Ordering::Relaxed))
}

/// Bytes of a cache of this host, by its level.
fn cache_bytes(level: u32) -> Result<f64> {
    let missing = || Error::new(ErrorKind::Missing, format!("no cache of level {level} is known"));
    for index in 0..8 {
        let of = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        if of("level").and_then(|text| text.parse().ok()) == Some(level)
            && of("type").is_some_and(|kind| kind != "Instruction")
        {
            let size = of("size").ok_or_else(missing)?;
            let kib: f64 = size.trim_end_matches('K').parse().map_err(|_| missing())?;
            return Ok(kib * 1024.0);
        }
    }
    Err(missing())
}

/// This host as far as looks are concerned, at a cycle a hundredth of a nanosecond.
fn host(rng: &mut Rng) -> Result<Hardware> {
    let [near, last, memory] = [1 << 20, 4 << 20, 4 << 30].map(|bytes| chain(bytes, rng));
    let [second, third] = [cache_bytes(2)?, cache_bytes(3)?];
    println!("a read: {near:.1} ns in 1 MiB, {last:.1} in 4 MiB, {memory:.1} in 4 GiB");
    println!("caches: {:.0} KiB, {:.0} MiB", second / 1024.0, third / 1_048_576.0);
    let mut hardware = Hardware::ready_made("xeon-gold-6430-cxl")?;
    hardware.processor.mhz = 100_000;
    hardware.translation.levels = LEVELS;
    let cycles = |ns: f64| (ns * 100.0) as u32;
    let timing = &mut hardware.timing;
    (timing.private_cycles, timing.llc_cycles) = (cycles(near), cycles(last));
    timing.private_kib = (second / 1024.0) as u32;
    hardware.tiers[0].read_ns = memory as u32;
    if let Some(llc) = &mut hardware.llc {
        (llc.slices, llc.ways, llc.sets) = (1, 16, (third / 1024.0) as u32);
    }
    Ok(hardware)
}

fn run(sizes: &[u64]) -> Result<()> {
    let mut rng = Rng::seeded(1);
    let hardware = host(&mut rng)?;
    let alone = AtomicU64::new(1);
    let own = timed(|at| {
        let mask = black_box(work(at as u64)) | !0x20;
        black_box(alone.fetch_and(mask, Ordering::Relaxed));
    });
    println!("the work between two looks, and a locked operation: {own:.1} ns\n");
    let mut costs = Costs::ready_made("linux")?;
    costs.access_bits.probe_ns = own as u64;
    let price = LookPrice::new(&hardware, &costs);
    println!("{:>8} {:>6} {:>10} {:>10} {:>6}", "GiB", "level", "measured", "predicted", "ratio");
    for gib in sizes {
        let tree = Tree::new(*gib);
        let places: Vec<u64> = (0..LOOKS).map(|_| rng.below(gib << 30)).collect();
        for number in 1..=LEVELS {
            let measured = timed(|at| {
                black_box(work(at as u64));
                black_box(tree.look(places[at], number));
            });
            let level = Level::new(number).expect("1 to 4");
            let predicted = price.look(level, gib << 30);
            let ratio = predicted / measured;
            println!("{gib:>8} {number:>6} {measured:>10.1} {predicted:>10.1} {ratio:>6.2}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let sizes: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1, 64, 1024] } else { sizes };
    match run(&sizes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
