//! `tierscope trace info`: prints a summary of a trace.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::Result;
use tierscope_report::table::{Align, Table};
use tierscope_trace::{Format, Kind, Summary, Tally};

use super::input::{InputArgs, read};
use crate::print::print;
use crate::units::{about_size, exact_time};

/// Flags of `tierscope trace info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The trace to read.
    #[command(flatten)]
    pub input: InputArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &InfoArgs) -> Result<()> {
    let mut trace = args.input.open()?;
    let (format, bytes) = (trace.format, trace.bytes);
    let mut tally = Tally::default();
    let read = read(&mut trace, args.input.strict, |batch| {
        batch.events.iter().for_each(|(_, event)| tally.event(event));
        batch.accesses.iter().for_each(|access| tally.access(access));
        Ok(())
    })?;
    let summary = tally.summary(read.whole());
    let path = &args.input.input;
    let text = if args.json {
        format!("{:#}\n", json(path, format.name(), bytes, &summary, read.damages))
    } else {
        text(path, format, bytes, &summary)
    };
    print(&text)?;
    read.verdict("this covers the readable part")
}

/// The summary as text.
fn text(path: &Path, format: Format, bytes: u64, summary: &Summary) -> String {
    let [loads, stores, modifies, fetches] = summary.accesses();
    let mut table = Table::without_heads([Align::Left, Align::Left]);
    let mut line = |name: &str, value: String| table.row([name, &value]);
    line("accesses", summary.total().to_string());
    line("loads", loads.to_string());
    line("stores", stores.to_string());
    line("modifies", modifies.to_string());
    line("fetches", fetches.to_string());
    line("threads", summary.threads.len().to_string());
    line("processes", summary.footprints.len().to_string());
    line("data", format!("{} touched", about_size(summary.data_footprint())));
    line("code", format!("{} touched", about_size(summary.code_footprint())));
    match summary.last.0 {
        0 => line("time", "not recorded".into()),
        nanos => line("time", exact_time(std::time::Duration::from_nanos(nanos))),
    }
    if bytes > 0 && summary.total() > 0 {
        let each = bytes as f64 / summary.total() as f64;
        line("file", format!("{}, {each:.3} bytes an access", about_size(bytes)));
    }
    if !summary.whole {
        line("whole", "no".into());
    }
    format!("{}, {}\n{table}", path.display(), format.about())
}

/// The summary as JSON.
pub(super) fn json(
    path: &Path,
    format: &str,
    bytes: u64,
    summary: &Summary,
    damages: u64,
) -> Value {
    let by_kind = |counts: [u64; 4]| -> Value {
        Kind::ALL.iter().zip(counts).map(|(kind, count)| (kind.name(), count)).collect()
    };
    let threads = summary.threads.iter().map(|thread| {
        let (pid, tid, name) = (thread.pid, thread.tid, &*thread.name);
        json!({ "pid": pid, "tid": tid, "name": name, "accesses": by_kind(thread.accesses) })
    });
    let per_access = bytes as f64 / summary.total().max(1) as f64;
    json!({
        "trace": path.display().to_string(),
        "format": format,
        "file_bytes": bytes,
        "bytes_per_access": per_access,
        "accesses": by_kind(summary.accesses()),
        "total": summary.total(),
        "bytes": by_kind(summary.bytes),
        "threads": threads.collect::<Vec<_>>(),
        "processes": summary.footprints.len(),
        "data_footprint": summary.data_footprint(),
        "code_footprint": summary.code_footprint(),
        "last_ns": summary.last.0,
        "whole": summary.whole,
        "damages": damages,
    })
}
