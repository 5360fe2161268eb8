//! Runs our programs and reads the figures that they print.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command;
use crate::error::{Error, Kind, Result};
use crate::paths;

/// Runs one of our cargo examples, which prints its figures last; returns the figures and the
/// command. `how` are further arguments for cargo.
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
    let shown: Vec<&str> = how.iter().chain(&words).copied().collect();
    let command = format!("cargo run --quiet {} {}", shown.join(" "), arguments.join(" "));
    Ok((figures(&output), command))
}

/// The JSON object at the end of a program's output; null if there is none.
pub(crate) fn figures(output: &str) -> Value {
    let begins = output.lines().rfind(|line| line.starts_with('{'));
    let at = begins.map_or(0, |line| line.as_ptr().addr() - output.as_ptr().addr());
    serde_json::from_str(&output[at..]).unwrap_or(Value::Null)
}

/// The median of the values, the upper one of an even number; `None` without values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// The figure at a JSON pointer.
pub(crate) fn number(figures: &Value, pointer: &str) -> Result<f64> {
    let missing = || Error::new(Kind::Job, pointer, format!("not in the figures {figures}"));
    figures.pointer(pointer).and_then(Value::as_f64).ok_or_else(missing)
}

/// Path of the command `tierscope`.
pub(crate) fn tierscope() -> Result<String> {
    let missing = || Error::new(Kind::Environment, "tierscope", "is not in lab's directory");
    let path: PathBuf = paths::programs().ok_or_else(missing)?.join("tierscope");
    text(&path).map(str::to_owned)
}

/// Converts a path to text, for command-line arguments.
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
