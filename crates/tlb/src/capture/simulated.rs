//! The simulated machine with a monitor on its memory bus (PTAT).

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tierscope_core::{Clock, Error, ErrorKind, Result, Target, Time, Wake};
use tierscope_sim::exact::{Machine, Process, Setup};
use tierscope_sim::experiment::{Experiment, Mode};

use super::names::Names;
use super::{NAMES, create};
use crate::ptat::{Boards, DumpHeader, Files, KernelEvent, Monitor};

/// Page tables that fit into the paper's uncached region: 256 MB, half of it control blocks.
pub const TABLES: u32 = 32_768;
/// Simulated time between two drains of the kernel's messages to the monitor.
const STEP: Duration = Duration::from_millis(1);

/// The simulated machine with a monitor that writes to files.
pub type MonitoredMachine = Machine<Monitor<BufWriter<File>>>;

/// An experiment whose processes all have their page tables in the uncached region.
pub struct Simulation<'a> {
    experiment: &'a Experiment,
    areas: &'a [String],
    setup: Setup,
}

/// Counts of a simulated machine during a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Simulated time.
    pub time: Duration,
    /// Page walks.
    pub walks: u64,
    /// Accesses.
    pub accesses: u64,
}

impl<'a> Simulation<'a> {
    /// Checks an experiment, and the names of the areas whose every access the monitor is to see.
    ///
    /// # Errors
    /// The experiment is not simulated exactly, no process has such an area, or the machine is
    /// invalid.
    pub fn new(experiment: &'a Experiment, areas: &'a [String]) -> Result<Self> {
        if experiment.mode != Mode::Exact {
            return Err(Error::new(ErrorKind::Usage, "cannot capture what no machine carries out")
                .cause("the experiment is simulated by densities: nothing crosses a bus")
                .remedy("give an experiment with mode = \"exact\""));
        }
        check_areas(experiment, areas)?;
        let setup = setup(experiment);
        setup.check()?;
        Ok(Self { experiment, areas, setup })
    }

    /// Runs the experiment and writes the capture into a directory. Calls `progress` with the
    /// simulated nanoseconds, and those of the whole run.
    ///
    /// # Errors
    /// The experiment fails, or a write.
    pub fn run(
        &self,
        boards: Boards,
        directory: &Path,
        stop: &Arc<AtomicBool>,
        progress: impl FnMut(u64, u64),
    ) -> Result<Captured> {
        let monitor = monitor(boards, &self.setup, directory)?;
        let mut machine = Machine::observed(&self.setup, monitor)?.with_stop(Arc::clone(stop));
        let mut names = Names::new(&directory.join(NAMES))?;
        for process in &self.experiment.processes {
            machine.start(&watched(process, self.areas))?;
        }
        let captured = watch(&mut machine, self.experiment, &mut names, stop, progress);
        self.experiment.ran()?;
        let walks = machine.walks().values().sum();
        let accesses = machine.account().counts.accesses;
        let time = machine.now() - Time(0);
        finish(machine)?;
        names.finish()?;
        captured?;
        Ok(Captured { time, walks, accesses })
    }
}

/// The process with its page tables, and its areas among the given ones, in the uncached region.
fn watched(process: &Process, areas: &[String]) -> Process {
    let own = process.work.areas();
    let chosen = areas.iter().filter(|name| own.iter().any(|area| area.name == **name));
    let watched = process.watched.iter().chain(chosen).cloned().collect();
    Process { uncached_tables: true, watched, ..process.clone() }
}

/// Refuses an area of `--watch` that no process has.
fn check_areas(experiment: &Experiment, areas: &[String]) -> Result<()> {
    let known: Vec<String> = experiment
        .processes
        .iter()
        .flat_map(|process| {
            process.work.areas().iter().map(|area| area.name.clone()).collect::<Vec<_>>()
        })
        .collect();
    match areas.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Usage, format!("cannot watch {name}"))
            .cause("no process has an area of that name")
            .remedy(format!("choose from {}", known.join(", ")))),
    }
}

fn setup(experiment: &Experiment) -> Setup {
    let tables = match experiment.setup.uncached_tables {
        0 => TABLES,
        some => some,
    };
    Setup { uncached_tables: tables, watch_tables: true, ..experiment.setup.clone() }
}

/// Creates a monitor for a machine, writing its boards and dump into a directory.
///
/// # Errors
/// A file cannot be created.
pub fn monitor(
    boards: Boards,
    setup: &Setup,
    directory: &Path,
) -> Result<Monitor<BufWriter<File>>> {
    let (region, tags) = setup.watched();
    // Tiers are laid out one after another, each starting at a multiple of 1 GiB.
    let end =
        setup.hardware.tiers.iter().fold(0u64, |end, tier| end.next_multiple_of(1024) + tier.mib);
    let record = if end > 64 << 10 { 14 } else { 13 };
    let files = Files::of(directory, boards.count);
    Monitor::new(boards, DumpHeader { record, region, tags }, |board| {
        let path = board.map_or(&files.dump, |board| &files.boards[usize::from(board)]);
        create(path)
    })
}

/// Runs the machine for the experiment's time, writing mappings and the kernel's messages.
fn watch(
    machine: &mut MonitoredMachine,
    experiment: &Experiment,
    names: &mut Names,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64, u64),
) -> Result<()> {
    let end = Time(0) + experiment.time;
    let mut events = Vec::new();
    while machine.now() < end && !stop.load(Ordering::Relaxed) {
        let wake = machine.wait(end.min(machine.now() + STEP));
        let mapped = machine.mappings(Duration::ZERO)?;
        names.look(&mapped)?;
        hand_on(machine, &mut events)?;
        progress(machine.now().0, end.0);
        if matches!(wake, Wake::Gone | Wake::Stop) {
            break;
        }
    }
    Ok(())
}

/// Writes the kernel's messages since the last call; the vector is a buffer for reuse.
///
/// # Errors
/// A write failed.
pub fn hand_on(machine: &mut MonitoredMachine, events: &mut Vec<KernelEvent>) -> Result<()> {
    events.clear();
    let lost = machine.kernel_events(events);
    machine.observer().record(events, lost.0)
}

/// Writes the last messages and closes the monitor's files.
///
/// # Errors
/// A write failed.
pub fn finish(mut machine: MonitoredMachine) -> Result<()> {
    hand_on(&mut machine, &mut Vec::new())?;
    machine.into_observer().finish().map(drop)
}
