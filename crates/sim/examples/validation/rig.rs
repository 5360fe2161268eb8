//! A load on a tier of an exact machine, and the latency that a thread of dependent accesses sees
//! next to it.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tierscope_core::{Clock, Error, ErrorKind, Result, Tier, Time};
use tierscope_hw::config::{Medium, MemoryTier, Ranges};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Account, Machine, Placement, Process, Setup};
use tierscope_workloads::generate;

/// Simulated time before a measurement.
const WARM: Time = Time(300_000);
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

/// An uncertain number of the machine files, at an end of its range there.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) high: bool,
}

impl Change {
    /// `table` with the number changed, if it is uncertain there.
    fn apply<T: Serialize + DeserializeOwned>(&self, table: T, ranges: &Ranges) -> Result<T> {
        let Some([low, high]) = ranges.get(&self.key) else { return Ok(table) };
        let value = if self.high { *high } else { *low };
        let wrong = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Data, format!("{} = {value}", self.key)).cause(error)
        };
        let mut keys = toml::Table::try_from(table).map_err(|error| wrong(&error))?;
        keys.insert(self.key.clone(), toml::Value::Integer(value as i64));
        keys.try_into().map_err(|error| wrong(&error))
    }
}

/// How loads are measured.
#[derive(Clone, Debug)]
pub(crate) struct Rig {
    /// Simulated time of a measurement.
    pub(crate) time: Time,
    pub(crate) change: Option<Change>,
}

/// Accounts at the end of the warm-up and of the measurement.
pub(crate) struct Ran {
    accounts: [Account; 2],
    ns: f64,
}

impl Ran {
    /// Lines a second that a tier moved.
    pub(crate) fn gb_s(&self, tier: usize) -> f64 {
        let lines = |account: &Account| account.lines_read[tier] + account.lines_written[tier];
        let [before, after] = &self.accounts;
        (lines(after) - lines(before)) as f64 * 64.0 / self.ns
    }

    /// Operations of a process in the measured time.
    pub(crate) fn operations(&self, process: usize) -> u64 {
        let [before, after] = &self.accounts;
        after.done[process].operations - before.done[process].operations
    }
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

impl Rig {
    /// Hardware with these tiers; the rest is that of a ready-made machine.
    pub(crate) fn hardware(&self, template: &str, tiers: Vec<MemoryTier>) -> Result<Hardware> {
        let mut hardware = Hardware::ready_made(template)?;
        if let Some(change) = &self.change {
            let ranges = hardware.timing.ranges.clone();
            hardware.timing = change.apply(hardware.timing, &ranges)?;
        }
        // Threads of a load have cores of their own.
        (hardware.processor.sockets, hardware.processor.cores) = (4, 64);
        hardware.tiers = tiers;
        hardware.tiers.iter_mut().for_each(|tier| tier.mib = MIB);
        Ok(hardware)
    }

    /// A tier of a ready-made machine with given latency, bandwidth and channels.
    pub(crate) fn tier(
        &self,
        template: &str,
        at: usize,
        (ns, gb_s, channels): (f64, f64, u32),
    ) -> Result<MemoryTier> {
        let mut tier = Hardware::ready_made(template)?.tiers.remove(at);
        if let Some(change) = &self.change {
            let ranges = tier.medium.ranges.clone();
            tier.medium = change.apply(tier.medium, &ranges)?;
        }
        let mib_s = (gb_s * 1e9 / 1_048_576.0) as u64;
        (tier.read_ns, tier.write_ns) = (ns as u32, tier.write_ns.min(ns as u32));
        (tier.read_mib_s, tier.write_mib_s) = (mib_s, mib_s);
        // Its own numbers lie outside of the template's ranges.
        tier.ranges.clear();
        tier.medium.ranges.clear();
        tier.medium = Medium { channels, ..tier.medium };
        Ok(tier)
    }

    /// Runs processes.
    pub(crate) fn run(&self, hardware: &Hardware, processes: &[Process]) -> Result<Ran> {
        let mut setup = Setup::new(hardware.clone(), Costs::ready_made("linux")?);
        setup.cpus =
            processes.iter().map(|process| process.first_cpu + process.threads).max().unwrap_or(1);
        setup.quantum = Duration::from_micros(2);
        let mut machine = Machine::new(&setup)?;
        for process in processes {
            machine.start(process)?;
        }
        let accounts = [WARM, Time(WARM.0 + self.time.0)].map(|until| {
            while machine.now() < until {
                machine.wait(until);
            }
            machine.account()
        });
        Ok(Ran { accounts, ns: self.time.0 as f64 })
    }

    /// Bandwidth of a load, and the latency next to it.
    pub(crate) fn measure(&self, hardware: &Hardware, what: &Load) -> Result<Measured> {
        let ran = self.run(hardware, &[load(what)?, chase(what.tier, what.threads)?])?;
        let links = ran.operations(1).max(1) as f64;
        Ok(Measured {
            // The links are of the tier as well.
            gb_s: ran.gb_s(what.tier) - links * 64.0 / ran.ns,
            latency_ns: ran.ns / links,
        })
    }

    /// Latency over bandwidth: at parts of a full load, and without a limit.
    pub(crate) fn curve(&self, hardware: &Hardware, what: &Load) -> Result<Vec<Measured>> {
        let full = hardware.tiers[what.tier].read_mib_s as f64 * 1_048_576.0 / 64.0;
        let parts = [0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.96];
        let reads = (1.0 - what.written).max(0.3);
        let mut points = Vec::new();
        for part in parts {
            let rate = Some((full * part * reads) as u64);
            points.push(self.measure(hardware, &Load { rate, ..*what })?);
        }
        points.push(self.measure(hardware, what)?);
        points.sort_by(|a, b| a.gb_s.total_cmp(&b.gb_s));
        Ok(points)
    }
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
