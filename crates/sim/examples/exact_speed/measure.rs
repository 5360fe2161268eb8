//! Access rates of one machine, and of the naive loop.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{BusObserver, BusRecord, Clock, Error, ErrorKind, Result};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::config::{Costs, Period, Sampling};
use tierscope_sim::exact::{Detail, Machine, Process, Setup};
use tierscope_workloads::{Program, Stream, Touch, Workload};

/// Detail of the machine, increasing from layer to layer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Layer {
    Translation,
    /// Translation and caches.
    Caches,
    /// Translation, caches, tiers and clocks.
    Whole,
    /// The whole machine, with samples of loads and stores.
    Sampled,
    /// The whole machine, with samples and a bus observer.
    Observed,
}

/// CPU time of this thread so far.
pub(crate) fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Counts records, so that none is optimised away.
struct Counter(u64);

impl BusObserver for Counter {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.0 += batch.len() as u64;
    }
}

/// A machine whose first tier holds `bytes` and their page tables.
pub(crate) fn setup(bytes: u64, layer: Layer) -> Result<Setup> {
    let mut hardware = Hardware::ready_made("xeon-gold-6238m")?;
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

/// Slices of a measurement; their median is reported.
pub(crate) const SLICES: u32 = 9;

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Millions of accesses a second of host CPU time; simulated time advances in steps like those of
/// an instrument.
fn slice<B: BusObserver>(machine: &mut Machine<B>, time: Duration) -> f64 {
    let before = machine.account().counts.accesses;
    let began = cpu_time();
    while cpu_time() - began < time {
        machine.wait(machine.now() + Duration::from_micros(500));
    }
    let done = machine.account().counts.accesses - before;
    done as f64 / (cpu_time() - began).as_secs_f64() / 1e6
}

/// The rate of a machine with this detail, and its ratio to the loop's. Both run alternately, so
/// that disturbances hit both.
pub(crate) fn layer(
    workload: &Workload,
    bytes: u64,
    layer: Layer,
    time: Duration,
) -> Result<(f64, f64)> {
    let setup = setup(bytes, layer)?;
    if layer == Layer::Observed {
        return begun(Machine::observed(&setup, Counter(0))?, workload, bytes, time);
    }
    begun(Machine::new(&setup)?, workload, bytes, time)
}

fn begun<B: BusObserver>(
    mut machine: Machine<B>,
    workload: &Workload,
    bytes: u64,
    time: Duration,
) -> Result<(f64, f64)> {
    machine.start(&Process { populate: true, ..Process::new(workload.clone()) })?;
    let mut naive = Naive::new(workload, bytes);
    slice(&mut machine, time / 4);
    let turn = |_| {
        let baseline = naive.slice(time / SLICES / 2);
        let rate = slice(&mut machine, time / SLICES);
        (rate, rate / baseline)
    };
    let (rates, ratios) = (0..SLICES).map(turn).unzip();
    Ok((median(rates), median(ratios)))
}

/// Resident MiB of this process.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64 / f64::from(1 << 20))
}

/// MiB of host memory for each populated TiB.
pub(crate) fn footprint(workload: &Workload, bytes: u64) -> Result<f64> {
    let unknown = || {
        Error::new(ErrorKind::Other, "this process does not know its size")
            .cause("/proc/self/statm cannot be read")
            .remedy("measure on Linux")
    };
    let before = resident().ok_or_else(unknown)?;
    let mut machine = Machine::new(&setup(bytes, Layer::Translation)?)?;
    machine.start(&Process { populate: true, ..Process::new(workload.clone()) })?;
    let taken = resident().ok_or_else(unknown)? - before;
    Ok(taken / (bytes as f64 / (1u64 << 40) as f64))
}

/// The naive loop: draws the same accesses and marks their pages.
struct Naive {
    stream: Stream,
    young: Vec<u8>,
    batch: Vec<Touch>,
}

impl Naive {
    fn new(workload: &Workload, bytes: u64) -> Self {
        Self {
            stream: Stream::new(&Arc::new(Program::new(workload)), &[0], 1, 0, 1),
            young: vec![1; (bytes >> 12) as usize],
            batch: vec![Touch::default(); 256],
        }
    }

    fn slice(&mut self, time: Duration) -> f64 {
        let (began, mut done) = (cpu_time(), 0u64);
        while cpu_time() - began < time {
            for _ in 0..64 {
                self.stream.fill(&mut self.batch);
                for touch in &self.batch {
                    self.young[(touch.address() >> 12) as usize] |= 2;
                }
                done += self.batch.len() as u64;
            }
        }
        black_box(&self.young);
        done as f64 / (cpu_time() - began).as_secs_f64() / 1e6
    }
}

/// The naive loop's rate.
pub(crate) fn naive(workload: &Workload, bytes: u64, time: Duration) -> f64 {
    let mut naive = Naive::new(workload, bytes);
    median((0..SLICES).map(|_| naive.slice(time / SLICES)).collect())
}
