//! Runs of an experiment: one machine for each instrument, in parallel up to the number of cores.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tierscope_core::drive::{Course, Ended, Sink, Window};
use tierscope_core::session::Session;
use tierscope_core::{CpuTime, Ports, Result, Time, Wake};
use tierscope_record::{Machine as Host, Meta, Recorder};
use tierscope_sim::exact::Account;
use tierscope_sim::experiment::Experiment;
use tierscope_sim::open::{self, Simulated};

use crate::devices::Devices;
use crate::runner::Runner;
use crate::watch::Watch;

/// One run: a machine with an instrument, or without.
#[derive(Debug)]
pub struct Job {
    /// The instrument; `None` for the baseline run.
    pub watch: Option<Watch>,
    /// Directory of the recording, if there is one.
    pub output: Option<PathBuf>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    /// Name of the instrument; `None` for the baseline run.
    pub(super) watcher: Option<String>,
    /// Directory of the recording, if there is one.
    pub(super) recording: Option<PathBuf>,
    /// Reason for the end of the run.
    pub(super) ended: Ended,
    /// Duration of the run, in simulated time.
    pub(super) time: Duration,
    /// Windows that the instrument delivered.
    pub(super) windows: u64,
    /// Simulated CPU time.
    pub(super) cpu: CpuTime,
    /// Counts of an exact machine.
    pub(super) account: Option<Account>,
    /// Wall time on the host.
    pub(super) wall: Duration,
}

/// Runs all jobs; those not begun when the user stops are left out.
///
/// # Errors
/// The first error of a run.
pub(super) fn run_all(
    experiment: &Experiment,
    jobs: &[Job],
    line: &str,
    runner: &Runner<'_>,
) -> Result<Vec<Ran>> {
    let nanos = experiment.time.as_nanos() as u64;
    let work = |index: usize, reached: &AtomicU64| {
        Stage { experiment, job: &jobs[index], line, reached }.run(runner.stop())
    };
    let ran = runner.side_by_side(&vec![nanos; jobs.len()], work)?;
    Ok(ran.into_iter().flatten().collect())
}

/// A run in progress: an experiment with one job.
struct Stage<'a> {
    experiment: &'a Experiment,
    job: &'a Job,
    line: &'a str,
    /// Progress, in simulated nanoseconds.
    reached: &'a AtomicU64,
}

impl Stage<'_> {
    fn run(&self, stop: &Arc<AtomicBool>) -> Result<Ran> {
        let begun = Instant::now();
        let watch = self.job.watch.as_ref();
        let needs = watch.map_or(&[][..], Watch::needs);
        let sampling = watch.and_then(|watch| watch.sampling(self.experiment));
        let devices = Devices::of(self.experiment)?;
        let make = |memory: &[(u64, u64)]| devices.make(needs, memory);
        let (mut machine, _) = open::for_needs(self.experiment, needs, sampling, make, stop)?;
        let mut windows = 0;
        let ended = match &self.job.watch {
            Some(watch) => self.watched(&mut *machine, watch, &mut windows)?,
            None => self.alone(&mut *machine),
        };
        self.experiment.ran()?;
        Ok(Ran {
            watcher: self.job.watch.as_ref().map(|watch| watch.name.clone()),
            recording: self.job.output.clone(),
            ended,
            time: machine.now() - Time(0),
            windows,
            cpu: machine.cpu_time(),
            account: machine.account(),
            wall: begun.elapsed(),
        })
    }

    /// Runs the machine without instrument.
    fn alone(&self, machine: &mut dyn Simulated) -> Ended {
        let end = Time(0) + self.experiment.time;
        while machine.now() < end {
            let next = end.min(machine.now() + self.experiment.window);
            match machine.wait(next) {
                Wake::Stop => return Ended::Stopped,
                Wake::Gone => return Ended::TargetGone,
                Wake::Deadline | Wake::Event | Wake::TargetChanged => {}
            }
            self.reached.store(machine.now().0, Ordering::Relaxed);
        }
        Ended::Deadline
    }

    fn watched(&self, ports: &mut dyn Ports, watch: &Watch, windows: &mut u64) -> Result<Ended> {
        let mut instrument = watch.make(self.experiment)?;
        // One nanosecond more, so that the last window, which ends at the deadline, is included.
        let course = Course::until(Time(0) + self.experiment.time + Duration::from_nanos(1));
        let session = Session { ports, instrument: &mut *instrument, placing: None, course };
        let session = session.open(|ports, instrument| {
            let Some(dir) = &self.job.output else { return Ok(None) };
            let name_and_interval = (watch.instrument.as_str(), watch.sampling_interval());
            let meta = meta(self.experiment, ports, name_and_interval, self.line);
            Recorder::create(dir, &meta.with_settings(&instrument.settings())).map(Some)
        })?;
        session.run(&mut Counted { reached: self.reached, windows })
    }
}

/// Metadata for the recording of a simulated machine.
pub(crate) fn meta(
    experiment: &Experiment,
    ports: &mut dyn Ports,
    (instrument, sampling): (&str, Duration),
    line: &str,
) -> Meta {
    let radix = ports.access_bits().ok().map(|bits| bits.radix());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let flush = experiment.setup.flush;
    Meta {
        instrument: instrument.into(),
        sampling,
        window: experiment.window,
        target: experiment.processes[0].name.clone(),
        machine: Host {
            kernel: format!(
                "none: simulated ({}, {})",
                experiment.mode.name(),
                experiment.setup.hardware.name
            ),
            radix,
            tiers: ports.residence().map(|all| all.tiers.clone()).unwrap_or_default(),
        },
        command: line.into(),
        started: SystemTime::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        annotations: BTreeMap::from([
            fact("simulated", experiment.mode.name().into()),
            fact("experiment", experiment.name.clone()),
            fact("seed", experiment.seed.to_string()),
            fact("tlb-flush-period", flush.map_or("none".into(), |every| format!("{every:?}"))),
        ]),
        ..Meta::default()
    }
}

/// Counts windows, and publishes the run's progress.
struct Counted<'a> {
    reached: &'a AtomicU64,
    windows: &'a mut u64,
}

impl Sink for Counted<'_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        *self.windows += 1;
        self.reached.store(window.snapshot.end.0, Ordering::Relaxed);
        Ok(())
    }
}
