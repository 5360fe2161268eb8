//! The machine of an experiment: by densities, or exact.

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

/// A simulated machine that tells what it lost to the profiler.
pub(crate) trait Simulated: Ports {
    /// Time that the target lost to interrupts and faults for the profiler.
    fn disturbed(&self) -> Duration;

    /// How much slower the target is if nothing paces it and `stolen` of its time is lost: the ratio of
    /// the rates without and with, less 1.
    fn slowdown(&mut self, stolen: f64) -> f64;

    /// What an exact machine counted.
    fn account(&self) -> Option<Account>;

    /// What was counted so far, exactly or as expected.
    fn counted(&mut self) -> Account;

    /// What became of what its mover moved.
    fn moved(&self) -> Moved;

    /// Bytes promoted and demoted so far, and bytes promoted and touched since where that is counted.
    fn moved_so_far(&self) -> ([u64; 2], Option<u64>);

    /// Something that carries out actions on it.
    fn mover(&self) -> Mover;

    /// What of the target is in memory and what is out, where memory can be given back and that is counted.
    fn swap_use(&self) -> Option<density::SwapUse> {
        None
    }

    /// Nanoseconds that these shares of the accesses do not exceed now, where it can be told.
    fn latencies(&mut self, shares: [f64; 3]) -> Option<[f64; 3]>;
}

impl Simulated for density::Machine {
    fn disturbed(&self) -> Duration {
        density::Machine::disturbed(self)
    }

    /// By the solver: a target that waits for a full tier loses less.
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

    /// Of accesses none: programs tell of their operations.
    fn latencies(&mut self, _: [f64; 3]) -> Option<[f64; 3]> {
        None
    }

    /// Of the time that the target has, which is all of that of its CPUs if nothing paces it.
    fn slowdown(&mut self, _: f64) -> f64 {
        let spent = exact::Machine::account(self).spent;
        spent.interrupts.as_secs_f64() / (spent.target + spent.paced).as_secs_f64().max(1e-9)
    }
}

/// What of the hardware a machine needs beside the experiment's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fitted {
    /// Accesses sampled like that.
    pub(crate) sampling: Option<Sampling>,
    /// Telemetry in the memory controllers.
    pub(crate) counters: bool,
}

impl Fitted {
    /// For an instrument.
    pub(crate) fn for_watch(experiment: &Experiment, watch: &Watch) -> Self {
        Self { sampling: watch.sampling(experiment), counters: watch.counts() }
    }
}

/// The machine of an experiment for who watches it, with its processes running, and what is hot there.
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

/// As [`build`], with what somebody needs beside.
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

/// A controller like the paper's largest deployment in front of each range of physical memory.
///
/// # Errors
/// There is no such memory.
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
