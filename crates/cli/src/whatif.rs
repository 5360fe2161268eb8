//! `tierscope whatif`: estimates how policies would have performed with other fast-tier sizes.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::whatif::{self, Refused, Replay, Replays, Settings};
use tierscope_report::table::{Align, Table};

use crate::print::print_report;
use crate::sim::OverrideArgs;
use crate::sim::tier_table::publish;
use crate::simulations::{runner, warn_if_stopped};
use crate::units::{self, about_size};

/// Flags of `tierscope whatif`.
#[derive(Debug, Args)]
pub struct WhatifArgs {
    /// A recording, or a trace that `tierscope trace convert` wrote
    #[arg(value_name = "RECORDING|TRACE")]
    pub what: PathBuf,

    /// Sizes of the fast tier, like 64G,128G
    #[arg(long, value_name = "SIZES", required = true, value_delimiter = ',', value_parser = units::address)]
    pub fast: Vec<u64>,

    /// A policy, as NAME:key=value,…, or all; can be given more than once
    #[arg(long = "policy", value_name = "P", default_value = "all")]
    pub policies: Vec<String>,

    /// With a trace: the hardware, ready-made or a file; its fastest tier is set to the given sizes
    #[arg(long, value_name = "M", default_value = "xeon-gold-6238m")]
    pub machine: String,

    /// With a trace: overrides of the default settings.
    #[command(flatten)]
    pub overrides: OverrideArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// With a trace: write a page with tables and charts into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs `tierscope whatif`.
///
/// # Errors
/// The input is neither a recording nor a trace, a policy is unknown, a size is too small, or the
/// input lacks a policy's evidence. All of these are reported before any run.
pub fn run(args: &WhatifArgs) -> Result<()> {
    let settings = Settings { what: &args.what, fast: &args.fast, policies: &args.policies };
    let runner = runner()?;
    if !args.what.is_dir() {
        let overrides = args.overrides.overrides();
        let reports = whatif::trace(&settings, &args.machine, &overrides, &runner)?;
        warn_if_stopped(&runner);
        return publish(&reports, args.json, None, args.html.as_ref());
    }
    if args.html.is_some() {
        return Err(Error::new(ErrorKind::Usage, "there is no page of a recording's replay")
            .cause("it has no rates over time")
            .remedy("take --json"));
    }
    let report = whatif::recording(&settings, &runner)?;
    warn_if_stopped(&runner);
    print_report(&report, args.json, write_text)
}

fn write_text(report: &Replays, out: &mut dyn Write) -> io::Result<()> {
    let Replays { recording, instrument, replays, refused } = report;
    writeln!(out, "{recording}: regions by {instrument}, replayed\n")?;
    write!(out, "{}", table(replays))?;
    if replays.iter().all(|replay| replay.fast_tier_share.is_none()) {
        writeln!(out, "no window of the recording found an access: there was nothing to place")?;
    }
    if !refused.is_empty() {
        let mut table = Table::without_heads([Align::Left, Align::Left]);
        refused.iter().for_each(|Refused { policy, cause }| table.row([policy, cause]));
        write!(out, "\nnot judged:\n{table}")?;
    }
    writeln!(
        out,
        "\nAll mapped memory begins in the slow tier. Fast: of the bytes that windows found accessed, the share that \
         lay in\nthe fast tier then; a region counts by the share of looks that found it accessed. Wasted: promoted \
         and not seen\naccessed before it moved back or the recording ended; to and fro: moved twice within 60 s. \
         Moving at cited costs."
    )
}

fn table(replays: &[Replay]) -> Table {
    let bytes = ["promoted", "demoted", "failed", "wasted", "to and fro"];
    let shares = ["re-used", "policy %", "moving %"];
    let heads = ["fast tier", "fast %"].into_iter().chain(bytes).chain(shares);
    let mut table = Table::default().text("").numbers(heads);
    let percent =
        |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.1}", share * 100.0));
    for replay in replays {
        let moves = &replay.moves;
        let bytes = [
            moves.promoted_bytes,
            moves.demoted_bytes,
            moves.failed_bytes,
            moves.wasted_bytes,
            moves.ping_pong_bytes,
        ];
        let mut cells = vec![replay.policy.clone(), about_size(replay.fast_bytes)];
        cells.push(percent(replay.fast_tier_share));
        cells.extend(bytes.map(about_size));
        cells.push(percent(moves.reaccess_share));
        let cpu = [replay.policy_cpu, replay.mover_cpu];
        cells.extend(cpu.map(|share| format!("{:.3}", share * 100.0)));
        table.row(cells);
    }
    table
}
