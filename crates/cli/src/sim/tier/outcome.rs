//! What a policy came to, in figures with units (METRICS.md, `core::metrics::moves`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use serde::Serialize;
use tierscope_core::drive::{Course, Ended, Sink, Window, tier};
use tierscope_core::metrics::moves::Moved;
use tierscope_core::{
    Budget, Evidence, Mover, Orders, PlacementView, Policy, Result, Setting, Time,
};
use tierscope_policies::make;
use tierscope_record::Recorder;
use tierscope_sim::exact::{Account, Spent};
use tierscope_sim::experiment::Experiment;

use super::contestant::Contestant;
use super::watched::{Totals, Watched};
use crate::bench::machine::build_fitted;
use crate::sim::account::LatencyFigures;
use crate::sim::run::meta;

/// What happened up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Default))]
pub struct Row {
    /// In simulated seconds.
    pub end_seconds: f64,
    /// Operations of the first process, a second, since the row before.
    pub operations_per_second: f64,
    /// Of the accesses that went to memory since the row before, the share that the fastest tier served.
    pub fast_tier_share: Option<f64>,
    /// Bytes promoted so far.
    pub promoted_bytes: u64,
    /// Bytes demoted so far.
    pub demoted_bytes: u64,
    /// Bytes promoted and touched since, so far; of densities told at the end only.
    pub reaccessed_bytes: Option<u64>,
    /// Bytes in memory, where memory can be given back.
    pub resident_bytes: Option<u64>,
    /// Bytes that had been given back and came again, so far.
    pub refaulted_bytes: Option<u64>,
}

/// Bytes that were not moved, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failures {
    /// `no-room`, `busy`, …
    pub cause: String,
    /// Bytes.
    pub bytes: u64,
}

/// What moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moves {
    /// Bytes to a faster tier.
    pub promoted_bytes: u64,
    /// Bytes to a slower tier.
    pub demoted_bytes: u64,
    /// Bytes given back.
    pub reclaimed_bytes: u64,
    /// Bytes that came back after they had been given back, each time counted.
    pub refaulted_bytes: u64,
    /// Bytes ordered and not moved.
    pub failed_bytes: u64,
    /// Of these, by cause.
    pub failures: Vec<Failures>,
    /// Bytes promoted, and not touched before they moved back or the run ended.
    pub wasted_bytes: u64,
    /// Bytes moved twice within 60 s.
    pub ping_pong_bytes: u64,
    /// Of the promoted bytes, the share touched since.
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

/// CPU time over simulated time, 1 is one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Telemetry: probes, scans, reading samples, arming.
    pub telemetry: f64,
    /// Telemetry on the target's cores: samples, hint faults, shootdowns.
    pub interrupts: f64,
    /// What the policy says that it spent.
    pub policy: f64,
    /// Moving pages.
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

/// How long accesses take, in simulated ns, at the end: of densities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AccessLatency {
    /// The median.
    pub p50_ns: f64,
    /// The 95th percentile.
    pub p95_ns: f64,
    /// The 99th.
    pub p99_ns: f64,
}

/// What a policy came to. All times but `wall_seconds` are simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Default))]
pub struct Outcome {
    /// As on the command line.
    pub policy: String,
    /// Its settings.
    pub settings: Vec<(String, String)>,
    /// Who fed it.
    pub instrument: String,
    /// `deadline`, `stopped` or `target-gone`.
    pub ended: &'static str,
    /// Simulated seconds.
    pub seconds: f64,
    /// What operations are, in the plural.
    pub unit: String,
    /// Operations of the first process, all in all.
    pub operations: u64,
    /// The same a second, after the warm-up.
    pub operations_per_second: f64,
    /// Of the accesses that went to memory after the warm-up, the share that the fastest tier served.
    pub fast_tier_share: Option<f64>,
    /// How long operations of the first process took, of a program that marks their ends.
    pub latency: Option<LatencyFigures>,
    /// How long accesses take, where operations do not tell.
    pub access_latency: Option<AccessLatency>,
    /// What moved.
    pub moves: Moves,
    /// CPU time over time.
    pub cpu: Shares,
    /// Hint faults.
    pub hint_faults: u64,
    /// Processes that were killed: out of memory, or out of bounds.
    pub killed: u64,
    /// Time that the simulation took; not reproducible.
    pub wall_seconds: f64,
    /// Over time.
    pub rows: Vec<Row>,
    /// What the policy knew of its own work, from time to time; nothing of most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Notes>,
}

