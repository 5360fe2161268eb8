//! Keeps a given share of a server's memory on node 0 for ten minutes.

use super::UNRECORDED;
use super::results::{Run, broken, requested_share};
use crate::bench::boot::boot;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;

/// Limit of migrated bytes per second in the ten-minute run.
const ALLOWED: f64 = (4u64 << 20) as f64;

/// Keeps a given share of the resident bytes on node 0 for ten minutes, with migration limited to a
/// few MiB a second.
pub(super) fn measure(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let policy = "hot-region:history=10s,hits=40,share=0.25";
    let set = [
        format!("policies={policy}"),
        "seconds=300".to_owned(),
        format!("limits=bytes-per-second = '{ALLOWED:.0}'"),
        UNRECORDED.to_owned(),
    ];
    let out = boot(inputs, "tier", "-ten-minutes", |scenario| {
        set.iter().try_for_each(|assignment| scenario.assign(assignment))
    })?;
    let run = Run::read(&out.join(policy))?;
    let sets: Vec<String> = set.iter().map(|set| format!(" --set '{set}'")).collect();
    let command = format!("lab run tier{}", sets.concat());
    let off = requested_share(policy).and_then(|share| run.off(share));
    let off = off.ok_or_else(|| broken("the server's pages were not counted"))?;
    let name = |what: &str| format!("ten minutes: {policy}: {what}");
    let add =
        |what: &str, value: f64, unit: &str, bar: Bar| row(name(what), value, unit, bar, &command);
    let seconds = run.resident.len() as f64;
    Ok(vec![
        add("counts of the server's pages, each second or later", seconds, "counts", Bar::None),
        add("share of its pages on node 0, off at most", 100.0 * off, "points", Bar::Most(1.0)),
        add(
            "moved in the fullest second, over what is allowed",
            run.fullest / ALLOWED,
            "ratio",
            Bar::Most(1.0),
        ),
        add("moved", (run.promoted + run.demoted) / f64::from(1 << 20), "MiB", Bar::None),
        add("values read back whole in the end", run.checked, "values", Bar::Least(1.0)),
    ])
}
