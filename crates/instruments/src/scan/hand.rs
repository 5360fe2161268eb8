//! The hand: the remaining work of a pass, in order of address, and at which level to scan it.

use tierscope_core::{Level, Range, RangeSet};

use super::blocks::Position;

/// The parts of `areas` (sorted, disjoint) that lie in `range`.
pub(super) fn overlaps(areas: &[Range], range: Range) -> impl Iterator<Item = Range> + '_ {
    let first = areas.partition_point(|a| (a.space, a.end) <= (range.space, range.start));
    areas[first..].iter().map_while(move |area| area.intersect(&range))
}

/// Work to do on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Scan its entries of this level.
    Scan(Level),
    /// A leaf that was already judged, and found young.
    Young,
}

/// State of the current pass.
#[derive(Debug)]
pub(super) struct Hand {
    /// Scans end at multiples of this size, so that no block and no huge leaf is cut in two.
    unit: u64,
    /// The areas widened to whole entries, for each level from the start level of passes down to
    /// the leaves. An entry shared by several areas is listed once.
    covers: Vec<(Level, Vec<Range>)>,
    /// Remaining work of the pass; the next item is last.
    pending: Vec<(Range, Task)>,
    pass: u32,
    running: bool,
}

impl Hand {
    pub(super) fn new(block: u64) -> Self {
        let unit = block.max(Level::PMD.entry_bytes());
        Self { unit, covers: Vec::new(), pending: Vec::new(), pass: 0, running: false }
    }

    /// Fits the hand to the areas of a target; passes begin at the first of the `upper` levels, if
    /// any. The current pass continues with the mappings of its start.
    pub(super) fn fit(&mut self, areas: &[Range], upper: impl Iterator<Item = Level>) {
        let widened = |level: Level| -> RangeSet { areas.iter().map(|a| level.align(a)).collect() };
        self.covers = upper.map(|level| (level, widened(level).as_slice().to_vec())).collect();
        self.covers.push((Level::PTE, areas.to_vec()));
    }

    /// Number of completed passes: the number of the current one, from zero.
    pub(super) fn pass(&self) -> u32 {
        self.pass
    }

    /// The hand's position: everything below it has been passed.
    pub(super) fn position(&self) -> Position {
        Position { pass: self.pass, next: self.pending.last().map(|(range, _)| range.at(0)) }
    }

    /// No scan may end within an entry of `level` any more.
    pub(super) fn keep_whole(&mut self, level: Level) {
        self.unit = self.unit.max(level.entry_bytes());
    }

    pub(super) fn begin_if_over(&mut self) {
        let Some((level, cover)) = self.covers.first() else { return };
        if !self.running {
            self.pending = cover.iter().rev().map(|range| (*range, Task::Scan(*level))).collect();
            self.running = !self.pending.is_empty();
        }
    }

    /// Ends the pass if no work remains.
    pub(super) fn finish(&mut self) {
        if self.running && self.pending.is_empty() {
            self.running = false;
            self.pass += 1;
        }
    }

    /// The next work: a scan of at most `entries` entries, but at least one unit if it is the
    /// `first` of a step.
    pub(super) fn take(&mut self, entries: u64, first: bool) -> Option<(Range, Task)> {
        let (range, task) = *self.pending.last()?;
        let end = match task {
            Task::Scan(level) => self.reach(&range, level, entries, first),
            Task::Young => range.end,
        };
        if end <= range.start {
            return None;
        }
        self.pending.pop();
        if end < range.end {
            self.pending.push((Range { start: end, ..range }, task));
        }
        Some((Range { end, ..range }, task))
    }

    fn reach(&self, range: &Range, level: Level, entries: u64, first: bool) -> u64 {
        let unit = if level == Level::PTE { self.unit } else { level.entry_bytes() };
        let floor = |at: u64| at & !(unit - 1);
        let reach = floor(range.start.saturating_add(entries.saturating_mul(level.entry_bytes())));
        let least = if first { floor(range.start).saturating_add(unit) } else { range.start };
        reach.max(least).min(range.end)
    }

