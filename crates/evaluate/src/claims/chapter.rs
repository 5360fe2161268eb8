//! A group of experiments on one subject, with one part of a page, and the choice among all.

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};

use super::row::{Row, Section};
use crate::contest::Outcome;
use crate::runner::Runner;

/// How much of an experiment is run. The papers' claims about TLB misses and about NEMO are of one
/// seed, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Number of seeds.
    pub seeds: u16,
    /// Whether verdicts are repeated with assumed parameters changed.
    pub varied: bool,
}

impl Extent {
    /// All that a page shows.
    pub const FULL: Extent = Extent { seeds: 5, varied: true };
    /// The seeds of a verdict.
    pub const QUICK: Extent = Extent { seeds: 5, varied: false };
    /// What shows whether figures are still as they were.
    pub const REDUCED: Extent = Extent { seeds: 2, varied: false };

    pub(super) fn covers(self, other: Extent) -> bool {
        self.seeds >= other.seeds && self.varied >= other.varied
    }
}

/// What a run of an experiment gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The section with the verdicts.
    pub section: Section,
    /// Outcomes of policies by seed, if claims can be judged by what is stored of them.
    pub outcomes: Vec<Vec<Outcome>>,
}

impl From<Section> for Measured {
    fn from(section: Section) -> Self {
        Self { section, outcomes: Vec::new() }
    }
}

/// An experiment that was read and checked.
pub trait Planned {
    /// Runs it, and writes its section with the verdicts; `None` if it was stopped.
    ///
    /// # Errors
    /// A machine cannot be built, or the first error of a run.
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>>;

    /// Runs it as [`Planned::section`] does, and returns also the outcomes to be stored.
    ///
    /// # Errors
    /// Those of `section`.
    fn measure(&self, runner: &Runner<'_>) -> Result<Option<Measured>> {
        Ok(self.section(runner)?.map(Measured::from))
    }

    /// The text of its set-up, without claims; empty if stored outcomes cannot be judged.
    fn set_up(&self) -> &str {
        ""
    }

    /// Its claims, judged by stored outcomes of the same set-up; without outcomes, their rows have
    /// no figures.
    fn judged(&self, _outcomes: &[Vec<Outcome>]) -> Vec<Row> {
        Vec::new()
    }
}

/// Text around sections that are printed instead of written into a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Before the first section.
    pub before: String,
    /// Between two sections.
    pub between: &'static str,
    /// After the last section, if all of the chapter's experiments ran.
    pub after: String,
}

/// A group of experiments on one subject, with the claims about them.
pub trait Chapter: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// Heading of its part of a page.
    fn title(&self) -> &'static str;

    /// Its paper's page in this repository, relative to the top.
    fn page(&self) -> &'static str;

    /// Names of its experiments, in the order of the page.
    fn experiments(&self) -> Vec<&'static str>;

    /// Its paper: the folder of its page.
    fn paper(&self) -> &'static str {
        self.page().split('/').nth(1).unwrap_or_default()
    }

    /// Reads one of its experiments, and checks that its claims can be judged.
    ///
    /// # Errors
    /// A description of the problem, with line and column.
    fn plan(&self, name: &'static str, extent: Extent) -> Result<Box<dyn Planned>>;

    /// Its part of a page below the heading, with these sections.
    ///
    /// # Errors
    /// Text that is computed anew for each page cannot be.
    fn part(&self, sections: &str) -> Result<String>;

    /// Text around printed sections.
    ///
    /// # Errors
    /// As [`Chapter::part`].
    fn frame(&self, _extent: Extent) -> Result<Frame> {
        Ok(Frame::default())
    }
}

/// A chapter, and those of its experiments that were chosen.
pub(super) type Chosen<'a> = (&'a dyn Chapter, Vec<&'static str>);

/// The experiments of these names, by chapter, in the order of the page. The name of a chapter, or
/// of its paper, chooses all its experiments, unless some are named as well. Without names, the
/// first chapter is chosen.
pub(super) fn choose<'a>(
    chapters: &[&'a dyn Chapter],
    names: &[String],
) -> Result<Vec<Chosen<'a>>> {
    if let Some(name) = names.iter().find(|name| !chapters.iter().any(|c| knows(*c, name))) {
        return Err(unknown(chapters, name));
    }
    let is_named = |known: &str| names.iter().any(|name| name == known);
    let of = |(at, chapter): (usize, &&'a dyn Chapter)| {
        let all = chapter.experiments();
        let some: Vec<_> = all.iter().copied().filter(|name| is_named(name)).collect();
        let whole =
            is_named(chapter.name()) || is_named(chapter.paper()) || (names.is_empty() && at == 0);
        let chosen = if some.is_empty() && whole { all } else { some };
        (!chosen.is_empty()).then_some((*chapter, chosen))
    };
    Ok(chapters.iter().enumerate().filter_map(of).collect())
}

fn knows(chapter: &dyn Chapter, name: &str) -> bool {
    chapter.name() == name || chapter.paper() == name || chapter.experiments().contains(&name)
}

fn unknown(chapters: &[&dyn Chapter], name: &str) -> Error {
    let names =
        |chapter: &&dyn Chapter| [vec![chapter.paper(), chapter.name()], chapter.experiments()];
    let mut known: Vec<&str> = chapters.iter().flat_map(names).flatten().collect();
    let mut seen = std::collections::BTreeSet::new();
    known.retain(|name| seen.insert(*name));
    Error::new(ErrorKind::Usage, format!("no experiment is called {name}"))
        .remedy(format!("choose from {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::CHAPTERS;
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<(&'static str, usize)>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let chosen = choose(&CHAPTERS, &names)?;
        Ok(chosen.into_iter().map(|(chapter, names)| (chapter.name(), names.len())).collect())
    }

    #[test]
    fn chapters_and_experiments_are_chosen_by_name() {
        let all = |chapter: &dyn Chapter| (chapter.name(), chapter.experiments().len());
        assert_eq!(chosen(&[]), Ok(vec![all(CHAPTERS[0])]));
        assert_eq!(chosen(&["placement"]), Ok(vec![all(CHAPTERS[3])]));
        let some = chosen(&["nemo-silo", "gapbs-pr", "ycsb-a", "masim-1gb"]);
        assert_eq!(some, Ok(vec![("telemetry", 1), ("placement", 2), ("nemo", 1)]));
        let telescope = chosen(&["telescope"]).expect("it is a paper");
        assert_eq!(
            telescope.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["telemetry", "tiering", "reclaim"]
        );
        assert_eq!(chosen(&["placement", "ycsb-a"]), Ok(vec![("placement", 1)]));
        let error = chosen(&["ycsb-a", "alchemy"]).expect_err("nothing is called so").to_string();
        assert!(error.contains("called alchemy") && error.contains("nemo-silo"), "{error}");
        assert!(chosen(&["flexkvs"]).is_err());
    }
}
