//! Comparison of a recording with the ground truth that a toucher wrote: accuracy, window by
//! window, as defined in METRICS.md.

mod chart;

use std::sync::Arc;

use serde::Serialize;
use tierscope_core::metrics::rates::{GRANULE, TrueRates, oracle_share};
use tierscope_core::metrics::{self, Accuracy, HOT_FREQUENCY};
use tierscope_core::{
    Error, ErrorKind, Range, RangeSet, Region, Result, Snapshot, Space, SpaceId, Time,
};
use tierscope_record::Recording;
use tierscope_workloads::truth_dir::{AreaLine, Hot, Replay, TruthDir};

pub use chart::draw;

/// Number of windows that the longer page truth spans.
const TEN: usize = 10;

/// Comparison of a recording with the truth.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Path of the recording.
    pub recording: String,
    /// Path of the truth.
    pub truth: String,
    /// Name of the instrument.
    pub instrument: String,
    /// Name of the target.
    pub target: String,
    /// Length of a window, in seconds.
    pub window_seconds: f64,
    /// Precision and recall from which a hot set counts as detected.
    pub bar: f64,
    /// Figures over all windows.
    pub all: Figures,
    /// Figures over the windows from each detection to the next change; `None` if nothing was
    /// detected.
    pub settled: Option<Figures>,
    /// Detection times after attach, and after each change of the hot ranges.
    pub detections: Vec<Detection>,
    /// CPU time of the profiler relative to wall time, 1 is one CPU; `None` for a single window.
    pub profiler_cpu: Option<f64>,
    /// Windows that the truth does not cover; they are excluded from all figures.
    pub uncovered_windows: usize,
    /// Most bytes that a window reports hot outside of the truth's areas: the toucher's own code,
    /// stack and tables are hot too, but the truth does not cover them. They are not judged.
    pub unjudged_bytes: u64,
    /// Figures of each window.
    pub windows: Vec<Row>,
}

/// Agreement with the three kinds of truth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// With the ranges that the workload declares hot.
    pub region: Shares,
    /// With the pages touched in the window; `None` if the page truth was skipped.
    pub pages: Option<Shares>,
    /// With the pages touched in the last ten windows; `None` if the page truth was skipped.
    pub pages_of_ten: Option<Shares>,
}

/// Byte counts of [`Accuracy`] and its shares; a share is `None` if it would divide by zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Bytes reported hot.
    pub reported_bytes: u64,
    /// Bytes truly hot.
    pub true_bytes: u64,
    /// Bytes both reported and truly hot.
    pub both_bytes: u64,
    /// Of the reported bytes, the share truly hot.
    pub precision: Option<f64>,
    /// Of the truly hot bytes, the share reported.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Bytes wrongly reported hot relative to bytes truly hot.
    pub false_hot_share: Option<f64>,
}

/// Time to detect a hot set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Detection {
    /// Time of the attach or change, in seconds since the first window began.
    pub from_seconds: f64,
    /// `attach`, or the name of the phase that began.
    pub cause: String,
    /// Seconds until the end of the first of four consecutive windows that reach the bar; `None` if
    /// there are none.
    pub seconds: Option<f64>,
}

/// Figures of one window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// End of the window, in seconds since the first window began.
    pub end_seconds: f64,
    /// Index of the workload's phase.
    pub phase: usize,
    /// Whether the hot ranges changed within it.
    pub changed: bool,
    /// Agreement with the truth.
    pub figures: Figures,
    /// Oracle share at the size of the hot ranges, by blocks of 2 MiB (METRICS.md); `None` if
    /// nothing is hot.
    pub oracle_share: Option<f64>,
    /// Bytes reported hot outside of the truth's areas.
    pub unjudged_bytes: u64,
    /// Regions that overlap the truth's areas.
    pub regions: usize,
    /// Bytes of all regions of the truth's space, watched by the instrument, including gaps between
    /// mappings.
    pub observed_bytes: u64,
    /// Bytes of these regions whose evidence was too weak to classify them.
    pub unknown_bytes: u64,
    /// Probes of the region that was probed most.
    pub samples: u32,
    /// The workload's own accesses per second.
    pub touches_per_second: Option<f64>,
}

