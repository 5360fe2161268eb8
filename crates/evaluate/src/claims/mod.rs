//! The papers' claims compared with our results: experiments, each with the claims that a paper
//! makes about it, as TOML in `experiments/`.
//!
//! Claims are never targets: parameters come from cited sources and are not fitted to them. A
//! [`Chapter`] is a group of experiments with one part of a page; [`reproduce`] runs experiments of
//! any chapters, and prints, writes or checks their sections.

mod chapter;
mod form;
mod nemo;
mod page;
mod placement;
mod ptat;
mod reclaim;
mod telemetry;
mod verdict;

use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::catalogue::{self, Kind};
use crate::runner::Runner;

pub use chapter::{Chapter, Frame, Planned, Section};
pub use form::TABLE;
pub use page::sections;
pub use verdict::{Bounds, Judgement, Verdict};

/// All chapters, in the order of a page that holds several.
pub static CHAPTERS: [&dyn Chapter; 6] = [
    &telemetry::Telemetry,
    &placement::Tiering,
    &reclaim::Reclaim,
    &placement::Placement,
    &nemo::Nemo,
    &ptat::Ptat,
];

/// All commands that decided a reason given for a verdict, of the experiments in the tables of
/// claims.
#[must_use]
pub fn deciding_commands() -> Vec<String> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "kebab-case")]
    struct Claim {
        decided_by: Vec<String>,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Claims {
        claim: Vec<Claim>,
    }
    let kinds = [Kind::Telemetry, Kind::Placement, Kind::Tiering, Kind::Reclaim];
    let texts = kinds.into_iter().flat_map(catalogue::of).map(|entry| entry.text);
    // What cannot be read is reported where experiments are planned.
    let claims = texts.filter_map(|text| toml::from_str::<Claims>(text).ok());
    claims.flat_map(|claims| claims.claim).flat_map(|claim| claim.decided_by).collect()
}

