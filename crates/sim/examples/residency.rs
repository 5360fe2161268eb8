//! ACCESSED bits hidden by TLBs: the processor that this runs on compared with the exact machine
//! with its TLBs, by size of the set and time since the bits were cleared.
//!
//! `cargo run -p tierscope-sim --example residency [MACHINE]`: a thread reads pages of 4 KiB at
//! random, 3 million a second, on the processor and on the exact machine; the bits are cleared by
//! `clear_refs` of its own process, which flushes no TLB (fs/proc/task_mmu.c, `clear_refs_write`),
//! and read from `smaps`. Every figure is a mean over rounds, followed by the spread of three
//! repetitions. The core must be idle otherwise: the effects of other threads are measured too.
//!
//! With `neighbour` the measurement is repeated three times, each with three loads on the other CPU
//! in turn: background only, a thread that computes, and a thread that reads all over 256 MiB. If
//! both CPUs shared a second-level TLB, the last would evict entries that the first two leave.
//!
//! With `capacity` it prints, for the same sets, the prediction of the exact machine with a half
//! and a quarter of the second-level TLB, and with random replacement in it.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use tierscope_core::{AccessBits, AccessedSet, Clock, Level, Range, Rng, ScanMode, Time};
use tierscope_hw::config::Replacement;
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Detail, Machine, Process, Setup};
use tierscope_workloads::generate::from_spec;

const SETS_MIB: [u64; 6] = [2, 4, 6, 8, 16, 64];
const AFTER_MS: [u64; 4] = [1, 5, 20, 100];
const PAGE: usize = 4096;
/// Reads a second.
const RATE: u64 = 3_000_000;
const ROUNDS: usize = 5;
const REPEATS: usize = 3;

type Row = [f64; 4];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = words.iter().find(|word| !["capacity", "neighbour"].contains(&word.as_str()));
    let hardware = Hardware::ready_made(name.map_or("xeon-gold-6430-cxl", |name| name))
        .expect("a ready-made machine");
    if words.iter().any(|word| word == "capacity") {
        return capacity(&hardware);
    }
    if words.iter().any(|word| word == "neighbour") {
        return neighbours();
    }
    println!("{}; model: {}", processor(), hardware.name);
    println!("| set | ms | host | spread | touched | model | host - model |");
    println!("|---|---|---|---|---|---|---|");
    for mib in SETS_MIB {
        let runs: Vec<(Row, Row)> = (0..REPEATS).map(|_| measure(mib)).collect();
        let model = simulate(&hardware, mib);
        for (at, after) in AFTER_MS.into_iter().enumerate() {
            let mean = |of: fn(&(Row, Row)) -> &Row| {
                runs.iter().map(|run| of(run)[at]).sum::<f64>() / REPEATS as f64
            };
            let (set, touched) = (mean(|run| &run.0), mean(|run| &run.1));
            let most = runs.iter().map(|run| (run.0[at] - set).abs()).fold(0.0, f64::max);
            let by = set - model[at];
            println!(
                "| {mib} MiB | {after} | {set:.2} | {most:.2} | {touched:.2} | {:.2} | {by:+.2} |",
                model[at]
            );
        }
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.and_then(|line| line.split(": ").nth(1)).unwrap_or("?").to_owned()
    };
    format!("{}, family {}, model {}", of("model name"), of("cpu family"), of("model\t"))
}

/// Pages of a set, and whether a round touched each of them.
struct Set {
    bytes: Vec<u8>,
    touched: Vec<bool>,
    rng: Rng,
}

impl Set {
    fn new(mib: u64) -> Self {
        let bytes = vec![1u8; (mib << 20) as usize];
        let touched = vec![false; bytes.len() / PAGE];
        Self { bytes, touched, rng: Rng::seeded(mib) }
    }

    /// Reads at the fixed rate for `time`.
    fn read(&mut self, time: Duration) {
        let (began, pages) = (Instant::now(), self.touched.len() as u64);
        let mut done = 0;
        loop {
            let passed = began.elapsed();
            if passed >= time {
                return;
            }
            let due = passed.as_nanos() as u64 * RATE / 1_000_000_000;
            while done < due {
                let page = self.rng.below(pages) as usize;
                black_box(self.bytes[page * PAGE + 64 * (page % 64)]);
                self.touched[page] = true;
                done += 1;
            }
        }
    }

    /// Share of the set's bytes that are referenced again, according to the kernel.
    fn referenced(&self) -> f64 {
        let at = self.bytes.as_ptr() as usize + self.bytes.len() / 2;
        let text = fs::read_to_string("/proc/self/smaps").expect("smaps of our own");
        let (mut inside, mut kib) = (false, 0.0);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                let hex = |text: &str| usize::from_str_radix(text, 16).unwrap_or(0);
                inside = (hex(from)..hex(to)).contains(&at);
            } else if inside && first == "Referenced:" {
                kib = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
            }
        }
        kib * 1024.0 / self.bytes.len() as f64
    }
}

