//! Results of policies as text.

use std::io::{self, Write};
use std::path::PathBuf;

use tierscope_core::Result;
use tierscope_evaluate::contest::{Report, draw, page, percent};
use tierscope_evaluate::save;

use crate::print::print_report;
use crate::units::show_bytes;

/// Prints the reports on stdout, and writes charts and page into files.
pub(crate) fn publish(
    reports: &[Report],
    json: bool,
    svg: Option<&PathBuf>,
    html: Option<&PathBuf>,
) -> Result<()> {
    if let (Some(path), Some(report)) = (svg, reports.first()) {
        save(path, &draw(report))?;
    }
    if let Some(path) = html {
        save(path, &page(reports))?;
    }
    match reports {
        [report] => print_report(report, json, write),
        _ => print_report(reports, json, |reports, out| {
            reports.iter().try_for_each(|report| write(report, out))
        }),
    }
}

/// Writes a line for each policy: throughput and latency, then moved bytes and CPU time.
fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { experiment, about, mode, hardware, mapped_bytes, seconds, seed, .. } = report;
    let tiers: Vec<String> = report
        .tiers
        .iter()
        .map(|(name, bytes)| format!("{} of {name}", show_bytes(*bytes)))
        .collect();
    writeln!(out, "{experiment}: {about}")?;
    writeln!(
        out,
        "simulated, {mode}: {} mapped, {hardware} with {}, {seconds} s, the first {} s not measured, seed {seed}\n",
        show_bytes(*mapped_bytes),
        tiers.join(" and "),
        report.warm_up_seconds
    )?;
    let width = report.outcomes.iter().map(|o| o.policy.chars().count()).max().unwrap_or(0).max(18);
    speeds(report, width, out)?;
    moves(report, width, out)?;
    given_back(report, width, out)?;
    let against = report.reference().map_or("-", |outcome| outcome.policy.as_str());
    writeln!(
        out,
        "\nRate: of the first process, after the warm-up; x: over that of {against}. Fast: of the accesses that went \
         to memory,\nthe share that the fastest tier served. Latency: {}. Wasted: promoted and not touched before \
         it moved back or the\nrun ended; re-used: of the promoted bytes, the share touched since; to and fro: \
         moved twice within 60 s. CPU: of one\nCPU, at cited costs; stolen: on the target's cores.\n",
        latency_of(report)
    )
}

/// Writes reclaimed and refaulted bytes, if any policy reclaimed memory.
fn given_back(report: &Report, width: usize, out: &mut dyn Write) -> io::Result<()> {
    if report.outcomes.iter().all(|outcome| outcome.moves.reclaimed_bytes == 0) {
        return Ok(());
    }
    writeln!(out, "\n{:width$} {:>12} {:>12} {:>12}", "", "given back", "came back", "in memory")?;
    for outcome in &report.outcomes {
        let resident = outcome.rows.last().and_then(|row| row.resident_bytes);
        writeln!(
            out,
            "{:width$} {:>12} {:>12} {:>12}",
            outcome.policy,
            show_bytes(outcome.moves.reclaimed_bytes),
            show_bytes(outcome.moves.refaulted_bytes),
            resident.map_or("-".into(), show_bytes),
        )?;
    }
    Ok(())
}

fn latency_of(report: &Report) -> &'static str {
    match report.outcomes.iter().any(|outcome| outcome.latency.is_some()) {
        true => "of operations, from the beginning",
        false => "of accesses, at the end",
    }
}

fn speeds(report: &Report, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let unit = report.outcomes.first().map_or("accesses", |outcome| outcome.unit.as_str());
    writeln!(
        out,
        "{:width$} {:>16} {:>7} {:>8} {:>10} {:>10} {:>10}",
        "",
        format!("{unit}/s"),
        "x",
        "fast %",
        "P50 ns",
        "P95 ns",
        "P99 ns"
    )?;
    for outcome in &report.outcomes {
        let [p50, p95, p99] = outcome.latencies();
        write!(
            out,
            "{:width$} {:>16.0} {:>7} {:>8} {p50:>10} {p95:>10} {p99:>10}",
            outcome.policy,
            outcome.operations_per_second,
            report.over(outcome).map_or("-".into(), |over| format!("{over:.3}")),
            percent(outcome.fast_tier_share),
        )?;
        match outcome.ended {
            "deadline" => writeln!(out)?,
            ended => writeln!(out, "  {ended} at {:.1} s", outcome.seconds)?,
        }
    }
    Ok(())
}

fn moves(report: &Report, width: usize, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\n{:width$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "",
        "promoted",
        "demoted",
        "failed",
        "wasted",
        "to and fro",
        "re-used",
        "looking %",
        "stolen %",
        "policy %",
        "moving %"
    )?;
    for outcome in &report.outcomes {
        let (moves, cpu) = (&outcome.moves, &outcome.cpu);
        let bytes = [
            moves.promoted_bytes,
            moves.demoted_bytes,
            moves.failed_bytes,
            moves.wasted_bytes,
            moves.ping_pong_bytes,
        ];
        let [promoted, demoted, failed, wasted, pingpong] = bytes.map(show_bytes);
        let shares = [cpu.telemetry, cpu.interrupts, cpu.policy, cpu.mover];
        let [looking, stolen, policy, moving] = shares.map(|share| format!("{:.3}", share * 100.0));
        writeln!(
            out,
            "{:width$} {promoted:>10} {demoted:>10} {failed:>10} {wasted:>10} {pingpong:>10} {:>8} {looking:>9} \
             {stolen:>9} {policy:>9} {moving:>9}",
            outcome.policy,
            percent(moves.reaccess_share),
        )?;
    }
    Ok(())
}
