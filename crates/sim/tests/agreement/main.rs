//! Agreement of the two modes: the same hardware and workload, once access by access and once by
//! densities. Each test states the allowed differences and their reasons; samples are printed, so
//! that `cargo test -p tierscope-sim --test agreement -- --nocapture` gives the table.

mod grid;
mod instruments;
mod speed;
mod young;

use std::time::Duration;

use tierscope_core::{Clock, RangeSet, SpaceId, Tier, Time};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::{Costs, Sampling};
use tierscope_sim::{density, exact};
use tierscope_workloads::Workload;
use tierscope_workloads::generate::from_spec;

/// Address of the first area in exact mode.
const BASE: u64 = 1 << 32;

/// Configuration of both machines.
struct Case {
    hardware: Hardware,
    workload: Workload,
    placement: exact::Placement,
    threads: u32,
    overlap: Option<u32>,
    seed: u64,
    flush: Option<Duration>,
    tick: Option<Duration>,
    huge: bool,
    /// Probes and scans take no time.
    free: bool,
    sampling: Option<Sampling>,
}

impl Case {
    /// One thread of a workload on Telescope's platform with these MiB of DRAM and of Optane.
    fn new(spec: &str, mib: [u64; 2]) -> Self {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        hardware.tiers.iter_mut().zip(mib).for_each(|(tier, mib)| tier.mib = mib);
        Self {
            hardware,
            workload: from_spec(spec).unwrap(),
            placement: exact::Placement::FirstTouch,
            threads: 1,
            overlap: None,
            seed: 1,
            flush: None,
            tick: Some(Duration::from_millis(4)),
            huge: false,
            free: false,
            sampling: None,
        }
    }

    fn costs(&self) -> Costs {
        let mut costs = Costs::ready_made("linux").unwrap();
        if self.free {
            let bits = &mut costs.access_bits;
            (bits.call_ns, bits.probe_ns, bits.entry_ns, bits.clear_ns) = (0, 0, 0, 0);
            bits.reads = false;
        }
        costs
    }

    fn exact(&self) -> exact::Machine {
        let mut setup = exact::Setup::new(self.hardware.clone(), self.costs());
        setup.cpus = self.threads;
        setup.flush = self.flush;
        setup.tick = self.tick;
        setup.sampling = self.sampling.clone();
        let mut machine = exact::Machine::new(&setup).unwrap();
        let process = exact::Process {
            threads: self.threads,
            seed: self.seed,
            overlap: self.overlap,
            placement: self.placement.clone(),
            populate: true,
            pages: if self.huge { PageSize::M2 } else { PageSize::K4 },
            ..exact::Process::new(self.workload.clone())
        };
        machine.start(&process).unwrap();
        machine.wait(Time(0));
        machine
    }

    fn density(&self) -> density::Machine {
        let config = density::Config {
            seed: self.seed,
            cores: self.threads,
            overlap: self.overlap,
            placement: self.placement.clone(),
            sampling: self.sampling.clone(),
            first: BASE,
            flush: self.flush,
            tick: self.tick,
            huge: self.huge,
            rate: None,
            ..density::Config::of(&self.hardware, self.costs())
        };
        density::Machine::new(config, &self.workload).unwrap()
    }

    fn hot_at(&self, time: Time) -> RangeSet {
        let segment = self.workload.segment_at(Duration::from_nanos(time.0));
        self.workload.hot_at(&segment, &[BASE], SpaceId(0))
    }
}

/// Lets time pass; repeats the wait if the machine wakes up earlier.
fn pass(machine: &mut impl Clock, nanos: u64) {
    let until = machine.now() + Duration::from_nanos(nanos);
    while machine.now() < until {
        machine.wait(until);
    }
}

const FAST: Tier = Tier(0);
const SLOW: Tier = Tier(1);
const MILLISECOND: u64 = 1_000_000;
