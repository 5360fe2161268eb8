//! The memory that a heatmap shows: what the recording saw of the mappings in the view.

use std::ops::Range as Span;
use std::sync::Arc;

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{Backing, Mappings, Range, RangeSet, Region, Result};
use tierscope_record::{Recording, windows_in};

use crate::blocks::{Memory, Named};
use crate::figures::spread;
use crate::names::label;
use crate::own_rows::OwnRows;
use crate::view::{View, overlapping};

/// Maximum number of windows whose regions are read. What other windows saw comes from the zoom
/// pyramid.
const READ: usize = 64;

/// Memory seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    seen: RangeSet,
    hot: RangeSet,
    /// Of the regions added last: ranges of which only some bytes are resident.
    sparse: Vec<(Range, u64)>,
}

impl Seen {
    /// Adds the regions of a window, as far as they are in the view.
    pub(crate) fn add(&mut self, regions: &[Region], view: &View) {
        let clipped = |region: &Region| view.clip(&region.range).collect::<Vec<_>>();
        let hot = regions.iter().filter(|region| region.is_hot(HOT_FREQUENCY));
        let (seen, hot) = (regions.iter().flat_map(clipped), hot.flat_map(clipped));
        extend(&mut self.seen, seen);
        extend(&mut self.hot, hot);
        let sparse = regions.iter().filter_map(|r| Some((r.range, r.resident?)));
        self.sparse = sparse.collect();
    }

    /// Forgets memory that is not mapped any more.
    pub(crate) fn keep(&mut self, layout: &Mappings) {
        let mapped: RangeSet = layout.mappings.iter().map(|mapping| mapping.range).collect();
        if !mapped.is_empty() {
            self.seen = self.seen.intersect(&mapped);
            self.hot = self.hot.intersect(&mapped);
        }
    }

    /// The memory in the view: what was seen of the mappings, or all of them if nothing was. In
    /// recordings without mappings, all that was seen.
    pub(crate) fn memory(&self, layouts: &[Arc<Mappings>], view: &View, own: OwnRows) -> Memory {
        let mut named = named(layouts, view);
        if named.is_empty() {
            let seen = self.seen.as_slice().iter().flat_map(|range| view.clip(range));
            // A block for each space.
            let nameless = |range| Named { range, name: "".into(), file: Some((0, 0)) };
            named = seen.map(nameless).collect();
        }
        let mapped: RangeSet = named.iter().map(|named| named.range).collect();
        let seen = self.seen.intersect(&mapped);
        let seen = if seen.is_empty() { mapped } else { seen };
        Memory { named, seen, hot: self.hot.clone(), sparse: self.sparse.clone(), own }
    }
}

fn extend(set: &mut RangeSet, ranges: impl Iterator<Item = Range>) {
    let mut all: Vec<Range> = ranges.collect();
    if !all.is_empty() {
        all.extend_from_slice(set.as_slice());
        *set = all.into_iter().collect();
    }
}

/// The memory in the view: mapped by one of the `layouts`, and seen in one of the windows.
pub(crate) fn memory(
    recording: &Recording,
    windows: &Span<usize>,
    view: &View,
    layouts: &[Arc<Mappings>],
) -> Result<Memory> {
    let own = OwnRows::of(recording, windows, view)?;
    Ok(seen(recording, windows, view)?.memory(layouts, view, own))
}

fn seen(recording: &Recording, windows: &Span<usize>, view: &View) -> Result<Seen> {
    let mut seen = Seen::default();
    for window in spread(windows, READ) {
        seen.add(&recording.snapshot(window)?.regions, view);
    }
    if windows.len() > READ {
        add_pyramid(&mut seen, recording, windows, view)?;
    }
    Ok(seen)
}

/// Adds what is in the coarsest tiles. A tile knows the share of a bin that was seen, not its
/// place: a bin with a small share counts only if nothing else was seen of it.
fn add_pyramid(
    seen: &mut Seen,
    recording: &Recording,
    windows: &Span<usize>,
    view: &View,
) -> Result<()> {
    let fits = |zoom: &u8| windows_in(*zoom) <= windows.len() as u64;
    let coarsest = (0..u8::MAX).take_while(fits).last().unwrap_or(0);
    let (mut dense, mut thin, mut hot) = (Vec::new(), Vec::new(), Vec::new());
    recording.heat(windows.clone(), coarsest, |heat| {
        for part in &heat.parts {
            let list = if part.seen + part.unknown >= 0.5 { &mut dense } else { &mut thin };
            list.extend(view.clip(&part.range));
            if part.seen > 0.0 && part.heat >= HOT_FREQUENCY {
                hot.extend(view.clip(&part.range));
            }
        }
        Ok(())
    })?;
    extend(&mut seen.seen, dense.into_iter());
    extend(&mut seen.hot, hot.into_iter());
    let thin: RangeSet = thin.into_iter().collect();
    let missed = |range: &&Range| overlaps_nothing(range, &seen.seen);
    let missed: Vec<Range> = thin.as_slice().iter().filter(missed).copied().collect();
    extend(&mut seen.seen, missed.into_iter());
    Ok(())
}

fn overlaps_nothing(range: &Range, set: &RangeSet) -> bool {
    overlapping(set.as_slice(), range).is_empty()
}

/// The mappings of all layouts in the view, each address under its last name.
pub(crate) fn named(layouts: &[Arc<Mappings>], view: &View) -> Vec<Named> {
    let mut named: Vec<Named> = Vec::new();
    let mut before: Option<&Arc<Mappings>> = None;
    let mut covered = RangeSet::default();
    for layout in layouts.iter().rev() {
        if before.is_some_and(|before| Arc::ptr_eq(before, layout)) {
            continue;
        }
        before = Some(layout);
        let visible = layout.mappings.iter().filter(|m| m.backing != Backing::Kernel);
        let begun = named.len();
        for mapping in visible {
            let file = (mapping.backing == Backing::File)
                .then(|| mapping.object.map_or((0, 0), |object| (object.device, object.inode)));
            let clipped: RangeSet = view.clip(&mapping.range).collect();
            let new = clipped.minus(&near(&covered, &mapping.range));
            let name: Arc<str> = label(mapping).into();
            let piece = |range: &Range| Named { range: *range, name: Arc::clone(&name), file };
            named.extend(new.as_slice().iter().map(piece));
        }
        let new: Vec<Range> = named[begun..].iter().map(|named| named.range).collect();
        extend(&mut covered, new.into_iter());
    }
    named.sort_unstable_by_key(|named| named.range);
    named
}

/// The part of `set` that may overlap `range`.
fn near(set: &RangeSet, range: &Range) -> RangeSet {
    overlapping(set.as_slice(), range).iter().copied().collect()
}
