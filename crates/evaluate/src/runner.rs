//! Runs many simulations in parallel, up to the number of cores, with progress and a stop on
//! request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierscope_core::{Error, ErrorKind, Result};

/// Interval of reports of progress.
const PAUSE: Duration = Duration::from_millis(50);

/// State of a group of simulations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Share of the simulated time that has passed, over all simulations of the group.
    pub share: f64,
    /// Number of simulations of the group.
    pub runs: usize,
    /// Wall time since the group began.
    pub elapsed: Duration,
}

/// Receiver of the progress of simulations; `()` ignores it.
pub trait Progress: Sync {
    /// Called every 50 ms while a group of simulations runs.
    fn at(&self, done: &Done);

    /// Called at the end of a group that took `elapsed`.
    fn over(&self, elapsed: Duration);
}

impl Progress for () {
    fn at(&self, _: &Done) {}

    fn over(&self, _: Duration) {}
}

/// Runs simulations, until it is stopped.
#[derive(Clone)]
pub struct Runner<'a> {
    stop: Arc<AtomicBool>,
    progress: &'a dyn Progress,
}

impl<'a> Runner<'a> {
    /// A runner that is stopped by setting `stop`, and reports to `progress`.
    pub fn new(stop: Arc<AtomicBool>, progress: &'a dyn Progress) -> Self {
        Self { stop, progress }
    }

    /// The flag that ends runs early, and lets no other begin.
    #[must_use]
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs one simulation for each element of `nanos`, its length in simulated nanoseconds, in
    /// parallel up to the number of cores, and returns their results in the same order. `work`
    /// publishes the progress of a run. After a stop, no further run begins; those are `None`.
    ///
    /// # Errors
    /// The first error of a run.
    pub fn side_by_side<T: Send>(
        &self,
        nanos: &[u64],
        work: impl Fn(usize, &AtomicU64) -> Result<T> + Sync,
    ) -> Result<Vec<Option<T>>> {
        let next = AtomicUsize::new(0);
        let reached: Vec<AtomicU64> = nanos.iter().map(|_| AtomicU64::new(0)).collect();
        let stop = &self.stop;
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
            self.follow(nanos, &reached, || {
                workers.iter().all(thread::ScopedJoinHandle::is_finished)
            });
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

    /// Reports progress until `over`.
    fn follow(&self, nanos: &[u64], reached: &[AtomicU64], over: impl Fn() -> bool) {
        let begun = Instant::now();
        let total: u64 = nanos.iter().sum();
        while !over() {
            thread::sleep(PAUSE);
            let done: u64 = reached.iter().map(|at| at.load(Ordering::Relaxed)).sum();
            let share = done as f64 / total.max(1) as f64;
            self.progress.at(&Done { share, runs: nanos.len(), elapsed: begun.elapsed() });
        }
        self.progress.over(begun.elapsed());
    }
}