/// Destination of the sections.
pub enum To<'a> {
    /// A function that prints text.
    Print(&'a mut dyn FnMut(&str) -> Result<()>),
    /// A page: sections take the place of old ones of their name. A directory gets a page for each
    /// chapter, called like the chapter.
    Page(&'a Path),
    /// A page that must hold the sections exactly as they would be written now.
    Check(&'a Path),
}

/// Runs experiments of any of the `chapters`, and hands each section on as soon as it is there.
/// `names` are those of experiments, or of chapters for all their experiments; without names, all
/// of the first chapter run. With `quick`, the sensitivity of verdicts to assumed parameters is
/// skipped.
///
/// # Errors
/// An unknown experiment, reported before any run; a file that cannot be read or written;
/// [`ErrorKind::Data`] if a page to check is not current; [`ErrorKind::Other`] if it was stopped.
pub fn reproduce(
    chapters: &[&dyn Chapter],
    names: &[String],
    quick: bool,
    to: &mut To<'_>,
    runner: &Runner<'_>,
) -> Result<()> {
    let chosen = chapter::choose(chapters, names)?;
    let mut planned = Vec::new();
    for (chapter, names) in &chosen {
        let plans = names.iter().map(|name| Ok((*name, chapter.plan(name, quick)?)));
        planned.push((*chapter, plans.collect::<Result<Vec<_>>>()?));
    }
    for (number, (chapter, plans)) in planned.into_iter().enumerate() {
        let whole = plans.len() == chapter.experiments().len();
        let frame = chapter.frame(quick)?;
        for (at, (name, plan)) in plans.iter().enumerate() {
            let Some(text) = plan.section(runner)? else { return Err(stopped()) };
            let section = Section { name, text };
            match to {
                To::Check(path) => check(path, chapter, &section)?,
                To::Page(path) => save(&of_chapter(path, chapter), chapters, chapter, &section)?,
                To::Print(print) => {
                    let gap = if number > 0 && at == 0 { "\n" } else { "" };
                    let lead = if at == 0 { &frame.before } else { frame.between };
                    print(&[gap, lead, &section.text].concat())?;
                }
            }
        }
        if whole && let To::Print(print) = to {
            print(&frame.after)?;
        }
    }
    Ok(())
}

/// The page of a chapter: `path`, or a file in it if it is a directory.
fn of_chapter(path: &Path, chapter: &dyn Chapter) -> PathBuf {
    match path.is_dir() {
        true => path.join(format!("{}.md", chapter.name())),
        false => path.to_owned(),
    }
}

fn save(
    path: &Path,
    chapters: &[&dyn Chapter],
    chapter: &dyn Chapter,
    section: &Section,
) -> Result<()> {
    let old = std::fs::read_to_string(path).unwrap_or_default();
    crate::save(path, &page::merged(&old, chapters, chapter, section)?)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Other, "stopped")
        .cause("claims are judged by whole runs only")
        .remedy("name the experiments to run, to run fewer")
}

/// Checks that a page contains a section exactly as it would be written now.
fn check(path: &Path, chapter: &dyn Chapter, section: &Section) -> Result<()> {
    let page = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {page}"))
            .cause(error)
            .remedy("name a page that `tierscope reproduce -o` wrote")
    })?;
    if text.contains(&section.text) {
        return Ok(());
    }
    let Section { name, .. } = section;
    Err(Error::new(ErrorKind::Data, format!("{page} is not current"))
        .cause(format!("its section on {name} differs"))
        .remedy(format!("run `tierscope {} -o {page}`", chapter.command(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_current_if_it_holds_the_section() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("page.md");
        std::fs::write(&path, "# head\n\n## a\none\n").expect("it can be written");
        let checked = |text: &str| {
            check(&path, &placement::Placement, &Section { name: "a", text: text.into() })
        };
        assert!(checked("## a\none\n").is_ok());
        let error = checked("## a\ntwo\n").expect_err("it says something else");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("`tierscope reproduce a -o "), "{error}");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(checked("").expect_err("it is gone").kind(), ErrorKind::Io);
    }

    #[test]
    fn every_experiment_of_every_chapter_can_be_planned() {
        for chapter in CHAPTERS {
            for name in chapter.experiments() {
                chapter.plan(name, true).map(drop).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    // The index names each page, and counts the verdicts there.
    #[test]
    fn the_index_counts_the_verdicts_of_each_page() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).expect("a page");
        let index = read("REPRODUCTION.md");
        for chapter in CHAPTERS {
            let text = read(chapter.page());
            let counts = Verdict::ALL.map(|verdict| count(&text, verdict).to_string());
            let row = format!("]({}) | {} |", chapter.page(), counts.join(" | "));
            assert!(index.contains(&row), "no row ends with {row}");
        }
    }

    /// Rows of tables whose last cell is this verdict, with or without a reason.
    fn count(page: &str, verdict: Verdict) -> usize {
        let last = |line: &str| Some(line.strip_suffix('|')?.rsplit('|').next()?.trim().to_owned());
        let cells = page.lines().filter(|line| line.starts_with('|')).filter_map(last);
        cells.filter(|cell| cell.split(':').next() == Some(verdict.name())).count()
    }

    // Two chapters in one call: their sections are parts of one page, or of a page each.
    #[test]
    fn chapters_run_together() {
        struct Toy(&'static str);
        impl Planned for Toy {
            fn section(&self, _: &Runner<'_>) -> Result<Option<String>> {
                Ok(Some(format!("## {}\ntext\n", self.0)))
            }
        }
        impl Chapter for Toy {
            fn name(&self) -> &'static str {
                self.0
            }
            fn title(&self) -> &'static str {
                self.0
            }
            fn page(&self) -> &'static str {
                "page.md"
            }
            fn experiments(&self) -> Vec<&'static str> {
                vec![if self.0 == "a" { "one" } else { "two" }]
            }
            fn plan(&self, name: &'static str, _: bool) -> Result<Box<dyn Planned>> {
                Ok(Box::new(Toy(name)))
            }
            fn part(&self, sections: &str) -> Result<String> {
                Ok(format!("\n{sections}"))
            }
        }
        let chapters: [&dyn Chapter; 2] = [&Toy("a"), &Toy("b")];
        let runner = Runner::new(Default::default(), &());
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["two".to_owned(), "a".to_owned()];
        let run = |to: &mut To<'_>| reproduce(&chapters, &names, true, to, &runner);
        let page = dir.path().join("page.md");
        run(&mut To::Page(&page)).expect("it runs");
        let text = std::fs::read_to_string(&page).expect("it is there");
        assert_eq!(text, "# a\n\n## one\ntext\n\n# b\n\n## two\ntext\n");
        run(&mut To::Check(&page)).expect("it is current");
        run(&mut To::Page(dir.path())).expect("it runs");
        let text = std::fs::read_to_string(dir.path().join("b.md")).expect("it is there");
        assert_eq!(text, "# b\n\n## two\ntext\n");
        let mut printed = String::new();
        run(&mut To::Print(&mut |text| {
            printed.push_str(text);
            Ok(())
        }))
        .expect("it runs");
        assert_eq!(printed, "## one\ntext\n\n## two\ntext\n");
    }
}
