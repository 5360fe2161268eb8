//! A run of a program on a simulated machine, with one way to watch its TLB misses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tierscope_core::{BusObserver, Clock, Result, Target, Time, Wake};
use tierscope_sim::exact::{Account, Machine, Process, Setup};
use tierscope_sim::experiment::Experiment;
use tierscope_tlb::ptat::{Boards, Capture, Misses};

use super::claim::{Kind, Variant};
use super::first_level;
use super::sequence::Sequence;
use tierscope_tlb::attribution::Spread;
use tierscope_tlb::capture::simulated::{MonitoredMachine, TABLES, finish, hand_on, monitor};

/// Simulated time between two updates of the progress.
const STEP: Duration = Duration::from_micros(200);

/// Ways to watch TLB misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Only by the cores' counters, which cost nothing.
    Nobody,
    /// By a monitor on the bus, with the process's page tables in the uncached region.
    Ptat,
    /// By the kernel, with traps on reserved bits.
    Badgertrap,
    /// By a model of the first-level data cache, without a machine.
    FirstLevel,
}

impl Way {
    pub(super) const ALL: [Self; 4] =
        [Self::Nobody, Self::Ptat, Self::Badgertrap, Self::FirstLevel];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Nobody => "counters",
            Way::Ptat => "PTAT",
            Way::Badgertrap => "BadgerTrap",
            Way::FirstLevel => "first-level cache",
        }
    }
}

/// Results of a run for the experiment's first process.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) variant: String,
    pub(super) way: Way,
    /// Simulated time of the measured part.
    pub(super) nanos: f64,
    /// Operations of the measured part.
    pub(super) measured: u64,
    /// Operations over the whole run; the counts below cover it all.
    pub(super) operations: u64,
    /// Misses, counted by the monitor's parser, or by the kernel's traps.
    pub(super) misses: u64,
    /// Walks counted by the process's cores, including those of other processes.
    pub(super) counted: u64,
    /// Share of walks that hit the caches. Each walk reads one last-level entry.
    pub(super) answered: Option<f64>,
    /// Misses by page, and by page of 2 MiB, for pages that had any.
    pub(super) spread: Spread,
    pub(super) huge: Spread,
    pub(super) huge_misses: u64,
    /// Whether the monitor's counts are exact per block.
    pub(super) exact: bool,
    pub(super) predicted: Option<f64>,
    pub(super) over_replacements: Option<f64>,
}

impl Outcome {
    pub(super) fn new(variant: &str, way: Way) -> Self {
        Self {
            variant: variant.into(),
            way,
            nanos: 0.0,
            measured: 0,
            operations: 0,
            misses: 0,
            counted: 0,
            answered: None,
            spread: Spread::default(),
            huge: Spread::default(),
            huge_misses: 0,
            exact: true,
            predicted: None,
            over_replacements: None,
        }
    }

    fn each(&self, count: u64) -> Option<f64> {
        (self.operations > 0).then(|| count as f64 / self.operations as f64)
    }

    pub(super) fn nanos_each(&self) -> Option<f64> {
        (self.measured > 0).then(|| self.nanos / self.measured as f64)
    }

    pub(super) fn misses_each(&self) -> Option<f64> {
        self.each(self.misses)
    }

    pub(super) fn counted_each(&self) -> Option<f64> {
        self.each(self.counted)
    }

    pub(super) fn huge_misses_each(&self) -> Option<f64> {
        self.each(self.huge_misses)
    }

    /// Takes over the parser's results for a process.
    fn keep(&mut self, misses: &Misses, pid: u32) {
        let of = |huge: bool| {
            let own = misses.pages.iter().filter(move |(page, _)| page.pid == pid);
            let kind = own.filter(move |(page, _)| !huge || page.bytes() > 4096);
            kind.map(|(_, misses)| misses.shares()).filter(|shares| *shares > 0)
        };
        self.misses = of(false).sum::<u64>() / tierscope_tlb::ptat::SHARE;
        self.huge_misses = of(true).sum::<u64>() / tierscope_tlb::ptat::SHARE;
        self.spread = Spread::new(of(false).collect());
        self.huge = Spread::new(of(true).collect());
        self.exact = misses.is_exact();
    }
}

/// Runs a variant, watched in the given way; progress is published in `reached`.
pub(super) fn run(
    variant: &Variant,
    way: Way,
    kind: Kind,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
) -> Result<Outcome> {
    let experiment = &variant.experiment;
    let mut outcome = Outcome::new(&variant.name, way);
    match way {
        Way::FirstLevel => {
            let (work, hardware) = (&experiment.processes[0].work, &experiment.setup.hardware);
            outcome.over_replacements = first_level::misses_over_replacements(work, hardware)?;
        }
        Way::Ptat => under_monitor(experiment, kind, stop, reached, &mut outcome)?,
        Way::Nobody | Way::Badgertrap => {
            let setup = Setup { watch_tables: false, ..experiment.setup.clone() };
            let mut machine = Machine::new(&setup)?.with_stop(Arc::clone(stop));
            let trapped = way == Way::Badgertrap;
            start(&mut machine, experiment, |first| Process { trapped, ..first })?;
            watch(&mut machine, experiment, stop, reached, &mut outcome, |_| Ok(()))?;
            let space = machine.account().done[0].space;
            outcome.misses = machine.trapped().get(&space).copied().unwrap_or(0);
        }
    }
    Ok(outcome)
}

