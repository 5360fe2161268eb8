//! Results of a scenario's contenders as text.

use std::io::{self, Write};

use tierscope_evaluate::accuracy::{Outcome, Report, Spread, Summary, Worst};
use tierscope_report::table::Table;

use crate::units::about_size;

/// Writes a line for each contender.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { scenario, about, seconds, seed, hardware, .. } = report;
    writeln!(out, "{scenario}: {about}")?;
    let flush =
        report.flush_seconds.map_or("no flush".into(), |s| format!("a flush each {} ms", s * 1e3));
    writeln!(
        out,
        "simulated {}: {} mapped, {seconds} s, {hardware}, {flush}, seed {seed}\n",
        report.mode.how(),
        about_size(report.mapped_bytes)
    )?;
    write!(out, "{}\n{}", windows(report), pages(report))?;
    rates(report, out)?;
    let bar = report.bar;
    writeln!(
        out,
        "\nShares once detected, over all windows where nothing was (METRICS.md). Detected: the slowest \
         time until\nprecision and recall reach {bar} for four windows. CPU: of one CPU, at cited costs; \
         stolen: of the target's time; \
         slower: without anything that paces\nit. Page truth: the pages touched, as many as the densities let expect; a large set is not touched \
         whole in a window.\n"
    )
}

/// Columns of the figures at requested times: heading, and the figure's name.
const COLUMNS: [(&str, &str); 14] = [
    ("precision", "precision"),
    ("recall", "recall"),
    ("oracle", "oracle_hot"),
    ("10 GiB", "oracle_10gib"),
    ("100 GiB", "oracle_100gib"),
    ("hot in", "cover_hot"),
    ("warm in", "cover_warm"),
    ("cold in", "cover_cold"),
    ("width", "width_hot"),
    ("cold<", "bound_cold"),
    ("unknown", "unknown"),
    ("off by", "rate_factor"),
    ("called hot", "reported"),
    ("CPU", "cpu"),
];

/// Writes the figures at requested times: the worst over the seeds, and below it the best if it
/// differs.
fn rates(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let times = report.worst.iter().map(|summary| summary.times.len()).max().unwrap_or(0);
    if times == 0 {
        return Ok(());
    }
    let how = match report.seeds {
        1 => String::new(),
        seeds => format!(", the worst of {seeds} seeds and the best"),
    };
    writeln!(out, "\nat a time{how}")?;
    write!(out, "{}", at_times(&report.worst))?;
    writeln!(
        out,
        "oracle: share at as many bytes as are hot, and at 10 and 100 GiB. Hot, warm, cold in: bytes whose \
         interval\nholds the true rate. Width: high over low of hot regions; cold<: upper bound over the \
         hot rate; medians. Off by:\nthe worst factor of a mean rate."
    )
}

fn at_times(summaries: &[Summary]) -> Table {
    let heads = COLUMNS.map(|(heading, _)| heading);
    let mut table = Table::default().text("").numbers(["s"]).numbers(heads);
    for (summary, worst) in summaries.iter().flat_map(|s| s.times.iter().map(move |at| (s, at))) {
        let name = [summary.contender.clone(), worst.at_seconds.to_string()];
        table.row(name.into_iter().chain(cells(worst, |spread| spread.worst)));
        if summary.seeds > 1 {
            let best = cells(worst, |spread| spread.best);
            table.row([String::new(), "best".into()].into_iter().chain(best));
        }
    }
    table
}

fn cells(worst: &Worst, side: fn(&Spread) -> f64) -> impl Iterator<Item = String> {
    let value = move |name| worst.figures.get(name).map(side);
    COLUMNS.into_iter().map(move |(_, name)| value(name).map_or("-".into(), short))
}

/// Formats a value with three decimals, or fewer if it is large.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => ">10^6".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v > 0.0 && v < 0.01 => format!("{v:.1e}"),
        v => format!("{v:.3}"),
    }
}

fn label(outcome: &Outcome, many: bool) -> String {
    match many {
        true => format!("{} {}", outcome.contender, outcome.seed),
        false => outcome.contender.clone(),
    }
}

/// Figures of the contenders over all windows.
fn windows(report: &Report) -> Table {
    let shares = ["precision", "recall", "F1", "false-hot", "detected"];
    let costs = ["CPU %", "stolen %", "slower %", "regions"];
    let mut table = Table::default().text("").numbers(shares).numbers(costs).text("");
    for outcome in &report.outcomes {
        let quoted = outcome.quoted();
        let shares = [quoted.precision, quoted.recall, quoted.f1, quoted.false_hot_share];
        let detected = outcome.slowest_detection().map_or("never".into(), |s| format!("{s:.2} s"));
        let costs = [outcome.profiler_cpu, outcome.disturbed, outcome.slowdown];
        let regions = outcome.windows.last().map_or(0, |row| row.regions);
        let stopped = match outcome.complete {
            true => String::new(),
            false => format!("stopped at {:.1} s", outcome.seconds),
        };
        let mut cells = vec![label(outcome, report.seeds > 1)];
        cells.extend(shares.map(share));
        cells.push(detected);
        cells.extend(costs.map(|share| format!("{:.3}", share * 100.0)));
        cells.extend([regions.to_string(), stopped]);
        table.row(cells);
    }
    table
}

/// Figures of the contenders against the page truth.
fn pages(report: &Report) -> Table {
    let heads = ["last window: precision", "recall", "last ten: precision", "recall"];
    let mut table = Table::default().text("page truth").numbers(heads);
    for outcome in &report.outcomes {
        let shares = outcome.pages.iter().flat_map(|shares| [shares.precision, shares.recall]);
        let name = label(outcome, report.seeds > 1);
        table.row([name].into_iter().chain(shares.map(share)));
    }
    table
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{share:.3}"))
}
