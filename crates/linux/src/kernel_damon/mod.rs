//! The kernel's DAMON as a source of regions: set up and controlled through sysfs, read through its
//! tracepoint.
//!
//! DAMON's sysfs has regions, too (`tried_regions`), but not of every window, and with four files
//! per region: reading 1565 regions took 6.1 s of system time in the lab, and every second window
//! had none. The tracepoint reports every region of every window, at a cost of some microseconds.

mod admin;
mod event;
mod mark;
mod places;
mod ring;
mod shared;
mod tracing;
mod windows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tierscope_core::{
    Error, ErrorKind, Range, Region, RegionSource, Result, Snapshot, SpaceId, Time,
};

use crate::clock;
use crate::proc::Proc;
use admin::Admin;
use event::Event;
use tracing::Instance;
use windows::Windows;

pub(crate) use shared::translated;

/// Settings of the kernel's DAMON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sampling interval, 5 ms.
    pub sampling: Duration,
    /// Aggregation interval, 200 ms (METRICS.md; DAMON's own default is 100 ms).
    pub window: Duration,
    /// Interval at which the target's mappings are checked, 1 s (DAMON's own default is 60 s).
    pub update: Duration,
    /// Minimum number of regions, 10.
    pub min_regions: usize,
    /// Maximum number of regions, 1000.
    pub max_regions: usize,
    /// Goal of the kernel's auto-tuning of both intervals; `None` for fixed intervals.
    pub goal: Option<Goal>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            min_regions: 10,
            max_regions: 1000,
            goal: None,
        }
    }
}

/// Goal of auto-tuned intervals (Linux 6.15; Documentation/mm/damon/design.rst, "Monitoring
/// intervals auto-tuning guideline", whose values are the default).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Observed access events, in 1/10,000 of the greatest possible number.
    pub access_bp: u32,
    /// Number of windows within which to reach it.
    pub aggrs: u32,
    /// Minimum sampling interval.
    pub min_sampling: Duration,
    /// Maximum sampling interval.
    pub max_sampling: Duration,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            access_bp: 400,
            aggrs: 3,
            min_sampling: Duration::from_millis(5),
            max_sampling: Duration::from_secs(10),
        }
    }
}

/// Root directories of kernel files; tests substitute their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// DAMON's sysfs directory.
    pub admin: PathBuf,
    /// Mount point of tracefs.
    pub tracing: PathBuf,
    /// Mount point of procfs.
    pub proc: PathBuf,
    /// Directory of the marks of kdamonds.
    pub marks: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            admin: Path::new("/sys/kernel/mm/damon/admin").into(),
            tracing: Path::new("/sys/kernel/tracing").into(),
            proc: Path::new("/proc").into(),
            marks: Path::new("/run/tierscope/kernel-damon").into(),
        }
    }
}

/// Windows without events after which the kdamond's state is checked.
const SILENT_WINDOWS: u32 = 10;

/// A kdamond that monitors processes. Dropping this turns DAMON off and restores sysfs and tracefs;
/// so does Ctrl-C if it ends waits instead of the process, as on a live machine. Only a process
/// that is killed leaves its kdamond running: the next start turns it off.
pub struct KernelDamon {
    admin: Admin,
    trace: Instance,
    windows: Windows,
    config: Config,
    /// The targets by their index in the kernel.
    targets: Vec<(u32, SpaceId)>,
    /// Those before the last change, and when it was made, in ns of CLOCK_MONOTONIC.
    before: (u64, Vec<(u32, SpaceId)>),
    proc: Proc,
    /// Time zero of the machine, in ns of CLOCK_MONOTONIC.
    epoch: u64,
    /// End of the last window, in ns of CLOCK_MONOTONIC.
    last_end: u64,
    /// When a window was last received, in ns of CLOCK_MONOTONIC.
    last_received: u64,
    overrun: bool,
    cpu: Duration,
}

