//! Compares policies that run several times each, in alternation, because the speed of an emulated
//! machine drifts by more than placement gains.

use super::results::{LATE, Phase, Run};
use super::{JUDGED, Placed, TURNS, place, turns};
use crate::bench::outputs::median;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;

/// Policies whose throughput is compared.
pub(super) const COMPARED: &[&str] = &["static", "kernel", JUDGED];

pub(super) fn redis(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    in_turns(inputs, "redis")
}

pub(super) fn memcached(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    in_turns(inputs, "memcached")
}

/// Compares the server's speed under the judged policy with static placement and the kernel's
/// policy. Each runs several times in turns, because the speed of an emulated machine drifts by
/// more than placement gains.
fn in_turns(inputs: &Inputs<'_>, server: &str) -> Result<Vec<Row>> {
    let names = COMPARED.repeat(TURNS);
    let Placed { out, hot, command } = place(inputs, server, "-in-turns", &names, &[])?;
    let read = |turn: &String| Run::read(&out.join(turn));
    let runs = turns(&names).iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Turns { server, names: &names, runs: &runs, hot, command: &command }.rows())
}

/// Runs of policies in turns. The threshold applies to the reads of a whole phase, because a policy
/// that places memory sooner is better; each turn is compared with its neighbours, because the
/// machine's speed drifts.
pub(super) struct Turns<'a> {
    pub(super) server: &'a str,
    /// Policy of each run.
    pub(super) names: &'a [&'a str],
    pub(super) runs: &'a [Run],
    /// Size of the hot set in bytes.
    pub(super) hot: f64,
    pub(super) command: &'a str,
}

impl Turns<'_> {
    /// A figure of each turn of a policy.
    fn each(&self, policy: &str, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        let turns = self.names.iter().zip(self.runs).filter(|(name, _)| **name == policy);
        turns.map(|(_, run)| figure(run)).collect()
    }

    fn middle(&self, policy: &str, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.each(policy, figure).into_iter()).expect("each has its turns")
    }

    /// Median ratio of a figure of the judged policy to that of another policy, turn by turn.
    fn over(&self, other: &str, figure: impl Fn(&Run) -> f64) -> f64 {
        let turns = self.each(JUDGED, &figure).into_iter().zip(self.each(other, &figure));
        median(turns.map(|(ours, theirs)| ours / theirs)).expect("each has its turns")
    }

    fn row(&self, what: &str, value: f64, unit: &str, bar: Bar) -> Row {
        row(format!("{} in turns: {what}", self.server), value, unit, bar, self.command)
    }

    /// Rows for one phase of the turns.
    fn of_phase(&self, phase: impl Fn(&Run) -> &Phase, when: &str) -> Vec<Row> {
        let (whole, late) = (|run: &Run| phase(run).whole, |run: &Run| phase(run).rate);
        let mut rows = Vec::new();
        let mut add = |policy: &str, what: &str, value: f64, unit: &str, bar: Bar| {
            rows.push(self.row(&format!("{policy}: {what} after {when}"), value, unit, bar));
        };
        for policy in COMPARED {
            for (turn, rate) in (1..).zip(self.each(policy, whole)) {
                add(policy, &format!("reads a second, turn {turn},"), rate, "1/s", Bar::None);
            }
            let what = format!("reads a second, last {LATE} s, median of turns,");
            add(policy, &what, self.middle(policy, late), "1/s", Bar::None);
            let p95 = self.middle(policy, |run| phase(run).p95_us);
            add(policy, "P95 of sixteen reads, median of turns,", p95, "µs", Bar::None);
        }
        for (base, other) in [("static", "static"), ("the kernel's", "kernel")] {
            let what = format!("reads a second over {base}, median of turns,");
            add(JUDGED, &what, self.over(other, whole), "ratio", Bar::Least(1.0));
            let what = format!("reads a second over {base}, last {LATE} s, median of turns,");
            add(JUDGED, &what, self.over(other, late), "ratio", Bar::None);
        }
        let shares = self.each(JUDGED, |run| phase(run).share.unwrap_or(0.0));
        let what = "hot bytes on node 0 in the end, least of turns,";
        add(JUDGED, what, shares.into_iter().fold(1.0, f64::min), "share", Bar::Least(0.95));
        rows
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = self.of_phase(|run| &run.first, "start");
        rows.extend(self.of_phase(|run| &run.second, "shift"));
        let promoted = self.each(JUDGED, |run| run.promoted / (2.0 * self.hot));
        let most = promoted.into_iter().fold(0.0, f64::max);
        let what = format!("{JUDGED}: promoted, of both hot sets, most of turns");
        rows.push(self.row(&what, most, "ratio", Bar::Most(1.2)));
        let cpu = self.middle(JUDGED, |run| 100.0 * run.cpu.unwrap_or(0.0));
        let what = format!("{JUDGED}: CPU of tierscope, median of turns");
        rows.push(self.row(&what, cpu, "%", Bar::None));
        let checked = self.runs.iter().map(|run| run.checked).fold(f64::INFINITY, f64::min);
        let what = "values read back whole in the end of each";
        rows.push(self.row(what, checked, "values", Bar::Least(1.0)));
        rows
    }
}
