//! Judges one contender on one machine, window by window (METRICS.md, `core::metrics`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tierscope_core::drive::{Course, Ended, Sink, Window};
use tierscope_core::metrics::rates::TrueRates;
use tierscope_core::metrics::{self, Accuracy, HOT_FREQUENCY};
use tierscope_core::session::Session;
use tierscope_core::{RangeSet, Region, Result, Snapshot, Time};
use tierscope_sim::exact::Account;
use tierscope_sim::experiment::Experiment;
use tierscope_sim::{Truth, open};

use super::figures::{Figures, Seen};
use crate::devices::Devices;
use crate::watch::Watch;

/// Accuracy of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// End of the window, in simulated seconds.
    pub end_seconds: f64,
    /// Whether the hot ranges changed within it.
    pub changed: bool,
    /// Bytes reported hot.
    pub reported_bytes: u64,
    /// Bytes truly hot.
    pub true_bytes: u64,
    /// Bytes both reported and truly hot.
    pub both_bytes: u64,
    /// Bytes of the pages actually touched in the window, and in the last ten windows.
    pub touched_bytes: [u64; 2],
    /// Bytes of those pages that were reported hot.
    pub touched_both_bytes: [u64; 2],
    /// Number of regions that overlap areas which the workload accesses.
    pub regions: usize,
    /// Probes of the region that was probed most.
    pub samples: u32,
    /// Share of the mapped bytes in regions that the window's snapshot reports as probed.
    pub looked_at: f64,
    /// CPU time of the profiler so far, in simulated seconds.
    pub profiler_seconds: f64,
}

impl Row {
    pub(super) fn accuracy(&self) -> Accuracy {
        Accuracy { reported: self.reported_bytes, truth: self.true_bytes, both: self.both_bytes }
    }

    /// Accuracy against the pages touched in the window (0), or in the last ten windows (1).
    fn page_accuracy(&self, span: usize) -> Accuracy {
        Accuracy {
            reported: self.reported_bytes,
            truth: self.touched_bytes[span],
            both: self.touched_both_bytes[span],
        }
    }

    /// Harmonic mean of precision and recall.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        self.accuracy().f1()
    }

    /// Whether precision and recall reach the bar.
    fn reaches(&self, bar: f64) -> bool {
        let accuracy = self.accuracy();
        accuracy.precision() >= Some(bar) && accuracy.recall() >= Some(bar)
    }
}

/// Accuracy over many windows, weighted by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Of the reported bytes, the share truly hot.
    pub precision: Option<f64>,
    /// Of the truly hot bytes, the share reported.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Bytes wrongly reported hot relative to bytes truly hot.
    pub false_hot_share: Option<f64>,
}

impl Shares {
    fn pooled(windows: impl Iterator<Item = Accuracy>) -> Self {
        let none = Accuracy { reported: 0, truth: 0, both: 0 };
        let sum = windows.fold(none, |sum, a| Accuracy {
            reported: sum.reported + a.reported,
            truth: sum.truth + a.truth,
            both: sum.both + a.both,
        });
        Self {
            precision: sum.precision(),
            recall: sum.recall(),
            f1: sum.f1(),
            false_hot_share: sum.false_hot_share(),
        }
    }
}

/// Time to detect a hot set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Detection {
    /// Time of the attach or change, in simulated seconds.
    pub from_seconds: f64,
    /// `attach`, or the name of the phase that began.
    pub cause: String,
    /// Seconds until the end of the first of four consecutive windows that reach the bar; `None` if
    /// there are none.
    pub seconds: Option<f64>,
}

/// Result of a contender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the contender.
    pub contender: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Settings of the instrument.
    pub settings: Vec<(String, String)>,
    /// Duration of the run, in simulated seconds.
    pub seconds: f64,
    /// Whether the run reached its end.
    pub complete: bool,
    /// Accuracy over all windows.
    pub all: Shares,
    /// Accuracy over the windows from each detection to the next change; `None` if nothing was
    /// detected.
    pub settled: Option<Shares>,
    /// Accuracy over the quoted windows against the pages touched in each, and in the ten windows
    /// up to each.
    pub pages: [Shares; 2],
    /// Detections after attach, and after each change of the hot ranges.
    pub detections: Vec<Detection>,
    /// Simulated CPU time of the profiler relative to the duration of the run, 1 is one CPU.
    pub profiler_cpu: f64,
    /// Probes of page-table entries in a second. Simulated.
    pub looks: f64,
    /// Share of one CPU that the experiment allows an instrument; `None` for no limit.
    pub cpu_budget: Option<f64>,
    /// Bytes of state in the telemetry devices that the instrument read; 0 without one.
    pub state_bytes: u64,
    /// Bytes a second that the telemetry moves over memory bus and link. Simulated.
    pub traffic_bytes: f64,
    /// How often a hot list was found to have lost entries; `None` without one.
    pub overflows: Option<u64>,
    /// Share of the target's time spent in interrupts and faults for the profiler. Simulated.
    pub disturbed: f64,
    /// Slowdown of the target, assuming that it is not paced: the rate without the profiler over
    /// the rate with it, less 1.
    pub slowdown: f64,
    /// Wall time of the simulation in seconds; not reproducible, so not suited for comparison.
    pub wall_seconds: f64,
    /// Figures at the requested times, and at the end.
    pub times: Vec<Figures>,
    /// Accuracy of each window.
    pub windows: Vec<Row>,
}

