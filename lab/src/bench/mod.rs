//! Benchmarks: each chapter measures one subject, by `make bench-CHAPTER`, and writes its rows to
//! target/bench/CHAPTER.json.

pub mod accuracy;
mod boot;
mod chaos;
mod counters;
mod hardware;
mod module;
mod outputs;
pub mod reclaim;
mod reports;
pub mod rows;
mod rtl;
mod section;
pub mod sim;
pub mod tiering;
mod traces;
mod vm;

use std::path::PathBuf;

use crate::error::{Error, Kind, Result};
use crate::kernels::Matrix;
use crate::paths;

use section::Section;

/// Options of a benchmark.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Run only sections or cases whose name contains this.
    pub only: String,
    /// Chapter `accuracy`: seconds that each instrument runs, instead of the case's.
    pub seconds: Option<u32>,
}

/// Contents of a chapter.
enum Contents {
    /// Sections, run one after the other.
    Sections(&'static [Section]),
    /// A loop of its own.
    Own(fn(&Matrix, &Choice) -> Result<()>),
}

use Contents::{Own, Sections};

/// All chapters: what they measure, and how.
const CHAPTERS: [(&str, Contents); 12] = [
    ("module", Own(module::bench)),
    ("accuracy", Own(accuracy::bench)),
    ("reports", Sections(reports::SECTIONS)),
    ("sim", Sections(sim::SECTIONS)),
    ("vm", Sections(vm::SECTIONS)),
    ("counters", Sections(counters::SECTIONS)),
    ("hardware", Sections(hardware::SECTIONS)),
    ("tiering", Sections(tiering::SECTIONS)),
    ("traces", Sections(traces::SECTIONS)),
    ("reclaim", Sections(reclaim::SECTIONS)),
    ("rtl", Sections(rtl::SECTIONS)),
    ("chaos", Sections(chaos::SECTIONS)),
];

/// Names of the chapters.
#[must_use]
pub fn names() -> [&'static str; CHAPTERS.len()] {
    std::array::from_fn(|at| CHAPTERS[at].0)
}

/// Measures the rows of a chapter that are not yet in its file.
///
/// # Errors
/// There is no such chapter. At least one row could not be measured; the others were.
pub fn run(chapter: &str, matrix: &Matrix, choice: &Choice) -> Result<()> {
    let found = CHAPTERS.iter().find(|(name, _)| *name == chapter).ok_or_else(|| {
        Error::new(Kind::Usage, chapter, "no such chapter")
            .remedy(format!("one of: {}", names().join(", ")))
    })?;
    match found.1 {
        Sections(sections) => section::run(chapter, sections, matrix, &choice.only),
        Own(bench) => bench(matrix, choice),
    }
}

/// The file of a chapter's rows.
pub(crate) fn path(chapter: &str) -> PathBuf {
    paths::root().join("target/bench").join(chapter).with_extension("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_makefile_has_a_target_for_each_chapter_and_no_others() {
        let text = std::fs::read_to_string(paths::root().join("Makefile")).unwrap();
        let mut targets: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("bench-")?.split(':').next())
            .collect();
        targets.sort_unstable();
        // Simulations only: `tierscope reproduce` runs them.
        let mut names = names().to_vec();
        names.push("figures");
        names.sort_unstable();
        assert_eq!(targets, names);
    }
}
