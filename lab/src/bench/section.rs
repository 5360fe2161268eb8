//! Sections of a chapter: each measures a few rows together.
//!
//! Rows belong to the section whose name they begin with. Sections with rows in the file are not
//! run again, so that an interrupted benchmark resumes.

use std::fs;
use std::path::Path;

use super::rows::{Row, Table};
use crate::error::{Context, Error, Kind, Result};
use crate::kernels::Matrix;
use crate::progress::say;

/// Inputs of a section: kernels and working directory.
pub(crate) struct Inputs<'a> {
    /// The kernel matrix.
    pub(crate) matrix: &'a Matrix,
    /// Directory for files other than rows.
    pub(crate) work: &'a Path,
}

/// A group of rows that are measured together.
pub(crate) struct Section {
    /// Name, with which the names of its rows begin.
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Inputs<'_>) -> Result<Vec<Row>>,
}

/// Runs the sections of `chapter` that are not yet in target/bench/CHAPTER.json and whose name
/// contains `only`.
///
/// # Errors
/// At least one section could not be measured; the others were.
pub(crate) fn run(chapter: &str, sections: &[Section], matrix: &Matrix, only: &str) -> Result<()> {
    let path = super::path(chapter);
    let work = path.with_extension("");
    fs::create_dir_all(&work).at(work.display())?;
    let mut table = Table::load(&path)?;
    let mut failed = Vec::new();
    let chosen: Vec<&Section> =
        sections.iter().filter(|section| section.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
        return Err(Error::new(Kind::Usage, format!("--only {only}"), "no such section")
            .remedy(format!("one of: {}", names.join("; "))));
    }
    for section in chosen {
        if table.begins(section.name) {
            say(format!("{}: there already", section.name));
            continue;
        }
        say(section.name);
        match (section.measure)(&Inputs { matrix, work: &work }) {
            Ok(rows) => table.add(rows, &path)?,
            Err(error) => {
                eprintln!("lab: {error}");
                failed.push(section.name);
            }
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => {
            let what = format!("bench {chapter}");
            Err(Error::new(Kind::Job, what, format!("not measured: {}", some.join(", "))))
        }
    }
}
