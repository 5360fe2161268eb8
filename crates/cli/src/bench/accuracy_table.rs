//! Results of a scenario's contenders as text.

use std::io::{self, Write};

use tierscope_evaluate::accuracy::{Outcome, Report, Spread, Summary, Worst};

use crate::units::show_bytes;

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
        show_bytes(report.mapped_bytes)
    )?;
    writeln!(
        out,
        "{:18} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9} {:>8}",
        "",
        "precision",
        "recall",
        "F1",
        "false-hot",
        "detected",
        "CPU %",
        "stolen %",
        "slower %",
        "regions"
    )?;
    let many = report.seeds > 1;
    report.outcomes.iter().try_for_each(|outcome| line(out, outcome, many))?;
    writeln!(
        out,
        "\n{:18} {:>19} {:>19}\n{:18} {:>9} {:>9} {:>9} {:>9}",
        "page truth",
        "the last window",
        "the last ten",
        "",
        "precision",
        "recall",
        "precision",
        "recall"
    )?;
    report.outcomes.iter().try_for_each(|outcome| pages(out, outcome, many))?;
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
    write!(out, "{:18} {:>6}", "", "s")?;
    COLUMNS.iter().try_for_each(|(heading, _)| write!(out, " {heading:>10}"))?;
    writeln!(out)?;
    report.worst.iter().try_for_each(|summary| at_times(summary, out))?;
    writeln!(
        out,
        "oracle: share at as many bytes as are hot, and at 10 and 100 GiB. Hot, warm, cold in: bytes whose \
         interval\nholds the true rate. Width: high over low of hot regions; cold<: upper bound over the \
         hot rate; medians. Off by:\nthe worst factor of a mean rate."
    )
}

fn at_times(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    for worst in &summary.times {
        write!(out, "{:18} {:>6}", summary.contender, worst.at_seconds)?;
        cells(worst, |spread| spread.worst, out)?;
        if summary.seeds > 1 {
            write!(out, "{:18} {:>6}", "", "best")?;
            cells(worst, |spread| spread.best, out)?;
        }
    }
    Ok(())
}

fn cells(worst: &Worst, side: fn(&Spread) -> f64, out: &mut dyn Write) -> io::Result<()> {
    for (_, name) in COLUMNS {
        let value = worst.figures.get(name).map(side);
        write!(out, " {:>10}", value.map_or("-".into(), short))?;
    }
    writeln!(out)
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

fn line(out: &mut dyn Write, outcome: &Outcome, many: bool) -> io::Result<()> {
    let quoted = outcome.quoted();
    let all = [quoted.precision, quoted.recall, quoted.f1, quoted.false_hot_share];
    let [p, r, f, h] = all.map(|share| share.map_or("-".into(), |share| format!("{share:.3}")));
    let detected = outcome.slowest_detection().map_or("never".into(), |s| format!("{s:.2} s"));
    let [cpu, stolen, slower] =
        [outcome.profiler_cpu, outcome.disturbed, outcome.slowdown].map(|share| share * 100.0);
    let regions = outcome.windows.last().map_or(0, |row| row.regions);
    let name = label(outcome, many);
    write!(
        out,
        "{name:18} {p:>9} {r:>9} {f:>9} {h:>9} {detected:>10} {cpu:>9.3} {stolen:>9.3} {slower:>9.3} {regions:>8}"
    )?;
    match outcome.complete {
        true => writeln!(out),
        false => writeln!(out, "  stopped at {:.1} s", outcome.seconds),
    }
}

fn pages(out: &mut dyn Write, outcome: &Outcome, many: bool) -> io::Result<()> {
    write!(out, "{:18}", label(outcome, many))?;
    for share in outcome.pages.iter().flat_map(|shares| [shares.precision, shares.recall]) {
        write!(out, " {:>9}", share.map_or("-".into(), |share| format!("{share:.3}")))?;
    }
    writeln!(out)
}
