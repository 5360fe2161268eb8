//! A scenario's outcomes for people.

use std::io::{self, Write};

use super::{Outcome, Report};
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
    report.outcomes.iter().try_for_each(|outcome| line(out, outcome))?;
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
    report.outcomes.iter().try_for_each(|outcome| pages(out, outcome))?;
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

fn line(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let quoted = outcome.quoted();
    let all = [quoted.precision, quoted.recall, quoted.f1, quoted.false_hot_share];
    let [p, r, f, h] = all.map(|share| share.map_or("-".into(), |share| format!("{share:.3}")));
    let detected = outcome.slowest_detection().map_or("never".into(), |s| format!("{s:.2} s"));
    let [cpu, stolen, slower] =
        [outcome.profiler_cpu, outcome.disturbed, outcome.slowdown].map(|share| share * 100.0);
    let regions = outcome.windows.last().map_or(0, |row| row.regions);
    let name = &outcome.contender;
    write!(
        out,
        "{name:18} {p:>9} {r:>9} {f:>9} {h:>9} {detected:>10} {cpu:>9.3} {stolen:>9.3} {slower:>9.3} {regions:>8}"
    )?;
    match outcome.complete {
        true => writeln!(out),
        false => writeln!(out, "  stopped at {:.1} s", outcome.seconds),
    }
}

fn pages(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    write!(out, "{:18}", outcome.contender)?;
    for share in outcome.pages.iter().flat_map(|shares| [shares.precision, shares.recall]) {
        write!(out, " {:>9}", share.map_or("-".into(), |share| format!("{share:.3}")))?;
    }
    writeln!(out)
}
