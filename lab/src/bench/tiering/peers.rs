//! The newest kernel's own ways of tiering, in turns with ours: hint faults, DAMON's migration by
//! fixed thresholds, and by goals with intervals that tune themselves.

use super::results::{Phase, Run};
use super::{JUDGED, Placed, place_on, turns};
use crate::bench::outputs::median;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;

const KERNEL: &str = "newest";
const POLICIES: [&str; 5] = ["static", "kernel", "kernel-damon", "kernel-damon-goals", JUDGED];
/// Number of turns of each policy.
const TURNS: usize = 3;

/// Measures throughput, placement, moved bytes and CPU of each.
pub(super) fn measure(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let names = POLICIES.repeat(TURNS);
    let Placed { out, command, .. } =
        place_on(Some(KERNEL), inputs, ("redis", "-peers"), &names, &[])?;
    let read = |turn: &String| Run::read(&out.join(turn));
    let runs = turns(&names).iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(rows(&names, &runs, &command))
}

/// Medians of the turns of each policy, and what ours reaches of each other one.
pub(super) fn rows(names: &[&str], runs: &[Run], command: &str) -> Vec<Row> {
    let middle = |policy: &str, figure: &dyn Fn(&Run) -> Option<f64>| {
        let turns = names.iter().zip(runs).filter(|(name, _)| **name == policy);
        median(turns.filter_map(|(_, run)| figure(run)))
    };
    let mut rows = Vec::new();
    let mut add = |what: &str, value: f64, unit: &str, bar: Bar| {
        let name = format!("redis, peers of the newest kernel: {what}");
        rows.push(row(name, value, unit, bar, command));
    };
    type Of = fn(&Run) -> &Phase;
    let phases: [(&str, Of); 2] = [("start", |run| &run.first), ("shift", |run| &run.second)];
    for policy in POLICIES {
        for (when, phase) in phases {
            let reads = middle(policy, &|run| Some(phase(run).whole)).unwrap_or(0.0);
            add(&format!("{policy}: reads a second after {when}"), reads, "1/s", Bar::None);
            let share = middle(policy, &|run| phase(run).share).unwrap_or(0.0);
            let what = format!("{policy}: hot bytes on node 0 in the end after {when}");
            add(&what, share, "share", Bar::None);
        }
        let moved = middle(policy, &|run| Some(run.promoted + run.demoted)).unwrap_or(0.0);
        add(&format!("{policy}: moved"), moved / f64::from(1 << 20), "MiB", Bar::None);
        if let Some(cpu) = middle(policy, &|run| run.cpu) {
            add(&format!("{policy}: CPU"), 100.0 * cpu, "% of a CPU", Bar::None);
        }
    }
    for (when, phase) in phases {
        let reads = |policy: &str| middle(policy, &|run| Some(phase(run).whole)).unwrap_or(0.0);
        for other in &POLICIES[..POLICIES.len() - 1] {
            let what = format!("{JUDGED}: reads a second over {other} after {when}");
            add(&what, reads(JUDGED) / reads(other), "ratio", Bar::Least(1.0));
        }
    }
    let checked = runs.iter().map(|run| run.checked).fold(f64::INFINITY, f64::min);
    add("values read back whole in the end of each", checked, "values", Bar::Least(1.0));
    rows
}