/// What a policy knew of its own work at a time ([`Policy::notes`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notes {
    /// In simulated seconds.
    pub at_seconds: f64,
    /// Figures by name.
    pub figures: Vec<(&'static str, f64)>,
}

/// A policy, and what it knows of its own work from time to time.
struct Noted<'a> {
    policy: &'a mut dyn Policy,
    next: Time,
    notes: Vec<Notes>,
}

/// From one look at it to the next.
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

/// Nobody looks at the windows: the machine is looked at.
struct Nobody;

impl Sink for Nobody {
    fn window(&mut self, _: &Window<'_>) -> Result<()> {
        Ok(())
    }
}

/// What of a run was not the machine's.
struct Run {
    ended: Ended,
    instrument: &'static str,
    settings: Vec<(String, String)>,
    notes: Vec<Notes>,
}

/// Where what a policy saw and did is recorded, and the command line for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) line: &'a str,
}

fn drive(
    experiment: &Experiment,
    contestant: &Contestant,
    stage: &mut Watched<'_>,
    mover: &mut dyn Mover,
    record: Option<Record<'_>>,
) -> Result<Run> {
    let mut instrument = contestant.instrument(experiment)?;
    let mut policy: Box<dyn Policy> = make(&contestant.line)?;
    let settings = policy.settings().into_iter().map(|s| (s.name.into(), s.value)).collect();
    let course = Course::until(Time(0) + experiment.time);
    let budget = Budget { bytes: u64::MAX };
    let mut noted = Noted { policy: &mut *policy, next: Time(0), notes: Vec::new() };
    let (told, placer) = (&mut *instrument, &mut noted);
    let ended = match record {
        None => tier(stage, told, placer, mover, budget, &course, &mut Nobody)?,
        Some(record) => {
            let of = (told.name(), contestant.sampling_interval());
            let mut meta = meta(experiment, stage, of, record.line);
            meta.annotations.insert("policy".into(), contestant.text.clone());
            let mut recorder = Recorder::create(record.dir, &meta.with_settings(&told.settings()))?;
            let ended = tier(stage, told, placer, mover, budget, &course, &mut recorder);
            // An error of the recording comes back from here as well; the first one is the cause.
            let closed = recorder.finish();
            let ended = ended?;
            closed?;
            ended
        }
    };
    experiment.ran()?;
    let notes = noted.notes;
    Ok(Run { ended, instrument: instrument.name(), settings, notes })
}

/// Runs a policy on the experiment until its time is over or `stop` is set, and records it if that is
/// wanted; `reached` tells how far it is, in simulated nanoseconds.
///
/// # Errors
/// If the machine cannot be built, or policy or instrument lack a port.
pub(crate) fn place(
    experiment: &Experiment,
    contestant: &Contestant,
    record: Option<Record<'_>>,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
) -> Result<Outcome> {
    let begun = Instant::now();
    let experiment = &*contestant.on(experiment);
    let (mut machine, _) = build_fitted(experiment, contestant.fitted(experiment), stop)?;
    let mut mover = machine.mover();
    let mut stage = Watched::new(&mut *machine, experiment, reached);
    let run = drive(experiment, contestant, &mut stage, &mut mover, record)?;
    let end = stage.totals();
    // Stopped before it was warm: all of it counts.
    let warm = stage.warm.take().unwrap_or_default();
    let rows = std::mem::take(&mut stage.rows);
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
        ended: ended(run.ended),
        seconds,
        unit: first.as_ref().map_or("accesses", |done| done.unit).into(),
        operations: end.operations(),
        operations_per_second: Totals::rate_since(&end, &warm),
        fast_tier_share: end.fast_since(&warm),
        latency: first.and_then(|done| done.latency).map(LatencyFigures::from),
        access_latency: access_latency.map(|[p50_ns, p95_ns, p99_ns]| AccessLatency {
            p50_ns,
            p95_ns,
            p99_ns,
        }),
        moves: Moves { refaulted_bytes: counts.swap_ins * 4096, ..machine.moved().into() },
        cpu: Shares::of(spent, seconds),
        hint_faults: counts.hint_faults,
        killed: *killed,
        wall_seconds: begun.elapsed().as_secs_f64(),
        rows,
        notes: run.notes,
    })
}

fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::Deadline => "deadline",
        Ended::Stopped => "stopped",
        Ended::TargetGone => "target-gone",
    }
}