impl From<Accuracy> for Shares {
    fn from(accuracy: Accuracy) -> Self {
        Self {
            reported_bytes: accuracy.reported,
            true_bytes: accuracy.truth,
            both_bytes: accuracy.both,
            precision: accuracy.precision(),
            recall: accuracy.recall(),
            f1: accuracy.f1(),
            false_hot_share: accuracy.false_hot_share(),
        }
    }
}

impl Shares {
    fn reach(&self, bar: f64) -> bool {
        let reaches = |share: Option<f64>| share.is_some_and(|share| share >= bar);
        reaches(self.precision) && reaches(self.recall)
    }

    fn sum(all: impl Iterator<Item = Shares>) -> Shares {
        let none = Accuracy { reported: 0, truth: 0, both: 0 };
        all.fold(none, |sum, s| Accuracy {
            reported: sum.reported + s.reported_bytes,
            truth: sum.truth + s.true_bytes,
            both: sum.both + s.both_bytes,
        })
        .into()
    }
}

impl Figures {
    /// Sums byte counts over windows, so that shares are weighted by bytes.
    fn sum<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Option<Figures> {
        let first = rows.clone().next()?;
        let pooled = |of: fn(&Figures) -> Option<Shares>| {
            of(&first.figures)?;
            Some(Shares::sum(rows.clone().filter_map(|row| of(&row.figures))))
        };
        Some(Figures {
            region: Shares::sum(rows.clone().map(|row| row.figures.region)),
            pages: pooled(|figures| figures.pages),
            pages_of_ten: pooled(|figures| figures.pages_of_ten),
        })
    }
}

/// Compares window by window; `pages` enables the page truth, which takes another pass over all
/// accesses.
///
/// # Errors
/// [`ErrorKind::Data`] if recording and truth do not belong together, or either is damaged.
pub fn study(recording: &Recording, truth: &TruthDir, bar: f64, pages: bool) -> Result<Comparison> {
    let Some(time) = recording.time() else {
        return Err(Error::new(
            ErrorKind::Data,
            format!("recording {} is empty", recording.name()),
        )
        .cause("no window was committed")
        .remedy("record for at least one window"));
    };
    let spaces = spaces_of(recording)?;
    let names: Vec<&str> = spaces.iter().map(|space| &*space.name).collect();
    let space = spaces[truth.check_belongs(&names, time.start, time.end)?].id;
    let mut replay = pages.then(|| Replay::new(truth));
    let mut windows = Vec::new();
    for index in 0..recording.commits().len() {
        windows.extend(row(recording, truth, space, index, replay.as_mut())?);
    }
    let Some(all) = Figures::sum(windows.iter()) else {
        return Err(Error::new(ErrorKind::Data, "nothing to compare")
            .cause("no window lies wholly within the time of the truth")
            .remedy("record while the toucher runs"));
    };
    let changes = changes_within(recording, truth);
    let detections: Vec<Detection> = detect(&windows, &changes, bar);
    let settled = settled(&windows, &detections);
    Ok(Comparison {
        recording: recording.name(),
        truth: truth.name().to_owned(),
        instrument: recording.meta().instrument.clone(),
        target: recording.meta().target.clone(),
        window_seconds: recording.meta().window.as_secs_f64(),
        bar,
        all,
        settled: Figures::sum(settled.into_iter()),
        detections,
        profiler_cpu: profiler_cpu(recording),
        uncovered_windows: recording.commits().len() - windows.len(),
        unjudged_bytes: windows.iter().map(|row| row.unjudged_bytes).max().unwrap_or(0),
        windows,
    })
}

/// All spaces that occur in the recording.
fn spaces_of(recording: &Recording) -> Result<Vec<Space>> {
    let mut spaces: Vec<Space> = Vec::new();
    let mut seen = None;
    for index in 0..recording.commits().len() {
        let layout = recording.layout(index)?;
        if seen.replace(Arc::as_ptr(&layout)) == Some(Arc::as_ptr(&layout)) {
            continue;
        }
        for space in &layout.spaces {
            if !spaces.contains(space) {
                spaces.push(space.clone());
            }
        }
    }
    Ok(spaces)
}