/// Number of times that another thread preempted this one.
fn switches() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("status of our own");
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Shares of the set that are referenced again, and that were touched, by time. Rounds in which
/// another thread ran on the core are repeated, up to a limit.
fn measure(mib: u64) -> (Row, Row) {
    let mut set = Set::new(mib);
    let (mut again, mut touched) = ([0.0; 4], [0.0; 4]);
    for (at, after) in AFTER_MS.into_iter().enumerate() {
        let (mut rounds, mut patience) = (0, 8 * ROUNDS);
        while rounds < ROUNDS {
            set.read(Duration::from_millis(30));
            set.touched.fill(false);
            fs::write("/proc/self/clear_refs", "1").expect("clear_refs of our own");
            let before = switches();
            set.read(Duration::from_millis(after));
            patience = usize::saturating_sub(patience, 1);
            if switches() > before && patience > 0 {
                continue;
            }
            rounds += 1;
            again[at] += set.referenced() / ROUNDS as f64;
            let count = set.touched.iter().filter(|touched| **touched).count();
            touched[at] += count as f64 / set.touched.len() as f64 / ROUNDS as f64;
        }
    }
    (again, touched)
}

/// Predicts these shares with the exact machine.
fn simulate(hardware: &Hardware, mib: u64) -> Row {
    let mut costs = Costs::ready_made("linux").expect("they are there");
    let bits = &mut costs.access_bits;
    (bits.call_ns, bits.probe_ns, bits.entry_ns, bits.clear_ns) = (0, 0, 0, 0);
    bits.reads = false;
    let setup = Setup { detail: Detail::Caches, ..Setup::new(hardware.clone(), costs) };
    let mut machine = Machine::new(&setup).expect("it is possible");
    let spec = format!("contiguous:space={mib}MiB,hot={mib}MiB,rate={RATE}");
    let workload = from_spec(&spec).expect("it is possible");
    let process = Process { populate: true, pages: PageSize::K4, ..Process::new(workload) };
    let space = machine.start(&process).expect("there is memory");
    machine.wait(Time(0));
    let range = Range::new(space, 1 << 32, (1 << 32) + (mib << 20));
    let mut row = [0.0; 4];
    for _ in 0..ROUNDS {
        for (at, after) in AFTER_MS.into_iter().enumerate() {
            pass(&mut machine, 50);
            let _ = scan(&mut machine, &range, true);
            pass(&mut machine, after);
            row[at] += scan(&mut machine, &range, false) / ROUNDS as f64;
        }
    }
    row
}

fn pass(machine: &mut Machine, milliseconds: u64) {
    let until = machine.now() + Duration::from_millis(milliseconds);
    machine.wait(until);
}

fn scan(machine: &mut Machine, range: &Range, clear: bool) -> f64 {
    let (mode, mut set) = (ScanMode { clear, ..ScanMode::default() }, AccessedSet::default());
    machine.scan(range, Level::PTE, mode, &mut set).expect("it is mapped");
    set.young_count() as f64 / set.entries() as f64
}

/// Load of the other CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    Nothing,
    Computes,
    Reads,
}

/// Measures the sets that may fit a TLB, with each load of the other CPU.
fn neighbours() {
    println!("| set | neighbour | repetition | 1 ms | 5 ms | 20 ms | 100 ms |");
    println!("|---|---|---|---|---|---|---|");
    for mib in [2, 4, 6] {
        for repetition in 1..=REPEATS {
            for other in [Other::Nothing, Other::Computes, Other::Reads] {
                let stop = AtomicBool::new(false);
                let [a, b, c, d] = std::thread::scope(|scope| {
                    scope.spawn(|| disturb(other, &stop));
                    pin(1);
                    let (row, _) = measure(mib);
                    stop.store(true, Ordering::Relaxed);
                    row
                });
                println!(
                    "| {mib} MiB | {other:?} | {repetition} | {a:.2} | {b:.2} | {c:.2} | {d:.2} |"
                );
            }
        }
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("there are two CPUs");
}

fn disturb(other: Other, stop: &AtomicBool) {
    pin(0);
    let bytes = vec![1u8; if other == Other::Reads { 256 << 20 } else { PAGE }];
    let (mut rng, pages) = (Rng::seeded(9), (bytes.len() / PAGE) as u64);
    while other != Other::Nothing && !stop.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            black_box(bytes[rng.below(pages) as usize * PAGE]);
        }
    }
}

/// Predictions for a core with only a part of its second-level TLB.
fn capacity(hardware: &Hardware) {
    println!("| set | second-level TLB | 1 ms | 5 ms | 20 ms | 100 ms |");
    println!("|---|---|---|---|---|---|");
    for mib in SETS_MIB {
        for part in [1, 2, 4] {
            for random in [false, true] {
                let mut hardware = hardware.clone();
                let array = &mut hardware.translation.l2[0];
                array.entries /= part;
                if random {
                    array.replacement = Replacement::Random { seed: 1 };
                }
                let [a, b, c, d] = simulate(&hardware, mib);
                let (entries, how) =
                    (hardware.translation.l2[0].entries, if random { "random" } else { "LRU" });
                println!("| {mib} MiB | {entries}, {how} | {a:.2} | {b:.2} | {c:.2} | {d:.2} |");
            }
        }
    }
}
