//! The PTAT paper's experiments on TLB misses, on the simulated machine.
//!
//! Each is run with the cores' counters only, with a monitor on the memory bus, and with traps, as
//! its claims need. Our own recorder and parser are judged: misses are their results from the bus,
//! not the machine's counts.

mod claim;
mod first_level;
mod page;
mod run;
mod sequence;

use std::sync::atomic::AtomicU64;

use super::chapter::{self, Chapter, Extent};
use super::row::Section;
use crate::catalogue::{self, Kind};
use crate::runner::Runner;
use tierscope_core::Result;

use claim::Planned;
use run::Outcome;

const HEAD: &str = "
Measured by `tierscope reproduce ptat -o .`, or with names of single experiments. Everything is *simulated*:
the machine, its kernel and its bus; no parameter was fitted to a claim, and each is listed with its source in `crates/hw/machines`, `crates/sim/costs`
and the experiments' files. Misses under PTAT are what tierscope's own parser makes of what a monitor wrote; those of BadgerTrap what the kernel
counted at its traps; those of counters all walks of the cores that the program ran on. A program that SPEC, PARSEC or SPLASH-2 holds is a `stand-in`:
patterns after it (`crates/workloads/src/stand_in_spec.rs`), so that its figures are about instruments, not about the program. Sizes are the
paper's unless a file says otherwise; times are short ones, counted from the first operation on. Slowdown is time an operation over that without
an instrument; of added time that one is taken off. What the verdicts mean: `core::metrics`. *Direction only* takes an effect in
the paper's direction that is at least half, at most twice as large as the paper's: of a slowdown and of a speed what is above 1, of a ratio of
misses what is below 1, of a share of misses what is above that of pages alike, of a share of walks that caches answer what is missing to
all; what lies outside is *not reproduced*, whatever its direction.

";

/// Experiments on TLB misses.
pub(super) struct Ptat;

impl Chapter for Ptat {
    fn name(&self) -> &'static str {
        "ptat"
    }

    fn title(&self) -> &'static str {
        "TLB misses: the PTAT paper's claims and our results"
    }

    fn page(&self) -> &'static str {
        "experiments/ptat/REPRODUCTION.md"
    }

    fn experiments(&self) -> Vec<&'static str> {
        catalogue::of(Kind::Ptat).map(|entry| entry.name).collect()
    }

    fn plan(&self, name: &'static str, _: Extent) -> Result<Box<dyn chapter::Planned>> {
        Ok(Box::new(Planned::parse(name, catalogue::text(Kind::Ptat, name)?)?))
    }

    fn part(&self, sections: &str) -> Result<String> {
        Ok(format!("{HEAD}{sections}"))
    }
}

impl chapter::Planned for Planned {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let outcomes = run_all(self, runner)?;
        Ok((!runner.is_stopped()).then(|| page::section(self, &outcomes)))
    }
}

/// Runs all variants in all ways that the claims need.
fn run_all(planned: &Planned, runner: &Runner<'_>) -> Result<Vec<Outcome>> {
    let jobs = planned.runs();
    let nanos: Vec<u64> =
        jobs.iter().map(|(variant, _)| variant.experiment.time.as_nanos() as u64).collect();
    let outcomes = runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let (variant, way) = jobs[index];
        run::run(variant, way, planned.monitor, runner.stop(), reached)
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;

    fn planned(name: &'static str) -> Planned {
        let text = catalogue::text(Kind::Ptat, name).expect("it is there");
        Planned::parse(name, text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_experiment_is_whole() {
        for name in Ptat.experiments() {
            let plan = planned(name);
            assert!(!plan.claims.is_empty() && !plan.runs().is_empty(), "{name}");
        }
    }

    // End to end on a small program: machine, monitor and parser.
    #[test]
    fn the_paper_s_sequential_program_is_seen_page_by_page() {
        let plan = planned("sequential");
        let runner = Runner::new(std::sync::Arc::default(), &());
        let outcomes = run_all(&plan, &runner).expect("it runs");
        for outcome in &outcomes {
            assert_eq!(outcome.predicted, Some(1.0), "{}", outcome.variant);
            assert!(outcome.operations > 1000 && outcome.misses == outcome.operations);
        }
        let rows = page::section(&plan, &outcomes).rows;
        assert!(rows.iter().any(|row| row.verdict == Verdict::Reproduced), "{rows:?}");
    }
}
