//! A program on a simulated machine, and somebody who watches its TLB misses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tierscope_core::{BusObserver, Clock, Result, Target, Time, Wake};
use tierscope_sim::exact::{Account, Machine, Process, Setup};
use tierscope_sim::experiment::Experiment;
use tierscope_trace::ptat::{Boards, Capture, Misses};

use super::claim::{Kind, Variant};
use super::first_level;
use super::sequence::Sequence;
use crate::tlb::capture::{TABLES, Watched, finish, hand_on, monitor};
use crate::tlb::spread::Spread;

/// Simulated time between two looks at how far a run is.
const STEP: Duration = Duration::from_micros(200);

/// Who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nobody but the cores' counters, which cost nothing.
    Nobody,
    /// A monitor on the bus, the process's page tables in the uncached region.
    Ptat,
    /// The kernel, by traps at reserved bits.
    Badgertrap,
    /// A model of the first-level data cache, without a machine.
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

/// What a run came to, of the experiment's first process.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) variant: String,
    pub(super) way: Way,
    /// Simulated, of the measured part.
    pub(super) nanos: f64,
    /// Operations of the measured part.
    pub(super) measured: u64,
    /// All operations, of all that is counted below.
    pub(super) operations: u64,
    /// Misses: as the monitor's parser counts them, or the kernel by its traps.
    pub(super) misses: u64,
    /// Walks that the cores of the process counted, whosever they were.
    pub(super) counted: u64,
    /// Of the entries that walks read, one a walk is of the last level: the share of walks that went nowhere but to caches.
    pub(super) answered: Option<f64>,
    /// Misses by page, and by page of 2 MiB, of those that had any.
    pub(super) spread: Spread,
    pub(super) huge: Spread,
    pub(super) huge_misses: u64,
    /// Whether the monitor's counts are exact by block.
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

    /// What the monitor's parser found of a process.
    fn keep(&mut self, misses: &Misses, pid: u32) {
        let of = |huge: bool| {
            let own = misses.pages.iter().filter(move |(page, _)| page.pid == pid);
            let kind = own.filter(move |(page, _)| !huge || page.bytes() > 4096);
            kind.map(|(_, misses)| misses.shares()).filter(|shares| *shares > 0)
        };
        self.misses = of(false).sum::<u64>() / tierscope_trace::ptat::SHARE;
        self.huge_misses = of(true).sum::<u64>() / tierscope_trace::ptat::SHARE;
        self.spread = Spread::new(of(false).collect());
        self.huge = Spread::new(of(true).collect());
        self.exact = misses.is_exact();
    }
}

/// Runs a variant with somebody watching; `reached` tells how far it is.
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

/// Starts all processes, the first otherwise.
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

/// The first process's page tables in the uncached region, a monitor on the bus, and its parser.
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
    let mut told = Vec::new();
    let hand = |machine: &mut Watched| hand_on(machine, &mut told);
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
        .remedy("free space where temporary files lie, or set TMPDIR")
}

/// Lets the experiment's time pass from the first operation of its first process on, or until that ends. What it does after the
/// warm-up is measured.
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

/// What the cores of a process counted.
fn counted<B: BusObserver>(machine: &Machine<B>, process: &Process) -> u64 {
    let cores = process.first_cpu..process.first_cpu + process.threads;
    cores.map(|core| machine.counted_walks(core as usize)).sum()
}

/// Of the walks, how many found every entry in the caches, at least: a walk that did not missed one entry or more.
fn answered(account: &Account) -> Option<f64> {
    let counts = &account.counts;
    (counts.walks > 0).then(|| 1.0 - counts.walk_misses as f64 / counts.walks as f64)
}
