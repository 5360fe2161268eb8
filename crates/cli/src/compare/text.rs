//! A comparison as text.

use std::io::{self, Write};

use tierscope_evaluate::compare::{Comparison, Figures, Shares};

use crate::units::show_bytes;

/// Writes the figures; those of single windows are only in JSON and the chart.
pub(super) fn write(comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let c = comparison;
    writeln!(out, "{} on {}, against {}", c.instrument, c.target, c.truth)?;
    write!(out, "{} windows of {} s", c.windows.len(), c.window_seconds)?;
    match c.uncovered_windows {
        0 => writeln!(out)?,
        n => writeln!(out, "; {n} more that the truth does not cover are left out")?,
    }
    writeln!(out, "\n{:28} {:>9} {:>9} {:>9} {:>9}", "", "precision", "recall", "F1", "false-hot")?;
    table(out, "all windows", &c.all)?;
    if let Some(settled) = &c.settled {
        table(out, "once detected", settled)?;
    }
    writeln!(
        out,
        "\ndetected: precision and recall of at least {} for four windows in a row",
        c.bar
    )?;
    for d in &c.detections {
        let seconds = d.seconds.map_or("never".into(), |seconds| format!("{seconds:.2} s"));
        writeln!(out, "  from {:9.2} s, {:16} {seconds:>9}", d.from_seconds, d.cause)?;
    }
    let unknown = c.windows.last().map_or(0, |row| row.unknown_bytes);
    if unknown > 0 {
        writeln!(out, "\nunknown at the end, and not called hot: {}", show_bytes(unknown))?;
    }
    if c.unjudged_bytes > 0 {
        let bytes = show_bytes(c.unjudged_bytes);
        writeln!(out, "\nnot judged: up to {bytes} hot outside of the areas of the truth")?;
    }
    if let Some(cpu) = c.profiler_cpu {
        writeln!(out, "\nprofiler: {:.2} % of one CPU", cpu * 100.0)?;
    }
    Ok(())
}

fn table(out: &mut dyn Write, name: &str, figures: &Figures) -> io::Result<()> {
    line(out, name, &figures.region)?;
    let more = [
        ("  pages of the window", figures.pages),
        ("  pages of ten windows", figures.pages_of_ten),
    ];
    more.into_iter().try_for_each(|(name, shares)| shares.map_or(Ok(()), |s| line(out, name, &s)))
}

fn line(out: &mut dyn Write, name: &str, shares: &Shares) -> io::Result<()> {
    let all = [shares.precision, shares.recall, shares.f1, shares.false_hot_share];
    let [p, r, f, h] = all.map(|share| share.map_or("-".into(), |share| format!("{share:.3}")));
    writeln!(out, "{name:28} {p:>9} {r:>9} {f:>9} {h:>9}")
}
