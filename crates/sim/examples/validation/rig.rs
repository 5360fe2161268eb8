//! A load on a tier of an exact machine, and the latency that a thread of dependent accesses sees
//! next to it.

use std::time::Duration;

use tierscope_core::{Clock, Result, Tier, Time};
use tierscope_hw::config::{Medium, MemoryTier};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Account, Machine, Placement, Process, Setup};
use tierscope_workloads::generate;

/// Simulated time before and of a measurement.
const WARM: Time = Time(300_000);
const TIME: Time = Time(1_000_000);
/// MiB of each tier here; figures do not depend on it.
const MIB: u64 = 1 << 20;
/// Bytes of a load's memory.
const AREA: &str = "space=32GiB,hot=32GiB";

/// A load on a tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) threads: u32,
    /// In sequence, by bytes; `None` for random lines.
    pub(crate) stride: Option<u64>,
    /// Share of the lines at the memory that are written; 1 for stores that bypass the caches.
    pub(crate) written: f64,
    /// Lines a second that all threads request; `None` for as many as possible.
    pub(crate) rate: Option<u64>,
    pub(crate) tier: usize,
    /// Each store waits for the one before, as with a fence.
    pub(crate) fenced: bool,
    pub(crate) pages: PageSize,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) gb_s: f64,
    pub(crate) latency_ns: f64,
}

/// Hardware with these tiers; the rest is that of a ready-made machine.
pub(crate) fn hardware(template: &str, tiers: Vec<MemoryTier>) -> Result<Hardware> {
    let mut hardware = Hardware::ready_made(template)?;
    // Threads of a load have cores of their own.
    (hardware.processor.sockets, hardware.processor.cores) = (4, 64);
    hardware.tiers = tiers;
    hardware.tiers.iter_mut().for_each(|tier| tier.mib = MIB);
    Ok(hardware)
}

/// A tier of a ready-made machine with given latency, bandwidth and channels.
pub(crate) fn tier(
    template: &str,
    at: usize,
    (ns, gb_s, channels): (f64, f64, u32),
) -> Result<MemoryTier> {
    let mut tier = Hardware::ready_made(template)?.tiers.remove(at);
    let mib_s = (gb_s * 1e9 / 1_048_576.0) as u64;
    (tier.read_ns, tier.write_ns) = (ns as u32, tier.write_ns.min(ns as u32));
    (tier.read_mib_s, tier.write_mib_s) = (mib_s, mib_s);
    // Its own numbers lie outside of the template's ranges.
    tier.ranges.clear();
    tier.medium.ranges.clear();
    tier.medium = Medium { channels, ..tier.medium };
    Ok(tier)
}

fn process(name: &str, spec: &str, tier: usize) -> Result<Process> {
    Ok(Process {
        name: name.into(),
        pages: PageSize::G1,
        populate: true,
        placement: Placement::Bind(Tier(tier as u8)),
        ..Process::new(generate::from_spec(spec)?)
    })
}

/// The processes of a load.
pub(crate) fn load(load: &Load) -> Result<Process> {
    let stride = load.stride.map_or(String::new(), |stride| format!(",stride={stride}B"));
    let bypasses = load.written >= 1.0;
    // A store to a cached line reads it, and writes it back later.
    let writes = if bypasses { 1.0 } else { (load.written / (1.0 - load.written)).min(1.0) };
    let rate = load.rate.map_or(String::new(), |rate| format!(",rate={rate}"));
    let spec = format!("contiguous:{AREA},writes={writes:.4}{stride}{rate}");
    let process = process("load", &spec, load.tier)?;
    let overlap = load.fenced.then_some(1);
    let (threads, pages) = (load.threads, load.pages);
    Ok(Process { threads, pages, overlap, non_temporal: bypasses, ..process })
}

/// A thread of dependent accesses to a tier, on the core after those of the load.
fn chase(tier: usize, cpu: u32) -> Result<Process> {
    let spec = "contiguous:space=1GiB,hot=1GiB,chase=true";
    Ok(Process { first_cpu: cpu, ..process("chase", spec, tier)? })
}

/// Runs processes; returns the accounts at the end of the warm-up and of the measurement.
pub(crate) fn run(hardware: &Hardware, processes: &[Process]) -> Result<[Account; 2]> {
    let mut setup = Setup::new(hardware.clone(), Costs::ready_made("linux")?);
    setup.cpus =
        processes.iter().map(|process| process.first_cpu + process.threads).max().unwrap_or(1);
    setup.quantum = Duration::from_micros(2);
    let mut machine = Machine::new(&setup)?;
    for process in processes {
        machine.start(process)?;
    }
    let accounts = [WARM, Time(WARM.0 + TIME.0)].map(|until| {
        while machine.now() < until {
            machine.wait(until);
        }
        machine.account()
    });
    Ok(accounts)
}

/// Lines a second that a tier moved.
pub(crate) fn gb_s([before, after]: &[Account; 2], tier: usize) -> f64 {
    let lines = |account: &Account| account.lines_read[tier] + account.lines_written[tier];
    (lines(after) - lines(before)) as f64 * 64.0 / TIME.0 as f64
}

/// Operations of a process in the measured time.
pub(crate) fn operations([before, after]: &[Account; 2], process: usize) -> u64 {
    after.done[process].operations - before.done[process].operations
}

/// Bandwidth of a load, and the latency next to it.
pub(crate) fn measure(hardware: &Hardware, what: &Load) -> Result<Measured> {
    let accounts = run(hardware, &[load(what)?, chase(what.tier, what.threads)?])?;
    let links = operations(&accounts, 1).max(1);
    Ok(Measured {
        // The links are of the tier as well.
        gb_s: gb_s(&accounts, what.tier) - links as f64 * 64.0 / TIME.0 as f64,
        latency_ns: TIME.0 as f64 / links as f64,
    })
}

/// Latency over bandwidth: at parts of a full load, and without a limit.
pub(crate) fn curve(hardware: &Hardware, what: &Load) -> Result<Vec<Measured>> {
    let full = hardware.tiers[what.tier].read_mib_s as f64 * 1_048_576.0 / 64.0;
    let parts = [0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96];
    let reads = (1.0 - what.written).max(0.3);
    let mut points = Vec::new();
    for part in parts {
        let rate = Some((full * part * reads) as u64);
        points.push(measure(hardware, &Load { rate, ..*what })?);
    }
    points.push(measure(hardware, what)?);
    points.sort_by(|a, b| a.gb_s.total_cmp(&b.gb_s));
    Ok(points)
}

/// The latency of a curve at a bandwidth; `None` beyond its end.
pub(crate) fn latency_at(curve: &[Measured], gb_s: f64) -> Option<f64> {
    let next = curve.iter().position(|point| point.gb_s >= gb_s)?;
    let above = curve[next];
    let Some(below) = next.checked_sub(1).map(|at| curve[at]) else {
        return Some(above.latency_ns);
    };
    let part = (gb_s - below.gb_s) / (above.gb_s - below.gb_s).max(1e-9);
    Some(below.latency_ns + part * (above.latency_ns - below.latency_ns))
}
