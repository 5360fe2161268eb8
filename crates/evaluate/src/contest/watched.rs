//! Wrapper of a simulated machine that takes measurements at intervals, unseen by the policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tierscope_core::{
    AccessBits, Clock, Counters, CpuTime, Frames, HintFaults, HotLists, Mappings, Missing,
    PageEvents, PlacementView, Ports, Pressure, RegionSource, Residence, Result, Samples, Target,
    Time, Wake,
};
use tierscope_sim::exact::Account;
use tierscope_sim::experiment::Experiment;
use tierscope_sim::open::Simulated;
use tierscope_workloads::Phase;

use super::outcome::{PhaseRow, Row};

/// Number of measurements in a run.
const ROWS: u32 = 240;

/// Counts of the machine up to a point in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) time: Time,
    pub(super) account: Account,
}

impl Totals {
    /// Operations of the first process; its accesses if it does not count operations.
    pub(super) fn operations(&self) -> u64 {
        let first = self.account.done.first();
        first.map_or(self.account.counts.accesses, |done| done.operations)
    }

    /// Accesses that went to memory, and of them those to the fastest tier.
    fn served(&self) -> [u64; 2] {
        let served = &self.account.counts.served;
        [served.iter().sum(), served[0]]
    }

    /// Operations per second since `before`.
    pub(super) fn rate_since(&self, before: &Self) -> f64 {
        let seconds = self.time.since(before.time).as_secs_f64();
        (self.operations() - before.operations()) as f64 / seconds.max(1e-9)
    }

    /// Share of the fastest tier in the memory accesses since `before`.
    pub(super) fn fast_since(&self, before: &Self) -> Option<f64> {
        let ([all, fast], [all_before, fast_before]) = (self.served(), before.served());
        let served = all - all_before;
        (served > 0).then(|| (fast - fast_before) as f64 / served as f64)
    }
}

/// Coming phases of the first process, the next one last, and ended ones.
#[derive(Default)]
pub(super) struct Phases {
    coming: Vec<Phase>,
    /// Counts and moved bytes at the end of the last one.
    last: Totals,
    moved: [u64; 2],
    pub(super) ended: Vec<PhaseRow>,
}

impl Phases {
    fn of(experiment: &Experiment) -> Self {
        let first = experiment.processes.first();
        let mut coming = first.map(|process| process.work.phases()).unwrap_or_default();
        coming.reverse();
        Self { coming, ..Self::default() }
    }

    fn next(&self) -> Option<Time> {
        Some(Time(0) + self.coming.last()?.to)
    }

    /// Ends the phase whose time has come.
    fn end(&mut self, totals: &Totals, moved: [u64; 2]) {
        if self.next().is_none_or(|end| totals.time < end) {
            return;
        }
        let Some(phase) = self.coming.pop() else { return };
        self.ended.push(PhaseRow {
            name: phase.name,
            end_seconds: totals.time.seconds(),
            operations_per_second: totals.rate_since(&self.last),
            fast_tier_share: totals.fast_since(&self.last),
            promoted_bytes: moved[0] - self.moved[0],
            demoted_bytes: moved[1] - self.moved[1],
        });
        (self.last, self.moved) = (totals.clone(), moved);
    }
}

/// The machine, and the measurements so far.
pub(super) struct Watched<'a> {
    machine: &'a mut dyn Simulated,
    every: Duration,
    next: Time,
    last: Totals,
    warm_up: Time,
    /// Counts at the end of the warm-up.
    pub(super) warm: Option<Totals>,
    pub(super) rows: Vec<Row>,
    pub(super) phases: Phases,
    /// Progress, in simulated nanoseconds, and what runs before this one reached.
    reached: (&'a AtomicU64, u64),
}

impl<'a> Watched<'a> {
    pub(super) fn new(
        machine: &'a mut dyn Simulated,
        experiment: &Experiment,
        reached: (&'a AtomicU64, u64),
    ) -> Self {
        let every = (experiment.time / ROWS).max(experiment.window);
        let warm_up = Time(0) + experiment.warm_up;
        let next = Time(0) + every;
        let warm = (warm_up == Time(0)).then(Totals::default);
        let phases = Phases::of(experiment);
        let next = next.min(phases.next().unwrap_or(next));
        Self {
            machine,
            every,
            next: if warm.is_none() { next.min(warm_up) } else { next },
            last: Totals::default(),
            warm_up,
            warm,
            rows: Vec::new(),
            phases,
            reached,
        }
    }

    /// Counts of the machine up to now.
    pub(super) fn totals(&mut self) -> Totals {
        Totals { time: self.machine.now(), account: self.machine.counted() }
    }

    fn note(&mut self) {
        let totals = self.totals();
        let ([promoted_bytes, demoted_bytes], reaccessed_bytes) = self.machine.moved_so_far();
        self.phases.end(&totals, [promoted_bytes, demoted_bytes]);
        let swap = self.machine.swap_use();
        self.rows.push(Row {
            end_seconds: totals.time.seconds(),
            operations_per_second: totals.rate_since(&self.last),
            fast_tier_share: totals.fast_since(&self.last),
            promoted_bytes,
            demoted_bytes,
            reaccessed_bytes,
            resident_bytes: swap.map(|swap| swap.resident),
            refaulted_bytes: swap.map(|swap| swap.refaulted),
            telemetry_seconds: totals.account.spent.telemetry.as_secs_f64(),
            policy_seconds: totals.account.spent.policy.as_secs_f64(),
        });
        let (reached, before) = self.reached;
        reached.store(before + totals.time.0, Ordering::Relaxed);
        let now = totals.time;
        if self.warm.is_none() && now >= self.warm_up {
            self.warm = Some(totals.clone());
        }
        self.last = totals;
        while self.next <= now {
            self.next += self.every;
        }
        self.next = self.next.min(self.phases.next().unwrap_or(self.next));
        if self.warm.is_none() {
            self.next = self.next.min(self.warm_up);
        }
    }
}

impl Clock for Watched<'_> {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        loop {
            let wake = self.machine.wait(until.min(self.next));
            let now = self.machine.now();
            if now >= self.next {
                self.note();
            }
            if wake != Wake::Deadline || now >= until {
                return wake;
            }
        }
    }
}

impl Target for Watched<'_> {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.machine.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.machine.cpu_time()
    }
}

impl Ports for Watched<'_> {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.machine.access_bits()
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        self.machine.samples()
    }

    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        self.machine.hint_faults()
    }

    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        self.machine.page_events()
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        self.machine.counters()
    }

    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        self.machine.hot_lists()
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        self.machine.frames()
    }

    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        self.machine.region_source()
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        self.machine.pressure()
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        self.machine.placement()
    }

    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        self.machine.residence()
    }

    fn charge(&mut self, work: Duration) {
        self.machine.charge(work);
    }
}
