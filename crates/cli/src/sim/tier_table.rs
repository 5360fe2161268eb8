//! Results of policies as text.

use std::io::{self, Write};
use std::path::PathBuf;

use tierscope_core::Result;
use tierscope_evaluate::contest::{Report, draw, page, percent};
use tierscope_evaluate::save;
use tierscope_report::table::Table;

use crate::print::print_report;
use crate::units::about_size;

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
        .map(|(name, bytes)| format!("{} of {name}", about_size(*bytes)))
        .collect();
    writeln!(out, "{experiment}: {about}")?;
    writeln!(
        out,
        "simulated, {mode}: {} mapped, {hardware} with {}, {seconds} s, the first {} s not measured, seed {seed}\n",
        about_size(*mapped_bytes),
        tiers.join(" and "),
        report.warm_up_seconds
    )?;
    write!(out, "{}\n{}", speeds(report), moves(report))?;
    if let Some(phases) = phases(report) {
        write!(out, "\nPhases: rate over that of the reference, and fast %\n{phases}")?;
    }
    if let Some(reclaimed) = given_back(report) {
        write!(out, "\n{reclaimed}")?;
    }
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

/// Reclaimed and refaulted bytes, if any policy reclaimed memory.
fn given_back(report: &Report) -> Option<Table> {
    if report.outcomes.iter().all(|outcome| outcome.moves.reclaimed_bytes == 0) {
        return None;
    }
    let mut table = Table::default().text("").numbers(["given back", "came back", "in memory"]);
    for outcome in &report.outcomes {
        let resident = outcome.rows.last().and_then(|row| row.resident_bytes);
        table.row([
            outcome.policy.clone(),
            about_size(outcome.moves.reclaimed_bytes),
            about_size(outcome.moves.refaulted_bytes),
            resident.map_or("-".into(), about_size),
        ]);
    }
    Some(table)
}

/// Rates and fast-tier shares in the phases of a program that does one thing after the other.
fn phases(report: &Report) -> Option<Table> {
    let names = report.outcomes.iter().map(|outcome| &outcome.phases);
    let names = names.max_by_key(|phases| phases.len()).filter(|phases| !phases.is_empty())?;
    let heads = names.iter().flat_map(|phase| [phase.name.as_str(), "fast %"]);
    let mut table = Table::default().text("").numbers(heads);
    for outcome in &report.outcomes {
        let cells = (0..names.len()).flat_map(|index| {
            let over = report.over_in(outcome, index);
            let fast = outcome.phases.get(index).and_then(|phase| phase.fast_tier_share);
            [over.map_or("-".into(), |x| format!("{x:.3}")), percent(fast)]
        });
        table.row(std::iter::once(outcome.policy.clone()).chain(cells));
    }
    Some(table)
}

fn latency_of(report: &Report) -> &'static str {
    match report.outcomes.iter().any(|outcome| outcome.latency.is_some()) {
        true => "of operations, from the beginning",
        false => "of accesses, at the end",
    }
}

fn speeds(report: &Report) -> Table {
    let unit = report.outcomes.first().map_or("accesses", |outcome| outcome.unit.as_str());
    let rate = format!("{unit}/s");
    let heads = [rate.as_str(), "x", "fast %", "P50 ns", "P95 ns", "P99 ns"];
    let mut table = Table::default().text("").numbers(heads).text("");
    for outcome in &report.outcomes {
        let [p50, p95, p99] = outcome.latencies();
        let ended = match &*outcome.ended {
            "deadline" => String::new(),
            ended => format!("{ended} at {:.1} s", outcome.seconds),
        };
        table.row([
            outcome.policy.clone(),
            format!("{:.0}", outcome.operations_per_second),
            report.over(outcome).map_or("-".into(), |over| format!("{over:.3}")),
            percent(outcome.fast_tier_share),
            p50,
            p95,
            p99,
            ended,
        ]);
    }
    table
}

fn moves(report: &Report) -> Table {
    let bytes = ["promoted", "demoted", "failed", "wasted", "to and fro"];
    let shares = ["re-used", "looking %", "stolen %", "policy %", "moving %"];
    let mut table = Table::default().text("").numbers(bytes).numbers(shares);
    for outcome in &report.outcomes {
        let (moves, cpu) = (&outcome.moves, &outcome.cpu);
        let bytes = [
            moves.promoted_bytes,
            moves.demoted_bytes,
            moves.failed_bytes,
            moves.wasted_bytes,
            moves.ping_pong_bytes,
        ];
        let shares = [cpu.telemetry, cpu.interrupts, cpu.policy, cpu.mover];
        let mut cells = vec![outcome.policy.clone()];
        cells.extend(bytes.map(about_size));
        cells.push(percent(moves.reaccess_share));
        cells.extend(shares.map(|share| format!("{:.3}", share * 100.0)));
        table.row(cells);
    }
    table
}
