//! Measured figures, their thresholds, and the files that keep them.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Kind, Result};

/// One measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name: quantity and conditions.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// The threshold, like `>= 0.9`; empty: the figure is only reported.
    pub target: String,
    /// Whether the threshold is met; true without one.
    pub holds: bool,
    /// Command that repeats the measurement.
    pub command: String,
}

/// Threshold for a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    Least(f64),
    Most(f64),
    /// Within the second value of the first.
    Around(f64, f64),
    None,
}

impl Bar {
    fn holds(self, value: f64) -> bool {
        match self {
            Bar::Least(bar) => value >= bar,
            Bar::Most(bar) => value <= bar,
            Bar::Around(bar, off) => (value - bar).abs() <= off,
            Bar::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Bar::Least(bar) => format!(">= {bar}"),
            Bar::Most(bar) => format!("<= {bar}"),
            Bar::Around(bar, off) => format!("{bar} ± {off}"),
            Bar::None => String::new(),
        }
    }
}

pub(crate) fn row(name: String, value: f64, unit: &str, bar: Bar, command: &str) -> Row {
    let (target, holds) = (bar.text(), bar.holds(value));
    Row { name, value, unit: unit.to_owned(), target, holds, command: command.to_owned() }
}

/// Contents of a file of rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn load(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(|e| {
                Error::new(Kind::Usage, path.display().to_string(), e)
                    .remedy("remove the file to start over")
            }),
            Err(_) => Ok(Table::default()),
        }
    }

    pub(super) fn has(&self, command: &str) -> bool {
        self.rows.iter().any(|row| row.command == command)
    }

    /// Whether the name of any row begins with `name`.
    pub(crate) fn begins(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name.starts_with(name))
    }

    /// The figures of all rows whose name contains `part`.
    pub(crate) fn values(&self, part: &str) -> Vec<f64> {
        self.rows.iter().filter(|row| row.name.contains(part)).map(|row| row.value).collect()
    }

    /// Removes the rows whose name begins with `name`.
    pub(crate) fn remove(&mut self, name: &str) {
        self.rows.retain(|row| !row.name.starts_with(name));
    }

    /// The rows, in order.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// The figure of the row called `name`.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.value)
    }

    /// Adds rows and rewrites the file atomically, by renaming.
    pub(crate) fn add(&mut self, rows: Vec<Row>, path: &Path) -> Result<()> {
        for row in &rows {
            let mark = if row.holds { "holds" } else { "FALLS SHORT" };
            println!(
                "{:<60} {:>14.4} {:<10} {:<12} {mark}",
                row.name, row.value, row.unit, row.target
            );
        }
        self.rows.extend(rows);
        let aside = path.with_extension("json.new");
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        fs::write(&aside, text + "\n").at(aside.display())?;
        fs::rename(&aside, path).at(path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(value: f64) -> Row {
        row("x".into(), value, "µs", Bar::Most(1000.0), "measure x")
    }

    #[test]
    fn a_row_that_falls_short_says_so() {
        assert_eq!((some(999.0).holds, some(1001.0).holds), (true, false));
        assert_eq!(some(1.0).target, "<= 1000");
        assert!(!row("x".into(), 0.89, "", Bar::Least(0.9), "").holds);
        assert!(row("x".into(), 0.0, "", Bar::None, "").holds);
    }

    #[test]
    fn rows_survive_and_are_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("module.json");
        Table::load(&path).unwrap().add(vec![some(2000.0)], &path).unwrap();
        let again = Table::load(&path).unwrap();
        assert_eq!(again.rows, [some(2000.0)]);
        assert!(again.has("measure x") && !again.has("measure y"));
    }

    #[test]
    fn a_broken_file_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("module.json");
        fs::write(&path, "{").unwrap();
        assert!(Table::load(&path).unwrap_err().to_string().contains("remove the file"));
    }
}
