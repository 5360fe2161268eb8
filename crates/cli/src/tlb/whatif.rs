//! `tierscope tlb whatif`: runs one trace through other TLBs, with other page sizes and placements
//! of page tables.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::Result;
use tierscope_hw::PageSize;
use tierscope_report::table::Table;
use tierscope_tlb::advice::Configuration;
use tierscope_tlb::attribution::{All, Placement};

use super::source::{TraceArgs, machine, page_size, size_name};
use crate::print;

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

pub(super) fn run(args: &WhatifArgs) -> Result<()> {
    let mut ways = Vec::new();
    for name in &args.machine {
        let machine = machine(name)?;
        for size in &args.pages {
            for Placed(placement) in &args.tables {
                ways.push(Configuration::new(name, &machine, *size, *placement, None)?);
                for host in &args.nested {
                    ways.push(Configuration::new(name, &machine, *size, *placement, Some(*host))?);
                }
            }
        }
    }
    let mut ways = All(ways);
    if args.trace.is_capture() {
        let (_, damage) = args.trace.parsed(&mut ways)?;
        print(args, &ways.0, Some(CAPTURE))?;
        return damage.first.map_or(Ok(()), Err);
    }
    let read = args.trace.accesses(&mut ways)?;
    print(args, &ways.0, None)?;
    read.verdict("this covers the readable part")
}

const CAPTURE: &str = "a capture holds misses of the TLBs that were there: the share of them that other TLBs miss \
                       is known for TLBs of at least their size";

fn print(args: &WhatifArgs, ways: &[Configuration], note: Option<&str>) -> Result<()> {
    let text = match args.trace.json {
        true => {
            let rows: Vec<Value> = ways.iter().map(row_json).collect();
            let trace = args.trace.file.display().to_string();
            format!("{:#}\n", json!({ "trace": trace, "rows": rows, "note": note }))
        }
        false => as_text(ways, note),
    };
    print::print(&text)
}

fn tables(placement: Placement) -> &'static str {
    match placement {
        Placement::Cached => "cached",
        Placement::Uncached => "uncached",
    }
}

fn row_json(way: &Configuration) -> Value {
    let counts = way.counts();
    json!({
        "machine": way.name, "pages": size_name(way.size), "tables": tables(way.placement),
        "accesses": counts.accesses, "second_level": counts.second, "misses": counts.walks,
        "entries_read": counts.reads, "entries_from_memory": counts.memory, "walk_ns": way.walk_ns(),
        "refused": counts.refused, "nested": way.nested.map(size_name),
        "nested_walks": way.second().map(|second| second.walks),
        "nested_entries_read": way.second().map(|second| second.reads),
    })
}

fn as_text(ways: &[Configuration], note: Option<&str>) -> String {
    let accesses = ways.first().map_or(0, |way| way.counts().accesses);
    let mut out = format!("accesses  {accesses}\n\n{}", table(ways));
    if let Some(note) = note {
        let _ = writeln!(out, "\n{note}");
    }
    out
}

fn table(ways: &[Configuration]) -> Table {
    let nested = ways.iter().any(|way| way.nested.is_some());
    let counts = ["misses", "of 1000", "second level", "entries read", "from memory", "walks take"];
    let mut table = Table::default().numbers(counts).numbers(["pages"]).text("tables");
    if nested {
        table = table.numbers(["host pages", "host walks", "host entries"]);
    }
    table = table.text("machine");
    for way in ways {
        let counts = way.counts();
        let each = 1000.0 * counts.walks as f64 / counts.accesses.max(1) as f64;
        let mut cells = vec![
            counts.walks.to_string(),
            format!("{each:.3}"),
            counts.second.to_string(),
            counts.reads.to_string(),
            counts.memory.to_string(),
            format!("{:.3} ms", way.walk_ns() / 1e6),
            size_name(way.size).to_string(),
            tables(way.placement).to_owned(),
        ];
        if nested {
            let second = way.second().unwrap_or_default();
            let size = way.nested.map_or("none", size_name);
            cells.extend([size.to_owned(), second.walks.to_string(), second.reads.to_string()]);
        }
        cells.push(way.name.clone());
        table.row(cells);
    }
    table
}
