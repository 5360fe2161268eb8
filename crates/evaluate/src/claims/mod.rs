//! The papers' claims compared with our results: experiments, each with the claims that a paper
//! makes about it, as TOML in `experiments/`.
//!
//! Claims are never targets: parameters come from cited sources and are not fitted to them. A
//! [`Chapter`] is a group of experiments with one part of a page; [`reproduce`] runs experiments of
//! any chapters, and prints, stores or checks their sections; pages are made from what is stored.

mod across;
mod chapter;
mod differing;
mod ends;
mod form;
mod kept;
mod nemo;
mod page;
mod placement;
mod ptat;
mod reclaim;
mod reduced;
mod row;
mod stored;
mod telemetry;
mod varied;
mod verdict;

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

use crate::catalogue::{self, Kind};
use crate::contest::Outcome;
use crate::runner::Runner;

pub use chapter::{Chapter, Extent, Frame, Measured, Planned};
pub use reduced::reduced;
pub use row::{Row, Section};
pub use stored::{Checkout, Stored};
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
    let commands = claims.flat_map(|claims| claims.claim).flat_map(|claim| claim.decided_by);
    commands.chain(across::deciding_commands()).collect()
}

/// Destination of the sections.
pub enum To<'a> {
    /// A function that prints text.
    Print(&'a mut dyn FnMut(&str) -> Result<()>),
    /// A checkout of this repository: figures are stored in it, and its pages written. Experiments
    /// that the present code has run to this extent are left out, unless all are to be run
    /// `again`.
    Store {
        /// The checkout.
        checkout: &'a Checkout,
        /// Whether also what is current is run.
        again: bool,
    },
    /// A checkout whose stored figures must agree with those of this run.
    Check(&'a Checkout),
}

/// Runs experiments of any of the `chapters`, and hands each section on as soon as it is there.
/// `names` are those of experiments, or of chapters or papers for all their experiments; without
/// names, all of the first chapter run.
///
/// # Errors
/// An unknown experiment, reported before any run; a file that cannot be read or written;
/// [`ErrorKind::Data`] if stored figures do not agree; [`ErrorKind::Other`] if it was stopped.
pub fn reproduce(
    chapters: &[&dyn Chapter],
    names: &[String],
    extent: Extent,
    to: &mut To<'_>,
    runner: &Runner<'_>,
) -> Result<()> {
    for (number, (chapter, plans)) in planned(chapters, names, extent)?.into_iter().enumerate() {
        let whole = plans.len() == chapter.experiments().len();
        let frame = chapter.frame(extent)?;
        for (at, (name, plan)) in plans.iter().enumerate() {
            match to {
                To::Check(checkout) => {
                    check(checkout, chapter, name, || section(&**plan, runner))?;
                }
                To::Store { checkout, again } => {
                    let stored = checkout.stored(chapter, name)?;
                    let current = stored.is_some_and(|known| checkout.is_current(&known, extent));
                    if *again || !current {
                        let (stored, outcomes) = measured(&**plan, extent, checkout, runner)?;
                        checkout.store(chapter, &stored, &outcomes)?;
                        page::write(&checkout.root, chapters)?;
                    }
                }
                To::Print(print) => {
                    let text = section(&**plan, runner)?.markdown("");
                    let gap = if number > 0 && at == 0 { "\n" } else { "" };
                    let lead = if at == 0 { &frame.before } else { frame.between };
                    print(&[gap, lead, &text].concat())?;
                }
            }
        }
        if whole && let To::Print(print) = to {
            print(&frame.after)?;
        }
    }
    Ok(())
}

/// A chapter, and its chosen experiments with their plans.
type Plans<'a> = (&'a dyn Chapter, Vec<(&'static str, Box<dyn Planned>)>);

fn planned<'a>(
    chapters: &[&'a dyn Chapter],
    names: &[String],
    extent: Extent,
) -> Result<Vec<Plans<'a>>> {
    let plans = |(chapter, names): (&'a dyn Chapter, Vec<&'static str>)| {
        let plans = names.into_iter().map(|name| Ok((name, chapter.plan(name, extent)?)));
        Ok((chapter, plans.collect::<Result<Vec<_>>>()?))
    };
    chapter::choose(chapters, names)?.into_iter().map(plans).collect()
}

fn section(plan: &dyn Planned, runner: &Runner<'_>) -> Result<Section> {
    plan.section(runner)?.ok_or_else(stopped)
}

fn stopped() -> Error {
    Error::new(ErrorKind::Other, "stopped")
        .cause("claims are judged by whole runs only")
        .remedy("name the experiments to run, to run fewer; what was stored is not run again")
}

/// Outcomes of policies, by seed.
type Outcomes = Vec<Vec<Outcome>>;

fn measured(
    plan: &dyn Planned,
    extent: Extent,
    checkout: &Checkout,
    runner: &Runner<'_>,
) -> Result<(Stored, Outcomes)> {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).tv_sec;
    let before = cpu();
    let Measured { section, outcomes } = plan.measure(runner)?.ok_or_else(stopped)?;
    let set_up = if outcomes.is_empty() { "" } else { plan.set_up() }.to_owned();
    let (date, commit) = (checkout.date.clone(), checkout.commit.clone());
    let cpu_seconds = (cpu() - before + 1).try_into().ok();
    Ok((Stored { date, commit, cpu_seconds, extent, set_up, section }, outcomes))
}

