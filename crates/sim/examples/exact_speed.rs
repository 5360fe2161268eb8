//! How fast the exact machine is, layer by layer, beside a naive loop over the same accesses:
//! `cargo run --release -p tierscope-sim --example exact_speed [-- SECONDS [PATTERN…]]`; and how much of
//! the host's memory a populated terabyte takes.
//!
//! The naive loop draws the same accesses and marks each page in a flat array of a byte a page. Page
//! tables are populated before the clock starts; every layer begins with a fresh machine. Time is CPU
//! time of the thread, so that a busy host disturbs less.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{BusObserver, BusRecord, Clock, Result};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::config::{Costs, Period, Sampling};
use tierscope_sim::exact::{Detail, Machine, Process, Setup};
use tierscope_workloads::{Program, Stream, Touch, Workload, generate};

/// Name, workload, bytes, and the bars in M/s: translation, whole machine.
const PATTERNS: [(&str, &str, u64, [f64; 2]); 4] = [
    ("TLB-friendly", "contiguous:space=128KiB,hot=128KiB", 128 << 10, [250.0, 120.0]),
    ("1 TiB hotspot", "contiguous:space=1TiB,hot=10GiB,share=0.99,burst=1", 1 << 40, [70.0, 25.0]),
    ("1 TiB uniform", "contiguous:space=1TiB,hot=1TiB", 1 << 40, [30.0, 15.0]),
    ("4 TiB uniform", "contiguous:space=4TiB,hot=4TiB", 4 << 40, [25.0, 12.0]),
];

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What is modelled, from layer to layer.
#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Translation,
    Caches,
    Whole,
    Sampled,
    Observed,
}

const LAYERS: [(Layer, &str); 5] = [
    (Layer::Translation, "translation"),
    (Layer::Caches, "+ caches"),
    (Layer::Whole, "+ tiers, clocks"),
    (Layer::Sampled, "+ samples"),
    (Layer::Observed, "+ bus observer"),
];

/// Counts records, so that none is optimised away.
struct Counter(u64);

impl BusObserver for Counter {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.0 += batch.len() as u64;
    }
}

fn setup(bytes: u64, layer: Layer) -> Result<Setup> {
    let mut hardware = Hardware::ready_made("xeon-gold-6238m")?;
    // Everything fits, and page tables too.
    hardware.tiers[0].mib = (bytes >> 20) + (bytes >> 28) + 4096;
    let mut setup = Setup::new(hardware, Costs::ready_made("linux")?);
    setup.detail = match layer {
        Layer::Translation => Detail::Translation,
        Layer::Caches => Detail::Caches,
        _ => Detail::Whole,
    };
    if matches!(layer, Layer::Sampled | Layer::Observed) {
        setup.sampling = Some(Sampling::loads_and_stores(Period::PerSecond(5000)));
    }
    Ok(setup)
}

/// Millions of accesses a second of the host; simulated time goes on in steps as an instrument's
/// does.
fn measure<B: BusObserver>(machine: &mut Machine<B>, time: Duration) -> f64 {
    let mut until = machine.now();
    let before = machine.account().counts.accesses;
    let began = cpu_time();
    while cpu_time() - began < time {
        until += Duration::from_micros(500);
        machine.wait(until);
    }
    let done = machine.account().counts.accesses - before;
    done as f64 / (cpu_time() - began).as_secs_f64() / 1e6
}

fn layer(workload: &Workload, bytes: u64, layer: Layer, time: Duration) -> Result<f64> {
    let setup = setup(bytes, layer)?;
    let process = Process { populate: true, ..Process::new(workload.clone()) };
    if layer == Layer::Observed {
        let mut machine = Machine::observed(&setup, Counter(0))?;
        machine.start(&process)?;
        measure(&mut machine, time / 4);
        return Ok(measure(&mut machine, time));
    }
    let mut machine = Machine::new(&setup)?;
    machine.start(&process)?;
    measure(&mut machine, time / 4);
    Ok(measure(&mut machine, time))
}

/// MiB of this process that are resident.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64 / f64::from(1 << 20))
}

/// MiB of the host that a machine takes for each TiB that is populated.
fn footprint(workload: &Workload, bytes: u64) -> Result<Option<f64>> {
    let before = resident();
    let mut machine = Machine::new(&setup(bytes, Layer::Translation)?)?;
    machine.start(&Process { populate: true, ..Process::new(workload.clone()) })?;
    let taken = resident().zip(before).map(|(after, before)| after - before);
    Ok(taken.map(|mib| mib / (bytes as f64 / (1u64 << 40) as f64)))
}

fn naive(workload: &Workload, bytes: u64, time: Duration) -> f64 {
    let mut stream = Stream::new(&Arc::new(Program::new(workload)), &[0], 1, 0, 1);
    let mut young = vec![1u8; (bytes >> 12) as usize];
    let mut batch = vec![Touch::default(); 256];
    let (began, mut done) = (cpu_time(), 0u64);
    while cpu_time() - began < time {
        for _ in 0..64 {
            stream.fill(&mut batch);
            batch.iter().for_each(|touch| young[(touch.address() >> 12) as usize] |= 2);
            done += batch.len() as u64;
        }
    }
    black_box(&young);
    done as f64 / (cpu_time() - began).as_secs_f64() / 1e6
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let wanted: Vec<String> = args.collect();
    println!("{:<16}{:<18}{:>8}{:>8}{:>8}", "pattern", "layer", "M/s", "ratio", "bar");
    for (name, spec, bytes, bars) in PATTERNS {
        if !wanted.is_empty() && !wanted.iter().any(|text| name.contains(text.as_str())) {
            continue;
        }
        let workload = generate::from_spec(spec)?;
        if bytes >= 1 << 40 {
            let mib = footprint(&workload, bytes)?.unwrap_or(f64::NAN);
            println!("{name:<16}{:<18}{mib:>8.0}{:>8}{:>8.0}", "MiB per TiB", "", 1.2 * 1024.0);
        }
        let loop_rate = naive(&workload, bytes, time);
        println!("{name:<16}{:<18}{loop_rate:>8.1}", "naive loop");
        for (which, label) in LAYERS {
            let rate = layer(&workload, bytes, which, time)?;
            let bar = match which {
                Layer::Translation => format!("{:.0}", bars[0]),
                Layer::Whole => format!("{:.0}", bars[1]),
                _ => String::new(),
            };
            println!("{name:<16}{label:<18}{rate:>8.1}{:>8.2}{bar:>8}", rate / loop_rate);
        }
    }
    Ok(())
}