impl Outcome {
    /// The accuracy to quote: over the windows after detections, or over all if nothing was
    /// detected.
    #[must_use]
    pub fn quoted(&self) -> Shares {
        self.settled.unwrap_or(self.all)
    }

    /// Time of the slowest detection; `None` if one failed.
    #[must_use]
    pub fn slowest_detection(&self) -> Option<f64> {
        let times = self.detections.iter().map(|detection| detection.seconds);
        times.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }
}

/// Parameters of the judgement.
#[derive(Clone, Debug)]
pub struct JudgeSettings {
    /// Precision and recall from which a hot set counts as detected.
    pub bar: f64,
    /// Times at which figures are computed, in addition to the end.
    pub at: Vec<Duration>,
}

impl JudgeSettings {
    /// Only a bar: figures are computed at the end only.
    #[must_use]
    pub fn bar(bar: f64) -> Self {
        Self { bar, at: Vec::new() }
    }

    /// The requested times within a run, and its end, ascending.
    fn times(&self, end: Duration) -> Vec<Duration> {
        let mut times: Vec<Duration> = self.at.iter().copied().filter(|at| *at < end).collect();
        times.push(end);
        times.sort_unstable();
        times.dedup();
        times
    }
}

/// A sink that judges windows.
struct Judge<'a> {
    truths: Vec<Truth>,
    /// Areas that the workloads access.
    accessed: RangeSet,
    /// Cached hot ranges, with the start of their segment.
    known: Option<(Duration, RangeSet)>,
    mapped: u64,
    /// Starts of all windows so far.
    starts: Vec<Time>,
    rows: Vec<Row>,
    /// Length of a window.
    window: Duration,
    /// Requested times not yet reached, the latest first.
    wanted: Vec<Duration>,
    times: Vec<Figures>,
    reached: &'a AtomicU64,
}

impl Judge<'_> {
    fn regions_accessed(&self, snapshot: &Snapshot) -> usize {
        let inside = |region: &&Region| {
            self.accessed.as_slice().iter().any(|area| area.intersect(&region.range).is_some())
        };
        snapshot.regions.iter().filter(inside).count()
    }

    /// The truth of the process with the most recent segment.
    fn youngest(&self, time: Time) -> Option<&Truth> {
        self.truths.iter().max_by_key(|truth| truth.segment_at(time).begin)
    }

    fn begin_at(&self, time: Time) -> Duration {
        self.youngest(time).map_or(Duration::ZERO, |truth| truth.segment_at(time).begin)
    }

    fn phase_at(&self, time: Time) -> String {
        self.youngest(time).map_or(String::new(), |truth| truth.phase_at(time).to_owned())
    }

    fn all_hot_at(&self, time: Time) -> RangeSet {
        self.truths.iter().flat_map(|truth| truth.hot_at(time).as_slice().to_vec()).collect()
    }

    /// Bytes that the processes touch within `from..to`, and of them the reported ones.
    fn touched(&mut self, from: Time, to: Time, reported: &RangeSet) -> (u64, u64) {
        self.truths.iter_mut().fold((0, 0), |(bytes, both), truth| {
            let touched = truth.touched(from, to);
            (bytes + touched.bytes(), both + touched.bytes_in(reported))
        })
    }

    /// Computes figures for the requested times before the end of the next window.
    fn figures(&mut self, window: &Window<'_>, hot: &RangeSet, accuracy: Accuracy) {
        let snapshot = window.snapshot;
        let next = Duration::from_nanos(snapshot.end.0) + self.window;
        while let Some(at) = self.wanted.pop_if(|at| *at < next) {
            let last = Time(snapshot.end.0.max(1) - 1);
            let pieces = self.truths.iter_mut().flat_map(|truth| truth.rates_at(last));
            let seen = Seen {
                snapshot,
                truth: TrueRates::of(pieces),
                hot,
                accuracy,
                mapped: self.mapped,
                profiler: window.cpu.profiler,
            };
            self.times.push(Figures::of(at, &seen));
        }
    }

    fn hot_at(&mut self, time: Time) -> RangeSet {
        let begin = self.begin_at(time);
        if self.known.as_ref().is_none_or(|(known, _)| *known != begin) {
            self.known = Some((begin, self.all_hot_at(time)));
        }
        self.known.as_ref().map(|(_, hot)| hot.clone()).unwrap_or_default()
    }
}

