//! The live machine: processes of this host as a target, behind core's ports.

mod follow;

use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessBits, Clock, Counters, CpuTime, Error, ErrorKind, FrameRun, Frames, Mappings, Missing,
    PlacementView, Ports, Pressure, Range, RegionSource, Residence, Result, Samples, Snapshot,
    SpaceId, Target, Time, Wake,
};

use crate::alarm::{Alarm, Events};
use crate::bits::{Bits, Scans};
use crate::clock;
use crate::frames;
use crate::kernel_damon::{Config, KernelDamon, Roots as DamonRoots, translated};
use crate::left_out::LeftOut;
use crate::module::Module;
use crate::mover::{Limits, LiveMover};
use crate::numa_usage::NumaMonitor;
use crate::open::Host;
use crate::perf::{PerfSamples, Source};
use crate::proc::{Names, Proc};
use crate::process::Process;
use crate::roots::Roots;
use crate::selection::Selection;
use crate::shared_memory::{SharedMemory, Translation};
use crate::space_owners::{Owner, SpaceOwners};
use crate::tiering::Tiering;
use crate::tiers::TierConfig;

/// Processes of this host. Time is CLOCK_MONOTONIC, as in the ground truth of a toucher.
///
/// A space ends when its process exits or executes another program; the new program is a new space.
/// Processes join at a refresh of the mappings. Memory that several of them share is a space of its
/// own ([`Mappings::shared`]). A command is stopped at its first instruction until
/// the first wait.
///
/// While this exists, SIGINT, SIGTERM and SIGHUP to the thread that opened it end waits
/// ([`Wake::Stop`]) and have no other effect; SIGHUP can be handled separately
/// ([`LiveMachine::on_hangup`]).
pub struct LiveMachine {
    proc: Proc,
    roots: Roots,
    bits: Result<Bits, Missing>,
    alarm: Alarm,
    /// When the machine was opened, in the unit of process start times.
    opened_ticks: u64,
    own_cpu_before: Duration,
    watched: Vec<Process>,
    /// Pids whose space ended in this refresh; a pid that joins again has executed another program.
    left: Vec<u32>,
    /// Processes that cannot be watched.
    left_out: LeftOut,
    next_space: u32,
    /// Memory that processes share.
    shared_memory: SharedMemory,
    /// Addresses of shared memory in the processes, by `known`.
    translation: Arc<Translation>,
    ended_cpu: Duration,
    names: Names,
    known: Arc<Mappings>,
    /// When all mappings were read last, and the CPU time that it took.
    checked: Time,
    checking: Duration,
    /// The same of the last reading of any.
    read: Time,
    reading: Duration,
    /// The same of the last comparison of the processes' sizes.
    compared: Time,
    comparing: Duration,
    /// Spaces joined since `known` was read.
    stale: bool,
    /// Spaces of `known` ended.
    ended: bool,
    /// Spaces changed since a wait reported it last.
    announce: bool,
    /// An error of a refresh during a wait, returned by the next call that can fail.
    failed: Option<Error>,
    numa_usage: NumaMonitor,
    /// Current owner of each space, shared with other threads.
    owners: SpaceOwners,
    tiering: Option<Tiering>,
    samples: Result<Box<dyn Samples>, Missing>,
    counters: Option<Box<dyn Counters>>,
    damon: Option<KernelDamon>,
    hangup: Option<Box<dyn FnMut()>>,
}

impl LiveMachine {
    /// Opens the target. Without `module` the machine has no access bits, and the port reports why.
    ///
    /// # Errors
    /// Those of [`Selection::check`]; that of [`Module::attach`] if no process can be watched.
    pub fn open(selection: &Selection, module: Result<Module>) -> Result<Self> {
        let proc = Proc::default();
        let alarm = Alarm::new()?;
        let roots = Roots::take(selection, &proc, alarm.mask_before())?;
        let cgroup = roots.cgroup();
        let mut machine = Self {
            proc,
            roots,
            bits: module.map(Bits::new).map_err(|e| explain(&e)),
            alarm,
            opened_ticks: clock::boot_ticks(),
            own_cpu_before: clock::process_cpu(),
            watched: Vec::new(),
            left: Vec::new(),
            left_out: LeftOut::default(),
            next_space: 0,
            shared_memory: SharedMemory::default(),
            translation: Arc::default(),
            ended_cpu: Duration::ZERO,
            names: Names::default(),
            known: Arc::default(),
            checked: Time(0),
            checking: Duration::ZERO,
            read: Time(0),
            reading: Duration::ZERO,
            compared: Time(0),
            comparing: Duration::ZERO,
            stale: true,
            ended: false,
            announce: false,
            failed: None,
            // Threads inherit the signal mask: start them after the alarm has blocked the signals.
            numa_usage: NumaMonitor::start(Proc::default(), cgroup)?,
            owners: SpaceOwners::default(),
            tiering: None,
            samples: Err(Missing::on_this_machine("samples")),
            counters: None,
            damon: None,
            hangup: None,
        };
        machine.refresh()?;
        if machine.watched.is_empty() {
            return Err(machine.left_out.reason().unwrap_or_else(|| {
                Error::new(ErrorKind::NoTarget, "cannot watch the target")
                    .cause("it ended before it could be watched")
                    .remedy("check that it keeps running")
            }));
        }
        machine.announce = false;
        Ok(machine)
    }

