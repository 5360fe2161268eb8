//! `tierscope whatif`: estimates how policies would have performed with other fast-tier sizes.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::whatif::{self, Refused, Replays, Settings};

use crate::print::print_report;
use crate::sim::OverrideArgs;
use crate::sim::tier_table::publish;
use crate::simulations::{runner, warn_if_stopped};
use crate::units::{self, show_bytes};

/// Flags of `tierscope whatif`.
#[derive(Debug, Args)]
pub struct WhatifArgs {
    /// A recording, or a trace that `tierscope trace convert` wrote
    #[arg(value_name = "RECORDING|TRACE")]
    pub what: PathBuf,

    /// Sizes of the fast tier, like 64G,128G
    #[arg(long, value_name = "SIZES", required = true, value_delimiter = ',', value_parser = units::bytes)]
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
            .cause("it tells no rate over time")
            .remedy("take --json"));
    }
    let report = whatif::recording(&settings, &runner)?;
    warn_if_stopped(&runner);
    print_report(&report, args.json, write_text)
}

fn write_text(report: &Replays, out: &mut dyn Write) -> io::Result<()> {
    let Replays { recording, instrument, replays, refused } = report;
    writeln!(out, "{recording}: regions by {instrument}, replayed\n")?;
    let width = replays.iter().map(|r| r.policy.chars().count()).max().unwrap_or(0).max(18);
    writeln!(
        out,
        "{:width$} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9}",
        "",
        "fast tier",
        "fast %",
        "promoted",
        "demoted",
        "failed",
        "wasted",
        "to and fro",
        "re-used",
        "policy %",
        "moving %"
    )?;
    let percent =
        |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.1}", share * 100.0));
    for replay in replays {
        let moves = &replay.moves;
        let bytes = [
            replay.fast_bytes,
            moves.promoted_bytes,
            moves.demoted_bytes,
            moves.failed_bytes,
            moves.wasted_bytes,
            moves.ping_pong_bytes,
        ];
        let [fast, promoted, demoted, failed, wasted, pingpong] = bytes.map(show_bytes);
        writeln!(
            out,
            "{:width$} {fast:>10} {:>8} {promoted:>10} {demoted:>10} {failed:>10} {wasted:>10} {pingpong:>10} \
             {:>8} {:>9.3} {:>9.3}",
            replay.policy,
            percent(replay.fast_tier_share),
            percent(moves.reaccess_share),
            replay.policy_cpu * 100.0,
            replay.mover_cpu * 100.0
        )?;
    }
    if !refused.is_empty() {
        writeln!(out, "\nnot judged:")?;
    }
    for Refused { policy, cause } in refused {
        writeln!(out, "{policy:width$} {cause}")?;
    }
    writeln!(
        out,
        "\nAll mapped memory begins in the slow tier. Fast: of the bytes that windows found accessed, the share that \
         lay in\nthe fast tier then; a region counts by the share of looks that found it accessed. Wasted: promoted \
         and not seen\naccessed before it moved back or the recording ended; to and fro: moved twice within 60 s. \
         Moving at cited costs."
    )
}