/// Starts all processes; the first one is modified by `otherwise`.
fn start<B: BusObserver>(
    machine: &mut Machine<B>,
    experiment: &Experiment,
    otherwise: impl Fn(Process) -> Process,
) -> Result<()> {
    for (index, process) in experiment.processes.iter().enumerate() {
        let process = process.clone();
        machine.start(&if index == 0 { otherwise(process) } else { process })?;
    }
    Ok(())
}

/// Runs with the first process's page tables in the uncached region, a monitor on the bus, and its
/// parser.
fn under_monitor(
    experiment: &Experiment,
    kind: Kind,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
    outcome: &mut Outcome,
) -> Result<()> {
    let uncached_tables = experiment.setup.uncached_tables.max(TABLES);
    let setup = Setup { uncached_tables, watch_tables: true, ..experiment.setup.clone() };
    let grain = if kind.grain == 32 { 5 } else { 6 };
    let boards = Boards { count: kind.boards, grain, ..Boards::default() };
    let directory = tempfile::tempdir().map_err(no_room)?;
    let mut machine = Machine::observed(&setup, monitor(boards, &setup, directory.path())?)?
        .with_stop(Arc::clone(stop));
    start(&mut machine, experiment, |first| Process { uncached_tables: true, ..first })?;
    let mut sequence = Sequence::new(&experiment.processes[0], &*machine.mappings(Duration::ZERO)?);
    let mut events = Vec::new();
    let hand = |machine: &mut MonitoredMachine| hand_on(machine, &mut events);
    watch(&mut machine, experiment, stop, reached, outcome, hand)?;
    let pid = machine.account().done[0].space.0 + 1;
    finish(machine)?;
    let mut capture = Capture::open(directory.path())?;
    match &mut sequence {
        Some(sequence) => while capture.step(sequence) {},
        None => while capture.step(&mut ()) {},
    }
    let (misses, damage) = capture.finish();
    damage.first.map_or(Ok(()), Err)?;
    outcome.keep(&misses, pid);
    outcome.predicted = sequence.map(|sequence| sequence.as_predicted(outcome.operations));
    Ok(())
}

fn no_room(error: std::io::Error) -> tierscope_core::Error {
    tierscope_core::Error::new(tierscope_core::ErrorKind::Io, "cannot keep what a monitor sees")
        .cause(error)
        .remedy("free space for temporary files, or set TMPDIR")
}

/// Runs the machine for the experiment's time, counted from the first operation of its first
/// process, or until that process ends. Operations after the warm-up are measured.
fn watch<B: BusObserver>(
    machine: &mut Machine<B>,
    experiment: &Experiment,
    stop: &AtomicBool,
    reached: &AtomicU64,
    outcome: &mut Outcome,
    mut step: impl FnMut(&mut Machine<B>) -> Result<()>,
) -> Result<()> {
    let done = |machine: &Machine<B>| machine.account().done[0].operations;
    let (mut begun, mut warm) = (None, None);
    while !stop.load(Ordering::Relaxed) {
        let now = machine.now();
        if begun.is_none() && done(machine) > 0 {
            begun = Some(now);
        }
        let end = begun.map_or(Time(u64::MAX), |begun| begun + experiment.time);
        if warm.is_none() && begun.is_some_and(|begun| now >= begun + experiment.warm_up) {
            warm = Some((now, done(machine)));
        }
        if now >= end {
            break;
        }
        reached.store((now - begun.unwrap_or(now)).as_nanos() as u64, Ordering::Relaxed);
        let wake = machine.wait(end.min(now + STEP));
        step(machine)?;
        if matches!(wake, Wake::Gone | Wake::Stop) {
            break;
        }
    }
    experiment.ran()?;
    let account = machine.account();
    let (from, before) = warm.unwrap_or((Time(0), 0));
    outcome.nanos = (machine.now() - from).as_nanos() as f64;
    outcome.operations = account.done[0].operations;
    outcome.measured = outcome.operations - before;
    outcome.counted = counted(machine, &experiment.processes[0]);
    outcome.answered = answered(&account);
    Ok(())
}

/// Walks counted by the cores of a process.
fn counted<B: BusObserver>(machine: &Machine<B>, process: &Process) -> u64 {
    let cores = process.first_cpu..process.first_cpu + process.threads;
    cores.map(|core| machine.counted_walks(core as usize)).sum()
}

/// Lower bound on the share of walks that found all entries in the caches: each of the other walks
/// missed one entry or more.
fn answered(account: &Account) -> Option<f64> {
    let counts = &account.counts;
    (counts.walks > 0).then(|| 1.0 - counts.walk_misses as f64 / counts.walks as f64)
}
