//! The reduced run of a paper's claims, by one rule for all: two of the five seeds, of each
//! experiment that takes at most [`MOST`] of CPU for them, by what its full run took. A verdict
//! other than that of the full run is not decided by two seeds.

use std::fmt::Write as _;

use tierscope_core::Result;

use super::chapter::{Chapter, Extent, choose};
use super::row::{Row, Section};
use super::stored::{Checkout, Stored};
use crate::runner::Runner;

/// Seconds of CPU of an experiment.
const MOST: u64 = 120;

/// What is written where the reduced run does not decide.
const FULL: &str = "full run";

/// Runs the experiments of these names, which are those of papers, chapters or experiments, and
/// prints each claim with its stored figure and that of the reduced run.
///
/// # Errors
/// An unknown name, reported before any run; a stored file that cannot be read; or the first error
/// of a run.
pub fn reduced(
    chapters: &[&dyn Chapter],
    names: &[String],
    checkout: &Checkout,
    print: &mut dyn FnMut(&str) -> Result<()>,
    runner: &Runner<'_>,
) -> Result<()> {
    let mut decided = [0, 0];
    for (chapter, names) in choose(chapters, names)? {
        for name in names {
            let Some(stored) = checkout.stored(chapter, name)? else {
                print(&format!("## {name}\n{FULL}: nothing is stored of it\n\n"))?;
                continue;
            };
            let again = match cost(&stored).is_some_and(|cost| cost <= MOST) {
                true => Some(super::section(&*chapter.plan(name, Extent::REDUCED)?, runner)?),
                false => None,
            };
            let rows = paired(&stored, again.as_ref());
            decided[0] += rows.iter().filter(|(_, again)| again.is_some()).count();
            decided[1] += rows.len();
            print(&written(&stored, &rows))?;
        }
    }
    let [decided, all] = decided;
    print(&format!(
        "{decided} of {all} claims are decided by the reduced run; the others: {FULL}\n"
    ))
}

/// Seconds of CPU of the reduced run, from those of the full one if they are known.
fn cost(stored: &Stored) -> Option<u64> {
    let Stored { cpu_seconds, extent, .. } = stored;
    Some((*cpu_seconds)? * u64::from(Extent::REDUCED.seeds) / u64::from(extent.seeds.max(1)))
}

/// The stored rows, each with that of the reduced run if it decides.
fn paired<'a>(stored: &'a Stored, again: Option<&'a Section>) -> Vec<(&'a Row, Option<&'a Row>)> {
    let same = |row: &Row| {
        let known = again?.rows.iter().find(|again| again.key() == row.key())?;
        (known.verdict == row.verdict).then_some(known)
    };
    stored.section.rows.iter().map(|row| (row, same(row))).collect()
}

fn written(stored: &Stored, rows: &[(&Row, Option<&Row>)]) -> String {
    let Stored { section, date, commit, .. } = stored;
    let mut text = format!(
        "## {}\nFull run: {date} on {commit}.\n\n\
         | claim | of | figure | paper | full run | reduced run | verdict |\n|---|---|---|---|---|---|---|\n",
        section.name
    );
    let figure = |row: &Row| row.ours.map_or("none".into(), |ours| ours.to_string());
    for (row, again) in rows {
        let Row { paper, says, of, figure: what, range, .. } = row;
        let reduced = again.map_or(FULL.into(), &figure);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {says} ({paper}) | {of} | {what} | {range} | {} | {reduced} | {} |",
            figure(row),
            row.verdict.name()
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Bounds, Seeds, Verdict};
    use super::*;

    fn section(verdict: Verdict, ours: f64) -> Section {
        let row = Row {
            paper: "p".into(),
            says: "s".into(),
            of: "o".into(),
            figure: "f".into(),
            range: Bounds { least: Some(1.0), most: None },
            ours: Seeds::of([Some(ours)]),
            once_detected: None,
            verdict,
            reason: None,
            decided_by: Vec::new(),
        };
        Section { name: "x".into(), rows: vec![row], ..Section::default() }
    }

    // 300 s for five seeds are 120 s for two.
    #[test]
    fn two_seeds_decide_if_they_agree_with_five_and_are_cheap() {
        let stored = Stored {
            date: "2026-11-29".into(),
            commit: "c".into(),
            cpu_seconds: Some(300),
            extent: Extent::FULL,
            set_up: String::new(),
            section: section(Verdict::Reproduced, 2.0),
        };
        assert_eq!(cost(&stored), Some(120));
        let row = |again: Option<&Section>| written(&stored, &paired(&stored, again));
        let same = section(Verdict::Reproduced, 3.0);
        assert!(row(Some(&same)).contains("| 2.000 | 3.000 | reproduced |"));
        let other = section(Verdict::NoDifference, 1.0);
        assert!(row(Some(&other)).contains("| 2.000 | full run | reproduced |"));
        assert!(row(None).contains("| 2.000 | full run | reproduced |"));
    }
}
