//! Runs every policy once.

use super::results::{LATE, Run, broken, requested_share};
use super::{JUDGED, Placed, place};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;

/// All policies that work live, and the kernel's own. By default HeMem ignores mappings below 1 GB.
const POLICIES: &[&str] = &[
    "static",
    "kernel",
    "hot-region",
    JUDGED,
    "hot-region:history=10s,hits=40,share=0.25",
    "multi-clock",
    "nimble-selection",
    "nimble",
    "hemem:least=2MiB",
    "memtis",
];

pub(super) fn redis(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    measure(inputs, "redis")
}

pub(super) fn memcached(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    measure(inputs, "memcached")
}

/// Runs each policy once.
fn measure(inputs: &Inputs<'_>, server: &str) -> Result<Vec<Row>> {
    let Placed { out, hot, command } = place(inputs, server, "", POLICIES, &[])?;
    let runs: Vec<(&str, Run)> = POLICIES
        .iter()
        .map(|policy| Ok((*policy, Run::read(&out.join(policy))?)))
        .collect::<Result<_>>()?;
    let base = |name: &str| -> Result<f64> {
        let found = runs.iter().find(|(policy, _)| *policy == name);
        Ok(found.ok_or_else(|| broken(format!("{name} did not run")))?.1.second.rate)
    };
    let bases = [("static", base("static")?), ("the kernel's", base("kernel")?)];
    Ok(runs
        .iter()
        .flat_map(|(policy, run)| run.rows((server, policy), hot, &bases, &command))
        .collect())
}

impl Run {
    pub(super) fn rows(
        &self,
        (server, policy): (&str, &str),
        hot: f64,
        bases: &[(&str, f64)],
        command: &str,
    ) -> Vec<Row> {
        let judged = policy == JUDGED;
        let bar = |bar: Bar| if judged { bar } else { Bar::None };
        let name = |what: &str| format!("{server}: {policy}: {what}");
        let mut rows = Vec::new();
        let mut add = |what: &str, value: f64, unit: &str, bar: Bar| {
            rows.push(row(name(what), value, unit, bar, command));
        };
        for (phase, when) in [(&self.first, "start"), (&self.second, "shift")] {
            add(
                &format!("reads a second, last {LATE} s after {when}"),
                phase.rate,
                "1/s",
                Bar::None,
            );
            add(&format!("P95 of sixteen reads after {when}"), phase.p95_us, "µs", Bar::None);
            let times = [(phase.over_time[0], "at"), (phase.over_time[1], "half way after")];
            for (share, word) in times {
                if let Some(share) = share {
                    let what = format!("hot bytes on node 0 {word} {when}");
                    add(&what, share, "share", Bar::None);
                }
            }
            if let Some(share) = phase.share {
                let what = format!("hot bytes on node 0 30 s after {when}");
                add(&what, share, "share", bar(Bar::Least(0.95)));
            }
        }
        add(
            "misses answered by node 0, whole machine, at the end",
            self.misses,
            "share",
            Bar::None,
        );
        let sets = (self.promoted / (2.0 * hot), "promoted, of both hot sets");
        add(sets.1, sets.0, "ratio", bar(Bar::Most(1.2)));
        for (what, bytes) in
            [("promoted", self.promoted), ("demoted", self.demoted), ("not moved", self.failed)]
        {
            add(what, bytes / f64::from(1 << 20), "MiB", Bar::None);
        }
        add("moved in the fullest second", self.fullest / f64::from(1 << 20), "MiB", Bar::None);
        for (base, rate) in bases {
            let what = format!("reads a second after shift, over {base}");
            add(&what, self.second.rate / rate, "ratio", Bar::None);
        }
        if let Some(off) = requested_share(policy).and_then(|share| self.off(share)) {
            add("share of its pages on node 0, off at most", 100.0 * off, "points", Bar::Most(1.0));
        }
        if let Some(cpu) = self.cpu {
            add("CPU of tierscope", 100.0 * cpu, "%", Bar::None);
        }
        add("values read back whole in the end", self.checked, "values", Bar::Least(1.0));
        rows
    }
}