/// Writes the pages and their index from what is stored. Claims are judged again if outcomes are
/// stored: one that was added since has its row.
///
/// # Errors
/// A file cannot be read or written, or is damaged.
pub fn write_pages(root: &Path) -> Result<()> {
    stored::judge_again(root, &CHAPTERS, true)?;
    page::write(root, &CHAPTERS)
}

/// Checks that the figures of a section, which is run if there are stored ones, agree with them.
fn check(
    checkout: &Checkout,
    chapter: &dyn Chapter,
    name: &str,
    run: impl FnOnce() -> Result<Section>,
) -> Result<()> {
    let wrong = |cause: String| {
        Err(Error::new(ErrorKind::Data, format!("the stored figures of {name} are not current"))
            .cause(cause)
            .remedy(format!("run `tierscope reproduce {name} -o {}`", checkout.root.display())))
    };
    let Some(Stored { section, .. }) = checkout.stored(chapter, name)? else {
        return wrong("there are none".into());
    };
    let again = run()?;
    if section.rows.iter().map(Row::key).ne(again.rows.iter().map(Row::key)) {
        return wrong("its claims have changed".into());
    }
    for (stored, again) in section.rows.iter().zip(&again.rows) {
        if !stored.agrees(again) {
            let shown = |row: &Row| row.ours.map_or("none".into(), |ours| ours.to_string());
            let [paper, of, figure] = stored.key();
            return wrong(format!(
                "{paper}: {of}, {figure}: {}, stored {}",
                shown(again),
                shown(stored)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_of_every_chapter_can_be_planned() {
        for chapter in CHAPTERS {
            for name in chapter.experiments() {
                chapter
                    .plan(name, Extent::QUICK)
                    .map(drop)
                    .unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    struct Toy(&'static str);

    impl Planned for Toy {
        fn section(&self, _: &Runner<'_>) -> Result<Option<Section>> {
            let before = format!("of {}\n", self.0);
            Ok(Some(Section { name: self.0.into(), before, ..Section::default() }))
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
            "experiments/toy/page.md"
        }
        fn experiments(&self) -> Vec<&'static str> {
            vec![if self.0 == "a" { "one" } else { "two" }]
        }
        fn plan(&self, name: &'static str, _: Extent) -> Result<Box<dyn Planned>> {
            Ok(Box::new(Toy(name)))
        }
        fn part(&self, sections: &str) -> Result<String> {
            Ok(format!("\n{sections}"))
        }
    }

    // Two chapters in one call: they are stored one by one, and are parts of one page. What is
    // current is left out, and what is not there or differs is reported.
    #[test]
    fn chapters_run_together() {
        let chapters: [&dyn Chapter; 2] = [&Toy("a"), &Toy("b")];
        let runner = Runner::new(Default::default(), &());
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["two".to_owned(), "a".to_owned()];
        let run = |to: &mut To<'_>| reproduce(&chapters, &names, Extent::QUICK, to, &runner);
        let on = |commit: &str| Checkout {
            root: dir.path().to_owned(),
            commit: commit.into(),
            date: "2026-11-29".into(),
        };
        let first = on("one");
        let error = run(&mut To::Check(&first)).expect_err("nothing is stored");
        assert!(error.to_string().contains("`tierscope reproduce one -o "), "{error}");
        std::fs::write(dir.path().join("REPRODUCTION.md"), "# x\n").expect("it can be written");
        run(&mut To::Store { checkout: &first, again: false }).expect("it runs");
        run(&mut To::Check(&first)).expect("it is current");
        let page = || {
            let path = dir.path().join("experiments/toy/page.md");
            std::fs::read_to_string(path).expect("it is there")
        };
        let section = |name: &str, commit: &str| {
            format!("## {name}\nMeasured 2026-11-29 on {commit}, 1 s of CPU.\nof {name}\n")
        };
        let whole = |commit: &str| {
            format!("# a\n\n{}\n# b\n\n{}", section("one", commit), section("two", commit))
        };
        assert_eq!(page(), whole("one"));
        run(&mut To::Store { checkout: &on("two-dirty"), again: false }).expect("it runs");
        assert_eq!(page(), whole("two-dirty"));
        run(&mut To::Store { checkout: &on("three"), again: false }).expect("it runs");
        let later = Checkout { date: "2026-11-30".into(), ..on("three") };
        run(&mut To::Store { checkout: &later, again: false }).expect("it runs");
        assert_eq!(page(), whole("three"), "it is current");
        run(&mut To::Store { checkout: &later, again: true }).expect("it runs");
        assert!(page().contains("2026-11-30"));
        let mut printed = String::new();
        run(&mut To::Print(&mut |text| {
            printed.push_str(text);
            Ok(())
        }))
        .expect("it runs");
        assert_eq!(printed, "## one\nof one\n\n## two\nof two\n");
    }
}
