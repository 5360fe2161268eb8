//! Page truth of programs: touched pages over time, recorded because the accesses cannot be drawn
//! again.
//!
//! A directory of one file, `pages.jsonl`: a `begin` line, a `pages` line every grain of time, an
//! `end` line. Times are nanoseconds of CLOCK_MONOTONIC. A page belongs to the grain in which its
//! access was handed out; it is touched at most a batch of accesses later. There is no region
//! truth: a computation declares no range hot.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_workloads::Touch;
use tierscope_workloads::truth_dir::AreaLine;

/// Name of the one file of the directory.
pub(crate) const FILE: &str = "pages.jsonl";
/// Bytes of a page.
const PAGE: u64 = 4096;

/// A line of `pages.jsonl`.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    Begin(Begin<'a>),
    Pages(Touched),
    End { at_ns: u64, cause: &'a str, operations: u64 },
}

/// The first line: the program and its run.
#[derive(Serialize)]
pub(crate) struct Begin<'a> {
    pub(crate) format: u32,
    pub(crate) version: &'a str,
    pub(crate) pid: u32,
    pub(crate) clock: &'a str,
    pub(crate) at_ns: u64,
    pub(crate) command: String,
    pub(crate) program: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) seed: u64,
    pub(crate) threads: u32,
    pub(crate) grain_ns: u64,
    pub(crate) page_bytes: u64,
    /// Always null: nothing is declared hot.
    pub(crate) regions: Option<()>,
    pub(crate) backing: &'a str,
    pub(crate) areas: &'a [AreaLine],
}

impl Begin<'_> {
    pub(crate) const FORMAT: u32 = 1;
    pub(crate) const PAGE_BYTES: u64 = PAGE;
}

/// The pages touched in a grain of time.
#[derive(Serialize)]
pub(crate) struct Touched {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// Number of accesses of all threads.
    pub(crate) touches: u64,
    /// For each area: first page and number of pages of each run, ascending.
    pub(crate) areas: Vec<Vec<[u64; 2]>>,
}

/// A bitmap of the pages touched since the last [`Pages::take`].
pub(crate) struct Pages {
    areas: Vec<(u64, Vec<AtomicU64>)>,
    /// Indices of the areas, by ascending start address.
    order: Vec<usize>,
}

impl Pages {
    pub(crate) fn new(areas: &[AreaLine]) -> Self {
        let words = |area: &AreaLine| (area.end - area.start).div_ceil(64 * PAGE);
        let bits = |area| (0..words(area)).map(|_| AtomicU64::new(0)).collect();
        let mut order: Vec<usize> = (0..areas.len()).collect();
        order.sort_by_key(|area| areas[*area].start);
        Self { areas: areas.iter().map(|area| (area.start, bits(area))).collect(), order }
    }

    /// Marks the pages of accesses. Pages outside of all areas are ignored.
    pub(crate) fn mark(&self, touches: &[Touch]) {
        for touch in touches {
            let at = touch.address();
            let after = self.order.partition_point(|area| self.areas[*area].0 <= at);
            let Some(area) = after.checked_sub(1) else { continue };
            let (start, bits) = &self.areas[self.order[area]];
            let page = (at - start) / PAGE;
            let Some(word) = bits.get((page / 64) as usize) else { continue };
            if word.load(Relaxed) >> (page % 64) & 1 == 0 {
                word.fetch_or(1 << (page % 64), Relaxed);
            }
        }
    }

    /// Takes the marked pages as runs, per area, and clears the bitmap.
    pub(crate) fn take(&self) -> Vec<Vec<[u64; 2]>> {
        self.areas.iter().map(|(_, bits)| runs(bits)).collect()
    }
}

fn runs(bits: &[AtomicU64]) -> Vec<[u64; 2]> {
    let mut runs: Vec<[u64; 2]> = Vec::new();
    for (at, word) in bits.iter().enumerate() {
        let mut left = word.swap(0, Relaxed);
        while left != 0 {
            let page = at as u64 * 64 + u64::from(left.trailing_zeros());
            left &= left - 1;
            match runs.last_mut() {
                Some([first, count]) if *first + *count == page => *count += 1,
                _ => runs.push([page, 1]),
            }
        }
    }
    runs
}

/// The file, written line by line.
pub(crate) struct Writer(File);

impl Writer {
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let file = fs::create_dir_all(dir)
            .and_then(|()| OpenOptions::new().append(true).create_new(true).open(&path));
        file.map(Self).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot create {}", path.display()))
                .cause(e)
                .remedy("choose a new directory that you may write to")
        })
    }

    pub(crate) fn line(&mut self, line: &Line<'_>) -> Result<()> {
        let text = serde_json::to_string(line).map_err(std::io::Error::from);
        let written = text.and_then(|text| self.0.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot write {FILE}"))
                .cause(e)
                .remedy("is the disk full?")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Two areas of 70 and 2 pages; addresses before and between them belong to none.
    #[test]
    fn pages_come_as_runs_of_their_area() {
        let area = |start: u64, pages: u64| AreaLine {
            name: String::new(),
            start,
            end: start + pages * PAGE,
        };
        let pages = Pages::new(&[area(1 << 20, 70), area(1 << 30, 2), area(1 << 16, 1)]);
        let at = |address| Touch::read(address);
        let first = [0, 1, 1, 63, 64, 65].map(|page| at((1 << 20) + page * PAGE + 5));
        pages.mark(&first);
        pages.mark(&[at(0), at((1 << 20) + 200 * PAGE), at((1 << 30) + PAGE)]);
        assert_eq!(pages.take(), [vec![[0, 2], [63, 3]], vec![[1, 1]], vec![]]);
        assert!(pages.take().iter().all(Vec::is_empty));
    }
}
