//! Builds the simulated machine of an experiment: density or exact.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tierscope_core::metrics::moves::Moved;
use tierscope_core::{BusObserver, Ports, Result};
use tierscope_nemo::{Driver, Functional, Geometry, Memory, Zone};
use tierscope_sim::config::Sampling;
use tierscope_sim::exact::{Account, Mover, Setup};
use tierscope_sim::experiment::{Experiment, Mode};
use tierscope_sim::{Truth, density, exact};

use crate::watch::Watch;

/// A simulated machine with counters for judging instruments and policies.
pub(crate) trait Simulated: Ports {
    /// Time that the target spent in interrupts and faults for the profiler.
    fn disturbed(&self) -> Duration;

    /// Slowdown of the target without pacing, if the share `stolen` of its time is lost: the rate
    /// without loss over the rate with it, less 1.
    fn slowdown(&mut self, stolen: f64) -> f64;

    /// Counts of an exact machine.
    fn account(&self) -> Option<Account>;

    /// Counts so far: exact ones, or expected values in density mode.
    fn counted(&mut self) -> Account;

    /// Sums of moved bytes, by their outcome.
    fn moved(&self) -> Moved;

    /// Bytes promoted and demoted so far, and bytes promoted and touched since, if these are
    /// counted.
    fn moved_so_far(&self) -> ([u64; 2], Option<u64>);

    /// A mover for the machine.
    fn mover(&self) -> Mover;

    /// Resident and swapped bytes of the target, if the machine has swap and counts them.
    fn swap_use(&self) -> Option<density::SwapUse> {
        None
    }

    /// Percentiles of access latency in nanoseconds, if the machine has them.
    fn latencies(&mut self, shares: [f64; 3]) -> Option<[f64; 3]>;
}

impl Simulated for density::Machine {
    fn disturbed(&self) -> Duration {
        density::Machine::disturbed(self)
    }

    /// Solved by the throughput model: a target that waits for a saturated tier loses less.
    fn slowdown(&mut self, stolen: f64) -> f64 {
        self.flow(0.0).capacity / self.flow(stolen).capacity - 1.0
    }

    fn account(&self) -> Option<Account> {
        None
    }

    fn counted(&mut self) -> Account {
        density::Machine::account(self)
    }

    fn moved(&self) -> Moved {
        density::Machine::moved(self)
    }

    fn moved_so_far(&self) -> ([u64; 2], Option<u64>) {
        (self.moved_bytes(), None)
    }

    fn mover(&self) -> Mover {
        density::Machine::mover(self)
    }

    fn swap_use(&self) -> Option<density::SwapUse> {
        self.can_swap().then(|| density::Machine::swap_use(self))
    }

    fn latencies(&mut self, shares: [f64; 3]) -> Option<[f64; 3]> {
        let flow = self.flow(0.0);
        Some(shares.map(|share| flow.latency_ns(share)))
    }
}

impl<B: BusObserver> Simulated for exact::Machine<B> {
    fn disturbed(&self) -> Duration {
        exact::Machine::account(self).spent.interrupts
    }

    fn account(&self) -> Option<Account> {
        Some(exact::Machine::account(self))
    }

    fn counted(&mut self) -> Account {
        exact::Machine::account(self)
    }

    fn moved(&self) -> Moved {
        exact::Machine::moved(self)
    }

    fn moved_so_far(&self) -> ([u64; 2], Option<u64>) {
        let moved = exact::Machine::moved(self);
        ([moved.promoted, moved.demoted], Some(moved.reaccessed))
    }

    fn mover(&self) -> Mover {
        exact::Machine::mover(self)
    }

    /// Not available for accesses; programs report latencies of operations.
    fn latencies(&mut self, _: [f64; 3]) -> Option<[f64; 3]> {
        None
    }

    /// Lost time relative to the target's time, which is the whole time of its CPUs if it is not
    /// paced.
    fn slowdown(&mut self, _: f64) -> f64 {
        let spent = exact::Machine::account(self).spent;
        spent.interrupts.as_secs_f64() / (spent.target + spent.paced).as_secs_f64().max(1e-9)
    }
}

/// Equipment of the machine in addition to the experiment's hardware.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fitted {
    /// Configuration of hardware sampling.
    pub(crate) sampling: Option<Sampling>,
    /// Whether the memory controllers have telemetry.
    pub(crate) counters: bool,
}

impl Fitted {
    /// Equipment that an instrument needs.
    pub(crate) fn for_watch(experiment: &Experiment, watch: &Watch) -> Self {
        Self { sampling: watch.sampling(experiment), counters: watch.counts() }
    }
}

/// Builds an experiment's machine, equipped for an instrument and with its processes running, and
/// the truth about its hot memory.
///
/// # Errors
/// It cannot be built: the host has too little memory.
pub(crate) fn build(
    experiment: &Experiment,
    watch: Option<&Watch>,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    let fitted = watch.map(|watch| Fitted::for_watch(experiment, watch));
    build_fitted(experiment, fitted.unwrap_or_default(), stop)
}

/// As [`build`], with the given equipment.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_fitted(
    experiment: &Experiment,
    fitted: Fitted,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    let Fitted { sampling, counters } = fitted;
    match experiment.mode {
        Mode::Density => {
            let config = density::Config { sampling, ..experiment.config.clone() };
            let workload = experiment.described().expect("it was checked");
            let mut machine = density::Machine::new(config, &workload)?;
            if counters {
                let memory = machine.physical();
                machine = machine.with_telemetry(Box::new(controllers(&memory)?))?;
            }
            let truth = vec![machine.truth()];
            Ok((Box::new(machine.with_stop(Arc::clone(stop))), truth))
        }
        Mode::Exact if counters => {
            let setup = Setup { sampling, ..experiment.setup.clone() };
            let driver = controllers(&setup.physical())?;
            run_exact(exact::Machine::observed(&setup, driver)?, experiment, stop)
        }
        Mode::Exact => {
            let setup = Setup { sampling, ..experiment.setup.clone() };
            run_exact(exact::Machine::new(&setup)?, experiment, stop)
        }
    }
}

fn run_exact<B: BusObserver + 'static>(
    machine: exact::Machine<B>,
    experiment: &Experiment,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    let mut machine = machine.with_stop(Arc::clone(stop));
    let truth = experiment.start(&mut machine)?;
    Ok((Box::new(machine), truth))
}

/// Memory controllers like the paper's largest deployment, one for each range of physical memory.
///
/// # Errors
/// The ranges are invalid.
pub(crate) fn controllers(memory: &[(u64, u64)]) -> Result<Driver<Functional>> {
    let Geometry { pipelines, channels, banks } = Geometry::PROTOTYPE;
    let zone = |(first, (start, end)): (usize, &(u64, u64))| Zone {
        start: *start,
        end: *end,
        first,
        controllers: 1,
        granule: 4096,
    };
    let memory = Memory::new(memory.iter().enumerate().map(zone).collect(), channels)?;
    Ok(Driver::new(Functional::new(memory, pipelines, banks)?))
}
