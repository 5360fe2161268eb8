//! Redis under YCSB B: the operation rate under each policy, in alternation.

use super::results::Run;
use super::{Placed, TURNS, place, turns};
use crate::bench::outputs::median;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;

/// YCSB B (zipfian, 95 % reads, 5 % updates) with a tenth of it replaced by scans over all keys,
/// and without a TLB flusher other than the instrument's own: the default set-up. Windows have
/// their default length, which is short: a page's heat is known after a few looks.
const YCSB_B: [&str; 4] = [
    "mix=--zipf 0.99 --update-share 0.05 --scan-share 0.1",
    "flusher=off",
    "flags=--cpu 10%",
    "seconds=20",
];
/// The policy that is compared with those of `AGAINST` under YCSB B. Node 0 has room for the whole
/// server, and each policy may use all of it: so a page is hot from one of fifty samples on.
const PLACED: &str = "hot-region:history=5s,hits=20";
pub(super) const AGAINST: &[&str] = &["static", "kernel", "kernel-damon", PLACED];

/// Measures the operation rate under each policy in turns: every turn of ours must be faster than
/// all turns of the kernel's two policies.
pub(super) fn measure(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let names = AGAINST.repeat(TURNS);
    let Placed { out, command, .. } = place(inputs, "redis", "-ycsb-b", &names, &YCSB_B)?;
    let read = |turn: &String| Run::read(&out.join(turn));
    let runs = turns(&names).iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(rows(&names, &runs, &command))
}

/// Operations per second of the second phase of each turn, after placement had time to act; and the
/// comparison with the other policies: our slowest turn over their fastest, and the ratio of
/// medians.
pub(super) fn rows(names: &[&str], runs: &[Run], command: &str) -> Vec<Row> {
    let rates = |policy: &str| -> Vec<f64> {
        let turns = names.iter().zip(runs).filter(|(name, _)| **name == policy);
        turns.map(|(_, run)| run.second.whole).collect()
    };
    let name = |what: &str| format!("redis ycsb-b in turns: {what}");
    let mut rows = Vec::new();
    for policy in AGAINST {
        for (turn, rate) in (1..).zip(rates(policy)) {
            let what = format!("{policy}: operations a second, turn {turn}");
            rows.push(row(name(&what), rate, "1/s", Bar::None, command));
        }
        let turns = names.iter().zip(runs).filter(|(name, _)| *name == policy);
        let moved = median(turns.map(|(_, run)| (run.promoted + run.demoted) / f64::from(1 << 20)));
        let what = format!("{policy}: moved, median of turns");
        rows.push(row(name(&what), moved.unwrap_or(0.0), "MiB", Bar::None, command));
    }
    let ours = rates(PLACED);
    let least = ours.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = |rates: &[f64]| median(rates.iter().copied()).unwrap_or(0.0);
    for other in ["static", "kernel", "kernel-damon"] {
        let theirs = rates(other);
        let most = theirs.iter().copied().fold(0.0, f64::max);
        let bar = if other == "static" { Bar::None } else { Bar::Least(1.0) };
        let what = format!("{PLACED}: median over {other}'s");
        rows.push(row(name(&what), middle(&ours) / middle(&theirs), "ratio", Bar::None, command));
        let what = format!("{PLACED}: its slowest turn over {other}'s fastest");
        rows.push(row(name(&what), least / most, "ratio", bar, command));
    }
    let checked = runs.iter().map(|run| run.checked).fold(f64::INFINITY, f64::min);
    let what = "values read back whole in the end of each";
    rows.push(row(name(what), checked, "values", Bar::Least(1.0), command));
    rows
}