    /// Enables migration between tiers: from now on the machine reports placement and pressure. The
    /// returned mover migrates pages.
    ///
    /// # Errors
    /// If there is only one tier, or tiers or limits are invalid.
    pub fn with_tiers(mut self, config: &TierConfig, limits: Limits) -> Result<(Self, LiveMover)> {
        self.publish_owners();
        let (tiering, mover) = Tiering::open(config, limits, self.owners.clone())?;
        self.numa_usage.set_tiers(tiering.nodes());
        self.tiering = Some(tiering);
        Ok((self, mover))
    }

    /// Enables reclaim: from now on the machine reports pressure, with all nodes as one tier. The
    /// returned mover reclaims pages.
    ///
    /// # Errors
    /// If the limits are invalid.
    pub fn with_reclaim(mut self, limits: Limits) -> Result<(Self, LiveMover)> {
        self.publish_owners();
        let (tiering, mover) = Tiering::of_one_tier(limits, self.owners.clone())?;
        self.tiering = Some(tiering);
        Ok((self, mover))
    }

    /// Totals of the scans of access bits so far.
    #[must_use]
    pub fn scans(&self) -> Scans {
        self.bits.as_ref().map(Bits::scans).unwrap_or_default()
    }

    /// Sets the source of samples, or the reason why there is none.
    pub fn set_samples(&mut self, samples: Result<Box<dyn Samples>, Missing>) {
        self.samples = samples;
    }

    /// Sets the counters of the memory controllers.
    pub fn set_counters(&mut self, counters: Box<dyn Counters>) {
        self.counters = Some(counters);
    }

    /// Lets the kernel's DAMON monitor the target: from now on the machine reports its regions, and
    /// the kdamond's CPU time is the profiler's.
    ///
    /// # Errors
    /// Those of [`KernelDamon::start`].
    pub fn monitor(&mut self, config: Config) -> Result<()> {
        let (targets, now) = (self.targets(), self.now());
        self.damon = Some(KernelDamon::start(&DamonRoots::default(), config, &targets, now)?);
        Ok(())
    }

    /// The kernel's DAMON, with its counts of lost windows; `None` without
    /// [`LiveMachine::monitor`].
    #[must_use]
    pub fn kernel_damon(&self) -> Option<&KernelDamon> {
        self.damon.as_ref()
    }

    /// The watched processes with their spaces.
    fn targets(&self) -> Vec<(u32, SpaceId)> {
        self.watched.iter().map(|w| (w.pid, w.space)).collect()
    }

    /// Samples accesses of the target by perf_event, at `frequency` samples per second and CPU.
    ///
    /// # Errors
    /// If the event does not exist or is not permitted.
    pub(crate) fn sample(&mut self, host: &Host<'_>, source: Source, frequency: u64) -> Result<()> {
        self.publish_owners();
        let samples = PerfSamples::open(host, source, frequency, self.owners.clone())?;
        self.samples = Ok(Box::new(samples));
        Ok(())
    }

    /// From now on SIGHUP does not end waits like the other signals: `then` is called instead, and
    /// the wait continues.
    pub fn on_hangup(&mut self, then: Box<dyn FnMut()>) {
        self.alarm.report_hangups();
        self.hangup = Some(then);
    }

    /// Warning with the number of processes that could not be watched so far, the first reason and
    /// its remedy; `None` if there were none.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        self.left_out.warning()
    }

    /// Pids of the watched processes, by space.
    #[must_use]
    pub fn pids(&self) -> Vec<(SpaceId, u32)> {
        self.watched.iter().map(|w| (w.space, w.pid)).collect()
    }

    /// Updates the shared list of space owners.
    fn publish_owners(&self) -> Vec<Owner> {
        let owners: Vec<Owner> = self.watched.iter().map(Process::owner).collect();
        self.owners.set(&owners, Arc::clone(&self.translation));
        owners
    }

    /// The shared list of space owners, up to date.
    pub(crate) fn published_owners(&self) -> SpaceOwners {
        self.publish_owners();
        self.owners.clone()
    }

    /// Ends the observation. A command that still runs is terminated (SIGTERM, after five seconds
    /// SIGKILL), as `perf record` does; returns its exit status, or `None` for other targets.
    ///
    /// # Errors
    /// If the command cannot be waited for.
    pub fn finish(mut self) -> Result<Option<ExitStatus>> {
        match &mut self.roots {
            Roots::Command { spawned, .. } => spawned.finish().map(Some),
            _ => Ok(None),
        }
    }
}