fn row(
    recording: &Recording,
    truth: &TruthDir,
    space: SpaceId,
    index: usize,
    replay: Option<&mut Replay<'_>>,
) -> Result<Option<Row>> {
    let commits = recording.commits();
    let (start, end) = (commits[index].start, commits[index].end);
    let Some(hot) = truth.hot(start, end) else { return Ok(None) };
    let snapshot = recording.snapshot(index)?;
    let all = reported(&snapshot, space);
    let areas = areas(truth);
    let reported = all.intersect(&areas);
    let (regions, observed_bytes) = observed(&snapshot, space, &areas);
    let against = |truth: &RangeSet| Shares::from(Accuracy::of(&reported, truth));
    let (mut pages, mut pages_of_ten) = (None, None);
    if let Some(replay) = replay {
        replay.until(end)?;
        pages = Some(against(&replay.touched(start)));
        let ten_ago = commits[(index + 1).saturating_sub(TEN)].start;
        pages_of_ten = Some(against(&replay.touched(ten_ago)));
    }
    Ok(Some(Row {
        end_seconds: seconds_into(recording, end),
        phase: hot.phase,
        changed: hot.changed,
        figures: Figures { region: against(hot.ranges), pages, pages_of_ten },
        oracle_share: chosen(&snapshot, space, &areas, truth, &hot),
        unjudged_bytes: all.bytes() - reported.bytes(),
        regions,
        observed_bytes,
        unknown_bytes: unknown(&snapshot, space),
        samples: snapshot.regions.iter().map(|region| region.samples).max().unwrap_or(0),
        touches_per_second: truth.rate(start, end),
    }))
}

/// Hot ranges of one space, converted to space 0, which the truth uses.
fn reported(snapshot: &Snapshot, space: SpaceId) -> RangeSet {
    let hot = metrics::hot(snapshot, HOT_FREQUENCY);
    let here = hot.as_slice().iter().filter(|range| range.space == space);
    here.map(|range| Range { space: SpaceId(0), ..*range }).collect()
}

/// The oracle share of a window, within the truth's areas.
fn chosen(
    snapshot: &Snapshot,
    space: SpaceId,
    areas: &RangeSet,
    truth: &TruthDir,
    hot: &Hot<'_>,
) -> Option<f64> {
    let here = snapshot.regions.iter().filter(|region| region.range.space == space);
    let parts = here.flat_map(|region| {
        let own = Range { space: SpaceId(0), ..region.range };
        let inside = areas.as_slice().iter().filter_map(move |area| area.intersect(&own));
        inside.map(|range| Region { range, ..*region })
    });
    let judged = Snapshot { regions: parts.collect(), ..snapshot.clone() };
    let rates = TrueRates::of(truth.weights(hot));
    oracle_share(&judged, &rates, areas.bytes(), hot.ranges.bytes(), GRANULE)
}

/// Number of a space's regions that overlap the areas, and bytes of all its regions.
fn observed(snapshot: &Snapshot, space: SpaceId, areas: &RangeSet) -> (usize, u64) {
    let here = snapshot.regions.iter().map(|region| region.range);
    let here = here.filter(|range| range.space == space);
    here.fold((0, 0), |(count, bytes), range| {
        let own = Range { space: SpaceId(0), ..range };
        let inside = areas.as_slice().iter().any(|area| area.intersect(&own).is_some());
        (count + usize::from(inside), bytes + range.bytes())
    })
}

/// Bytes of a space whose evidence was too weak to classify them.
fn unknown(snapshot: &Snapshot, space: SpaceId) -> u64 {
    let here = snapshot.regions.iter().filter(|region| region.range.space == space);
    let unknown = here.filter(|region| region.is_unknown() && !region.is_unseen());
    unknown.map(|region| region.range.bytes()).sum()
}

/// The areas that the truth covers.
fn areas(truth: &TruthDir) -> RangeSet {
    let range = |area: &AreaLine| Range::new(SpaceId(0), area.start, area.end);
    truth.begin().areas.iter().map(range).collect()
}

fn seconds_into(recording: &Recording, time: Time) -> f64 {
    time.since(recording.commits()[0].start).as_secs_f64()
}

