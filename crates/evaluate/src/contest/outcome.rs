//! Results of a policy, in figures with units (METRICS.md, `core::metrics::moves`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tierscope_core::drive::{Course, Ended};
use tierscope_core::metrics::moves::Moved;
use tierscope_core::session::{Placing, Session};
use tierscope_core::{
    Budget, Evidence, Mover, Orders, PlacementView, Policy, Result, Setting, Time,
};
use tierscope_record::Recorder;
use tierscope_sim::exact::{Account, Spent};
use tierscope_sim::experiment::Experiment;
use tierscope_sim::open;

use super::contestant::Contestant;
use super::watched::{Totals, Watched};
use crate::devices::Devices;
use crate::runs::{LatencyFigures, meta};

/// State of a run at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
pub struct Row {
    /// End of the row's interval, in simulated seconds.
    pub end_seconds: f64,
    /// Operations of the first process per second, within the interval.
    pub operations_per_second: f64,
    /// Share of the interval's memory accesses that the fastest tier served.
    pub fast_tier_share: Option<f64>,
    /// Bytes promoted so far.
    pub promoted_bytes: u64,
    /// Bytes demoted so far.
    pub demoted_bytes: u64,
    /// Bytes promoted and touched since, so far; `None` in density mode, which counts them at the
    /// end only.
    pub reaccessed_bytes: Option<u64>,
    /// Bytes resident in memory, if the machine has swap.
    pub resident_bytes: Option<u64>,
    /// Bytes refaulted so far.
    pub refaulted_bytes: Option<u64>,
    /// CPU seconds of telemetry so far.
    pub telemetry_seconds: f64,
    /// CPU seconds of the policy's own steps so far.
    pub policy_seconds: f64,
}

/// A part of a program that does one thing after the other ([`tierscope_workloads::Phase`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
pub struct PhaseRow {
    /// Name: `load`, `a`.
    pub name: String,
    /// End of the phase, in simulated seconds.
    pub end_seconds: f64,
    /// Operations of the first process per second, within the phase.
    pub operations_per_second: f64,
    /// Share of the phase's memory accesses that the fastest tier served.
    pub fast_tier_share: Option<f64>,
    /// Bytes promoted within the phase.
    pub promoted_bytes: u64,
    /// Bytes demoted within the phase.
    pub demoted_bytes: u64,
}

/// Bytes whose move failed, with the cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// Cause: `no-room`, `busy`, …
    pub cause: String,
    /// Bytes that were not moved for this cause.
    pub bytes: u64,
}

/// Sums of moved bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// Bytes moved to a faster tier.
    pub promoted_bytes: u64,
    /// Bytes moved to a slower tier.
    pub demoted_bytes: u64,
    /// Bytes reclaimed.
    pub reclaimed_bytes: u64,
    /// Bytes refaulted after their reclaim, counted each time.
    pub refaulted_bytes: u64,
    /// Bytes ordered whose move failed.
    pub failed_bytes: u64,
    /// Bytes whose move failed, by cause.
    pub failures: Vec<Failures>,
    /// Bytes promoted, but not touched before they were moved back or the run ended.
    pub wasted_bytes: u64,
    /// Bytes moved twice within 60 s.
    pub ping_pong_bytes: u64,
    /// Share of the promoted bytes that were touched afterwards.
    pub reaccess_share: Option<f64>,
    /// Bytes of huge pages split.
    pub split_bytes: u64,
}

impl From<Moved> for Moves {
    fn from(moved: Moved) -> Self {
        let failure = |(why, bytes): &(tierscope_core::Failure, u64)| Failures {
            cause: format!("{why:?}").to_lowercase(),
            bytes: *bytes,
        };
        Self {
            promoted_bytes: moved.promoted,
            demoted_bytes: moved.demoted,
            reclaimed_bytes: moved.reclaimed,
            refaulted_bytes: 0,
            failed_bytes: moved.all_failed(),
            failures: moved.failed.iter().map(failure).collect(),
            wasted_bytes: moved.wasted,
            ping_pong_bytes: moved.ping_pong,
            reaccess_share: moved.reaccess_share(),
            split_bytes: moved.split,
        }
    }
}