impl KernelDamon {
    /// Starts to monitor `targets`, each as a space, on a machine whose clock shows `now`.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if this kernel lacks a feature, [`ErrorKind::Permission`],
    /// [`ErrorKind::Other`] if another kdamond runs.
    pub fn start(
        roots: &Roots,
        config: Config,
        targets: &[(u32, SpaceId)],
        now: Time,
    ) -> Result<Self> {
        config.check()?;
        let proc = Proc::at(&roots.proc);
        let trace = Instance::new(&roots.tracing, config.max_regions as u64)?;
        let pids = pids(targets);
        let started = clock::monotonic().0;
        let places = (&*roots.admin, &*roots.proc, &*roots.marks);
        let admin = Admin::start(places, &config, &pids)?;
        Ok(Self {
            admin,
            trace,
            windows: Windows::new(targets.len(), config.window.as_nanos() as u64),
            targets: targets.to_vec(),
            before: (0, Vec::new()),
            config,
            proc,
            epoch: started.saturating_sub(now.0),
            last_end: started,
            last_received: started,
            overrun: false,
            cpu: Duration::ZERO,
        })
    }

    /// Monitors `targets` from now on. Changes are made once in an update interval at most: the
    /// kdamond applies each between two of its looks. DAMON knows targets by their index; one
    /// that stays keeps its index, and its regions, where possible.
    ///
    /// # Errors
    /// If DAMON's state cannot be read; a change that the kernel refuses, because one of the
    /// processes has ended, is tried again.
    pub fn follow(&mut self, targets: &[(u32, SpaceId)]) -> Result<()> {
        let now = clock::monotonic().0;
        let rested = Duration::from_nanos(now.saturating_sub(self.before.0)) >= self.config.update;
        if targets.is_empty() || !rested || places::are_alike(&self.targets, targets) {
            return Ok(());
        }
        let placed = places::placed(&self.targets, targets);
        let done = self.admin.change(&pids(&placed))?;
        let before = match done {
            true => std::mem::replace(&mut self.targets, placed),
            false => self.targets.clone(),
        };
        self.before = (clock::monotonic().0, before);
        self.windows.expect(self.targets.len());
        Ok(())
    }

    /// CPU time of the kdamond so far, with the resolution of a clock tick, 10 ms.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc.stat(self.admin.pid()).ok().flatten();
        stat.map_or(self.cpu, |stat| stat.cpu_time())
    }

    /// Windows that were dropped because the kernel reported only a part of them.
    #[must_use]
    pub fn lost_windows(&self) -> u64 {
        self.windows.lost()
    }

    /// Whether the kernel overwrote events before they were read.
    #[must_use]
    pub fn overrun(&self) -> bool {
        self.overrun
    }

    fn snapshot(&mut self, events: &[Event]) -> Result<Snapshot> {
        if self.config.goal.is_some() {
            (self.config.sampling, self.config.window) = self.admin.tuned()?;
        }
        let samples = samples(&self.config);
        let end = events[0].time.max(self.last_end + 1);
        let time = |at: u64| Time(at.saturating_sub(self.epoch));
        let (start, end_time) = (time(self.last_end), time(end));
        self.last_end = end;
        self.cpu = self.cpu_time();
        let (changed, before) = &self.before;
        let targets = if end < *changed { before } else { &self.targets };
        let mut regions: Vec<Region> =
            events.iter().filter_map(|event| region(event, targets, samples)).collect();
        regions.sort_by_key(|region| region.range);
        Ok(Snapshot { start, end: end_time, samples, regions })
    }

    /// Without events for some windows, checks whether the kdamond still runs.
    fn check_alive(&self, now: u64) -> Result<()> {
        let silence = Duration::from_nanos(now.saturating_sub(self.last_received));
        if silence < self.config.window * SILENT_WINDOWS || self.admin.runs()? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Gone, "the kernel's DAMON has stopped")
            .cause("its targets ended, or another program turned it off")
            .remedy(
                "check that the target runs and that no other program uses DAMON, then start again",
            ))
    }
}

impl RegionSource for KernelDamon {
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let mut events = Vec::new();
        self.overrun |= self.trace.drain(&mut events)?;
        self.windows.add(&mut events);
        let now = clock::monotonic().0;
        match self.windows.take(now) {
            Some(window) => {
                self.last_received = now;
                self.snapshot(&window).map(Some)
            }
            None => self.check_alive(now).map(|()| None),
        }
    }
}

