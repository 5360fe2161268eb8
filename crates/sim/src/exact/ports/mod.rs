//! The machine's ports for instruments and policies.

mod access_bits;
mod armed;
mod mover;
mod placement;
mod view;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tierscope_core::{
    AccessBits, BusObserver, Clock, Counters, CpuTime, FrameRun, Frames, HintFault, HintFaults,
    HotLists, Lost, Mappings, Missing, PageEvent, PageEvents, PlacementView, Ports, Pressure,
    Range, Residence, Result, Sample, Samples, Target, Tier, TierPressure, Time, Wake,
};
use tierscope_hw::entry::FRAME_MASK;

use crate::exact::Machine;
use crate::exact::units::{NS, duration};

/// While a monitoring unit may interrupt, time passes by this much at once, in ps.
const INTERRUPTED: u64 = 1_000_000 * NS;

pub(super) use armed::Armed;
pub(super) use mover::Moves;
pub use view::Entry;

impl<B: BusObserver> Clock for Machine<B> {
    fn now(&self) -> Time {
        self.time()
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Wake::Stop;
        }
        self.charge_registers();
        let until = until.0.saturating_mul(NS).max(self.now);
        while self.now < until && self.broken.is_none() && !self.os.has_target_changed() {
            let before = self.now;
            let now = self.time();
            let interrupts = self.memory.bus.observer.interrupt(now).is_some();
            let end = if interrupts { until.min(before + INTERRUPTED) } else { until };
            self.run_until(end);
            if interrupts && self.is_interrupted() {
                return Wake::Event;
            }
            if self.now == before && !self.os.has_target_changed() {
                break;
            }
        }
        if self.broken.is_some() {
            return Wake::Stop;
        }
        match (self.os.take_target_changed(), self.os.alive_spaces()) {
            (true, 0) => Wake::Gone,
            (true, _) => Wake::TargetChanged,
            (false, _) => Wake::Deadline,
        }
    }
}

impl<B: BusObserver> Target for Machine<B> {
    fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => Ok(self.os.layout(self.time())),
        }
    }

    fn cpu_time(&self) -> CpuTime {
        let spent = self.account().spent;
        CpuTime {
            profiler: spent.telemetry + spent.interrupts + spent.policy,
            target: spent.target,
        }
    }
}

impl<B: BusObserver> Samples for Machine<B> {
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost {
        let first = out.len();
        let lost =
            self.cpus.iter_mut().filter_map(|cpu| cpu.pmu.as_mut()).map(|pmu| pmu.drain(out));
        let lost = Lost(lost.sum());
        out[first..].sort_by_key(|sample| sample.time);
        let read = (out.len() - first) as u64;
        self.samples += read + lost.0;
        self.spend(read * self.costs.samples.read_ns * NS);
        lost
    }
}

impl<B: BusObserver> HintFaults for Machine<B> {
    fn arm(&mut self, ranges: &[Range]) -> Result<()> {
        for range in ranges {
            let stale = self.os.arm(*range);
            self.armed.arm(range, self.time());
            self.armed_pages += stale.pages;
            let work = stale.pages * self.costs.faults.arm_ns * NS + self.shoot(stale);
            self.spend(work);
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Vec<HintFault>) -> Lost {
        let first = out.len();
        let lost = self.hint_faults.drain(out);
        out[first..].sort_by_key(|fault| fault.time);
        lost
    }
}

impl<B: BusObserver> PageEvents for Machine<B> {
    fn drain(&mut self, out: &mut Vec<PageEvent>) -> Lost {
        let first = out.len();
        let lost = self.os.events.drain(out);
        out[first..].sort_by_key(|event| event.time);
        lost
    }
}

/// Costs as much as a scan of the entries, since it reads them (fs/proc/task_mmu.c,
/// `pagemap_read`).
impl<B: BusObserver> Frames for Machine<B> {
    fn locate(&mut self, range: &Range, out: &mut Vec<FrameRun>) -> Result<()> {
        let (mut at, mut entries) = (range.start, 0);
        while at < range.end
            && let Some((head, leaf)) = self.os.next_leaf(*range, at)
        {
            let end = head + leaf.level.entry_bytes();
            let there = Range::new(range.space, head.max(range.start), end.min(range.end));
            let frame = (leaf.entry & FRAME_MASK) + (there.start - head);
            FrameRun { range: there, frame }.append_to(out);
            (at, entries) = (end, entries + 1);
        }
        let costs = &self.costs.access_bits;
        self.spend((costs.call_ns + entries * costs.entry_ns) * NS);
        Ok(())
    }
}

impl<B: BusObserver> Machine<B> {
    /// The profiler works for `time` ps, while all other cores go on.
    pub(super) fn spend(&mut self, time: u64) {
        self.spent.telemetry += duration(time);
        self.work(time);
    }

    /// Telemetry or policy works for `time` ps on the profiler's core.
    pub(super) fn work(&mut self, time: u64) {
        if let Some(cpu) = self.profiler_cpu {
            self.cpus[cpu].time += time;
        }
        self.run_until(self.now + time);
    }

    /// Whether a hot list waits for its reader.
    fn is_interrupted(&mut self) -> bool {
        self.memory.bus.flush(Time(u64::MAX), true);
        let now = self.time();
        self.memory.bus.observer.interrupt(now) == Some(true)
    }

    /// Charges the accesses to telemetry registers that software made since the last call.
    fn charge_registers(&mut self) {
        let done = self.memory.bus.observer.take_work();
        self.registers.add(&done);
        let time = self.costs.registers.time(&done);
        if time > 0 {
            self.spend(time * NS);
        }
    }
}

impl<B: BusObserver> Ports for Machine<B> {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Ok(self)
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        if self.cpus.iter().any(|cpu| cpu.pmu.is_some()) {
            return Ok(self);
        }
        Err(Missing {
            port: "samples",
            cause: "this machine was built without sampling".into(),
            remedy: "configure it".into(),
        })
    }

    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        Ok(self)
    }

    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        Ok(self)
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        self.charge_registers();
        self.memory.bus.flush(Time(u64::MAX), true);
        self.memory.bus.observer.counters().ok_or_else(|| Missing {
            port: "counters",
            cause: "no telemetry listens on this machine's memory bus".into(),
            remedy: "attach one, as `nemo` does".into(),
        })
    }

    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        self.charge_registers();
        self.memory.bus.flush(Time(u64::MAX), true);
        let now = self.time();
        self.memory.bus.observer.hot_lists(now).ok_or_else(|| Missing {
            port: "hot lists",
            cause: "no monitoring unit listens on this machine's memory bus".into(),
            remedy: "attach one, as `chmu` does".into(),
        })
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Ok(self)
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        let counts = self.counts();
        let tier = |tier: Tier| {
            let marks = self.os.frames.watermarks(tier);
            TierPressure {
                tier,
                free: self.os.frames.free(tier) << 12,
                low: marks.low << 12,
                high: marks.high << 12,
                reads: Some(counts.reads(tier, self.memory.idle(tier))),
            }
        };
        let tiers = (0..self.os.frames.tiers() as u8).map(|number| tier(Tier(number)));
        let cores_stalled = Some(duration(counts.stalled));
        Ok(Pressure { tiers: tiers.collect(), stalled: 0.0, cores_stalled })
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        self.tiers = self.tier_use();
        Ok(self)
    }

    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        Ok(Arc::new(self.os.residence(self.time())))
    }

    fn charge(&mut self, work: Duration) {
        let time = u64::try_from(work.as_nanos()).unwrap_or(u64::MAX / NS).saturating_mul(NS);
        self.spent.policy += duration(time);
        self.work(time);
    }
}
