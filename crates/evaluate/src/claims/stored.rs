//! Figures of experiments, stored in a checkout of this repository: a file of JSON for each
//! experiment, `experiments/PAPER/figures/NAME.json`, from which the pages are made.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};

use super::chapter::{Chapter, Extent};
use super::row::Section;

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

    /// Stores the figures of an experiment.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn store(&self, chapter: &dyn Chapter, stored: &Stored) -> Result<()> {
        let path = path(&self.root, chapter, &stored.section.name);
        if let Some(dir) = path.parent() {
            // If it cannot be made, the file cannot be written.
            let _ = std::fs::create_dir_all(dir);
        }
        let text = serde_json::to_string_pretty(stored).map_err(|e| unusable(&path, e))?;
        crate::save(&path, &(text + "\n"))
    }
}

/// What is stored of an experiment in the checkout at `root`, if anything is.
///
/// # Errors
/// [`ErrorKind::Data`] if the file is damaged, [`ErrorKind::Io`] if it cannot be read.
pub(super) fn read(root: &Path, chapter: &dyn Chapter, name: &str) -> Result<Option<Stored>> {
    let path = path(root, chapter, name);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| unusable(&path, e)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Io, format!("cannot read {}", path.display()))
            .cause(error)
            .remedy("name a checkout of this repository that you may read")),
    }
}

/// All that is stored of a chapter, in the order of its experiments.
///
/// # Errors
/// As [`read`].
pub(super) fn all(root: &Path, chapter: &dyn Chapter) -> Result<Vec<Stored>> {
    let found = chapter.experiments().into_iter().map(|name| read(root, chapter, name));
    Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn path(root: &Path, chapter: &dyn Chapter, name: &str) -> PathBuf {
    root.join("experiments").join(chapter.paper()).join("figures").join(format!("{name}.json"))
}

fn unusable(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("figures in {} cannot be used", path.display()))
        .cause(cause)
        .remedy("run the experiment again with `tierscope reproduce NAME -o CHECKOUT`")
}