impl Config {
    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`].
    pub fn check(&self) -> Result<()> {
        let refuse = |cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, "cannot set up the kernel's DAMON")
                .cause(cause)
                .remedy(remedy))
        };
        if self.sampling.as_micros() == 0 || self.window < self.sampling {
            return refuse("the window is shorter than a sampling interval", "give both, in µs");
        }
        if self.min_regions < 3 || self.max_regions < self.min_regions {
            return refuse("the numbers of regions contradict", "3 <= min-regions <= max-regions");
        }
        Ok(())
    }
}

/// Sampling intervals per window: `damon_max_nr_accesses` (include/linux/damon.h).
fn samples(config: &Config) -> u32 {
    let samples = config.window.as_nanos() / config.sampling.as_nanos().max(1);
    u32::try_from(samples).unwrap_or(u32::MAX).max(1)
}

fn pids(targets: &[(u32, SpaceId)]) -> Vec<u32> {
    targets.iter().map(|(pid, _)| *pid).collect()
}

/// Converts an event to a region; `None` for an unknown target index: its window was emitted while
/// the targets changed.
fn region(event: &Event, targets: &[(u32, SpaceId)], samples: u32) -> Option<Region> {
    let (_, space) = *targets.get(usize::try_from(event.target).ok()?)?;
    Some(Region {
        age: u32::try_from(event.age).unwrap_or(u32::MAX),
        ..Region::sampled(
            Range::new(space, event.start, event.end),
            event.accesses.min(u64::from(samples)) as f32,
            samples,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Fake {
        root: tempfile::TempDir,
        ours: PathBuf,
        roots: Roots,
    }

    fn fake() -> Fake {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let (proc, marks) = (at("proc"), at("marks"));
        let roots = Roots { admin: at("admin"), tracing: at("tracing"), proc, marks };
        fs::create_dir(&roots.proc).unwrap();
        admin::tests::fake(&roots.admin, false);
        let ours = tracing::tests::fake(&roots.tracing);
        Fake { root, ours, roots }
    }

    fn event(time: u64, target: u64, regions: u64, start: u64, accesses: u64) -> Event {
        Event { time, target, regions, start, end: start + 4096, accesses, age: 3 }
    }

    #[test]
    fn windows_come_out_as_snapshots() {
        let fake = fake();
        let targets = [(42, SpaceId(5)), (43, SpaceId(6))];
        let now = Time(1_000_000);
        let mut damon = KernelDamon::start(&fake.roots, Config::default(), &targets, now).unwrap();
        assert_eq!(damon.next(), Ok(None));
        // Events at 200 ms and 400 ms after the start.
        for end in [200, 400] {
            let time = damon.epoch + 1_000_000 + end * 1_000_000;
            tracing::tests::emit(
                &fake.ours,
                "cpu1",
                &[event(time, 0, 2, 0, 40), event(time, 0, 2, 8192, 0), event(time, 1, 1, 0, 7)],
            );
        }
        let first = damon.next().unwrap().unwrap();
        let second = damon.next().unwrap().unwrap();
        assert_eq!((second.start, second.end), (first.end, first.end + Duration::from_millis(200)));
        assert_eq!(second.samples, 40);
        let regions: Vec<_> = second
            .regions
            .iter()
            .map(|r| (r.range.space.0, r.range.start, r.hits, r.age))
            .collect();
        assert_eq!(regions, [(5, 0, 40.0, 3), (5, 8192, 0.0, 3), (6, 0, 7.0, 3)]);
        assert_eq!(damon.next(), Ok(None));
        assert_eq!((damon.lost_windows(), damon.overrun()), (0, false));
    }

    // Process 42 ends and 44 joins: it takes the index of 42. An earlier window is of 42.
    #[test]
    fn targets_are_followed() {
        let fake = fake();
        let config = Config { update: Duration::ZERO, ..Config::default() };
        let targets = [(42, SpaceId(5)), (43, SpaceId(6))];
        let mut damon = KernelDamon::start(&fake.roots, config, &targets, Time(0)).unwrap();
        let said = |file: &str| fs::read_to_string(fake.root.path().join(file)).unwrap();
        damon.follow(&[(43, SpaceId(6)), (42, SpaceId(5))]).unwrap();
        assert_eq!(said("admin/kdamonds/0/state"), "on", "they are the same");
        let earlier = damon.last_end + 1;
        tracing::tests::emit(&fake.ours, "cpu1", &[event(earlier, 0, 1, 0, 1)]);
        damon.follow(&[(43, SpaceId(6)), (44, SpaceId(7))]).unwrap();
        assert_eq!(said("admin/kdamonds/0/state"), "commit");
        let pids = ["0", "1"]
            .map(|index| said(&format!("admin/kdamonds/0/contexts/0/targets/{index}/pid_target")));
        assert_eq!(pids, ["44", "43"]);
        fs::write(fake.roots.admin.join("kdamonds/0/state"), "on\n").unwrap();
        let later = clock::monotonic().0 + 1;
        tracing::tests::emit(&fake.ours, "cpu1", &[event(later, 0, 1, 0, 1)]);
        let mut spaces = || {
            let regions = damon.next().unwrap()?.regions;
            Some(regions.iter().map(|region| region.range.space.0).collect::<Vec<_>>())
        };
        assert_eq!(spaces(), Some(vec![5]));
        assert_eq!(spaces(), None, "the window of target 1 may follow");
        tracing::tests::emit(&fake.ours, "cpu1", &[event(later + 1, 1, 1, 0, 1)]);
        assert_eq!(spaces(), Some(vec![6, 7]));
    }

    // The kdamond stops by itself when all of its targets have ended.
    #[test]
    fn a_kdamond_whose_targets_ended_starts_again_for_new_ones() {
        let fake = fake();
        let config = Config { update: Duration::ZERO, ..Config::default() };
        let mut damon =
            KernelDamon::start(&fake.roots, config, &[(42, SpaceId(5))], Time(0)).unwrap();
        fs::write(fake.roots.admin.join("kdamonds/0/state"), "off\n").unwrap();
        damon.follow(&[(43, SpaceId(6))]).unwrap();
        let state = fs::read_to_string(fake.roots.admin.join("kdamonds/0/state")).unwrap();
        assert_eq!(state, "on");
    }

    #[test]
    fn the_kdamonds_cpu_time_is_known_after_its_end() {
        let fake = fake();
        let stat = "77 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 9 0 0 20 0 1 0 5 0 0 0";
        let targets = [(42, SpaceId(0))];
        let mut damon =
            KernelDamon::start(&fake.roots, Config::default(), &targets, Time(0)).unwrap();
        fs::create_dir(fake.roots.proc.join("77")).unwrap();
        fs::write(fake.roots.proc.join("77/stat"), stat).unwrap();
        assert_eq!(damon.cpu_time(), Duration::from_millis(90));
        let time = damon.last_end + 1;
        tracing::tests::emit(&fake.ours, "cpu0", &[event(time, 0, 1, 0, 1)]);
        damon.next().unwrap().unwrap();
        fs::remove_file(fake.roots.proc.join("77/stat")).unwrap();
        assert_eq!(damon.cpu_time(), Duration::from_millis(90));
    }

    #[test]
    fn a_stopped_kdamond_is_an_error_after_silent_windows() {
        let fake = fake();
        let targets = [(42, SpaceId(0))];
        let mut damon =
            KernelDamon::start(&fake.roots, Config::default(), &targets, Time(0)).unwrap();
        fs::write(fake.roots.admin.join("kdamonds/0/state"), "off\n").unwrap();
        assert_eq!(damon.next(), Ok(None), "not at once: the target may just have ended");
        damon.last_received = 0;
        assert_eq!(damon.next().unwrap_err().kind(), ErrorKind::Gone);
    }

    #[test]
    fn drop_restores_sysfs_and_tracefs() {
        let fake = fake();
        let targets = [(42, SpaceId(0))];
        drop(KernelDamon::start(&fake.roots, Config::default(), &targets, Time(0)).unwrap());
        let said = |file: &str| fs::read_to_string(fake.root.path().join(file)).unwrap();
        assert_eq!(said("admin/kdamonds/0/state"), "off");
        assert_eq!(said("admin/kdamonds/nr_kdamonds"), "0");
        let enable = fake.ours.join("events/damon/damon_aggregated/enable");
        assert_eq!(fs::read_to_string(enable).unwrap(), "0");
    }

    #[test]
    fn absurd_settings_are_refused_before_anything_is_touched() {
        let fake = fake();
        let config = Config { min_regions: 20, max_regions: 10, ..Config::default() };
        let error = KernelDamon::start(&fake.roots, config, &[], Time(0)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let nr = fs::read_to_string(fake.roots.admin.join("kdamonds/nr_kdamonds")).unwrap();
        assert_eq!(nr, "0\n");
    }
}
