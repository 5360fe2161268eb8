//! Results of `tierscope sim run` as text.

use std::io::{self, Write};

use tierscope_evaluate::runs::{Completed, Figures, LatencyFigures, Report, Run};

use crate::units::show_bytes;

/// Writes a line for each run, then the machine's counts.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { experiment, about, mode, hardware, mapped_bytes, seed, .. } = report;
    writeln!(out, "{experiment}: {about}")?;
    writeln!(
        out,
        "simulated, {mode}: {} mapped, {hardware}, seed {seed}\n",
        show_bytes(*mapped_bytes)
    )?;
    writeln!(
        out,
        "{:18} {:>9} {:>8} {:>10} {:>11} {:>10} {:>10} {:>9}",
        "", "time s", "windows", "CPU %", "M acc/s", "TLB miss %", "LLC miss %", "slowdown"
    )?;
    report.runs.iter().try_for_each(|run| line(out, run))?;
    report.runs.iter().try_for_each(|run| tiers(out, run))?;
    latencies(out, report)?;
    writeln!(
        out,
        "\nTLB miss: page walks over accesses; LLC miss: accesses that memory served. CPU: the profiler's, of \
         one CPU, at cited\ncosts. Slowdown: the rate of accesses with nobody watching over that with the \
         instrument."
    )?;
    if completed(report).any(|(_, done)| done.latency.is_some()) {
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

fn line(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    let of = |figure: fn(&Figures) -> f64, digits: usize| {
        run.account.as_ref().map_or("-".into(), |account| format!("{:.digits$}", figure(account)))
    };
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let walks = run.account.as_ref().map(|a| share(a.second_tlb_misses, a.accesses));
    let misses = run.account.as_ref().map(|a| share(a.llc_misses, a.accesses));
    let percent = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.3}"));
    let slowdown = run.slowdown.map_or("-".into(), |slowdown| format!("{slowdown:.4}"));
    write!(
        out,
        "{:18} {:>9.3} {:>8} {:>10.3} {:>11} {:>10} {:>10} {:>9}",
        name(run),
        run.seconds,
        run.windows,
        run.profiler_cpu * 100.0,
        of(|account| account.accesses_per_second / 1e6, 3),
        percent(walks),
        percent(misses),
        slowdown
    )?;
    match run.ended {
        "deadline" => writeln!(out),
        ended => writeln!(out, "  {ended}"),
    }
}

/// Pairs of a run and a process with its completed operations.
fn completed(report: &Report) -> impl Iterator<Item = (&Run, &Completed)> {
    report.runs.iter().flat_map(|run| processes(run).map(move |done| (run, done)))
}

fn processes(run: &Run) -> impl Iterator<Item = &Completed> {
    run.account.iter().flat_map(|account| &account.processes)
}

/// Writes latencies of operations, for programs that mark their ends.
fn latencies(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut first = true;
    for (run, done) in completed(report) {
        let Some(latency) = &done.latency else { continue };
        if std::mem::take(&mut first) {
            writeln!(
                out,
                "\n{:18} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
                "latency, ns", "operations", "p50", "p95", "p99", "p99.9", "longest"
            )?;
        }
        let LatencyFigures { operations, p50_ns, p95_ns, p99_ns, p999_ns, most_ns } = latency;
        writeln!(
            out,
            "{:18} {operations:>12} {p50_ns:>10} {p95_ns:>10} {p99_ns:>10} {p999_ns:>10} \
             {most_ns:>10}  {} of {}",
            name(run),
            done.unit,
            done.name
        )?;
    }
    Ok(())
}

fn tiers(out: &mut dyn Write, run: &Run) -> io::Result<()> {
    let Some(account) = &run.account else { return Ok(()) };
    writeln!(out)?;
    for tier in &account.tiers {
        let ns = |time: Option<f64>| time.map_or("-".into(), |ns| format!("{ns:.1} ns"));
        writeln!(
            out,
            "{:18} {:12} {:>11} read at {:>9}, {:>11} written at {:>9}",
            name(run),
            tier.name,
            show_bytes(tier.read_bytes),
            ns(tier.read_ns),
            show_bytes(tier.written_bytes),
            ns(tier.write_ns)
        )?;
    }
    Ok(())
}
