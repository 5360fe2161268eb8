//! The referee: determines from outside on which nodes a guest's pages are, and which of them
//! programs touched. It does not involve or disturb the guest: it walks page tables in the shared
//! files of the guest's RAM and uses the plugin's tables of touched pages; it neither reads nor
//! clears ACCESSED bits.
//!
//! A guest program that is to be judged writes its request to [`QUESTION`] in /out and waits for
//! [`ANSWER`]. A job that leaves its processes running and names their tables in [`ROOTS`] gets
//! their pages with frames and touches ([`Pages`]): memory that several of them map has the same
//! frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tierscope_core::{Level, PAGE_SIZE};
use tierscope_hw::entry::{FRAME_MASK, HUGE, PRESENT};
use tierscope_hw::entry_address;
use tierscope_wire::Shared;
use tierscope_wire::touched::Touches;

use super::Files;
use super::readers::Ram;
use crate::error::{Context, Error, Kind, Result};

/// File in /out with a program's request.
pub const QUESTION: &str = "where.json";
/// File in /out with the response.
pub const ANSWER: &str = "placement.json";
/// File in /out with the touched pages of a run.
pub const TOUCHED: &str = "touched.json";
/// File in /out with which the guest asks to forget the touches so far; it is removed once they
/// are.
pub const RESTART: &str = "count-again";
/// File in /out with the processes to judge: a line with process id and physical address of the
/// top-level page table for each.
pub const ROOTS: &str = "roots.txt";
/// File in /out with the pages of these processes.
pub const PAGES: &str = "pages.json";

/// Levels of the page tables of the processes in [`ROOTS`]: their scenarios run without 5 levels.
const LEVELS: u8 = 4;
/// End of the linear addresses of programs.
const USER_END: u64 = 1 << 47;

/// Request for the nodes of a range of pages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Physical address of the top-level page table.
    pub root: u64,
    /// Number of levels of the page tables.
    pub levels: u8,
    /// First linear address.
    pub start: u64,
    /// End of the linear addresses (exclusive).
    pub end: u64,
}

/// Consecutive pages on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// First linear address.
    pub start: u64,
    /// End of the linear addresses (exclusive).
    pub end: u64,
    /// The node.
    pub node: usize,
}

/// Pages that address spaces touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// Linear addresses of pages with their numbers of touches, ascending; keyed by the physical
    /// address of the top-level page table.
    pub spaces: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Touches lost because the table was full: if not 0, pages missing here may have been touched.
    pub lost: u64,
}

/// Touched page of a process: linear address, number of its frame, number of touches. Pages that
/// were unmapped later have no frame.
pub type Page = (u64, Option<u64>, u64);

/// Pages of the processes of [`ROOTS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Bytes of all frames that any of the processes maps, each counted once.
    pub resident_bytes: u64,
    /// Touched pages by process id, in order of address.
    pub spaces: BTreeMap<u32, Vec<Page>>,
}

/// The guest's RAM, as used by page-table walks.
trait Memory {
    /// The 64-bit word at a physical address; 0 outside of RAM.
    fn word(&self, physical: u64) -> u64;
    /// The node of a physical address; None outside of RAM.
    fn node_of(&self, physical: u64) -> Option<usize>;
}

impl Memory for Ram {
    fn word(&self, physical: u64) -> u64 {
        Ram::word(self, physical)
    }

    fn node_of(&self, physical: u64) -> Option<usize> {
        Ram::node_of(self, physical)
    }
}

/// Walk over all present pages between two linear addresses, in order of address.
struct Walk<'a, M, F> {
    memory: &'a M,
    start: u64,
    end: u64,
    /// Receives first linear address, level and physical address of each page.
    each: F,
}

impl<M: Memory, F: FnMut(u64, Level, u64)> Walk<'_, M, F> {
    fn run(&mut self, root: u64, levels: u8) {
        if let Some(top) = Level::new(levels) {
            self.table(root & FRAME_MASK, top, 0);
        }
    }

    /// Visits the entries of a table of `level` whose first linear address is `base`.
    fn table(&mut self, table: u64, level: Level, base: u64) {
        for index in 0..512 {
            let linear = base + index * level.entry_bytes();
            if linear + level.entry_bytes() <= self.start {
                continue;
            }
            if linear >= self.end {
                return;
            }
            let entry = self.memory.word(entry_address(table, linear, level));
            if entry & PRESENT == 0 {
                continue;
            }
            let leaf = level == Level::PTE || entry & HUGE != 0 && level.number() <= 3;
            match level.below() {
                Some(below) if !leaf => self.table(entry & FRAME_MASK, below, linear),
                _ => {
                    (self.each)(linear, level, entry & FRAME_MASK & !(level.entry_bytes() - 1));
                }
            }
        }
    }
}

