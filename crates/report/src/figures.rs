//! Totals of each window, for reports over time.

use std::ops::Range as Span;

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{Mapping, Result};
use tierscope_record::{Metric, Recording, residence_of};

use crate::tiers::{InMemory, Tiers};
use crate::view::{View, since_start};

/// Maximum number of windows whose regions are read if metrics lack the figures. Evenly spaced
/// windows then represent the others.
pub(crate) const READ: usize = 1024;

/// Bytes of a window, within the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Start of the window, in nanoseconds since the recording began.
    pub(crate) from_ns: u64,
    /// End of the window, in nanoseconds since the recording began.
    pub(crate) to_ns: u64,
    pub(crate) mapped: u64,
    pub(crate) hot: u64,
    /// Bytes with at least one sampling hit.
    pub(crate) accessed: u64,
    /// Bytes probed with too little evidence to separate hot from cold; not in `hot` or `accessed`.
    pub(crate) unknown: u64,
    /// Resident bytes, if recorded.
    pub(crate) in_memory: Option<InMemory>,
}

/// Figures of the windows in the view, in order: of all of them if metrics have the figures, else
/// of up to [`READ`] windows; and the tiers that they refer to.
pub(crate) fn figures(recording: &Recording, view: &View) -> Result<(Vec<Figures>, Tiers)> {
    let windows = view.windows(recording)?;
    let (mut mapped, mut tiers) = (Mapped::default(), Tiers::of(recording.meta()));
    let figures = if !view.is_partial() && has_metrics(&recording.metrics(windows.start)?) {
        let sums = &mut (&mut mapped, &mut tiers);
        let of = |index| from_metrics(recording, index, view, (sums.0, sums.1));
        windows.map(of).collect::<Result<_>>()?
    } else {
        let of = |index| from_regions(recording, index, view, &mut mapped);
        spread(&windows, READ).map(of).collect::<Result<_>>()?
    };
    Ok((figures, tiers))
}

/// Up to `most` windows, evenly spaced, including the last one.
pub(crate) fn spread(windows: &Span<usize>, most: usize) -> impl Iterator<Item = usize> + use<> {
    let step = windows.len().div_ceil(most).max(1);
    let offset = (windows.len() - 1) % step;
    (windows.start + offset..windows.end).step_by(step)
}

/// Whether the metrics have the bytes of every state: those of older recordings do not.
pub(crate) fn has_metrics(metrics: &[Metric]) -> bool {
    ["accessed_bytes", "unknown_bytes"]
        .iter()
        .all(|name| metrics.iter().any(|metric| metric.name == *name))
}

fn of_window(recording: &Recording, index: usize) -> Figures {
    let row = &recording.commits()[index];
    let nanos = |time| since_start(recording, time).as_nanos() as u64;
    Figures { from_ns: nanos(row.start), to_ns: nanos(row.end), ..Figures::default() }
}

fn from_metrics(
    recording: &Recording,
    index: usize,
    view: &View,
    (mapped, tiers): (&mut Mapped, &mut Tiers),
) -> Result<Figures> {
    let mut figures = of_window(recording, index);
    figures.mapped = match view.space {
        None => recording.commits()[index].mapped_bytes,
        Some(_) => mapped.at(recording, index, view)?,
    };
    let metrics = recording.metrics(index)?;
    figures.in_memory = InMemory::of(&residence_of(&metrics), tiers, view);
    for metric in metrics {
        if !metric.space.is_none_or(|space| view.shows(space)) {
            continue;
        }
        let bytes = metric.value as u64;
        match metric.name.as_str() {
            "hot_bytes" => figures.hot = figures.hot.saturating_add(bytes),
            "unknown_bytes" => figures.unknown = figures.unknown.saturating_add(bytes),
            "accessed_bytes" => figures.accessed = figures.accessed.saturating_add(bytes),
            _ => {}
        }
    }
    Ok(figures)
}

fn from_regions(
    recording: &Recording,
    index: usize,
    view: &View,
    mapped: &mut Mapped,
) -> Result<Figures> {
    let mut figures = of_window(recording, index);
    figures.mapped = mapped.at(recording, index, view)?;
    for region in &recording.snapshot(index)?.regions {
        let bytes: u64 = view.clip(&region.range).map(|range| region.bytes_of(&range)).sum();
        if region.is_hot(HOT_FREQUENCY) {
            figures.hot = figures.hot.saturating_add(bytes);
        }
        if region.is_accessed() {
            figures.accessed = figures.accessed.saturating_add(bytes);
        }
        if region.is_unknown() && !region.is_unseen() {
            figures.unknown = figures.unknown.saturating_add(bytes);
        }
    }
    Ok(figures)
}

/// Bytes mapped in the view, recomputed when the layout changes.
#[derive(Default)]
struct Mapped {
    layout: Option<u64>,
    bytes: u64,
}

impl Mapped {
    fn at(&mut self, recording: &Recording, index: usize, view: &View) -> Result<u64> {
        let number = recording.commits()[index].layout;
        if self.layout != Some(number) {
            let in_view = |m: &Mapping| view.clip(&m.range).map(|r| r.bytes()).sum::<u64>();
            self.bytes = recording.layout(index)?.mappings.iter().map(in_view).sum();
            self.layout = Some(number);
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_evenly_up_to_the_last() {
        let spread = |windows, most| spread(&windows, most).collect::<Vec<_>>();
        assert_eq!(spread(0..4, 8), [0, 1, 2, 3]);
        assert_eq!(spread(10..20, 4), [10, 13, 16, 19]);
        assert_eq!(spread(0..8, 3), [1, 4, 7]);
        assert_eq!(spread(5..6, 1), [5]);
    }
}
