//! A comparison as text.

use std::io::{self, Write};

use tierscope_evaluate::compare::{Comparison, Figures, Shares};
use tierscope_report::table::{Align, Table};

use crate::units::about_size;

/// Writes the figures; those of single windows are only in JSON and the chart.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let c = comparison;
    writeln!(out, "{} on {}, against {}", c.instrument, c.target, c.truth)?;
    write!(out, "{} windows of {} s", c.windows.len(), c.window_seconds)?;
    match c.uncovered_windows {
        0 => writeln!(out)?,
        n => writeln!(out, "; {n} more that the truth does not cover are left out")?,
    }
    write!(out, "\n{}", accuracy(c))?;
    writeln!(
        out,
        "\ndetected: precision and recall of at least {} for four windows in a row",
        c.bar
    )?;
    let mut changes = Table::without_heads([Align::Right, Align::Left, Align::Right]);
    for d in &c.detections {
        let from = format!("  from {:.2} s,", d.from_seconds);
        let seconds = d.seconds.map_or("never".into(), |seconds| format!("{seconds:.2} s"));
        changes.row([from, d.cause.clone(), seconds]);
    }
    write!(out, "{changes}")?;
    let unknown = c.windows.last().map_or(0, |row| row.unknown_bytes);
    if unknown > 0 {
        writeln!(out, "\nunknown at the end, and not called hot: {}", about_size(unknown))?;
    }
    if c.unjudged_bytes > 0 {
        let bytes = about_size(c.unjudged_bytes);
        writeln!(out, "\nnot judged: up to {bytes} hot outside of the areas of the truth")?;
    }
    if let Some(cpu) = c.profiler_cpu {
        writeln!(out, "\nprofiler: {:.2} % of one CPU", cpu * 100.0)?;
    }
    Ok(())
}

fn accuracy(comparison: &Comparison) -> Table {
    let heads = ["precision", "recall", "F1", "false-hot"];
    let mut table = Table::default().text("").numbers(heads);
    add(&mut table, "all windows", &comparison.all);
    if let Some(settled) = &comparison.settled {
        add(&mut table, "once detected", settled);
    }
    table
}

fn add(table: &mut Table, name: &str, figures: &Figures) {
    let pages = [
        ("  pages of the window", figures.pages),
        ("  pages of ten windows", figures.pages_of_ten),
    ];
    let pages = pages.into_iter().filter_map(|(name, shares)| Some((name, shares?)));
    for (name, shares) in [(name, figures.region)].into_iter().chain(pages) {
        let Shares { precision, recall, f1, false_hot_share, .. } = shares;
        let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.3}"));
        let shares = [precision, recall, f1, false_hot_share].map(share);
        table.row([name.to_owned()].into_iter().chain(shares));
    }
}
