//! `tierscope tlb whatif`: runs one trace through other TLBs, with other page sizes and placements
//! of page tables.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::{Access, Error, ErrorKind, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_tlb::ptat::{Block, Sink};
use tierscope_trace::Event;

use super::misses::All;
use super::model::{Counts, Model, Placement};
use super::report::parsed;
use super::source::{Listener, Seen, TraceArgs, machine, page_size, size_name};
use crate::print as report;

/// Flags of `tierscope tlb whatif`.
#[derive(Debug, Args)]
pub struct WhatifArgs {
    /// The trace or capture to read.
    #[command(flatten)]
    pub trace: TraceArgs,

    /// Machines: ready-made ones, or TOML files
    #[arg(long, value_name = "A,B", value_delimiter = ',', required = true)]
    pub machine: Vec<String>,

    /// Page sizes to compare
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4K,2M,1G",
          value_parser = page_size)]
    pub pages: Vec<PageSize>,

    /// Caching of page tables: cached as any memory, or with the last-level tables uncached
    #[arg(long, value_name = "PLACES", value_delimiter = ',', default_value = "cached",
          value_parser = placement)]
    pub tables: Vec<Placed>,

    /// Run everything in a guest that a hypervisor backs with pages of these sizes: walks then have
    /// a second dimension
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = page_size)]
    pub nested: Vec<PageSize>,
}

/// A value of `--tables`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed(Placement);

fn placement(text: &str) -> Result<Placed, String> {
    match text {
        "cached" => Ok(Placed(Placement::Cached)),
        "uncached" => Ok(Placed(Placement::Uncached)),
        _ => Err("page tables lie cached or uncached".into()),
    }
}

/// One configuration of machine, pages and tables, with its model.
struct Way {
    name: String,
    size: PageSize,
    placement: Placement,
    /// Page size of the hypervisor, if there is one.
    nested: Option<PageSize>,
    model: Model,
    /// Latency of an entry's read in nanoseconds: from the last-level cache, and from memory.
    llc_ns: f64,
    memory_ns: f64,
}

impl Way {
    fn new(
        name: &str,
        machine: &Machine,
        size: PageSize,
        placement: Placement,
        nested: Option<PageSize>,
    ) -> Result<Self> {
        let cycle = 1000.0 / f64::from(machine.processor.mhz);
        let model = Model::new(machine, Some(placement))?;
        let model = match nested {
            Some(size) => model.nested(machine, size)?,
            None => model,
        };
        Ok(Self {
            name: name.to_owned(),
            size,
            placement,
            nested,
            model,
            llc_ns: f64::from(machine.timing.llc_cycles) * cycle,
            memory_ns: f64::from(machine.tiers[0].read_ns),
        })
    }

    fn counts(&self) -> Counts {
        self.model.counts
    }

    /// Total latency of walk reads, if none overlaps with other work; reads of a hypervisor's
    /// entries are taken to hit the last-level cache.
    fn walk_ns(&self) -> f64 {
        let Counts { reads, memory, .. } = self.counts();
        let host = self.model.second().map_or(0, |second| second.reads);
        (reads + host - memory) as f64 * self.llc_ns + memory as f64 * self.memory_ns
    }

    fn tables(&self) -> &'static str {
        match self.placement {
            Placement::Cached => "cached",
            Placement::Uncached => "uncached",
        }
    }
}

impl Listener for Way {
    fn event(&mut self, _: &Event) {}

    #[inline]
    fn access(&mut self, seen: Seen) {
        let _ = self.model.access((seen.thread, seen.pid), seen.address, seen.access, self.size);
    }
}

/// Feeds the misses of a capture, in place of accesses, to all configurations.
struct Remissed(All<Way>);

impl Sink for Remissed {
    fn miss(&mut self, _: u64, block: &Block) {
        let Some(page) = block.pages().next() else { return };
        for way in &mut self.0.0 {
            let who = (0, page.pid.into());
            let _ = way.model.access(who, page.start(), Access::Load, way.size);
        }
    }
}

pub(super) fn run(args: &WhatifArgs) -> Result<()> {
    let mut ways = Vec::new();
    for name in &args.machine {
        let machine = machine(name)?;
        if machine.llc.is_none() {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("cannot tell what walks take on {name}"),
            )
            .cause("the machine has no last-level cache")
            .remedy("give another, or add [llc] to its file"));
        }
        for size in &args.pages {
            for Placed(placement) in &args.tables {
                ways.push(Way::new(name, &machine, *size, *placement, None)?);
                for host in &args.nested {
                    ways.push(Way::new(name, &machine, *size, *placement, Some(*host))?);
                }
            }
        }
    }
    if args.trace.is_capture() {
        let mut remissed = Remissed(All(ways));
        let (_, damage) = parsed(&args.trace.file, &mut remissed)?;
        print(args, &remissed.0.0, Some(CAPTURE))?;
        return damage.first.map_or(Ok(()), Err);
    }
    let mut ways = All(ways);
    let read = args.trace.accesses(&mut ways)?;
    print(args, &ways.0, None)?;
    read.verdict("this is of what could be read")
}

const CAPTURE: &str = "a capture holds misses of the TLBs that were there: what others miss of them is told for TLBs that \
                       hold no less";

fn print(args: &WhatifArgs, ways: &[Way], note: Option<&str>) -> Result<()> {
    let text = match args.trace.json {
        true => {
            let rows: Vec<Value> = ways.iter().map(row_json).collect();
            let trace = args.trace.file.display().to_string();
            format!("{:#}\n", json!({ "trace": trace, "rows": rows, "note": note }))
        }
        false => as_text(ways, note),
    };
    report::print(&text)
}

/// Columns of the hypervisor: its page size, walks, and entries read by them.
fn host(way: &Way) -> String {
    let second = way.model.second().unwrap_or_default();
    let size = way.nested.map_or("none", size_name);
    format!("  {size:>8}  {:>10}  {:>12}", second.walks, second.reads)
}

fn row_json(way: &Way) -> Value {
    let counts = way.counts();
    json!({
        "machine": way.name, "pages": size_name(way.size), "tables": way.tables(),
        "accesses": counts.accesses, "second_level": counts.second, "misses": counts.walks,
        "entries_read": counts.reads, "entries_from_memory": counts.memory, "walk_ns": way.walk_ns(),
        "refused": counts.refused, "nested": way.nested.map(size_name),
        "nested_walks": way.model.second().map(|second| second.walks),
        "nested_entries_read": way.model.second().map(|second| second.reads),
    })
}

fn as_text(ways: &[Way], note: Option<&str>) -> String {
    let accesses = ways.first().map_or(0, |way| way.counts().accesses);
    let mut out = format!("accesses      {accesses}\n\n");
    let nested = ways.iter().any(|way| way.nested.is_some());
    let more = if nested { "  host pages  host walks  host entries" } else { "" };
    let _ = writeln!(
        out,
        "      misses  of 1000  second level  entries read  from memory   walks take  pages  tables{more}    machine"
    );
    for way in ways {
        let counts = way.counts();
        let each = 1000.0 * counts.walks as f64 / counts.accesses.max(1) as f64;
        let _ = writeln!(
            out,
            "{:>12}  {each:>7.3}  {:>12}  {:>12}  {:>11}  {:>8.3} ms  {:>5}  {:<8}{}  {}",
            counts.walks,
            counts.second,
            counts.reads,
            counts.memory,
            way.walk_ns() / 1e6,
            size_name(way.size),
            way.tables(),
            if nested { host(way) } else { String::new() },
            way.name
        );
    }
    if let Some(note) = note {
        let _ = writeln!(out, "\n{note}");
    }
    out
}
