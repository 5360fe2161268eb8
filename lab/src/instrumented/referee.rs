//! The referee: determines from outside on which nodes a guest's pages are, and which of them
//! programs touched. It does not involve or disturb the guest: it walks page tables in the shared
//! files of the guest's RAM and uses the plugin's tables of touched pages; it neither reads nor
//! clears ACCESSED bits.
//!
//! A guest program that is to be judged writes its request to [`QUESTION`] in /out and waits for
//! [`ANSWER`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tierscope_core::Level;
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

/// Walk over all present pages of a request, in order of address.
struct Walk<'a, M> {
    memory: &'a M,
    question: Question,
    runs: Vec<Run>,
}

impl<M: Memory> Walk<'_, M> {
    /// Visits the entries of a table of `level` whose first linear address is `base`.
    fn table(&mut self, table: u64, level: Level, base: u64) {
        let Question { start, end, .. } = self.question;
        for index in 0..512 {
            let linear = base + index * level.entry_bytes();
            if linear + level.entry_bytes() <= start {
                continue;
            }
            if linear >= end {
                return;
            }
            let entry = self.memory.word(entry_address(table, linear, level));
            if entry & PRESENT == 0 {
                continue;
            }
            let leaf = level == Level::PTE || entry & HUGE != 0 && level.number() <= 3;
            match level.below() {
                Some(below) if !leaf => self.table(entry & FRAME_MASK, below, linear),
                _ => self.page(linear, level, entry & FRAME_MASK & !(level.entry_bytes() - 1)),
            }
        }
    }

    fn page(&mut self, linear: u64, level: Level, physical: u64) {
        let Some(node) = self.memory.node_of(physical) else { return };
        let start = linear.max(self.question.start);
        let end = (linear + level.entry_bytes()).min(self.question.end);
        match self.runs.last_mut() {
            Some(last) if last.end == start && last.node == node => last.end = end,
            _ => self.runs.push(Run { start, end, node }),
        }
    }
}

fn placement(memory: &impl Memory, question: Question) -> Vec<Run> {
    let mut walk = Walk { memory, question, runs: Vec::new() };
    if let Some(top) = Level::new(question.levels) {
        walk.table(question.root & FRAME_MASK, top, 0);
    }
    walk.runs
}

/// Answers a pending request, if there is one.
///
/// # Errors
/// The request cannot be read, or the response cannot be written.
pub fn answer(files: &Files, out: &Path) -> Result<()> {
    let path = out.join(QUESTION);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let question = serde_json::from_str(&text)
        .map_err(|e| Error::new(Kind::Job, path.display().to_string(), e))?;
    let runs = placement(&Ram::open(files)?, question);
    fs::remove_file(&path).at(path.display())?;
    keep(&out.join(ANSWER), &runs)
}

/// Writes the touches since the previous call.
///
/// # Errors
/// A table cannot be read, or the file cannot be written.
pub fn keep_touched(files: &Files, out: &Path) -> Result<()> {
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
    let spaces = spaces.collect();
    keep(&out.join(TOUCHED), &Touched { spaces, lost })
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

    #[test]
    fn unmapped_pages_have_no_address() {
        let question = Question { root: 0x1000, levels: 5, start: 0, end: u64::MAX >> 8 };
        assert_eq!(placement(&Toy(BTreeMap::new()), question), []);
        let beyond = Toy(BTreeMap::from([(0x1000, (1 << 33) | PRESENT)]));
        assert_eq!(placement(&beyond, Question { levels: 4, ..question }), []);
    }
}
