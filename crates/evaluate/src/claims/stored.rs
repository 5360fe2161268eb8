//! Figures of experiments, stored in a checkout of this repository: a file of JSON for each
//! experiment, `experiments/PAPER/figures/NAME.json`, from which the pages are made.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};

use super::chapter::{Chapter, Extent};
use super::kept;
use super::row::Section;
use crate::contest::Outcome;

/// A section, and when and by what code it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stored {
    /// Day of the run.
    pub date: String,
    /// The last commit that changed the code or an experiment; with `-dirty` if more had changed.
    pub commit: String,
    /// CPU time of the run in seconds, rounded up, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Number of seeds, and whether assumed parameters were varied.
    pub extent: Extent,
    /// The experiment's set-up then, in the order of its keys, if outcomes are stored as well.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "super::row::lines")]
    pub set_up: String,
    /// What was measured.
    pub section: Section,
}

impl Stored {
    /// Markdown of the section, with its age.
    pub(super) fn markdown(&self) -> String {
        let Stored { date, commit, cpu_seconds, .. } = self;
        let cpu = cpu_seconds.map_or(String::new(), |seconds| format!(", {seconds} s of CPU"));
        self.section.markdown(&format!("Measured {date} on {commit}{cpu}.\n"))
    }
}

/// A checkout of this repository, and the state of its code.
#[derive(Clone, Debug)]
pub struct Checkout {
    /// Its directory.
    pub root: PathBuf,
    /// As in [`Stored::commit`].
    pub commit: String,
    /// Today.
    pub date: String,
}

impl Checkout {
    /// Whether what is stored of an experiment was measured by the present code, to this extent.
    pub(super) fn is_current(&self, stored: &Stored, extent: Extent) -> bool {
        let same = stored.commit == self.commit && !self.commit.ends_with("-dirty");
        same && stored.extent.covers(extent)
    }

    /// What is stored of an experiment, if anything is.
    ///
    /// # Errors
    /// As [`read`].
    pub(super) fn stored(&self, chapter: &dyn Chapter, name: &str) -> Result<Option<Stored>> {
        read(&self.root, chapter, name)
    }

    /// Stores the figures of an experiment, and the outcomes behind them.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn store(
        &self,
        chapter: &dyn Chapter,
        stored: &Stored,
        outcomes: &[Vec<Outcome>],
    ) -> Result<()> {
        let path = path(&self.root, chapter, &stored.section.name);
        if let Some(dir) = path.parent() {
            // If it cannot be made, the file cannot be written.
            let _ = std::fs::create_dir_all(dir);
        }
        if !outcomes.is_empty() {
            kept::store(&path.with_extension("jsonl"), &kept::of(outcomes))?;
        }
        write(&path, stored)
    }
}

/// What is stored of an experiment with its claims judged again, if outcomes of the present set-up
/// are stored and the rows differ.
///
/// # Errors
/// As [`read`].
fn judged_again(root: &Path, chapter: &dyn Chapter, name: &'static str) -> Result<Option<Stored>> {
    let Some(mut stored) = read(root, chapter, name)? else { return Ok(None) };
    let outcomes = kept::read(&path(root, chapter, name).with_extension("jsonl"))?;
    let plan = chapter.plan(name, stored.extent)?;
    if outcomes.is_empty() || plan.set_up() != stored.set_up {
        return Ok(None);
    }
    let rows = std::mem::replace(&mut stored.section.rows, plan.judged(&outcomes));
    Ok((rows != stored.section.rows).then_some(stored))
}

/// Judges the claims of all experiments again where outcomes are stored; returns the names of those
/// whose rows differ, and stores them if `writes`.
///
/// # Errors
/// As [`read`]; or the rows cannot be written.
pub(super) fn judge_again(
    root: &Path,
    chapters: &[&dyn Chapter],
    writes: bool,
) -> Result<Vec<&'static str>> {
    let mut changed = Vec::new();
    for chapter in chapters {
        for name in chapter.experiments() {
            let Some(stored) = judged_again(root, *chapter, name)? else { continue };
            changed.push(name);
            if writes {
                write(&path(root, *chapter, name), &stored)?;
            }
        }
    }
    Ok(changed)
}

