//! Ages: for how many windows each part of memory has been hot, warm or cold.
//!
//! Regions follow rates and differ from window to window; ages belong to addresses. A region is cut
//! where its parts have had its heat for different times, as memory that fell idle at different
//! times has. Times that differ by a quarter or less count as the same, as reports divide ages by
//! powers of two.

use tierscope_core::{Heat, Range, Region};

/// Memory with the same heat, and the window since which it has had it. Before its heat is known
/// for the first time, that is the window in which it appeared.
#[derive(Clone, Copy, Debug)]
struct Run {
    range: Range,
    heat: Option<Heat>,
    since: u32,
}

impl Run {
    /// The run after a window in which it had that heat, if it was known.
    fn with(&self, heat: Option<Heat>, window: u32) -> Self {
        let since = if heat.is_none() || heat == self.heat { self.since } else { window };
        Self { heat: heat.or(self.heat), since, ..*self }
    }
}

/// The heat of all memory in the last window.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Ascending, disjoint.
    runs: Vec<Run>,
    /// The runs of the window before, kept for their allocation.
    before: Vec<Run>,
}

impl Ages {
    /// Sets the ages of a window's regions, which are ascending and disjoint, and cuts those whose
    /// parts differ in age. Where heat is unknown, what was known before still counts.
    pub(super) fn add_to(&mut self, regions: &mut Vec<Region>, window: u32) {
        std::mem::swap(&mut self.runs, &mut self.before);
        self.runs.clear();
        let mut first = 0;
        for region in regions.iter_mut() {
            first = self.add_runs(region, window, first);
            region.age = self.runs.last().map_or(0, |run| window - run.since);
        }
        if self.runs.len() > regions.len() {
            *regions = cut(regions, &self.runs, window);
        }
    }

    /// Adds the runs of a region, at least one. No run of the window before with an index below
    /// `first` overlaps it; returns that index for the next region.
    fn add_runs(&mut self, region: &Region, window: u32, mut first: usize) -> usize {
        let (range, heat) = (region.range, heat_of(region));
        // Most regions are those of the window before.
        if let Some(run) = self.before.get(first).filter(|run| run.range == range) {
            self.runs.push(run.with(heat, window));
            return first + 1;
        }
        let new = |start, end| Run { range: Range { start, end, ..range }, heat, since: window };
        let mut list = List { own: self.runs.len(), runs: &mut self.runs, window };
        let mut at = range.start;
        while let Some(run) = self.before.get(first) {
            if let Some(here) = run.range.intersect(&range) {
                if at < here.start {
                    list.add(new(at, here.start));
                }
                list.add(Run { range: here, ..run.with(heat, window) });
                at = here.end;
            }
            if (run.range.space, run.range.end) > (range.space, range.end) {
                break;
            }
            first += 1;
        }
        if at < range.end {
            list.add(new(at, range.end));
        }
        first
    }
}

/// The runs of a window while one region's are added; these begin at index `own`.
struct List<'a> {
    runs: &'a mut Vec<Run>,
    own: usize,
    window: u32,
}

impl List<'_> {
    /// Adds a run, or extends the one before if it is of the same region and alike.
    fn add(&mut self, run: Run) {
        match self.runs[self.own..].last_mut() {
            Some(last)
                if last.heat == run.heat && is_same_age(self.window, [last.since, run.since]) =>
            {
                let [old, new] = [last.range, run.range].map(|range| u128::from(range.bytes()));
                let sum = old * u128::from(last.since) + new * u128::from(run.since);
                last.since = (sum / (old + new)) as u32;
                last.range.end = run.range.end;
            }
            _ => self.runs.push(run),
        }
    }
}

/// Whether two ages differ by a quarter of the younger one, or two windows, at most.
fn is_same_age(window: u32, since: [u32; 2]) -> bool {
    let [one, other] = since;
    one.abs_diff(other) <= ((window - one.max(other)) / 4).max(2)
}

/// Cuts the regions at the ends of the runs, of which each is part of one region, and sets ages.
fn cut(regions: &[Region], runs: &[Run], window: u32) -> Vec<Region> {
    let mut regions = regions.iter().peekable();
    let parts = runs.iter().filter_map(|run| {
        let region = *regions.peek()?;
        if run.range.end == region.range.end {
            regions.next();
        }
        Some(Region { range: run.range, age: window - run.since, ..*region })
    });
    parts.collect()
}

