//! `tierscope bench scan-cost`: cost of a reclaim policy's page-table walk as mapped memory grows.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use tierscope_core::Result;
use tierscope_evaluate::save;
use tierscope_evaluate::scan_cost::{self, Report, Settings};
use tierscope_report::table::Table;

use crate::print::print_report;
use crate::simulations::runner;
use crate::units::{self, about_size};

/// Flags of `tierscope bench scan-cost`.
#[derive(Debug, Args)]
pub struct ScanCostArgs {
    /// Sizes of mapped memory, ascending
    #[arg(value_name = "SIZE,…", value_delimiter = ',', default_value = "1G,4G,16G,64G,256G,1T", value_parser = units::address)]
    pub sizes: Vec<u64>,

    /// A reclaim policy, as NAME:key=value,…; can be given more than once
    #[arg(long = "policy", value_name = "P", default_values = ["mglru-linear", "mglru", "mglru-telescope"])]
    pub policies: Vec<String>,

    /// Accessed bytes, the same for each size
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = units::address)]
    pub hot: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Draw milliseconds per walk against mapped bytes into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Runs `tierscope bench scan-cost`.
///
/// # Errors
/// An invalid policy or size, reported before any run; or a file that cannot be written.
pub(super) fn run(args: &ScanCostArgs) -> Result<()> {
    let ScanCostArgs { sizes, policies, hot, .. } = args;
    let settings = Settings { sizes: sizes.clone(), policies: policies.clone(), hot: *hot };
    let report = scan_cost::run(&settings, &runner()?)?;
    if let Some(path) = &args.svg {
        save(path, &scan_cost::draw(&report))?;
    }
    print_report(&report, args.json, write)
}

fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = report.curve.first() else { return Ok(()) };
    writeln!(
        out,
        "simulated by densities: {}, {} accessed {:.0} times a second, a mean of {} walks, milliseconds\n",
        report.hardware,
        about_size(report.hot_bytes),
        report.rate,
        report.walks
    )?;
    let mut table = Table::default().text("mapped").numbers(first.ms.keys().map(String::as_str));
    for point in &report.curve {
        let cells = point.ms.values().map(|ms| format!("{ms:.3}"));
        table.row([point.size()].into_iter().chain(cells));
    }
    let growth = report.growth.values().map(|growth| format!("{growth:.2}"));
    table.row(["last / first".to_owned()].into_iter().chain(growth));
    write!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_evaluate::scan_cost::Point;

    #[test]
    fn reports_walks_and_their_growth() {
        let point = |gib, ms| Point { gib, ms: [("a".to_owned(), ms)].into_iter().collect() };
        let report = Report::new(1 << 20, vec![point(1.0, 2.0), point(4.0, 80.0)]);
        let mut out = Vec::new();
        write(&report, &mut out).expect("a vector takes it");
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("40.00") && text.contains("80.000"), "{text}");
    }
}