impl Sink for Judge<'_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let snapshot = window.snapshot;
        let before = self.hot_at(snapshot.start);
        let after = self.hot_at(Time(snapshot.end.0.max(1) - 1));
        let changed = before != after;
        let both = before.as_slice().iter().chain(after.as_slice()).copied();
        let truth: RangeSet = if changed { both.collect() } else { after };
        let reported = metrics::hot(snapshot, HOT_FREQUENCY);
        let accuracy = Accuracy::of(&reported, &truth);
        self.starts.push(snapshot.start);
        let tenth = self.starts[self.starts.len().saturating_sub(10)];
        let touched =
            [snapshot.start, tenth].map(|from| self.touched(from, snapshot.end, &reported));
        if let Some(mappings) = window.mappings {
            self.mapped = mappings.bytes();
        }
        let looked = snapshot.regions.iter().filter(|region| region.samples > 0);
        let looked: u64 = looked.map(|region| region.range.bytes()).sum();
        self.rows.push(Row {
            end_seconds: snapshot.end.seconds(),
            changed,
            reported_bytes: accuracy.reported,
            true_bytes: accuracy.truth,
            both_bytes: accuracy.both,
            touched_bytes: touched.map(|(bytes, _)| bytes),
            touched_both_bytes: touched.map(|(_, both)| both),
            regions: self.regions_accessed(snapshot),
            samples: snapshot.regions.iter().map(|region| region.samples).max().unwrap_or(0),
            looked_at: looked as f64 / self.mapped.max(1) as f64,
            profiler_seconds: window.cpu.profiler.as_secs_f64(),
        });
        self.figures(window, &truth, accuracy);
        self.reached.store(snapshot.end.0, Ordering::Relaxed);
        Ok(())
    }
}

/// Runs `watch` on the experiment to its end, or until `stop` is set; progress is published in
/// `reached`, in simulated nanoseconds.
///
/// # Errors
/// The machine cannot be built, or the instrument fails.
pub(crate) fn judge(
    experiment: &Experiment,
    watch: &Watch,
    asked: &JudgeSettings,
    stop: &Arc<AtomicBool>,
    reached: &AtomicU64,
) -> Result<Outcome> {
    let begun = std::time::Instant::now();
    let sampling = watch.sampling(experiment);
    let devices = Devices::of(experiment)?;
    let mut state_bytes = 0;
    let make = |memory: &[(u64, u64)]| {
        state_bytes = devices.state_bytes(watch.needs(), memory);
        devices.make(watch.needs(), memory)
    };
    let (mut machine, truths) = open::for_needs(experiment, watch.needs(), sampling, make, stop)?;
    let mut instrument = watch.make(experiment)?;
    let accessed = truths.iter().flat_map(|truth| truth.accessed().as_slice().to_vec()).collect();
    let mut judge = Judge {
        truths,
        accessed,
        known: None,
        mapped: 0,
        starts: Vec::new(),
        rows: Vec::new(),
        window: experiment.window,
        wanted: asked.times(experiment.time).into_iter().rev().collect(),
        times: Vec::new(),
        reached,
    };
    // One nanosecond more, so that the last window, which ends at the deadline, is included.
    let course = Course::until(Time(0) + experiment.time + Duration::from_nanos(1));
    let session =
        Session { ports: &mut *machine, instrument: &mut *instrument, placing: None, course };
    let ended = session.open(|_, _| Ok(()))?.run(&mut judge)?;
    experiment.ran()?;
    let seconds = machine.now().seconds();
    let cpu = machine.cpu_time();
    let detections = detections(&judge, asked.bar);
    let settled = settled(&judge.rows, &detections);
    let quoted = settled.clone().unwrap_or_else(|| judge.rows.iter().collect());
    let pages = [0, 1].map(|span| Shares::pooled(quoted.iter().map(|row| row.page_accuracy(span))));
    let settled = settled.map(|rows| Shares::pooled(rows.into_iter().map(Row::accuracy)));
    let disturbed = machine.disturbed().as_secs_f64() / cpu.target.as_secs_f64().max(1e-9);
    let slowdown = machine.slowdown(disturbed);
    let account = machine.counted();
    let mut times = judge.times;
    times.iter_mut().for_each(|figures| figures.look_ahead(&judge.rows));
    Ok(Outcome {
        contender: watch.name.clone(),
        seed: experiment.seed,
        settings: instrument.settings().into_iter().map(|s| (s.name.into(), s.value)).collect(),
        seconds,
        complete: ended == Ended::Deadline,
        all: Shares::pooled(judge.rows.iter().map(Row::accuracy)),
        settled,
        pages,
        detections,
        profiler_cpu: cpu.profiler.as_secs_f64() / seconds.max(1e-9),
        looks: account.looks as f64 / seconds.max(1e-9),
        cpu_budget: devices.cpu,
        state_bytes,
        traffic_bytes: traffic(&account) as f64 / seconds.max(1e-9),
        overflows: machine.hot_lists().ok().map(|lists| lists.overflows()),
        disturbed,
        slowdown,
        wall_seconds: begun.elapsed().as_secs_f64(),
        times,
        windows: judge.rows,
    })
}

