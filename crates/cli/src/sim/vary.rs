//! `tierscope sim vary`: accuracy and cost of instruments as single parameters change.

use std::io::{self, Write};

use clap::{ArgGroup, Args};
use tierscope_core::Result;
use tierscope_evaluate::vary::{self, Report, Row, Settings, Values};
use tierscope_report::table::Table;

use super::overrides::{OverrideArgs, experiments};
use crate::print::print_report;
use crate::simulations::{runner, warn_if_stopped};
use crate::units;

/// Flags of `tierscope sim vary`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["keys", "ranges"])))]
pub struct VaryArgs {
    /// A ready-made experiment or a TOML file
    #[arg(value_name = "EXPERIMENT", help = experiments())]
    pub experiment: String,

    /// Values of a parameter to try, as simulation.exact.tick=never,1ms,4ms; can be given more than
    /// once
    #[arg(long = "key", value_name = "KEY=VALUE,…", value_parser = values)]
    pub keys: Vec<Values>,

    /// Try the smallest and the largest value of every uncertain parameter of hardware and costs
    #[arg(long)]
    pub ranges: bool,

    /// Run only this instrument of the experiment, or this contender of `bench accuracy`; can be
    /// given more than once
    #[arg(long = "instrument", value_name = "NAME")]
    pub instruments: Vec<String>,

    /// Overrides of the experiment's settings, in every run.
    #[command(flatten)]
    pub overrides: OverrideArgs,

    /// Precision and recall from which a hot set counts as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn values(text: &str) -> Result<Values, String> {
    match text.split_once('=') {
        Some((key, values)) if !key.is_empty() && !values.is_empty() => {
            Ok(Values { key: key.into(), values: values.split(',').map(str::to_owned).collect() })
        }
        _ => Err("give it like simulation.exact.tick=never,1ms,4ms".into()),
    }
}

/// Runs `tierscope sim vary`.
///
/// # Errors
/// An invalid experiment or change, reported before any run; or the first error of a run.
pub(super) fn run(args: &VaryArgs) -> Result<()> {
    let runner = runner()?;
    let settings = Settings {
        experiment: &args.experiment,
        overrides: &args.overrides.overrides(),
        keys: &args.keys,
        ranges: args.ranges,
        instruments: &args.instruments,
        bar: args.bar,
    };
    let report = vary::run(&settings, &runner)?;
    warn_if_stopped(&runner);
    print_report(&report, args.json, write)
}

fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { experiment, about, mode, hardware, seed, seconds, bar, .. } = report;
    writeln!(out, "{experiment}: {about}")?;
    writeln!(out, "simulated, {mode}: {seconds} s, {hardware}, seed {seed}\n")?;
    let heads = ["precision", "recall", "F1", "detected", "CPU %"];
    let mut table = Table::default().text("").text("").numbers(heads).text("");
    for row in &report.rows {
        let shares = [row.precision, row.recall, row.f1];
        let detected = row.detected_seconds.map_or("never".into(), |s| format!("{s:.2} s"));
        let stopped = if row.complete { "" } else { "stopped" };
        let mut cells = vec![label(row), row.instrument.clone()];
        cells.extend(shares.map(|share| share.map_or("-".into(), |share| format!("{share:.3}"))));
        cells.extend([detected, format!("{:.3}", row.profiler_cpu * 100.0), stopped.into()]);
        table.row(cells);
    }
    write!(out, "{table}")?;
    writeln!(
        out,
        "\nShares once detected, over all windows where nothing was. Detected: the slowest time until \
         precision and recall\nreach {bar} for four windows. CPU: of one CPU, at cited costs."
    )
}

fn label(row: &Row) -> String {
    match (&row.key, &row.value) {
        (Some(key), Some(value)) => format!("{key}={value}"),
        _ => "(as it is)".into(),
    }
}
