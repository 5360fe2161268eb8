//! `make figures`: the table of figures in README.md, from the rows that the benchmarks wrote.

use std::fmt::Write as _;
use std::fs;

use crate::bench::{self, rows::Table};
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

/// A line of the table: what it says, the chapter whose file has the row, and how the row's name
/// begins.
struct Figure {
    about: &'static str,
    chapter: &'static str,
    row: &'static str,
}

const fn figure(about: &'static str, chapter: &'static str, row: &'static str) -> Figure {
    Figure { about, chapter, row }
}

/// The lines. Simulated figures are labelled so.
const FIGURES: [Figure; 7] = [
    figure(
        "10 GiB hot in 1 TiB, 10 % of the accesses anywhere: found after (simulated)",
        "accuracy",
        "noise 1 TiB, 10 GiB hot, 10 %: precision and recall 0.95 for four windows",
    ),
    figure(
        "the same in 5 TiB, 20 % anywhere (simulated)",
        "accuracy",
        "noise 5 TiB, 10 GiB hot, 20 %: precision and recall 0.9 for four windows",
    ),
    figure(
        "10,000 hot pages of 2 MiB scattered over 1 TiB (simulated)",
        "accuracy",
        "noise 1 TiB, 10,000 x 2 MiB hot, 10 %: precision and recall 0.9 for four windows",
    ),
    figure(
        "profiler's CPU meanwhile, everything included (simulated)",
        "accuracy",
        "noise 1 TiB, 10 GiB hot, 10 %: profiler CPU",
    ),
    figure(
        "slowdown of the target by TLB flushes (simulated)",
        "accuracy",
        "noise 1 TiB, 10 GiB hot, 10 %: slowdown of the target",
    ),
    figure(
        "90 % intervals of hot regions that hold the true rate (simulated)",
        "accuracy",
        "calibration over all simulated rows, intervals of hot regions that hold the truth, mean",
    ),
    figure(
        "real kernel 6.12 in QEMU, 1 TiB of page tables, 10 % anywhere: found after",
        "accuracy",
        "noisy-10-1tb, rates bayes: precision and recall >= 0.9",
    ),
];

/// Begins and ends the table in README.md.
const MARKS: [&str; 2] = ["<!-- figures: make figures -->\n", "<!-- end of figures -->"];

/// Writes the table into README.md.
///
/// # Errors
/// A figure was not measured yet, with the command that measures it; README.md has no marks.
pub fn write() -> Result<()> {
    let path = paths::root().join("README.md");
    let text = fs::read_to_string(&path).at(path.display())?;
    let text = replaced(&text, &table()?).ok_or_else(|| {
        Error::new(Kind::Usage, "README.md", "the marks of the table of figures are missing")
    })?;
    fs::write(&path, text).at(path.display())
}

fn table() -> Result<String> {
    let mut lines = String::from("| figure | value | command |\n| --- | --- | --- |\n");
    for Figure { about, chapter, row } in &FIGURES {
        let rows = Table::load(&bench::path(chapter))?.into_rows();
        let found = rows.iter().find(|found| found.name.starts_with(row)).ok_or_else(|| {
            Error::new(Kind::Usage, *about, "it was not measured yet")
                .remedy(format!("make bench-{chapter}"))
        })?;
        let value = format!("{:.3}", found.value);
        let value = value.trim_end_matches('0').trim_end_matches('.');
        let _ = writeln!(lines, "| {about} | {value} {} | `make bench-{chapter}` |", found.unit);
    }
    Ok(lines)
}

/// The text with another table between the marks.
fn replaced(text: &str, table: &str) -> Option<String> {
    let start = text.find(MARKS[0])? + MARKS[0].len();
    let end = start + text[start..].find(MARKS[1])?;
    Some(format!("{}{table}{}", &text[..start], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_changes() {
        let text = format!("before\n{}old\n{}\nafter\n", MARKS[0], MARKS[1]);
        let wanted = format!("before\n{}new\n{}\nafter\n", MARKS[0], MARKS[1]);
        assert_eq!(replaced(&text, "new\n"), Some(wanted));
        assert_eq!(replaced("no marks", "new\n"), None);
    }

    #[test]
    fn readme_has_the_marks_and_at_most_80_lines() {
        let text = fs::read_to_string(paths::root().join("README.md")).unwrap();
        assert!(replaced(&text, "").is_some());
        assert!(text.lines().count() <= 80, "{} lines", text.lines().count());
    }
}
