//! Runs many simulations in parallel, up to the number of cores, with a progress line and a stop on
//! request.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::StopSignals;
use tierscope_sim::experiment::Experiment;

use super::judge::{Asked, Outcome, judge};
use crate::watch::Watch;

/// Delay before the progress line is shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of updates of the progress line.
const PAUSE: Duration = Duration::from_millis(50);

/// One run of an instrument on an experiment.
pub(crate) struct Job<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) watch: Watch,
    pub(crate) asked: Asked,
}

/// Returns a flag that is set when the user requests a stop.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let signals = StopSignals::hold()?;
    let flag = Arc::clone(&stop);
    // The thread ends with the process.
    thread::spawn(move || {
        signals.wait();
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

/// Runs all jobs and returns their outcomes in the same order. Once `stop` is set, runs end early,
/// and those not begun are `None`.
///
/// # Errors
/// The first error of a run.
pub(crate) fn race(jobs: &[Job<'_>], stop: &Arc<AtomicBool>) -> Result<Vec<Option<Outcome>>> {
    let nanos: Vec<u64> = jobs.iter().map(|job| job.experiment.time.as_nanos() as u64).collect();
    let work = |index: usize, reached: &AtomicU64| {
        let job = &jobs[index];
        judge(job.experiment, &job.watch, &job.asked, stop, reached)
    };
    side_by_side(&nanos, stop, work)
}

/// Runs one simulation for each element of `nanos`, its length in simulated nanoseconds, in
/// parallel up to the number of cores, and returns their results in the same order. `work`
/// publishes the progress of a run. Once `stop` is set, no further run begins; those are `None`.
///
/// # Errors
/// The first error of a run.
pub(crate) fn side_by_side<T: Send>(
    nanos: &[u64],
    stop: &AtomicBool,
    work: impl Fn(usize, &AtomicU64) -> Result<T> + Sync,
) -> Result<Vec<Option<T>>> {
    let next = AtomicUsize::new(0);
    let reached: Vec<AtomicU64> = nanos.iter().map(|_| AtomicU64::new(0)).collect();
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= nanos.len() || stop.load(Ordering::Relaxed) {
                return done;
            }
            let outcome = work(index, &reached[index]);
            reached[index].store(nanos[index], Ordering::Relaxed);
            done.push((index, outcome));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from).min(nanos.len());
    let mut outcomes: Vec<Option<T>> = nanos.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        show(nanos, &reached, || workers.iter().all(thread::ScopedJoinHandle::is_finished));
        for worker in workers {
            let done = worker.join().map_err(|_| {
                Error::new(ErrorKind::Other, "a simulation broke down")
                    .cause("see the message above")
                    .remedy("report it, with the scenario")
            })?;
            for (index, outcome) in done {
                outcomes[index] = Some(outcome?);
            }
        }
        Ok(outcomes)
    })
}

/// Shows the progress line on a terminal until `over`.
fn show(nanos: &[u64], reached: &[AtomicU64], over: impl Fn() -> bool) {
    let begun = Instant::now();
    let total: u64 = nanos.iter().sum();
    let mut shown = false;
    while !over() {
        thread::sleep(PAUSE);
        if begun.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            let done: u64 = reached.iter().map(|at| at.load(Ordering::Relaxed)).sum();
            let percent = 100.0 * done as f64 / total.max(1) as f64;
            let seconds = begun.elapsed().as_secs();
            eprint!("\rsimulated {percent:.0} % of {} runs in {seconds} s\x1b[K", nanos.len());
            let _ = std::io::stderr().flush();
            shown = true;
        }
    }
    if shown {
        eprint!("\r\x1b[K");
    }
}