/// Bytes that a sample moves: 200 that the core writes (Intel SDM volume 3, PEBS record of format
/// 3: up to offset 0xc8) and 40 that the kernel writes to its ring, each read once.
const SAMPLE_BYTES: u64 = 2 * (200 + 40);
/// Bytes of a cache line, and of a page-table entry or register.
const LINE: u64 = 64;
const WORD: u64 = 8;

/// Bytes that telemetry moves over memory bus and link, by its counted operations: a line for each
/// probe, a word for each entry of a scan, two for each armed page, a record for each sample, a
/// line or a word for each access to a register. Lines that caches serve are not left out: an upper
/// bound.
fn traffic(account: &Account) -> u64 {
    let registers = &account.registers;
    account.looks * LINE
        + account.scanned * WORD
        + account.armed * 2 * WORD
        + account.samples * SAMPLE_BYTES
        + registers.lines * LINE
        + (registers.reads + registers.writes) * WORD
}

/// Detections after attach, and after each change of the hot ranges. A change within a window
/// counts with the phase at the window's end; the window itself is not judged.
fn detections(judge: &Judge<'_>, bar: f64) -> Vec<Detection> {
    let mut starts = vec![(0.0, "attach".to_owned())];
    for row in judge.rows.iter().filter(|row| row.changed) {
        let end = Time((row.end_seconds * 1e9) as u64 - 1);
        starts.push((judge.begin_at(end).as_secs_f64(), judge.phase_at(end)));
    }
    // A change exactly between two windows marks neither of them as changed.
    for pair in judge.rows.windows(2) {
        let [last, next] =
            [pair[0].end_seconds, pair[1].end_seconds].map(|s| Time((s * 1e9) as u64 - 1));
        let (a, b) = (judge.begin_at(last), judge.begin_at(next));
        if !pair[1].changed && a != b && judge.all_hot_at(last) != judge.all_hot_at(next) {
            starts.push((b.as_secs_f64(), judge.phase_at(next)));
        }
    }
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = starts[1..].iter().map(|(start, _)| *start).chain([f64::INFINITY]);
    let time = |seconds: f64| Time((seconds * 1e9) as u64);
    starts
        .iter()
        .zip(ends)
        .map(|((from, cause), to)| {
            let rows = judge
                .rows
                .iter()
                .filter(|row| row.end_seconds > *from && row.end_seconds <= to && !row.changed);
            let held: Vec<_> = rows.map(|row| (time(row.end_seconds), row.reaches(bar))).collect();
            let seconds = metrics::detection_time(time(*from), &held).map(|t| t.as_secs_f64());
            Detection { from_seconds: *from, cause: cause.clone(), seconds }
        })
        .collect()
}

/// The windows from each detection to the next change.
fn settled<'a>(rows: &'a [Row], detections: &[Detection]) -> Option<Vec<&'a Row>> {
    let ends = detections[1..].iter().map(|next| next.from_seconds).chain([f64::INFINITY]);
    let spans: Vec<(f64, f64)> = detections
        .iter()
        .zip(ends)
        .filter_map(|(d, end)| Some((d.from_seconds + d.seconds? - 1e-9, end)))
        .collect();
    let inside = |row: &&Row| {
        !row.changed
            && spans.iter().any(|(from, to)| row.end_seconds >= *from && row.end_seconds <= *to)
    };
    (!spans.is_empty()).then(|| rows.iter().filter(inside).collect())
}