/// Times of the attach and of each later change, with their causes.
fn changes_within(recording: &Recording, truth: &TruthDir) -> Vec<(f64, String)> {
    let start = recording.commits()[0].start;
    let mut changes = vec![(0.0, "attach".to_owned())];
    for change in truth.changes().into_iter().filter(|change| *change > start) {
        changes.push((seconds_into(recording, change), truth.phase_at(change).to_owned()));
    }
    changes
}

fn detect(windows: &[Row], changes: &[(f64, String)], bar: f64) -> Vec<Detection> {
    let last = windows.last().map_or(0.0, |row| row.end_seconds);
    let until = |index: usize| changes.get(index + 1).map_or(f64::INFINITY, |next| next.0);
    let of = |(index, (from, cause)): (usize, &(f64, String))| {
        let here = windows.iter().filter(|row| row.end_seconds <= until(index));
        let held: Vec<_> =
            here.map(|row| (nanos(row.end_seconds), row.figures.region.reach(bar))).collect();
        let time = metrics::detection_time(nanos(*from), &held);
        Detection {
            from_seconds: *from,
            cause: cause.clone(),
            seconds: time.map(|time| time.as_secs_f64()),
        }
    };
    changes.iter().enumerate().filter(|(_, change)| change.0 < last).map(of).collect()
}

fn nanos(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}

/// Windows between a detection and the next change.
fn settled<'a>(windows: &'a [Row], detections: &[Detection]) -> Vec<&'a Row> {
    let is_settled = |row: &&Row| {
        let current = detections.iter().rfind(|d| d.from_seconds < row.end_seconds);
        let since = current.and_then(|d| Some(d.from_seconds + d.seconds?));
        !row.changed && since.is_some_and(|since| row.end_seconds >= since - 1e-9)
    };
    windows.iter().filter(is_settled).collect()
}

fn profiler_cpu(recording: &Recording) -> Option<f64> {
    let (first, last) = (recording.commits().first()?, recording.commits().last()?);
    let wall = last.end.since(first.end).as_secs_f64();
    let spent = last.cpu.profiler.saturating_sub(first.cpu.profiler);
    (wall > 0.0).then(|| spent.as_secs_f64() / wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(end_seconds: f64, both: u64) -> Row {
        let region = Accuracy { reported: 10, truth: 10, both }.into();
        Row {
            end_seconds,
            phase: 0,
            changed: false,
            figures: Figures { region, pages: None, pages_of_ten: None },
            oracle_share: None,
            unjudged_bytes: 0,
            observed_bytes: 10,
            unknown_bytes: 0,
            regions: 1,
            samples: 40,
            touches_per_second: None,
        }
    }

    // Bytes both reported and truly hot, of 10, in windows of a second; the hot set changes at 6:
    //  seconds   1  2  3  4  5  6 | 7  8  9 10 11 12
    //  both      2  9  9  9  9  9 | 0  0  9  9  9  9      detected at 2 and at 9
    #[test]
    fn detection_restarts_with_each_change() {
        let both = [2, 9, 9, 9, 9, 9, 0, 0, 9, 9, 9, 9];
        let rows: Vec<Row> = both.iter().zip(1..).map(|(b, s)| row(f64::from(s), *b)).collect();
        let changes = [(0.0, "attach".to_owned()), (6.0, "next".to_owned())];
        let found = detect(&rows, &changes, 0.9);
        assert_eq!(found.iter().map(|d| d.seconds).collect::<Vec<_>>(), [Some(2.0), Some(3.0)]);
        let settled: Vec<f64> = settled(&rows, &found).iter().map(|r| r.end_seconds).collect();
        assert_eq!(settled, [2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 10.0, 11.0, 12.0]);
        assert_eq!(detect(&rows[..8], &changes, 0.9)[1].seconds, None);
    }

    // Together 20 bytes reported, 20 true, and 2 + 8 both.
    #[test]
    fn windows_are_pooled_by_their_bytes() {
        let rows = [row(1.0, 2), row(2.0, 8)];
        let sum = Figures::sum(rows.iter()).unwrap();
        assert_eq!((sum.region.both_bytes, sum.region.precision), (10, Some(0.5)));
        assert_eq!(sum.region.false_hot_share, Some(0.5));
        assert_eq!(sum.pages, None);
    }
}