fn placement(memory: &impl Memory, question: Question) -> Vec<Run> {
    let Question { root, levels, start, end } = question;
    let mut runs: Vec<Run> = Vec::new();
    let each = |linear: u64, level: Level, physical| {
        let Some(node) = memory.node_of(physical) else { return };
        let start = linear.max(start);
        let end = (linear + level.entry_bytes()).min(end);
        match runs.last_mut() {
            Some(last) if last.end == start && last.node == node => last.end = end,
            _ => runs.push(Run { start, end, node }),
        }
    };
    Walk { memory, start, end, each }.run(root, levels);
    runs
}

/// Frames of all present pages in RAM, by linear address.
fn frames(memory: &impl Memory, root: u64, levels: u8) -> BTreeMap<u64, u64> {
    let mut frames = BTreeMap::new();
    let each = |linear, level: Level, physical| {
        let pages = (0..level.entry_bytes()).step_by(PAGE_SIZE as usize);
        let pages = pages.filter(|at| memory.node_of(physical + at).is_some());
        frames.extend(pages.map(|at| (linear + at, (physical + at) / PAGE_SIZE)));
    };
    Walk { memory, start: 0, end: USER_END, each }.run(root, levels);
    frames
}

/// Joins the touches of processes with the frames of their pages; `processes` are process ids with
/// the addresses of their top-level tables.
fn pages_of(
    memory: &impl Memory,
    levels: u8,
    processes: &[(u32, u64)],
    touched: &BTreeMap<u64, Vec<(u64, u64)>>,
) -> Pages {
    let mut all = BTreeSet::new();
    let mut space = |root: u64| {
        let frames = frames(memory, root, levels);
        all.extend(frames.values().copied());
        let touched = touched.get(&root).into_iter().flatten();
        touched.map(|(at, count)| (*at, frames.get(at).copied(), *count)).collect()
    };
    let spaces = processes.iter().map(|(pid, root)| (*pid, space(*root))).collect();
    Pages { resident_bytes: all.len() as u64 * PAGE_SIZE, spaces }
}

/// Answers a pending request, if there is one.
///
/// # Errors
/// The request cannot be read, or the response cannot be written.
pub fn answer(files: &Files, out: &Path) -> Result<()> {
    let restart = out.join(RESTART);
    if restart.exists() {
        touches(files)?;
        fs::remove_file(&restart).at(restart.display())?;
    }
    let path = out.join(QUESTION);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let question = serde_json::from_str(&text)
        .map_err(|e| Error::new(Kind::Job, path.display().to_string(), e))?;
    let runs = placement(&Ram::open(files)?, question);
    fs::remove_file(&path).at(path.display())?;
    keep(&out.join(ANSWER), &runs)
}

/// Takes the touches since the previous call.
fn touches(files: &Files) -> Result<Touched> {
    let (mut counts, mut lost) = (BTreeMap::<u64, BTreeMap<u64, u64>>::new(), 0);
    for cpu in 0..files.cpus() {
        let path = files.path(&format!("touched-{cpu}"));
        let broken =
            |e: tierscope_core::Error| Error::new(Kind::Environment, path.display().to_string(), e);
        let shared = Shared::open(&path, 0).at(path.display())?;
        let touches = Touches::attach(shared.words().map_err(broken)?).map_err(broken)?;
        touches.take(|each| {
            let space = counts.entry(each.root).or_default();
            each.pages().for_each(|(at, count)| *space.entry(at).or_default() += count);
        });
        lost += touches.lost();
    }
    let spaces = counts.into_iter().map(|(root, pages)| (root, pages.into_iter().collect()));
    Ok(Touched { spaces: spaces.collect(), lost })
}

/// Writes the touches since the previous call; if the job named processes in [`ROOTS`], their
/// pages. The machine has ended, and its RAM still holds their page tables.
///
/// # Errors
/// A table cannot be read, touches of named processes were lost, or the file cannot be written.
pub fn keep_touched(files: &Files, out: &Path) -> Result<()> {
    let touched = touches(files)?;
    let Ok(text) = fs::read_to_string(out.join(ROOTS)) else {
        return keep(&out.join(TOUCHED), &touched);
    };
    let broken = |cause: &str| Error::new(Kind::Job, ROOTS, cause);
    if touched.lost > 0 {
        return Err(broken("touches found no room in the table: set touched_slots"));
    }
    let process = |line: &str| {
        let (pid, root) = line.split_once(' ')?;
        Some((pid.parse().ok()?, root.trim().parse().ok()?))
    };
    let processes: Option<Vec<(u32, u64)>> = text.lines().map(process).collect();
    let processes = processes.ok_or_else(|| broken("a line is not `PID ROOT`"))?;
    let pages = pages_of(&Ram::open(files)?, LEVELS, &processes, &touched.spaces);
    keep(&out.join(PAGES), &pages)
}

