//! `tierscope reproduce ptat`: the PTAT paper's experiments on TLB misses, on the simulated
//! machine, with a page of their own.
//!
//! Each is run with the cores' counters only, with a monitor on the memory bus, and with traps, as
//! its claims need. Our own recorder and parser are judged: misses are their results from the bus,
//! not the machine's counts.

mod claim;
mod first_level;
mod page;
mod run;
mod sequence;

use std::sync::atomic::{AtomicU64, Ordering};

use tierscope_core::{Error, ErrorKind, Result};

use super::{ReproduceArgs, check, stopped};
use crate::bench::race::{side_by_side, stop_flag};
use crate::bench::save;
use crate::report::print;
use claim::{Planned, Variant};
use run::{Outcome, Way};

/// Name of the whole group on the command line.
pub(super) const GROUP: &str = "ptat";

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        /// Names and TOML texts of the experiments.
        const ALL: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../../experiments/ptat/", $name, ".toml")),
        )),*];
    };
}

experiments!(
    "sequential",
    "single-thread",
    "threads",
    "platform-b",
    "random-access",
    "random-access-threads",
    "bfs",
    "selection",
);

/// An experiment and the outcomes of its runs.
struct Ran {
    planned: Planned,
    outcomes: Vec<Outcome>,
}

/// Runs the experiments of these names, all if none are given, and writes or checks their page.
///
/// # Errors
/// As [`super::run`].
pub(super) fn reproduce(args: &ReproduceArgs, names: &[String]) -> Result<()> {
    let planned = choose(names)?;
    let ran = run_all(planned)?;
    if let Some(path) = &args.check {
        return ran.iter().try_for_each(|ran| {
            let name = ran.planned.name;
            check(path, name, &page::section(ran), &format!("reproduce ptat {name}"))
        });
    }
    match &args.output {
        Some(path) => {
            let old = std::fs::read_to_string(path).unwrap_or_default();
            let order: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            save(path, &page::merged(&old, &order, &ran))
        }
        None => ran.iter().try_for_each(|ran| print(&page::section(ran))),
    }
}

fn choose(names: &[String]) -> Result<Vec<Planned>> {
    for name in names {
        if !ALL.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = ALL.iter().map(|(known, _)| *known).collect();
            return Err(Error::new(
                ErrorKind::Usage,
                format!("no experiment of ptat is called {name}"),
            )
            .remedy(format!("choose from {}", known.join(", "))));
        }
    }
    let chosen = ALL.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name));
    chosen.map(|(name, text)| Planned::parse(name, text)).collect()
}

/// Runs all experiments in parallel, up to the number of cores.
fn run_all(planned: Vec<Planned>) -> Result<Vec<Ran>> {
    let stop = stop_flag()?;
    let jobs: Vec<(&Planned, &Variant, Way)> = planned
        .iter()
        .flat_map(|plan| plan.runs().into_iter().map(move |(variant, way)| (plan, variant, way)))
        .collect();
    let nanos: Vec<u64> =
        jobs.iter().map(|(_, variant, _)| variant.experiment.time.as_nanos() as u64).collect();
    let outcomes = side_by_side(&nanos, &stop, |index: usize, reached: &AtomicU64| {
        let (plan, variant, way) = jobs[index];
        run::run(variant, way, plan.monitor, &stop, reached)
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    let counts: Vec<usize> = planned.iter().map(|plan| plan.runs().len()).collect();
    let mut outcomes = outcomes.into_iter().flatten();
    let ran = planned.into_iter().zip(counts).map(|(planned, count)| {
        let outcomes = outcomes.by_ref().take(count).collect();
        Ran { planned, outcomes }
    });
    Ok(ran.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_whole() {
        let all = choose(&[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(all.len(), ALL.len());
        for plan in all {
            assert!(!plan.claims.is_empty() && !plan.runs().is_empty(), "{}", plan.name);
        }
        assert!(choose(&["alchemy".into()]).is_err());
    }

    // End to end on a small program: machine, monitor and parser.
    #[test]
    fn the_paper_s_sequential_program_is_seen_page_by_page() {
        let ran =
            run_all(choose(&["sequential".to_owned()]).expect("it is there")).expect("it runs");
        for outcome in &ran[0].outcomes {
            assert_eq!(outcome.predicted, Some(1.0), "{}", outcome.variant);
            assert!(outcome.operations > 1000 && outcome.misses == outcome.operations);
        }
        let text = page::section(&ran[0]);
        assert!(text.contains("| reproduced |"), "{text}");
    }

    #[test]
    fn sections_take_the_place_of_their_own_and_of_no_others() {
        let order = ["a", "sequential", "z"];
        let old = "# old head\n\n## a\nkept\n\n## sequential\nold\n\n## gone\nold\n";
        let planned = choose(&["sequential".to_owned()]).expect("it is there").remove(0);
        let text = page::merged(old, &order, &[Ran { planned, outcomes: Vec::new() }]);
        assert!(text.contains("\n## a\nkept\n") && !text.contains("\nold\n"), "{text}");
        assert!(text.find("## a").expect("kept") < text.find("## sequential").expect("fresh"));
        assert!(!text.contains("## gone"));
    }
}