/// CPU time relative to simulated time, 1 is one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Telemetry: probes, scans, reading samples, arming hint faults.
    pub telemetry: f64,
    /// Telemetry on the target's cores: samples, hint faults, shootdowns.
    pub interrupts: f64,
    /// CPU time that the policy has reported.
    pub policy: f64,
    /// CPU time of moving pages.
    pub mover: f64,
}

impl Shares {
    fn of(spent: &Spent, seconds: f64) -> Self {
        let share = |time: std::time::Duration| time.as_secs_f64() / seconds.max(1e-9);
        Self {
            telemetry: share(spent.telemetry),
            interrupts: share(spent.interrupts),
            policy: share(spent.policy),
            mover: share(spent.mover),
        }
    }
}

/// Access latencies in simulated ns at the end of a run, in density mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessLatency {
    /// Median latency.
    pub p50_ns: f64,
    /// The 95th percentile.
    pub p95_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
}

impl From<[f64; 3]> for AccessLatency {
    fn from([p50_ns, p95_ns, p99_ns]: [f64; 3]) -> Self {
        Self { p50_ns, p95_ns, p99_ns }
    }
}

/// Latencies of requests for values of `visit` bytes, from those of accesses; `None` without such
/// values.
fn request_latency(experiment: &Experiment, access: [f64; 3]) -> Option<AccessLatency> {
    let lines = experiment.config.visit?.div_ceil(LINE) as f64;
    let pause = experiment.config.pause.as_nanos() as f64;
    Some(access.map(|ns| lines * (pause + ns)).into())
}

/// Bytes of a cache line.
const LINE: u64 = 64;

/// Result of a policy. All times except `wall_seconds` are simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Default))]
pub struct Outcome {
    /// The policy, as on the command line.
    pub policy: String,
    /// Settings of the policy.
    pub settings: Vec<(String, String)>,
    /// Instrument that fed it.
    pub instrument: String,
    /// Reason for the end: `deadline`, `stopped` or `target-gone`.
    pub ended: String,
    /// Duration of the run, in simulated seconds.
    pub seconds: f64,
    /// Unit of the operations, in the plural.
    pub unit: String,
    /// Operations of the first process over the whole run.
    pub operations: u64,
    /// Operations per second after the warm-up.
    pub operations_per_second: f64,
    /// Share of the memory accesses after the warm-up that the fastest tier served.
    pub fast_tier_share: Option<f64>,
    /// Latency of the first process's operations, for a program that marks their ends.
    pub latency: Option<LatencyFigures>,
    /// Latency of accesses, if there are no latencies of operations.
    pub access_latency: Option<AccessLatency>,
    /// Latencies of requests for a whole value at the end, by densities: those of accesses, and the
    /// thread's other work, for each line of the value. All of it lies in one tier, so that the
    /// lines' latencies do not average out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_latency: Option<AccessLatency>,
    /// Sums of moved bytes.
    pub moves: Moves,
    /// CPU time relative to simulated time.
    pub cpu: Shares,
    /// Number of hint faults.
    pub hint_faults: u64,
    /// Processes killed for lack of memory, or for an access out of bounds.
    pub killed: u64,
    /// Wall time of the simulation; not reproducible.
    pub wall_seconds: f64,
    /// Time series of the run.
    pub rows: Vec<Row>,
    /// Phases of the first process that ended within the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRow>,
    /// Internal figures of the policy, taken at intervals; empty for most policies.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Notes>,
}

/// Internal figures of a policy at a point in time ([`Policy::notes`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notes {
    /// Time in simulated seconds.
    pub at_seconds: f64,
    /// Figures by name.
    pub figures: Vec<(&'static str, f64)>,
}

/// Wrapper of a policy that collects its internal figures at intervals.
struct Noted<'a> {
    policy: &'a mut dyn Policy,
    next: Time,
    notes: Vec<Notes>,
}

/// Interval between two collections of a policy's internal figures.
const PAUSE: Duration = Duration::from_secs(5);

impl Policy for Noted<'_> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn settings(&self) -> Vec<Setting> {
        self.policy.settings()
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.policy.observe(evidence, orders);
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let next = self.policy.tick(now, view, orders);
        if now >= self.next {
            self.next = now + PAUSE;
            let figures = self.policy.notes();
            if !figures.is_empty() {
                self.notes.push(Notes { at_seconds: now.seconds(), figures });
            }
        }
        next
    }
}

