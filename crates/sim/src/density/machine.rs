//! The machine and its ports.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tierscope_core::{
    AccessBits, Addr, Clock, Counters, CpuTime, Frames, HintFaults, HotLists, Level, Mappings,
    Missing, PageEvents, PlacementView, Ports, Pressure, Range, RangeSet, Result, Samples, SpaceId,
    Target, TierUse, Time, Wake,
};
use tierscope_workloads::Workload;

use super::counters::Telemetry;
use super::faults::Armed;
use super::hot_lists::Monitors;
use super::ledger::Ledger;
use super::moves::Moves;
use super::promotion_reuse::PromotionReuse;
use super::samples::Sampler;
use super::space::SPACE;
use super::stamps::{Stamp, Stamps};
use super::swap::Swapped;
use super::world::World;
use super::{Config, Start};
use crate::Truth;

/// A density machine, in virtual time. The profiler's requests take time, as on a core of its own:
/// each call advances the clock by its cost.
#[derive(Debug)]
pub struct Machine {
    pub(super) config: Config,
    pub(super) world: World,
    pub(super) stamps: Stamps,
    pub(super) now: Time,
    pub(super) sampler: Option<Sampler>,
    pub(super) armed: Armed,
    pub(super) ledger: Ledger,
    pub(super) moves: Moves,
    pub(super) promotion_reuse: PromotionReuse,
    pub(super) swapped: Swapped,
    /// Cumulative time that threads waited for refaults, in nanoseconds, with the time of each
    /// record.
    pub(super) recent_waits: VecDeque<(Time, u64)>,
    pub(super) tiers: Vec<TierUse>,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) monitors: Option<Monitors>,
    /// Numbers of the huge pages that were split.
    pub(super) split: BTreeSet<u64>,
    stop: Option<Arc<AtomicBool>>,
    /// Time up to which [`Machine::take_misses`] has counted, in nanoseconds.
    misses_taken: u64,
}

impl Machine {
    /// A machine that runs `workload`, whose phases repeat.
    ///
    /// # Errors
    /// If the parameters are inconsistent, or the workload does not fit.
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
            sampler,
            armed: Armed::default(),
            ledger: Ledger::default(),
            moves: Moves::default(),
            promotion_reuse: PromotionReuse::default(),
            swapped: Swapped::default(),
            recent_waits: VecDeque::new(),
            tiers: Vec::new(),
            telemetry: None,
            monitors: None,
            split: BTreeSet::new(),
            stop: None,
            misses_taken: 0,
            config,
        })
    }

    /// Sets the flag by which the user stops the run; it is checked whenever time passes.
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

    /// Ground truth, independent of the machine: hot ranges at each time, and touched memory under
    /// the present placement.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.world.truth()
    }

    /// Accesses that memory served since the last call, as expected values, by range: they are
    /// spread evenly over it. Ranges of patterns that overlap, overlap.
    pub fn take_misses(&mut self) -> Vec<(Range, f64)> {
        let mut misses = Vec::new();
        let (mut from, to) = (std::mem::replace(&mut self.misses_taken, self.now.0), self.now.0);
        while from < to {
            let profile = self.world.profile_at(from);
            let end = profile.end.clamp(from + 1, to);
            let seconds = (end - from) as f64 / 1e9;
            let served = profile.layers.iter().flatten();
            misses.extend(
                served
                    .map(|stream| (stream.range, stream.rate * stream.hits_of.misses() * seconds)),
            );
            from = end;
        }
        misses
    }

    /// Bytes of each tier that the target's pages have, or may take above its low watermark.
    #[must_use]
    pub fn room(&self) -> Vec<u64> {
        self.world.places.room()
    }

    /// Time that the target lost to interrupts and faults on behalf of the profiler; also part of
    /// the profiler's CPU time (METRICS.md).
    #[must_use]
    pub fn disturbed(&self) -> Duration {
        self.ledger.spent.interrupts
    }

    /// Accesses `addr` once, outside the workload: sets every entry on the path.
    pub fn touch(&mut self, addr: Addr) {
        for level in (1..=self.config.radix.levels).filter_map(Level::new) {
            self.stamps.set(addr.space, level, addr.at >> level.shift(), Stamp::Young);
        }
    }

    /// The profiler works for `nanos` ns.
    pub(super) fn spend(&mut self, nanos: u64) {
        self.ledger.spent.telemetry += Duration::from_nanos(nanos);
        self.work(nanos);
    }

    /// Telemetry or policy works for `nanos` ns on the profiler's core.
    fn work(&mut self, nanos: u64) {
        if self.config.shared_core {
            self.ledger.steal(nanos);
        }
        self.pass(self.now.0 + nanos);
    }

    /// Interrupts the target for `nanos` ns.
    pub(super) fn disturb(&mut self, nanos: u64) {
        self.ledger.spent.interrupts += Duration::from_nanos(nanos);
        self.ledger.steal(nanos);
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
        self.charge_registers();
        let turn = self.config.late.map_or(1, |late| (late.as_nanos() as u64).max(1));
        match self.pass_until_interrupt(until.0.div_ceil(turn).saturating_mul(turn)) {
            true => Wake::Event,
            false => Wake::Deadline,
        }
    }
}

impl Target for Machine {
    fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
        Ok(self.world.mappings(self.now))
    }

    fn cpu_time(&self) -> CpuTime {
        let target = (self.now - Time(0)) * self.config.cores;
        let spent = &self.ledger.spent;
        CpuTime { profiler: spent.telemetry + spent.interrupts + spent.policy, target }
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

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        self.charge_registers();
        self.check_telemetry()?;
        Ok(self)
    }

    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        self.charge_registers();
        self.hot_lists_now()
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Ok(self)
    }

    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        Err(Missing {
            port: "page events",
            cause:
                "in a machine of densities all memory is mapped from the beginning, and none is \
                    freed"
                    .into(),
            remedy: "simulate it exactly".into(),
        })
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        self.settle_seldom();
        let stalled = self.stalled();
        Ok(Pressure { stalled, ..self.pressure_of_tiers() })
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        self.tiers = self.world.places.tiers().collect();
        Ok(self)
    }

    fn charge(&mut self, work: Duration) {
        self.ledger.spent.policy += work;
        self.work(u64::try_from(work.as_nanos()).unwrap_or(u64::MAX / 2));
    }
}
