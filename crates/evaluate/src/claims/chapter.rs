//! A group of experiments on one subject, with one part of a page, and the choice among all.

use tierscope_core::{Error, ErrorKind, Result};

use crate::runner::Runner;

/// An experiment's section of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the experiment.
    pub name: &'static str,
    /// Markdown, including the heading.
    pub text: String,
}

/// An experiment that was read and checked.
pub trait Planned {
    /// Runs it, and writes its section with the verdicts; `None` if it was stopped.
    ///
    /// # Errors
    /// A machine cannot be built, or the first error of a run.
    fn section(&self, runner: &Runner<'_>) -> Result<Option<String>>;
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

    /// Reads one of its experiments, and checks that its claims can be judged. With `quick`, the
    /// sensitivity of verdicts to assumed parameters is skipped.
    ///
    /// # Errors
    /// A description of the problem, with line and column.
    fn plan(&self, name: &'static str, quick: bool) -> Result<Box<dyn Planned>>;

    /// Its part of a page below the heading, with these sections.
    ///
    /// # Errors
    /// Text that is computed anew for each page cannot be.
    fn part(&self, sections: &str) -> Result<String>;

    /// Text around printed sections.
    ///
    /// # Errors
    /// As [`Chapter::part`].
    fn frame(&self, _quick: bool) -> Result<Frame> {
        Ok(Frame::default())
    }

    /// Command that writes the section of an experiment.
    fn command(&self, name: &str) -> String {
        format!("reproduce {name}")
    }
}

/// A chapter, and those of its experiments that were chosen.
pub(super) type Chosen<'a> = (&'a dyn Chapter, Vec<&'static str>);

/// The experiments of these names, by chapter, in the order of the page. The name of a chapter
/// chooses all its experiments, unless some are named as well. Without names, the first chapter is
/// chosen.
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
        let whole = is_named(chapter.name()) || (names.is_empty() && at == 0);
        let chosen = if some.is_empty() && whole { all } else { some };
        (!chosen.is_empty()).then_some((*chapter, chosen))
    };
    Ok(chapters.iter().enumerate().filter_map(of).collect())
}

fn knows(chapter: &dyn Chapter, name: &str) -> bool {
    chapter.name() == name || chapter.experiments().contains(&name)
}

fn unknown(chapters: &[&dyn Chapter], name: &str) -> Error {
    let names = |chapter: &&dyn Chapter| [vec![chapter.name()], chapter.experiments()].concat();
    let known: Vec<&str> = chapters.iter().flat_map(names).collect();
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
        let some = chosen(&["nemo-silo", "ycsb-b", "ycsb-a", "masim-1gb"]);
        assert_eq!(some, Ok(vec![("telemetry", 1), ("placement", 2), ("nemo", 1)]));
        assert_eq!(chosen(&["placement", "ycsb-a"]), Ok(vec![("placement", 1)]));
        let error = chosen(&["ycsb-a", "alchemy"]).expect_err("nothing is called so").to_string();
        assert!(error.contains("called alchemy") && error.contains("nemo-silo"), "{error}");
        assert!(chosen(&["flexkvs"]).is_err());
    }
}
