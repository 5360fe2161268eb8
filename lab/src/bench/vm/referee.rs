//! Compares all instruments with the referee: pages reported hot, with pages seen accessed from
//! outside of the guest.

use std::path::Path;

use tierscope_core::metrics::Accuracy;
use tierscope_core::{PAGE_SIZE, Range, RangeSet, SpaceId};
use tierscope_workloads::truth_dir::TruthDir;

use crate::accuracy;
use crate::bench::boot::{boot, command_of};
use crate::bench::outputs::number;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::Result;
use crate::instrumented::referee;
use crate::machine::{broken, json};

/// Hot sets: name in the rows, and workload.
const HOT_SETS: [(&str, &str); 2] = [
    ("512 KiB of 256 MiB", "contiguous:space=256MiB,hot=512KiB,at=100MiB"),
    ("64 MiB of 512 MiB", "contiguous:space=512MiB,hot=64MiB,at=300MiB"),
];

/// Output directories of the scenario's instruments.
const INSTRUMENTS: [&str; 6] = [
    "rates-bayes",
    "telescope-bounded",
    "telescope-flexible",
    "damon-fixed",
    "scan-plain",
    "kernel-damon-fixed",
];

/// Threshold for `rates` where the emulated machine's TLBs are flushed.
const OURS: Bar = Bar::Least(0.9);

/// Rows for both hot sets, with the TLB flusher and without.
pub(super) fn referee(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, workload) in HOT_SETS {
        let set = format!("workload={workload}");
        let out = boot(inputs, "referee", "", |scenario| scenario.assign(&set))?;
        rows.extend(rows_of(name, &out, &command_of("referee", &set))?);
    }
    Ok(rows)
}

fn rows_of(hot_set: &str, out: &Path, command: &str) -> Result<Vec<Row>> {
    let wrong = number(&json(&out.join("placed.json"))?, "/wrong_pages")?;
    let touched = touched(out)?;
    let (areas, hot) = workload(out)?;
    let name = |what: &str| format!("referee: {hot_set}: {what}");
    let seen = Accuracy::of(&touched, &hot).recall().unwrap_or(0.0);
    let mut rows = vec![
        row(
            name("pages placed elsewhere than the kernel says"),
            wrong,
            "pages",
            Bar::Most(0.0),
            command,
        ),
        row(
            name("of the toucher's hot set, seen to be touched"),
            seen,
            "share",
            Bar::Least(1.0),
            command,
        ),
    ];
    for flusher in ["on", "off"] {
        for instrument in INSTRUMENTS {
            let recording = out.join(format!("flusher-{flusher}-{instrument}"));
            let reported = accuracy::reported(&recording)?;
            let precision = Accuracy::of(&reported, &touched).precision();
            // Code and stacks are touched too, but recall is about the workload's memory.
            let recall = Accuracy::of(&reported, &touched.intersect(&areas)).recall();
            let bar = match (flusher, instrument) {
                ("on", "rates-bayes") => OURS,
                _ => Bar::None,
            };
            for (what, share) in [("precision", precision), ("recall", recall)] {
                let what = format!("flusher {flusher}, {instrument}, {what}");
                rows.push(row(name(&what), share.unwrap_or(0.0), "share", bar, command));
            }
        }
    }
    Ok(rows)
}

/// Pages of the toucher's address space that were touched during the measurement.
fn touched(out: &Path) -> Result<RangeSet> {
    let page = |(at, _): (u64, u64)| Range::new(SpaceId(0), at, at + PAGE_SIZE);
    Ok(referee::touched(out)?.into_iter().map(page).collect())
}

/// The areas of the toucher's workload, and the hot set according to its own truth.
fn workload(out: &Path) -> Result<(RangeSet, RangeSet)> {
    let truth = TruthDir::open(&out.join("truth")).map_err(broken)?;
    let areas = truth.begin().areas.iter().map(|area| Range::new(SpaceId(0), area.start, area.end));
    let areas: RangeSet = areas.collect();
    let hot = truth.span().and_then(|(begin, end)| truth.hot(begin, end));
    Ok((areas, hot.ok_or_else(|| broken("the truth is empty"))?.ranges.clone()))
}