/// Results of a run that are not read from the machine.
struct Run {
    ended: Ended,
    instrument: &'static str,
    settings: Vec<(String, String)>,
    notes: Vec<Notes>,
}

/// Directory of the recording, and the command line to store in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) line: &'a str,
}

fn drive(
    experiment: &Experiment,
    contestant: &Contestant,
    policy: &mut dyn Policy,
    (stage, mover): (&mut Watched<'_>, &mut dyn Mover),
    record: Option<Record<'_>>,
) -> Result<Run> {
    let mut instrument = contestant.instrument(experiment)?;
    let settings = policy.settings().into_iter().map(|s| (s.name.into(), s.value)).collect();
    let course = Course::until(Time(0) + experiment.time);
    let budget = Budget { bytes: u64::MAX };
    let mut noted = Noted { policy, next: Time(0), notes: Vec::new() };
    let session = Session {
        ports: stage,
        instrument: &mut *instrument,
        placing: Some(Placing { policy: &mut noted, mover, budget }),
        course,
    };
    let session = session.open(|ports, instrument| {
        let Some(Record { dir, line }) = record else { return Ok(None) };
        let name_and_interval = (instrument.name(), contestant.sampling_interval());
        let mut meta = meta(experiment, ports, name_and_interval, line);
        meta.annotations.insert("policy".into(), contestant.text.clone());
        Recorder::create(dir, &meta.with_settings(&instrument.settings())).map(Some)
    })?;
    let ended = session.run(&mut ())?;
    experiment.ran()?;
    let notes = noted.notes;
    Ok(Run { ended, instrument: instrument.name(), settings, notes })
}

/// Runs a policy on the experiment to its end, or until `stop` is set, and records it if requested;
/// progress is published in `reached`, in simulated nanoseconds.
///
/// # Errors
/// The machine cannot be built, or it lacks a port that policy or instrument needs.
pub(crate) fn place(
    experiment: &Experiment,
    contestant: &Contestant,
    record: Option<Record<'_>>,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
) -> Result<Outcome> {
    let begun = Instant::now();
    let prepared = contestant.prepare(experiment, stop, reached)?;
    let (experiment, mut policy) = (&*prepared.experiment, prepared.policy);
    let before = (contestant.runs() - 1) * experiment.time.as_nanos() as u64;
    let (needs, sampling) = (contestant.needs(), contestant.sampling(experiment));
    let devices = Devices::of(experiment)?;
    let (mut machine, _) =
        open::for_needs(experiment, &needs, sampling, |memory| devices.make(&needs, memory), stop)?;
    let mut mover = machine.mover();
    let mut stage = Watched::new(&mut *machine, experiment, (reached, before));
    let run = drive(experiment, contestant, &mut *policy, (&mut stage, &mut mover), record)?;
    let end = stage.totals();
    // If the run was stopped during the warm-up, all of it counts.
    let warm = stage.warm.take().unwrap_or_default();
    let rows = std::mem::take(&mut stage.rows);
    let phases = std::mem::take(&mut stage.phases.ended);
    let first = end.account.done.first().cloned();
    let access_latency = match &first {
        Some(_) => None,
        None => machine.latencies([0.5, 0.95, 0.99]),
    };
    let seconds = end.time.seconds();
    let Account { spent, counts, killed, .. } = &end.account;
    Ok(Outcome {
        policy: contestant.text.clone(),
        settings: run.settings,
        instrument: run.instrument.into(),
        ended: run.ended.name().to_owned(),
        seconds,
        unit: first.as_ref().map_or("accesses", |done| done.unit).into(),
        operations: end.operations(),
        operations_per_second: Totals::rate_since(&end, &warm),
        fast_tier_share: end.fast_since(&warm),
        latency: first.and_then(|done| done.latency).map(LatencyFigures::from),
        access_latency: access_latency.map(AccessLatency::from),
        request_latency: access_latency.and_then(|access| request_latency(experiment, access)),
        moves: Moves { refaulted_bytes: counts.swap_ins * 4096, ..machine.moved().into() },
        cpu: Shares::of(spent, seconds),
        hint_faults: counts.hint_faults,
        killed: *killed,
        wall_seconds: begun.elapsed().as_secs_f64(),
        rows,
        phases,
        notes: run.notes,
    })
}
