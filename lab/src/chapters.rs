//! Benches of many chapters: each is a few rows that are measured together.
//!
//! Rows are kept by the name that begins them: what is in the file is not measured again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::{Row, Table};
use crate::command;
use crate::error::{Context, Error, Kind, Result};
use crate::kernels::Matrix;
use crate::paths;
use crate::progress::say;

/// What a chapter may use.
pub(crate) struct Desk<'a> {
    /// Kernels.
    pub(crate) matrix: &'a Matrix,
    /// A directory for what it writes beside rows.
    pub(crate) work: &'a Path,
}

/// Rows that are measured together.
pub(crate) struct Chapter {
    /// Begins the names of its rows.
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Desk<'_>) -> Result<Vec<Row>>,
}

/// Measures the chapters of `bench` that are not in target/bench/BENCH.json yet; `only`: whose name
/// contains this.
///
/// # Errors
/// A chapter could not be measured; the others were.
pub(crate) fn run(bench: &str, chapters: &[Chapter], matrix: &Matrix, only: &str) -> Result<()> {
    let path = paths::root().join(format!("target/bench/{bench}.json"));
    let work = path.with_extension("");
    fs::create_dir_all(&work).at(work.display())?;
    let mut table = Table::load(&path)?;
    let mut failed = Vec::new();
    let chosen: Vec<&Chapter> =
        chapters.iter().filter(|chapter| chapter.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = chapters.iter().map(|chapter| chapter.name).collect();
        return Err(Error::new(Kind::Usage, format!("--only {only}"), "no such chapter")
            .remedy(format!("one of: {}", names.join("; "))));
    }
    for chapter in chosen {
        if table.begins(chapter.name) {
            say(format!("{}: there already", chapter.name));
            continue;
        }
        say(chapter.name);
        match (chapter.measure)(&Desk { matrix, work: &work }) {
            Ok(rows) => table.add(rows, &path)?,
            Err(error) => {
                eprintln!("lab: {error}");
                failed.push(chapter.name);
            }
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => {
            let what = format!("bench {bench}");
            Err(Error::new(Kind::Job, what, format!("not measured: {}", some.join(", "))))
        }
    }
}

/// Runs an example of ours, which prints its figures last, and tells how. `how`: further words for
/// cargo.
pub(crate) fn example(
    package: &str,
    name: &str,
    how: &[&str],
    arguments: &[String],
) -> Result<(Value, String)> {
    let words = ["--package", package, "--example", name, "--"];
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet"]).args(how).args(words).args(arguments);
    let output = command::capture(cargo.current_dir(paths::root()))?;
    let said: Vec<&str> = how.iter().chain(&words).copied().collect();
    let command = format!("cargo run --quiet {} {}", said.join(" "), arguments.join(" "));
    Ok((figures(&output), command))
}

/// The object that ends what a program printed; null if none does.
pub(crate) fn figures(output: &str) -> Value {
    let begins = output.lines().rfind(|line| line.starts_with('{'));
    let at = begins.map_or(0, |line| line.as_ptr().addr() - output.as_ptr().addr());
    serde_json::from_str(&output[at..]).unwrap_or(Value::Null)
}

/// The middle one of some values, the larger of two; `None` of none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// A figure by its place.
pub(crate) fn number(figures: &Value, pointer: &str) -> Result<f64> {
    let missing = || Error::new(Kind::Job, pointer, format!("not in the figures {figures}"));
    figures.pointer(pointer).and_then(Value::as_f64).ok_or_else(missing)
}

/// Our command.
pub(crate) fn tierscope() -> Result<String> {
    let missing = || Error::new(Kind::Environment, "tierscope", "is not beside lab");
    let path: PathBuf = paths::programs().ok_or_else(missing)?.join("tierscope");
    text(&path).map(str::to_owned)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::new(Kind::Environment, path.display().to_string(), "is no path in UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_object_at_the_end() {
        let value = |text| figures(text).pointer("/a").and_then(Value::as_f64);
        assert_eq!(value("made in 3 s\n{\"a\": 1}\n"), Some(1.0));
        assert_eq!(value("{\n  \"a\": 2\n}\n"), Some(2.0));
        assert_eq!(value("{\"a\": 3}\n{\"a\": 4}\n"), Some(4.0));
        assert_eq!(value("nothing"), None);
    }

    #[test]
    fn a_figure_that_is_not_there_is_named() {
        let error = number(&Value::Null, "/frame_ms/all/p95").unwrap_err().to_string();
        assert!(error.contains("/frame_ms/all/p95"), "{error}");
    }
}