    /// Queues the work below the `young` entries of `level`, in order: a leaf (`true`) is young, a
    /// table has entries to scan.
    pub(super) fn descend(&mut self, level: Level, young: impl Iterator<Item = (Range, bool)>) {
        let below = self.covers.iter().find(|(cover, _)| *cover < level);
        let Some((below, cover)) = below else { return };
        let from = self.pending.len();
        for (run, is_leaf) in young {
            let task = if is_leaf { Task::Young } else { Task::Scan(*below) };
            self.pending.extend(overlaps(cover, run).map(|part| (part, task)));
        }
        self.pending[from..].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    fn plain(areas: &[Range]) -> Hand {
        let mut hand = Hand::new(2 * MIB);
        hand.fit(areas, std::iter::empty());
        hand
    }

    // 1024 entries of 4 KiB are 4 MiB; scans end at multiples of 2 MiB.
    #[test]
    fn scans_end_at_units() {
        let mut hand = plain(&[r(MIB, 9 * MIB), r(20 * MIB, 21 * MIB)]);
        hand.begin_if_over();
        let mut taken = Vec::new();
        while let Some((range, _)) = hand.take(1024, true) {
            taken.push(range);
        }
        let expected =
            [r(MIB, 4 * MIB), r(4 * MIB, 8 * MIB), r(8 * MIB, 9 * MIB), r(20 * MIB, 21 * MIB)];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_step_does_some_work_and_leaves_little() {
        let mut hand = plain(&[r(0, 8 * MIB)]);
        hand.begin_if_over();
        assert_eq!(hand.take(100, false), None);
        assert_eq!(hand.take(100, true), Some((r(0, 2 * MIB), Task::Scan(Level::PTE))));
        hand.keep_whole(Level::PUD);
        assert_eq!(hand.take(100, true), Some((r(2 * MIB, 8 * MIB), Task::Scan(Level::PTE))));
    }

    #[test]
    fn passes_count_when_they_end() {
        let mut hand = plain(&[r(0, 4 * MIB)]);
        hand.begin_if_over();
        hand.take(512, true);
        hand.finish();
        assert_eq!(hand.position(), Position { pass: 0, next: Some(r(2 * MIB, GIB).at(0)) });
        hand.take(512, true);
        hand.finish();
        assert_eq!(hand.position(), Position { pass: 1, next: None });
    }

    //   0        1 GiB      2 GiB
    //   |##  ##  |          |##          three areas; the first two share a PUD entry
    #[test]
    fn an_upper_entry_is_judged_once_however_many_areas_share_it() {
        let areas = [r(0, 2 * MIB), r(8 * MIB, 12 * MIB), r(2 * GIB, 2 * GIB + 2 * MIB)];
        let mut hand = Hand::new(2 * MIB);
        hand.fit(&areas, [Level::PUD, Level::PMD].into_iter());
        hand.begin_if_over();
        assert_eq!(hand.take(1 << 16, true), Some((r(0, GIB), Task::Scan(Level::PUD))));
        hand.descend(Level::PUD, [(r(0, GIB), false)].into_iter());
        assert_eq!(hand.take(1 << 16, true), Some((r(0, 2 * MIB), Task::Scan(Level::PMD))));
        assert_eq!(hand.take(1 << 16, true), Some((r(8 * MIB, 12 * MIB), Task::Scan(Level::PMD))));
        hand.descend(Level::PMD, [(r(10 * MIB, 12 * MIB), false)].into_iter());
        assert_eq!(hand.take(1 << 16, true), Some((r(10 * MIB, 12 * MIB), Task::Scan(Level::PTE))));
        assert_eq!(hand.take(1 << 16, true), Some((r(2 * GIB, 3 * GIB), Task::Scan(Level::PUD))));
        assert_eq!(hand.take(1 << 16, true), None);
    }

    #[test]
    fn young_leaves_wait_for_their_turn() {
        let mut hand = Hand::new(2 * MIB);
        hand.fit(&[r(0, 8 * MIB)], [Level::PMD].into_iter());
        hand.begin_if_over();
        assert_eq!(hand.take(512, true), Some((r(0, 8 * MIB), Task::Scan(Level::PMD))));
        let young = [(r(0, 4 * MIB), false), (r(6 * MIB, 8 * MIB), true)];
        hand.descend(Level::PMD, young.into_iter());
        assert_eq!(hand.take(1024, true), Some((r(0, 4 * MIB), Task::Scan(Level::PTE))));
        assert_eq!(hand.position().next, Some(r(6 * MIB, GIB).at(0)));
        assert_eq!(hand.take(1, false), Some((r(6 * MIB, 8 * MIB), Task::Young)));
    }

    #[test]
    fn nothing_mapped_is_no_pass() {
        let mut hand = plain(&[]);
        hand.begin_if_over();
        assert_eq!(hand.take(1, true), None);
        hand.finish();
        assert_eq!(hand.pass(), 0);
    }
}
