//! Decides which spaces have rows and series of their own: all but those of processes that lived
//! for about a window, or shorter. A build starts thousands of them; together they are "other".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range as Span;

use tierscope_core::{Mappings, Result, SpaceId};
use tierscope_record::{Metric, Recording};

use crate::view::View;

/// Name of the sum of short-lived spaces.
pub(crate) const OTHER: &str = "other";

/// Owner of a row or series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// One space.
    Space(SpaceId),
    /// All short-lived spaces together.
    Other,
}

/// The spaces with rows and series of their own; by default each has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnRows(Option<BTreeSet<SpaceId>>);

impl OwnRows {
    /// For these windows. A view of one space has no others to sum it with.
    pub(crate) fn of(recording: &Recording, windows: &Span<usize>, view: &View) -> Result<Self> {
        let number = |window: usize| recording.commits()[window].layout;
        // Without a new layout no process began or ended.
        if view.space.is_some() || number(windows.start) == number(windows.end - 1) {
            return Ok(Self::default());
        }
        let mut lives = Lives::default();
        for window in windows.clone() {
            lives.take(&recording.metrics(window)?);
        }
        let first = recording.layout(windows.start)?;
        Ok(lives.own_rows(&first, &*recording.layout(windows.end - 1)?))
    }

    /// For one window, by the windows next to it: a process that began in the newest window is
    /// short-lived until the next one.
    pub(crate) fn at(recording: &Recording, window: usize) -> Result<Self> {
        let end = recording.commits().len().min(window + 2);
        Self::of(recording, &(window.saturating_sub(1)..end), &View::default())
    }

    /// Of these, the `most` spaces with most bytes (compared by powers of two, so that they seldom
    /// change), the older ones first. `bytes` are of all spaces that may have rows.
    pub(crate) fn at_most(self, most: usize, bytes: &BTreeMap<SpaceId, u64>) -> Self {
        let mut own: Vec<_> = bytes.iter().filter(|(space, _)| self.has(**space)).collect();
        if own.len() <= most {
            return self;
        }
        own.sort_by_key(|(space, bytes)| (bytes.leading_zeros(), **space));
        Self(Some(own.into_iter().take(most).map(|(space, _)| *space).collect()))
    }

    #[cfg(test)]
    pub(crate) fn only(spaces: impl IntoIterator<Item = SpaceId>) -> Self {
        Self(Some(spaces.into_iter().collect()))
    }

    pub(crate) fn has(&self, space: SpaceId) -> bool {
        self.0.as_ref().is_none_or(|own| own.contains(&space))
    }

    /// The owner of a space's row.
    pub(crate) fn owner(&self, space: SpaceId) -> Owner {
        if self.has(space) { Owner::Space(space) } else { Owner::Other }
    }
}

/// Number of windows in which each space has regions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives(BTreeMap<SpaceId, usize>);

impl Lives {
    /// Takes the series of the next window.
    pub(crate) fn take(&mut self, metrics: &[Metric]) {
        for metric in metrics.iter().filter(|metric| metric.name == "regions") {
            let seen = usize::from(metric.value > 0.0);
            metric.space.into_iter().for_each(|space| *self.0.entry(space).or_default() += seen);
        }
    }

    /// Rows of their own have the spaces with regions in at least three windows, or in two if they
    /// are mapped in the last window, and those mapped in the first as well as in the last window:
    /// a process that lives shorter than a window is in two if it starts near the end of one.
    pub(crate) fn own_rows(&self, first: &Mappings, last: &Mappings) -> OwnRows {
        // A recording without mappings does not tell which processes ended.
        if last.spaces.is_empty() {
            return OwnRows::default();
        }
        let known: BTreeSet<SpaceId> = first.spaces.iter().map(|space| space.id).collect();
        let stayed = last.spaces.iter().map(|space| space.id).filter(|id| known.contains(id));
        let long =
            |space: SpaceId, windows: usize| windows > 2 - usize::from(last.has_space(space));
        let seen = self.0.iter().map(|(space, windows)| (*space, *windows));
        let seen = seen.filter(|(space, windows)| long(*space, *windows)).map(|(space, _)| space);
        OwnRows(Some(stayed.chain(seen).chain(last.shared).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Space, Time};

    fn layout(ids: &[u32]) -> Mappings {
        let space = |id: &u32| Space { id: SpaceId(*id), name: "".into() };
        Mappings { spaces: ids.iter().map(space).collect(), ..Mappings::default() }
    }

    /// The owners of these spaces, after windows with these spaces' regions.
    fn owners(windows: &[&[(u32, u32)]], first: &[u32], last: &[u32]) -> OwnRows {
        let mut lives = Lives::default();
        for window in windows {
            let metric = |(space, regions): &(u32, u32)| Metric {
                time: Time(0),
                name: "regions".into(),
                space: Some(SpaceId(*space)),
                value: f64::from(*regions),
            };
            lives.take(&window.iter().map(metric).collect::<Vec<_>>());
        }
        lives.own_rows(&layout(first), &layout(last))
    }

    fn own(of: &OwnRows, spaces: Span<u32>) -> Vec<u32> {
        spaces.filter(|space| of.has(SpaceId(*space))).collect()
    }

    // Space 0 runs to the end, and so does 5, which began in the last window but one. Of the spaces
    // that ended, 1 has regions in three windows, 2 in two, and 3, of which only metrics are known,
    // in none. 4 began in the last window.
    #[test]
    fn spaces_seen_in_two_windows_have_no_rows() {
        let windows: [&[_]; 4] = [
            &[(0, 2), (1, 1), (2, 3), (3, 0)],
            &[(0, 2), (1, 1), (2, 1)],
            &[(0, 2), (1, 1), (2, 0), (5, 1)],
            &[(0, 2), (4, 1), (5, 1)],
        ];
        let of = owners(&windows, &[0, 1, 2], &[0, 4, 5]);
        assert_eq!(own(&of, 0..6), [0, 1, 5]);
        assert_eq!(of.owner(SpaceId(1)), Owner::Space(SpaceId(1)));
        assert_eq!(of.owner(SpaceId(2)), Owner::Other);
    }

    // In a single window, what is mapped at its end has rows, also without regions.
    #[test]
    fn the_first_window_is_enough_for_what_runs() {
        assert_eq!(own(&owners(&[&[(0, 1), (1, 1)]], &[0, 2], &[0, 2]), 0..3), [0, 2]);
    }

    // Space 3 has most. 0 and 2 are of one size, the next power of two, and 1 is smaller.
    #[test]
    fn the_largest_and_oldest_spaces_have_rows() {
        let bytes = BTreeMap::from([(0, 512), (1, 511), (2, 1023), (3, 1024)]);
        let bytes = bytes.into_iter().map(|(space, bytes)| (SpaceId(space), bytes)).collect();
        let at_most = |most| own(&OwnRows::default().at_most(most, &bytes), 0..5);
        assert_eq!(at_most(4), [0, 1, 2, 3, 4]);
        assert_eq!((at_most(3), at_most(2), at_most(0)), (vec![0, 2, 3], vec![0, 3], vec![]));
        let two = OwnRows::only([1, 2].map(SpaceId)).at_most(1, &bytes);
        assert_eq!(own(&two, 0..5), [2]);
    }

    #[test]
    fn without_mappings_every_space_has_rows() {
        assert_eq!(own(&owners(&[&[(0, 1)]], &[], &[]), 0..2), [0, 1]);
    }
}