/// Touched pages of the address space named in `root.json`, with their numbers of touches, from a
/// run's files in `out`.
///
/// # Errors
/// A file is missing or malformed, or touches were lost.
pub fn touched(out: &Path) -> Result<Vec<(u64, u64)>> {
    let read = |name: &str| {
        let path = out.join(name);
        fs::read_to_string(&path).at(path.display())
    };
    let broken = |cause: String| Error::new(Kind::Job, TOUCHED, cause);
    let root: serde_json::Value =
        serde_json::from_str(&read("root.json")?).map_err(|e| broken(e.to_string()))?;
    let root = root["root"].as_u64().ok_or_else(|| broken("root.json names no root".into()))?;
    let mut all: Touched =
        serde_json::from_str(&read(TOUCHED)?).map_err(|e| broken(e.to_string()))?;
    if all.lost > 0 {
        return Err(broken(format!("{} touches found no room in the table", all.lost)));
    }
    all.spaces.remove(&root).ok_or_else(|| broken(format!("nothing was touched by {root:#x}")))
}

/// Writes a file atomically, so that its reader never sees a part of it.
fn keep(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value).map_err(std::io::Error::from).at(path.display())?;
    let half = path.with_extension("half");
    fs::write(&half, text).at(half.display())?;
    fs::rename(&half, path).at(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Toy memory: words by address; the upper half is node 1.
    struct Toy(BTreeMap<u64, u64>);

    impl Memory for Toy {
        fn word(&self, physical: u64) -> u64 {
            self.0.get(&physical).copied().unwrap_or(0)
        }

        fn node_of(&self, physical: u64) -> Option<usize> {
            (physical < 1 << 31).then_some(usize::from(physical >= 1 << 30))
        }
    }

    // A huge page at 0, of which 1 MiB is requested; after it, at 2 MiB, pages on nodes 0, 1 and 1,
    // and, after a hole, on node 1.
    #[test]
    fn pages_of_both_sizes_are_found_on_their_nodes() {
        let mut words = BTreeMap::from([
            (0x1000, 0x2000 | PRESENT),
            (0x2000, 0x3000 | PRESENT),
            (0x3000, 0x20_0000 | HUGE | PRESENT),
            (0x3008, 0x4000 | PRESENT),
        ]);
        for (index, frame) in [(0, 0x50_0000), (1, 1 << 30), (2, 0x5000_0000), (4, 0x4000_1000)] {
            words.insert(0x4000 + index * 8, frame | PRESENT);
        }
        let question = Question { root: 0x1018, levels: 4, start: 1 << 20, end: 1 << 30 };
        let run = |start, end, node| Run { start, end, node };
        assert_eq!(
            placement(&Toy(words), question),
            [
                run(0x10_0000, 0x20_1000, 0),
                run(0x20_1000, 0x20_3000, 1),
                run(0x20_4000, 0x20_5000, 1)
            ]
        );
    }

    // Processes 7 and 8 map frame 5 at 0 and at 4 KiB, process 7 also frame 6 and a page that is
    // gone.
    #[test]
    fn pages_of_processes_have_frames_and_touches() {
        let chain = |root: u64, leaves: &[(u64, u64)]| {
            let tables = [(root, root + 0x1000), (root + 0x1000, root + 0x2000)];
            let tables = tables.into_iter().chain([(root + 0x2000, root + 0x3000)]);
            let leaves =
                leaves.iter().map(move |(page, frame)| (root + 0x3000 + page * 8, frame << 12));
            tables.chain(leaves).map(|(at, word)| (at, word | PRESENT)).collect::<Vec<_>>()
        };
        let words = [chain(0x1_0000, &[(0, 5), (2, 6)]), chain(0x2_0000, &[(1, 5)])].concat();
        let touched = BTreeMap::from([
            (0x1_0000, vec![(0, 3), (0x7000, 1)]),
            (0x2_0000, vec![(0x1000, 4)]),
            (0x3_0000, vec![(0, 9)]),
        ]);
        let pages = pages_of(
            &Toy(words.into_iter().collect()),
            4,
            &[(7, 0x1_0000), (8, 0x2_0000)],
            &touched,
        );
        assert_eq!(pages.resident_bytes, 2 * PAGE_SIZE);
        assert_eq!(pages.spaces[&7], [(0, Some(5), 3), (0x7000, None, 1)]);
        assert_eq!(pages.spaces[&8], [(0x1000, Some(5), 4)]);
    }

    #[test]
    fn unmapped_pages_have_no_address() {
        let question = Question { root: 0x1000, levels: 5, start: 0, end: u64::MAX >> 8 };
        assert_eq!(placement(&Toy(BTreeMap::new()), question), []);
        let beyond = Toy(BTreeMap::from([(0x1000, (1 << 33) | PRESENT)]));
        assert_eq!(placement(&beyond, Question { levels: 4, ..question }), []);
    }
}
