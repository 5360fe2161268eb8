//! The part of a recording that a report covers.

use std::ops::Range as Span;
use std::time::Duration;

use tierscope_core::units;
use tierscope_core::{Error, ErrorKind, Range, RangeSet, Result, SpaceId, Time};
use tierscope_record::Recording;

/// In the place of what an imported recording lacks.
pub(crate) const NOT_RECORDED: &str = "not in this recording";

/// The part of a recording that a report covers; everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Time since the recording began.
    pub time: Option<Span<Duration>>,
    /// Addresses, applied to every visible space.
    pub addresses: Option<Span<u64>>,
    /// The only visible space; `None` for all spaces.
    pub space: Option<SpaceId>,
    /// Only these ranges: for instance those of a mapping's name ([`crate::ranges_named`]).
    pub ranges: Option<RangeSet>,
    /// Number of windows at the beginning that are left out.
    pub skip: usize,
}

impl View {
    /// The windows that overlap the view.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there are none.
    pub(crate) fn windows(&self, recording: &Recording) -> Result<Span<usize>> {
        let Some(all) = recording.time() else {
            return Err(empty(recording));
        };
        let windows = match &self.time {
            None => 0..recording.commits().len(),
            Some(time) => {
                let windows = recording.during(&(all.start + time.start..all.start + time.end));
                if windows.is_empty() {
                    return Err(outside(time, all.end.since(all.start)));
                }
                windows
            }
        };
        if self.skip >= windows.len() {
            return Err(skipped(self.skip, windows.len()));
        }
        Ok(windows.start + self.skip..windows.end)
    }

    /// The parts of `range` in the view, in order.
    pub(crate) fn clip(&self, range: &Range) -> impl Iterator<Item = Range> + '_ {
        let within = self.within(range);
        let named = match (&self.ranges, within) {
            (Some(ranges), Some(within)) => overlapping(ranges.as_slice(), &within),
            _ => &[],
        };
        let whole = within.filter(|_| self.ranges.is_none());
        let common = move |one: &Range| within.and_then(|within| one.intersect(&within));
        whole.into_iter().chain(named.iter().filter_map(common))
    }

    /// The part of `range` within the view's space and addresses.
    fn within(&self, range: &Range) -> Option<Range> {
        if !self.shows(range.space) {
            return None;
        }
        match &self.addresses {
            Some(span) if span.start < span.end => {
                range.intersect(&Range::new(range.space, span.start, span.end))
            }
            Some(_) => None,
            None => (!range.is_empty()).then_some(*range),
        }
    }

    /// Whether only some addresses of a space are in the view.
    pub(crate) fn is_partial(&self) -> bool {
        self.addresses.is_some() || self.ranges.is_some()
    }

    /// Whether `space` is in the view.
    pub(crate) fn shows(&self, space: SpaceId) -> bool {
        self.space.is_none_or(|one| one == space)
    }
}

/// The subset of the sorted, disjoint `ranges` that may overlap `range`.
pub(crate) fn overlapping<'a>(ranges: &'a [Range], range: &Range) -> &'a [Range] {
    let first = ranges.partition_point(|r| (r.space, r.end) <= (range.space, range.start));
    let end = ranges.partition_point(|r| (r.space, r.start) < (range.space, range.end));
    &ranges[first..end.max(first)]
}

/// Time since the recording began.
pub(crate) fn since_start(recording: &Recording, time: Time) -> Duration {
    recording.time().map_or(Duration::ZERO, |all| time.since(all.start))
}

fn empty(recording: &Recording) -> Error {
    Error::new(ErrorKind::Data, format!("nothing to report of {}", recording.name()))
        .cause("no window was committed")
        .remedy("record for longer than one window (200 ms unless --window says otherwise)")
}

fn skipped(skip: usize, windows: usize) -> Error {
    Error::new(ErrorKind::Usage, format!("no window is left after {skip} are left out"))
        .cause(format!("there are {windows}"))
        .remedy("leave out fewer with --skip")
}

fn outside(asked: &Span<Duration>, lasts: Duration) -> Error {
    let (start, end) = (units::about_time(asked.start), units::about_time(asked.end));
    Error::new(ErrorKind::Usage, format!("no window from {start} to {end}"))
        .cause(format!("the recording lasts {}", units::about_time(lasts)))
        .remedy("choose a time within it")
}