fn write(path: &Path, stored: &Stored) -> Result<()> {
    let text = serde_json::to_string_pretty(stored).map_err(|e| unusable(path, e))?;
    crate::save(path, &(text + "\n"))
}

/// The text of a stored file, if there is one.
///
/// # Errors
/// It cannot be read.
pub(super) fn text(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Io, format!("cannot read {}", path.display()))
            .cause(error)
            .remedy("name a checkout of this repository that you may read")),
    }
}

/// What is stored of an experiment in the checkout at `root`, if anything is.
///
/// # Errors
/// [`ErrorKind::Data`] if the file is damaged, [`ErrorKind::Io`] if it cannot be read.
pub(super) fn read(root: &Path, chapter: &dyn Chapter, name: &str) -> Result<Option<Stored>> {
    let path = path(root, chapter, name);
    let Some(text) = text(&path)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|e| unusable(&path, e))
}

/// All that is stored of a chapter, in the order of its experiments.
///
/// # Errors
/// As [`read`].
pub(super) fn all(root: &Path, chapter: &dyn Chapter) -> Result<Vec<Stored>> {
    let found = chapter.experiments().into_iter().map(|name| read(root, chapter, name));
    Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The sections that are stored for a page, in the order of its chapters.
///
/// # Errors
/// As [`read`].
pub(super) fn sections(root: &Path, page: &str, chapters: &[&dyn Chapter]) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for chapter in chapters.iter().filter(|chapter| chapter.page() == page) {
        sections.extend(all(root, *chapter)?.into_iter().map(|stored| stored.section));
    }
    Ok(sections)
}

fn path(root: &Path, chapter: &dyn Chapter, name: &str) -> PathBuf {
    root.join("experiments").join(chapter.paper()).join("figures").join(format!("{name}.json"))
}

pub(super) fn unusable(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("figures in {} cannot be used", path.display()))
        .cause(cause)
        .remedy("run the experiment again with `tierscope reproduce NAME -o CHECKOUT`")
}

#[cfg(test)]
mod tests {
    use super::super::placement::Placement;
    use super::super::row::Section;
    use super::*;

    // Claims are those of the experiment's file, whatever rows were stored; figures of another
    // set-up stay as they are.
    #[test]
    fn stored_outcomes_are_judged_again() {
        let plan = Placement.plan("ycsb-a", Extent::QUICK).unwrap_or_else(|e| panic!("{e}"));
        let dir = tempfile::tempdir().expect("a directory");
        let (root, commit, date) = (dir.path().to_owned(), "c".to_owned(), "d".to_owned());
        let checkout = Checkout { root, commit, date };
        let outcome = Outcome { operations_per_second: 1.0, ..Outcome::default() };
        let rows = |set_up: &str| {
            let section = Section { name: "ycsb-a".into(), ..Section::default() };
            let stored = Stored {
                date: checkout.date.clone(),
                commit: checkout.commit.clone(),
                cpu_seconds: None,
                extent: Extent::QUICK,
                set_up: set_up.into(),
                section,
            };
            checkout.store(&Placement, &stored, &[vec![outcome.clone()]])?;
            judge_again(&checkout.root, &[&Placement], true)?;
            let stored = checkout.stored(&Placement, "ycsb-a")?.expect("it was stored");
            Ok::<_, Error>(stored.section.rows.len())
        };
        assert!(plan.set_up().contains("policies = ["), "{}", plan.set_up());
        assert!(!plan.set_up().contains("about"), "{}", plan.set_up());
        assert_eq!(rows(plan.set_up()), Ok(plan.judged(&[]).len()));
        assert_eq!(rows("time = \"1s\"\n"), Ok(0));
    }
}