/// The heat of a region if it is known.
fn heat_of(region: &Region) -> Option<Heat> {
    match region.heat() {
        Heat::Unknown(_) | Heat::Unseen => None,
        known => Some(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{SpaceId, Unknown};

    const PAGE: u64 = 4096;

    /// Pages of space 0 with a number of hits in 40 samples.
    fn region(pages: std::ops::Range<u64>, hits: f32) -> Region {
        let range = Range::new(SpaceId(0), pages.start * PAGE, pages.end * PAGE);
        Region::sampled(range, hits, 40)
    }

    fn unknown(pages: std::ops::Range<u64>) -> Region {
        Region { unknown: Some(Unknown::Evidence), ..region(pages, 1.0) }
    }

    /// Ends in pages and ages of the regions after a window.
    fn after(ages: &mut Ages, window: u32, mut regions: Vec<Region>) -> Vec<(u64, u32)> {
        ages.add_to(&mut regions, window);
        regions.iter().map(|region| (region.range.end / PAGE, region.age)).collect()
    }

    // 30 pages, all of them hot; then 10 to 20 fall cold, and 20 windows later 20 to 30. The first
    // 10 stay hot, wherever their regions end.
    #[test]
    fn parts_that_fall_cold_at_different_times_have_their_own_ages() {
        let mut ages = Ages::default();
        assert_eq!(after(&mut ages, 1, vec![region(0..30, 40.0)]), [(30, 0)]);
        let two = vec![region(0..10, 40.0), region(10..20, 0.0), region(20..30, 40.0)];
        assert_eq!(after(&mut ages, 11, two), [(10, 10), (20, 0), (30, 10)]);
        let cold = || vec![region(0..5, 40.0), region(5..10, 39.0), region(10..30, 0.0)];
        assert_eq!(after(&mut ages, 31, cold()), [(5, 30), (10, 30), (20, 20), (30, 0)]);
        assert_eq!(after(&mut ages, 51, cold()), [(5, 50), (10, 50), (20, 40), (30, 20)]);
        // After 80 more windows, 120 and 100 are as good as the same.
        assert_eq!(after(&mut ages, 131, cold()), [(5, 130), (10, 130), (30, 110)]);
    }

    #[test]
    fn a_window_without_evidence_changes_no_age() {
        let mut ages = Ages::default();
        after(&mut ages, 1, vec![region(0..20, 0.0)]);
        assert_eq!(after(&mut ages, 5, vec![unknown(0..20)]), [(20, 4)]);
        let part = vec![region(0..10, 0.0), region(10..20, 1.0)];
        assert_eq!(after(&mut ages, 9, part), [(10, 8), (20, 0)]);
    }

    // Memory is mapped in window 4, behind and before other memory, and first known in window 9.
    #[test]
    fn ages_begin_when_heat_is_first_known() {
        let mut ages = Ages::default();
        after(&mut ages, 1, vec![region(10..20, 0.0)]);
        let more = || vec![unknown(0..10), region(10..20, 0.0), unknown(20..30)];
        assert_eq!(after(&mut ages, 4, more()), [(10, 0), (20, 3), (30, 0)]);
        assert_eq!(after(&mut ages, 8, more()), [(10, 4), (20, 7), (30, 4)]);
        assert_eq!(after(&mut ages, 9, vec![region(0..30, 0.0)]), [(10, 0), (20, 8), (30, 0)]);
    }

    #[test]
    fn memory_that_was_unmapped_in_between_is_new() {
        let mut ages = Ages::default();
        after(&mut ages, 1, vec![region(0..20, 0.0)]);
        assert_eq!(after(&mut ages, 5, vec![region(0..10, 0.0)]), [(10, 4)]);
        assert_eq!(after(&mut ages, 9, vec![region(0..20, 0.0)]), [(10, 8), (20, 0)]);
    }

    // Per page, against a table of heats: regions cover the same pages, and ages differ from those
    // of the table by what counts as the same at most.
    proptest::proptest! {
        #[test]
        fn ages_are_those_of_pages(
            windows in proptest::collection::vec(
                proptest::collection::vec((1u64..6, 0usize..5), 1..8),
                1..40,
            ),
        ) {
            let mut ages = Ages::default();
            let mut pages: Vec<Option<(Option<Heat>, u32)>> = vec![None; 64];
            for (window, parts) in (1u32..).zip(windows) {
                let (mut at, mut regions) = (0, Vec::new());
                for (length, kind) in parts {
                    let range = at..at + length;
                    at += length;
                    match kind {
                        0 => {}
                        1 => regions.push(unknown(range)),
                        _ => regions.push(region(range, [0.0, 1.0, 40.0][kind - 2])),
                    }
                }
                let mut now = vec![None; 64];
                for region in &regions {
                    let heat = heat_of(region);
                    for page in region.range.start / PAGE..region.range.end / PAGE {
                        now[page as usize] = Some(match pages[page as usize] {
                            Some((was, since)) if heat.is_none() || heat == was => (was, since),
                            _ => (heat, window),
                        });
                    }
                }
                pages = now;
                let covered = regions.iter().map(|region| region.range.bytes()).sum::<u64>();
                ages.add_to(&mut regions, window);
                let sum = regions.iter().map(|region| region.range.bytes()).sum::<u64>();
                proptest::prop_assert_eq!(sum, covered);
                for region in &regions {
                    for page in region.range.start / PAGE..region.range.end / PAGE {
                        let (_, since) = pages[page as usize].unwrap();
                        let (off, age) = (region.age.abs_diff(window - since), window - since);
                        proptest::prop_assert!(off <= age / 2 + 4, "{} for {age}", region.age);
                    }
                }
            }
        }
    }
}
