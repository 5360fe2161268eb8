//! The machine of a scenario: by densities, or exact.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Ports, Result, Target};
use tierscope_sim::config::{Period, Sampling};
use tierscope_sim::exact::{Process, Setup};
use tierscope_sim::{Truth, density, exact};
use tierscope_workloads::Workload;

use super::contender::Contender;
use super::scenario::{Mode, Scenario};

/// A simulated machine that tells what it lost to the profiler.
pub(super) trait Simulated: Ports {
    /// Time that the target lost to interrupts and faults for the profiler.
    fn disturbed(&self) -> Duration;

    /// How much slower the target is if nothing paces it and `stolen` of its time is lost: the ratio of
    /// the rates without and with, less 1.
    fn slowdown(&mut self, stolen: f64) -> f64;
}

impl Simulated for density::Machine {
    fn disturbed(&self) -> Duration {
        density::Machine::disturbed(self)
    }

    /// By the solver: a target that waits for a full tier loses less.
    fn slowdown(&mut self, stolen: f64) -> f64 {
        self.flow(0.0).capacity / self.flow(stolen).capacity - 1.0
    }
}

impl Simulated for exact::Machine {
    fn disturbed(&self) -> Duration {
        self.account().spent.interrupts
    }

    fn slowdown(&mut self, stolen: f64) -> f64 {
        stolen / (1.0 - stolen)
    }
}

fn sampling(contender: &Contender) -> Option<Sampling> {
    (contender.samples > 0)
        .then(|| Sampling::loads_and_stores(Period::PerSecond(contender.samples)))
}

/// The machine of a scenario for a contender, with its workload running, and what is hot there.
///
/// # Errors
/// It cannot be built: the host has too little memory, or as [`check`].
pub(super) fn build(
    scenario: &Scenario,
    contender: &Contender,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Truth)> {
    match scenario.mode {
        Mode::Density => {
            let config =
                density::Config { sampling: sampling(contender), ..scenario.config.clone() };
            let machine = density::Machine::new(config, &scenario.workload)?;
            let truth = machine.truth();
            Ok((Box::new(machine.with_stop(Arc::clone(stop))), truth))
        }
        Mode::Exact => {
            let setup = Setup { sampling: sampling(contender), ..setup(scenario) };
            let mut machine = exact::Machine::new(&setup)?.with_stop(Arc::clone(stop));
            let space = machine.start(&process(scenario))?;
            let mappings = machine.mappings(Duration::ZERO)?;
            let workload = paced(&scenario.workload, scenario.config.rate);
            let truth = Truth::of(&workload, space, &mappings).ok_or_else(|| {
                Error::new(ErrorKind::Other, "the workload's areas are not mapped by their names")
                    .cause("two of them have the same")
                    .remedy("name each area of the workload apart")
            })?;
            Ok((Box::new(machine), truth))
        }
    }
}

/// Whether the machine of a scenario makes sense and the workload fits, before anything runs.
///
/// # Errors
/// Why not.
pub(super) fn check(scenario: &Scenario) -> Result<()> {
    match scenario.mode {
        Mode::Density => {
            density::Machine::new(scenario.config.clone(), &scenario.workload).map(|_| ())
        }
        Mode::Exact => exact::Machine::new(&setup(scenario))?.check(&process(scenario)),
    }
}

/// What densities are told, for the exact machine.
fn setup(scenario: &Scenario) -> Setup {
    let config = &scenario.config;
    let mut hardware = config.hardware.clone();
    hardware.translation.levels = config.radix.levels;
    Setup { cpus: config.cores, flush: config.flush, ..Setup::new(hardware, config.costs.clone()) }
}

/// A thread on every core; all pages are there, old and clean.
fn process(scenario: &Scenario) -> Process {
    Process {
        threads: scenario.config.cores,
        seed: scenario.config.seed,
        populate: true,
        ..Process::new(paced(&scenario.workload, scenario.config.rate))
    }
}

/// The workload at `rate` where it does not say.
fn paced(workload: &Workload, rate: Option<f64>) -> Workload {
    let mut workload = workload.clone();
    for phase in &mut workload.phases {
        phase.rate = phase.rate.or(rate.map(|rate| rate as u64));
    }
    workload
}