impl Clock for LiveMachine {
    fn now(&self) -> Time {
        clock::monotonic()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.roots.release();
        let mut due = self.now() >= until;
        loop {
            if self.bits.as_mut().is_ok_and(Bits::take_gone) {
                self.end_with_deferred_error();
            }
            let pending = due || self.announce || self.watched.is_empty();
            let heard = if pending {
                // A timer of an earlier wait may have expired since.
                Events { timer: false, ..self.alarm.poll() }
            } else {
                let end = (until < Time::NEVER).then_some(until.0);
                self.alarm.wait_until(end)
            };
            if heard.stop {
                return Wake::Stop;
            }
            if heard.hangup
                && let Some(then) = &mut self.hangup
            {
                then();
            }
            if heard.exit {
                self.end_with_deferred_error();
            }
            if self.watched.is_empty() && self.failed.is_none() {
                return Wake::Gone;
            }
            if std::mem::take(&mut self.announce) {
                return Wake::TargetChanged;
            }
            due |= heard.timer || self.now() >= until;
            if due {
                return Wake::Deadline;
            }
        }
    }
}

impl LiveMachine {
    /// A wait cannot fail: it reports that the target changed, and the next request for mappings
    /// returns the error.
    fn end_with_deferred_error(&mut self) {
        if let Err(error) = self.end_exited() {
            self.failed = Some(error);
            self.stale = true;
            self.announce = true;
        }
    }
}

impl Target for LiveMachine {
    /// The mappings of a process that maps more or less memory than before are read again earlier,
    /// as far as a hundredth of a CPU allows. If reading all of them costs more than that, they are
    /// read less often, down to a tenth as often as requested.
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.is_fresh(max_age) {
            true => self.take_out_ended(),
            false => self.update(max_age)?,
        }
        Ok(Arc::clone(&self.known))
    }

    /// Target: user and system time of its processes while they were watched; time between the last
    /// reading and a process's end is not included if its parent has reaped it by then.
    fn cpu_time(&self) -> CpuTime {
        let living: Duration = self.watched.iter().map(Process::cpu_time).sum();
        let kdamond = self.damon.as_ref().map_or(Duration::ZERO, KernelDamon::cpu_time);
        CpuTime {
            profiler: kdamond + clock::process_cpu().saturating_sub(self.own_cpu_before),
            target: self.ended_cpu + living,
        }
    }

    fn own_time(&self) -> Duration {
        clock::thread_cpu()
    }
}

impl Ports for LiveMachine {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        match &mut self.bits {
            Ok(bits) => Ok(bits),
            Err(missing) => Err(missing.clone()),
        }
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        match &mut self.samples {
            Ok(samples) => Ok(samples.as_mut()),
            Err(missing) => Err(missing.clone()),
        }
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        match &mut self.counters {
            Some(counters) => Ok(counters.as_mut()),
            None => Err(Missing::on_this_machine("counters")),
        }
    }

    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        match &self.damon {
            Some(_) => Ok(self),
            None => Err(Missing::on_this_machine("regions")),
        }
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Ok(self)
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        match &mut self.tiering {
            Some(tiering) => Ok(tiering.placement()),
            None => Err(Missing::on_this_machine("placement figures")),
        }
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        match &mut self.tiering {
            Some(tiering) => Ok(tiering.pressure()),
            None => Err(Missing::on_this_machine("pressure figures")),
        }
    }

    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        let shared = self.known.shared;
        let owner = |space| self.watched.iter().find(|w| w.space == space).map(Process::owner);
        let lives = |space| shared == Some(space) || owner(space).is_some();
        Ok(self.numa_usage.found(&self.known, owner, lives))
    }
}

impl RegionSource for LiveMachine {
    /// Regions of memory that processes share are those of the shared space.
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let targets = self.targets();
        let Some(damon) = &mut self.damon else { return Ok(None) };
        damon.follow(&targets)?;
        let mut snapshot = damon.next()?;
        if let Some(snapshot) = &mut snapshot
            && !self.translation.is_empty()
        {
            let regions = std::mem::take(&mut snapshot.regions);
            snapshot.regions = translated(regions, &self.translation);
        }
        Ok(snapshot)
    }
}

impl Frames for LiveMachine {
    fn locate(&mut self, range: &Range, out: &mut Vec<FrameRun>) -> Result<()> {
        frames::of_users(Path::new("/proc"), &self.published_owners().users(range), out)
    }
}

/// Why there are no access bits. The error's text already contains the remedy.
fn explain(error: &Error) -> Missing {
    Missing { port: "access bits", cause: error.to_string(), remedy: String::new() }
}
