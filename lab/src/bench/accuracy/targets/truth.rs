//! Which addresses of a target are hot, from the files that its programs wrote.

use std::fs;
use std::path::Path;

use tierscope_core::{Mappings, Range, RangeSet, SpaceId, Time};
use tierscope_workloads::truth_dir::TruthDir;

use crate::bench::accuracy::claims::{listed_parts, space_of};
use crate::error::{Error, Kind, Result};

/// A line of `shape` or `sharer`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// Time from which on the addresses are hot, until that of the next line; 0: always.
    from: Time,
    pid: u32,
    start: u64,
    end: u64,
}

/// Where the truth is from.
pub(super) enum Truth {
    Lines(Vec<Line>),
    Toucher(Box<TruthDir>),
}

/// Hot addresses of a window, as its recording lists them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Hot {
    /// Hot at the window's end.
    pub(super) now: RangeSet,
    /// Hot at any time in the window.
    pub(super) ever: RangeSet,
    /// Number of hot ranges whose process is not in the recording.
    pub(super) unnamed: usize,
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "truth", cause)
}

impl Truth {
    /// The truth in the files of a scenario's run.
    pub(super) fn open(out: &Path) -> Result<Self> {
        let toucher = out.join("toucher");
        if toucher.exists() {
            return TruthDir::open(&toucher)
                .map(|truth| Self::Toucher(Box::new(truth)))
                .map_err(broken);
        }
        let text = fs::read_to_string(out.join("truth.txt")).map_err(broken)?;
        text.lines().map(line).collect::<Option<_>>().map(Self::Lines).ok_or_else(|| broken(text))
    }

    /// The hot addresses in the window from `start` to `end`.
    pub(super) fn hot(&self, layout: &Mappings, start: Time, end: Time) -> Hot {
        match self {
            Self::Lines(lines) => of_lines(lines, layout, start, end),
            Self::Toucher(truth) => of_toucher(truth, layout, start, end),
        }
    }
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.split(' ');
    let (from, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut address = || u64::from_str_radix(words.next()?, 16).ok();
    Some(Line { from: Time(from), pid, start: address()?, end: address()? })
}

fn of_lines(lines: &[Line], layout: &Mappings, start: Time, end: Time) -> Hot {
    let begun = lines.iter().filter(|line| line.from.0 > 0 && line.from < end);
    // The last of the lines that hold from some time on; the times are in order.
    let last = begun.clone().next_back();
    let lasting = lines.iter().filter(|line| line.from.0 == 0);
    let now: Vec<&Line> = lasting.chain(last).collect();
    let before = begun.clone().rev().find(|line| line.from <= start);
    let ever = begun.filter(|line| line.from > start).chain(before).chain(now.iter().copied());
    Hot {
        unnamed: now.iter().filter(|line| space_of(layout, line.pid).is_none()).count(),
        ever: ranges(ever, layout),
        now: ranges(now.into_iter(), layout),
    }
}

fn ranges<'a>(lines: impl Iterator<Item = &'a Line>, layout: &Mappings) -> RangeSet {
    let parts = lines.flat_map(|line| {
        // Memory of a process that is not in the recording is in no region.
        let space = space_of(layout, line.pid).unwrap_or(SpaceId(u32::MAX));
        listed_parts(layout, Range::new(space, line.start, line.end))
    });
    parts.collect()
}

fn of_toucher(truth: &TruthDir, layout: &Mappings, start: Time, end: Time) -> Hot {
    let space = space_of(layout, truth.begin().pid);
    let hot = truth.hot(start, end).map(|hot| hot.ranges.as_slice()).unwrap_or_default();
    let moved =
        hot.iter().map(|range| Range { space: space.unwrap_or(SpaceId(u32::MAX)), ..*range });
    let now: RangeSet = moved.collect();
    Hot { ever: now.clone(), now, unnamed: usize::from(space.is_none()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Space;

    fn set(space: u32, start: u64, end: u64) -> RangeSet {
        [Range::new(SpaceId(space), start, end)].into_iter().collect()
    }

    fn layout() -> Mappings {
        let space = |id, name: &str| Space { id: SpaceId(id), name: name.into() };
        Mappings { spaces: vec![space(0, "shape[7]"), space(1, "shape[8]")], ..Mappings::default() }
    }

    fn lines(text: &str) -> Vec<Line> {
        text.lines().map(|text| line(text).unwrap()).collect()
    }

    #[test]
    fn lines_are_read() {
        let read = Line { from: Time(5), pid: 7, start: 0x10, end: 0xff };
        assert_eq!(lines("5 7 10 ff"), [read]);
        assert!(line("5 7 10").is_none() && line("x 7 10 ff").is_none());
    }

    #[test]
    fn lasting_heat_is_that_of_all_processes() {
        let hot = of_lines(&lines("0 7 10 20\n0 9 10 20"), &layout(), Time(1), Time(2));
        assert_eq!((hot.unnamed, hot.now.bytes()), (1, 0x20));
        assert_eq!(hot.now.intersect(&set(0, 0, 0x100)), set(0, 0x10, 0x20));
    }

    // Hot are 10..20 from time 4 on, 18..28 from 6, 20..30 from 8. In the window from 5 to 8 all
    // but the last are hot, the second one at its end.
    #[test]
    fn heat_moves_with_time() {
        let text = lines("4 7 10 20\n6 7 18 28\n8 7 20 30");
        let hot = of_lines(&text, &layout(), Time(5), Time(8));
        assert_eq!((hot.now, hot.ever), (set(0, 0x18, 0x28), set(0, 0x10, 0x28)));
        assert_eq!(of_lines(&text, &layout(), Time(1), Time(2)), Hot::default());
    }
}
