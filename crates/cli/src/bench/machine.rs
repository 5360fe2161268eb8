//! The machine of an experiment: by densities, or exact.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tierscope_core::metrics::moves::Moved;
use tierscope_core::{Ports, Result};
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

impl Simulated for exact::Machine {
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

    fn slowdown(&mut self, stolen: f64) -> f64 {
        stolen / (1.0 - stolen)
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
    build_sampled(experiment, watch.and_then(|watch| watch.sampling(experiment)), stop)
}

/// As [`build`], with accesses sampled like that.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_sampled(
    experiment: &Experiment,
    sampling: Option<Sampling>,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    match experiment.mode {
        Mode::Density => {
            let config = density::Config { sampling, ..experiment.config.clone() };
            let workload = experiment.described().expect("it was checked");
            let machine = density::Machine::new(config, &workload)?;
            let truth = vec![machine.truth()];
            Ok((Box::new(machine.with_stop(Arc::clone(stop))), truth))
        }
        Mode::Exact => {
            let setup = Setup { sampling, ..experiment.setup.clone() };
            let mut machine = exact::Machine::new(&setup)?.with_stop(Arc::clone(stop));
            let truth = experiment.start(&mut machine)?;
            Ok((Box::new(machine), truth))
        }
    }
}
