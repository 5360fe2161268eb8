//! `tierscope list`: the available policies and instruments, what each tracks, how, and at what
//! cost.
//!
//! The table of policies is table I of the MULTI-CLOCK paper, generated from the registry.

use std::io::{self, BufWriter, Write};

use clap::{Args, Subcommand};
use serde::Serialize;
use tierscope_core::Result;
use tierscope_instruments::registry as instruments;
use tierscope_policies::registry as policies;
use tierscope_report::table::{Align, Table};
use tierscope_report::write_json;

use crate::instruments::all;
use crate::print::written;

/// Kinds of lists.
#[derive(Debug, Subcommand)]
pub enum ListCommand {
    /// List placement policies: what each tracks, how it promotes and demotes, and the cost of
    /// tracking
    Policies(ListArgs),
    /// List instruments: what each tracks, its granularity, cost and variants
    Instruments(ListArgs),
}

/// Flags of `tierscope list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print JSON, with every setting
    #[arg(long)]
    pub json: bool,
}

/// A policy in the JSON output.
#[derive(Debug, Serialize)]
struct Policy {
    name: &'static str,
    about: &'static str,
    source: &'static str,
    tracks: &'static str,
    granularity: &'static str,
    promotes: &'static str,
    demotes: &'static str,
    cost: &'static str,
    /// Bytes of bookkeeping for each page of 4 KiB; `None` if it does not grow with the number of
    /// pages.
    page_bytes: Option<usize>,
    needs: Vec<String>,
    uses: Vec<String>,
    settings: Vec<Setting>,
}

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    about: &'static str,
    default: String,
}

impl From<&policies::Entry> for Policy {
    fn from(entry: &policies::Entry) -> Self {
        let names = |needs: &[policies::Need]| needs.iter().map(ToString::to_string).collect();
        let setting =
            |key: policies::Key| Setting { name: key.name, about: key.about, default: key.default };
        Self {
            name: entry.name,
            about: entry.about,
            source: entry.source,
            tracks: entry.tracks,
            granularity: entry.granularity,
            promotes: entry.promotes,
            demotes: entry.demotes,
            cost: entry.cost,
            page_bytes: entry.page_bytes,
            needs: names(entry.needs),
            uses: names(entry.uses),
            settings: entry.keys().into_iter().map(setting).collect(),
        }
    }
}

/// An instrument in the JSON output.
#[derive(Debug, Serialize)]
struct Instrument {
    name: &'static str,
    about: &'static str,
    tracks: String,
    needs: Vec<String>,
    granularity: &'static str,
    variants: Vec<Variant>,
}

#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    about: &'static str,
    cost: &'static str,
}

impl From<&instruments::Entry> for Instrument {
    fn from(entry: &instruments::Entry) -> Self {
        let variant = |variant: &instruments::Variant| Variant {
            name: variant.name,
            about: variant.about,
            cost: grows(variant.cost),
        };
        Self {
            name: entry.name,
            about: entry.about,
            tracks: entry.needs[0].to_string(),
            needs: entry.needs.iter().map(ToString::to_string).collect(),
            granularity: entry.granularity,
            variants: entry.variants.iter().map(variant).collect(),
        }
    }
}

fn grows(cost: instruments::CostClass) -> &'static str {
    match cost {
        instruments::CostClass::Bounded => "bounded",
        instruments::CostClass::HotMemory => "grows with what is hot",
        instruments::CostClass::AllMemory => "grows with what is mapped",
    }
}

/// Prints a list.
///
/// # Errors
/// If it cannot be written.
pub fn run(command: &ListCommand) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    written(match command {
        ListCommand::Policies(args) => write_policies(args, &mut out),
        ListCommand::Instruments(args) => write_instruments(args, &mut out),
    })?;
    written(out.flush())
}

fn write_policies(args: &ListArgs, out: &mut dyn Write) -> io::Result<()> {
    let all: Vec<Policy> = policies::all().iter().map(Policy::from).collect();
    if args.json {
        return write_json(&all, out);
    }
    let head = ["policy", "tracks", "moves", "promotes", "demotes", "cost of looking", "B/page"];
    let mut table =
        Table::new(head.map(|head| (head, Align::Left))).wrapped_at([16, 16, 11, 21, 21, 23, 6]);
    for policy in &all {
        table.row([
            policy.name,
            policy.tracks,
            policy.granularity,
            policy.promotes,
            policy.demotes,
            policy.cost,
            &policy.page_bytes.map_or("-".into(), |bytes| bytes.to_string()),
        ]);
    }
    let mut about = Table::default().text("policy").text("in a line").text("source");
    all.iter().for_each(|policy| about.row([policy.name, policy.about, policy.source]));
    write!(out, "{table}\n{}", about.wrapped_at([16, 60, 40]))?;
    writeln!(
        out,
        "\nB/page: bytes kept for each page of 4 KiB; - if that does not grow with pages. Evidence that each needs, \
         and\nits settings: --json. A policy is named NAME or NAME:key=value,…"
    )
}

fn write_instruments(args: &ListArgs, out: &mut dyn Write) -> io::Result<()> {
    let all: Vec<Instrument> = all().map(Instrument::from).collect();
    if args.json {
        return write_json(&all, out);
    }
    let head = ["instrument", "tracks", "grain", "variant", "cost of looking", "in a line"];
    let mut table =
        Table::new(head.map(|head| (head, Align::Left))).wrapped_at([12, 14, 6, 10, 26, 50]);
    for (entry, variant) in all.iter().flat_map(|e| e.variants.iter().map(move |v| (e, v))) {
        table.row([
            entry.name,
            &entry.tracks,
            entry.granularity,
            variant.name,
            variant.cost,
            variant.about,
        ]);
    }
    write!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(write: fn(&ListArgs, &mut dyn Write) -> io::Result<()>, json: bool) -> String {
        let mut out = Vec::new();
        write(&ListArgs { json }, &mut out).expect("it is memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_policy_and_every_instrument_is_listed_and_fits() {
        let tables = [listed(write_policies, false), listed(write_instruments, false)];
        let names = policies::all().iter().map(|entry| entry.name);
        assert!(names.into_iter().all(|name| tables[0].contains(name)));
        let names = all().map(|entry| entry.name);
        assert!(names.into_iter().all(|name| tables[1].contains(name)));
        for line in tables.iter().flat_map(|table| table.lines()) {
            assert!(line.chars().count() <= 132, "{line}");
        }
    }

    #[test]
    fn json_has_what_a_policy_needs_and_its_settings() {
        let json: serde_json::Value =
            serde_json::from_str(&listed(write_policies, true)).expect("it is JSON");
        let hemem = json.as_array().and_then(|all| all.iter().find(|p| p["name"] == "hemem"));
        let hemem = hemem.expect("it is listed");
        assert_eq!(hemem["needs"], serde_json::json!(["samples"]));
        let keys = hemem["settings"].as_array().expect("a list");
        assert!(keys.iter().any(|key| key["name"] == "least" && key["default"].is_string()));
    }
}
