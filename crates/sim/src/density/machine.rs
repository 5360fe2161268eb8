//! The machine and its ports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tierscope_core::{
    AccessBits, Addr, Clock, CpuTime, HintFaults, Level, Mappings, Missing, Ports, RangeSet,
    Result, Samples, SpaceId, Target, Time, Wake,
};
use tierscope_workloads::Workload;

use super::faults::Armed;
use super::samples::Sampler;
use super::stamps::{Stamp, Stamps};
use super::world::{SPACE, World};
use super::{Config, Start};
use crate::Truth;

/// A machine of densities, in virtual time. What the profiler asks for takes it time, as on a core of
/// its own: the clock goes on by what a call costs.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) world: World,
    pub(super) stamps: Stamps,
    pub(super) now: Time,
    pub(super) sampler: Option<Sampler>,
    pub(super) armed: Armed,
    profiler: Duration,
    disturbed: Duration,
    stop: Option<Arc<AtomicBool>>,
}

impl Machine {
    /// A machine that runs `workload`, whose phases come again and again.
    ///
    /// # Errors
    /// If the parameters make no sense, or the workload does not fit.
    pub fn new(config: Config, workload: &Workload) -> Result<Self> {
        config.check()?;
        let world = World::new(&config, workload)?;
        let first = match config.start {
            Start::Young => Stamp::Young,
            Start::Cleared => Stamp::Cleared(0),
        };
        let sampler = config.sampling.clone().map(|sampling| Sampler::new(sampling, &config));
        Ok(Self {
            world,
            stamps: Stamps::new(first),
            now: Time(0),
            sampler: sampler.transpose()?,
            armed: Armed::default(),
            profiler: Duration::ZERO,
            disturbed: Duration::ZERO,
            stop: None,
            config,
        })
    }

    /// The user's wish to stop, looked at whenever time passes.
    #[must_use]
    pub fn with_stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The ranges that the workload declares hot at a time.
    #[must_use]
    pub fn hot_at(&self, time: Time) -> RangeSet {
        self.truth().hot_at(time)
    }

    /// What is hot when, apart from the machine.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let workload = self.world.workload().clone();
        Truth { workload, bases: self.world.bases.clone(), space: SPACE }
    }

    /// Time that the target lost to interrupts and faults on behalf of the profiler; part of the
    /// profiler's CPU time as well (METRICS.md).
    #[must_use]
    pub fn disturbed(&self) -> Duration {
        self.disturbed
    }

    /// Accesses `addr` once, by hand: every entry on the way is set.
    pub fn touch(&mut self, addr: Addr) {
        for level in (1..=self.config.radix.levels).filter_map(Level::new) {
            self.stamps.set(addr.space, level, addr.at >> level.shift(), Stamp::Young);
        }
    }

    /// The profiler works for so long.
    pub(super) fn spend(&mut self, nanos: u64) {
        let work = Duration::from_nanos(nanos);
        self.profiler += work;
        self.now += work;
    }

    /// The target is kept from its work for so long.
    pub(super) fn disturb(&mut self, nanos: u64) {
        let work = Duration::from_nanos(nanos);
        self.profiler += work;
        self.disturbed += work;
    }

    pub(super) fn knows(&self, space: SpaceId) -> bool {
        space == SPACE
    }
}

impl Clock for Machine {
    fn now(&self) -> Time {
        self.now
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Wake::Stop;
        }
        self.now = self.now.max(until);
        Wake::Deadline
    }
}

impl Target for Machine {
    fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
        Ok(self.world.mappings(self.now))
    }

    fn cpu_time(&self) -> CpuTime {
        let target = (self.now - Time(0)) * self.config.cores;
        CpuTime { profiler: self.profiler, target }
    }
}

impl Ports for Machine {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Ok(self)
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        match self.sampler {
            Some(_) => Ok(self),
            None => Err(Missing::on_this_machine("samples")),
        }
    }

    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        Ok(self)
    }

    fn charge(&mut self, work: Duration) {
        self.spend(work.as_nanos() as u64);
    }
}
