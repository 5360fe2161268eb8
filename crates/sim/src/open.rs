//! Opening the simulated machine of an experiment by what a run needs of it, in either mode: the
//! counterpart of `LiveMachine::for_needs` of a live machine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tierscope_core::metrics::moves::Moved;
use tierscope_core::{BusObserver, Error, ErrorKind, Need, Ports, Range, Result};

use crate::config::Sampling;
use crate::exact::{Account, Mover, Setup};
use crate::experiment::{Experiment, Mode};
use crate::{Truth, density, exact};

/// A simulated machine with counters for judging instruments and policies.
pub trait Simulated: Ports {
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

    /// Accesses that memory served since the last call, by range: pages, or in density mode ranges
    /// over which they are spread evenly and that may overlap. An exact machine counts them with
    /// [`Setup::count_misses`] only.
    fn take_misses(&mut self) -> Vec<(Range, f64)>;

    /// Bytes of each tier that the target's pages have, or may take above its low watermark.
    fn room(&self) -> Vec<u64>;

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

    fn take_misses(&mut self) -> Vec<(Range, f64)> {
        density::Machine::take_misses(self)
    }

    fn room(&self) -> Vec<u64> {
        density::Machine::room(self)
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

    fn take_misses(&mut self) -> Vec<(Range, f64)> {
        exact::Machine::take_misses(self)
    }

    fn room(&self) -> Vec<u64> {
        exact::Machine::room(self)
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

/// Kinds of evidence that a simulated machine provides in this mode.
#[must_use]
pub fn offered(mode: Mode) -> &'static [Need] {
    use Need::{
        AccessBits, Counters, HintFaults, HotLists, PageEvents, Pressure, Regions, Samples,
    };
    match mode {
        Mode::Exact => {
            &[Regions, AccessBits, Samples, HintFaults, PageEvents, Pressure, Counters, HotLists]
        }
        Mode::Density => &[Regions, AccessBits, Samples, HintFaults, Pressure, Counters, HotLists],
    }
}

/// Refuses what no simulated machine provides in this mode. `what` begins the error message.
///
/// # Errors
/// [`ErrorKind::Missing`], with the missing kind of evidence.
pub fn check_needs(what: &str, mode: Mode, needs: &[Need]) -> Result<()> {
    let Some(lack) = needs.iter().find(|need| !offered(mode).contains(need)) else {
        return Ok(());
    };
    let error = Error::new(ErrorKind::Missing, what);
    Err(match mode {
        Mode::Density => error
            .cause(format!("it needs {lack}, which a machine of densities does not give"))
            .remedy("simulate it exactly"),
        Mode::Exact => error
            .cause(format!("it needs {lack}, which a simulated machine does not give"))
            .remedy("choose another instrument or policy"),
    })
}

/// Opens an experiment's machine with the ports that `needs` lists: samples, taken as `sampling`
/// says, and counters or hot lists, in the devices that `devices` makes for the ranges of physical
/// memory. ACCESSED bits, hint faults, page events and pressure cost nothing until they are used,
/// and are always there. The processes run; the truth about their hot memory is returned as well.
///
/// # Errors
/// Those of [`check_needs`]; the machine cannot be built, or the host has too little memory for it.
pub fn for_needs<B: BusObserver + 'static>(
    experiment: &Experiment,
    needs: &[Need],
    sampling: Option<Sampling>,
    devices: impl FnOnce(&[(u64, u64)]) -> Result<B>,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    check_needs("this run is not possible", experiment.mode, needs)?;
    let sampling = sampling.filter(|_| needs.contains(&Need::Samples));
    let (counts, lists) = (needs.contains(&Need::Counters), needs.contains(&Need::HotLists));
    if counts && lists {
        return Err(Error::new(ErrorKind::Usage, "this run is not possible")
            .cause("a simulated machine has counters or hot lists, not both")
            .remedy("choose instrument and policy that read the same device"));
    }
    match experiment.mode {
        Mode::Density => {
            let config = density::Config { sampling, ..experiment.config.clone() };
            let workload = experiment.described().expect("it was checked");
            let mut machine = density::Machine::new(config, &workload)?;
            let memory = machine.physical();
            if counts {
                machine = machine.with_telemetry(Box::new(devices(&memory)?))?;
            } else if lists {
                machine = machine.with_monitors(Box::new(devices(&memory)?))?;
            }
            let truth = vec![machine.truth()];
            Ok((Box::new(machine.with_stop(Arc::clone(stop))), truth))
        }
        Mode::Exact => {
            let setup = Setup { sampling, ..experiment.setup.clone() };
            match counts || lists {
                true => {
                    let observer = devices(&setup.physical())?;
                    start(exact::Machine::observed(&setup, observer)?, experiment, stop)
                }
                false => start(exact::Machine::new(&setup)?, experiment, stop),
            }
        }
    }
}

fn start<B: BusObserver + 'static>(
    machine: exact::Machine<B>,
    experiment: &Experiment,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Simulated>, Vec<Truth>)> {
    let mut machine = machine.with_stop(Arc::clone(stop));
    let truth = experiment.start(&mut machine)?;
    Ok((Box::new(machine), truth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Period;

    fn opened(mode: &str, needs: &[Need]) -> Box<dyn Simulated> {
        let text = format!(
            "name = \"e\"\nabout = \"a\"\nsource = \"s\"\ntime = \"1s\"\n\
             [[process]]\nworkload = \"contiguous:space=16MiB,hot=1MiB\"\n\
             [simulation]\nmode = \"{mode}\""
        );
        let experiment = Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"));
        let sampling = Some(Sampling::loads_and_stores(Period::PerSecond(1_000)));
        let stop = Arc::default();
        for_needs(&experiment, needs, sampling, |_| Ok(()), &stop).expect("it fits").0
    }

    #[test]
    fn samples_are_taken_only_where_they_are_needed() {
        for mode in ["exact", "density"] {
            assert!(opened(mode, &[Need::Samples]).samples().is_ok(), "{mode}");
            let mut machine = opened(mode, &[Need::AccessBits]);
            assert!(machine.samples().is_err() && machine.access_bits().is_ok(), "{mode}");
        }
    }

    #[test]
    fn a_mode_refuses_needs_that_it_does_not_offer() {
        let error = check_needs("x", Mode::Density, &[Need::PageEvents]).unwrap_err().to_string();
        assert!(error.contains("page events") && error.contains("simulate it exactly"), "{error}");
        assert!(check_needs("x", Mode::Exact, offered(Mode::Exact)).is_ok());
        assert!(check_needs("x", Mode::Exact, &[Need::RegionSource]).is_err());
    }
}
