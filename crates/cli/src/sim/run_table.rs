//! Results of `tierscope sim run` as text.

use std::io::{self, Write};

use tierscope_evaluate::runs::{Completed, Figures, LatencyFigures, Report, Run};
use tierscope_report::table::{Align, Table};

use crate::units::about_size;

/// Writes a line for each run, then the machine's counts.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { experiment, about, mode, hardware, mapped_bytes, seed, .. } = report;
    writeln!(out, "{experiment}: {about}")?;
    writeln!(
        out,
        "simulated, {mode}: {} mapped, {hardware}, seed {seed}\n",
        about_size(*mapped_bytes)
    )?;
    write!(out, "{}", figures(report))?;
    let accounts = report.runs.iter().filter_map(|run| Some((run, run.account.as_ref()?)));
    if accounts.clone().next().is_some() {
        write!(out, "\n{}", tiers(accounts))?;
    }
    let latencies = latencies(report);
    if let Some(latencies) = &latencies {
        write!(out, "\n{latencies}")?;
    }
    writeln!(
        out,
        "\nTLB miss: page walks over accesses; LLC miss: accesses that memory served. CPU: the profiler's, of \
         one CPU, at cited\ncosts. Slowdown: the rate of accesses with nobody watching over that with the \
         instrument."
    )?;
    if latencies.is_some() {
        writeln!(
            out,
            "Latency: simulated time from the end of one operation of a thread to the end of its next, nearest \
             rank, too long\nby a 256th at most."
        )?;
    }
    for run in report.runs.iter().filter_map(|run| run.recording.as_ref()) {
        writeln!(out, "recorded: {run}")?;
    }
    Ok(())
}

fn name(run: &Run) -> &str {
    run.instrument.as_deref().unwrap_or("(nobody watches)")
}

fn figures(report: &Report) -> Table {
    let heads = ["time s", "windows", "CPU %", "M acc/s", "TLB miss %", "LLC miss %", "slowdown"];
    let mut table = Table::default().text("").numbers(heads).text("");
    for run in &report.runs {
        let of = |figure: fn(&Figures) -> f64| {
            run.account.as_ref().map_or("-".into(), |account| format!("{:.3}", figure(account)))
        };
        let ended = if run.ended == "deadline" { "" } else { run.ended };
        table.row([
            name(run).to_owned(),
            format!("{:.3}", run.seconds),
            run.windows.to_string(),
            format!("{:.3}", run.profiler_cpu * 100.0),
            of(|account| account.accesses_per_second / 1e6),
            of(|account| percent(account.second_tlb_misses, account.accesses)),
            of(|account| percent(account.llc_misses, account.accesses)),
            run.slowdown.map_or("-".into(), |slowdown| format!("{slowdown:.4}")),
            ended.to_owned(),
        ]);
    }
    table
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// Pairs of a run and a process with its completed operations.
fn completed(report: &Report) -> impl Iterator<Item = (&Run, &Completed)> {
    report.runs.iter().flat_map(|run| processes(run).map(move |done| (run, done)))
}

fn processes(run: &Run) -> impl Iterator<Item = &Completed> {
    run.account.iter().flat_map(|account| &account.processes)
}

/// Latencies of operations, if a program marks their ends.
fn latencies(report: &Report) -> Option<Table> {
    let heads = ["operations", "p50", "p95", "p99", "p99.9", "longest"];
    let mut table = Table::default().text("latency, ns").numbers(heads).text("");
    let mut any = false;
    for (run, done) in completed(report) {
        let Some(latency) = &done.latency else { continue };
        let LatencyFigures { operations, p50_ns, p95_ns, p99_ns, p999_ns, most_ns } = latency;
        let figures = [operations, p50_ns, p95_ns, p99_ns, p999_ns, most_ns];
        let mut cells = vec![name(run).to_owned()];
        cells.extend(figures.map(ToString::to_string));
        cells.push(format!("{} of {}", done.unit, done.name));
        table.row(cells);
        any = true;
    }
    any.then_some(table)
}

/// Bytes read and written in each tier, with the mean time of an access.
fn tiers<'a>(accounts: impl Iterator<Item = (&'a Run, &'a Figures)>) -> Table {
    use Align::{Left, Right};
    let mut table = Table::without_heads([Left, Left, Right, Right, Right, Right]);
    let ns = |time: Option<f64>| time.map_or("-".into(), |ns| format!("{ns:.1} ns"));
    for (run, tier) in accounts.flat_map(|(run, of)| of.tiers.iter().map(move |tier| (run, tier))) {
        table.row([
            name(run).to_owned(),
            tier.name.clone(),
            format!("{} read at", about_size(tier.read_bytes)),
            format!("{},", ns(tier.read_ns)),
            format!("{} written at", about_size(tier.written_bytes)),
            ns(tier.write_ns),
        ]);
    }
    table
}
