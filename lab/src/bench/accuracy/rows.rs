//! Rows of a case, computed from its results.

use std::fs;
use std::path::Path;

use tierscope_core::Time;
use tierscope_core::metrics::Slowdown;
use tierscope_workloads::truth_dir::TruthDir;

use super::case::{Case, OURS};
use super::figures::{Comparison, compare};
use super::row;
use crate::bench::rows::{Bar, Row, Table};
use crate::error::{Context, Error, Kind, Result};

/// Precision and recall that count as detection in cases without a requirement.
const USUAL_SHARE: f64 = 0.9;

/// Maximum slowdown of the target (METRICS.md).
const SLOWDOWN: f64 = 0.02;

/// Maximum growth of the recorder's memory in an hour: some pages, but no leak.
const FLAT: f64 = 1.05;

/// Prefix of the names of an instrument's rows.
pub(super) fn begin(case: &Case, instrument: &str) -> String {
    format!("{}, {}", case.name, instrument.replace(':', " "))
}

pub(super) fn slowdown_name(case: &Case) -> String {
    format!("{}, slowdown by rates bayes", case.name)
}

fn cpu_name(case: &Case, instrument: &str) -> String {
    format!("{}: profiler CPU", begin(case, instrument))
}

/// Rows for one instrument; comparison and chart are written to `results`.
pub(super) fn of(case: &Case, instrument: &str, out: &Path, results: &Path) -> Result<Vec<Row>> {
    let dir = out.join(instrument.replace(':', "-"));
    let named = |what: &str| format!("{}: {what}", begin(case, instrument));
    if dir.join("failed.txt").exists() {
        let printed = fs::read_to_string(dir.join("stderr.txt")).unwrap_or_default();
        let why = printed.lines().last().unwrap_or("it failed");
        return Ok(vec![row(case, named(&format!("no figure ({why})")), 0.0, "runs", Bar::None)]);
    }
    let reach = case.reach(instrument);
    let share = reach.map_or(USUAL_SHARE, |reach| reach.share);
    let kept = results.join(instrument.replace(':', "-"));
    let found = compare(&dir, share, &kept, case.has_page_truth())?;
    let mut rows = vec![detection(case, instrument, &found, share)];
    rows.extend(accuracy(case, &named, &found));
    let cpu = found.profiler_cpu.unwrap_or(0.0) * 100.0;
    rows.push(row(case, cpu_name(case, instrument), cpu, "% of a CPU", Bar::None));
    rows.push(row(
        case,
        named("the workload's rate"),
        found.touches_per_second() / 1e6,
        "M touches/s",
        Bar::None,
    ));
    rows.extend(memory(case, instrument, &named, &dir)?);
    Ok(rows)
}

fn detection(case: &Case, instrument: &str, found: &Comparison, share: f64) -> Row {
    let reach = case.reach(instrument);
    let bar = reach.map_or(Bar::None, |reach| Bar::Most(reach.seconds));
    let each = if case.pass > 0 { ", slowest of all changes" } else { "" };
    let name = |more: &str| {
        format!("{}: precision and recall >= {share}{each}{more}", begin(case, instrument))
    };
    match found.slowest(reach.map_or(0.0, |reach| reach.seconds)) {
        Some(seconds) => row(case, name(""), seconds, "s", bar),
        // If never detected, the value is a lower bound: the length of the run.
        None => Row {
            holds: reach.is_none(),
            ..row(case, name(", never"), found.seconds(), "s waited", bar)
        },
    }
}

fn accuracy(case: &Case, named: &dyn Fn(&str) -> String, found: &Comparison) -> Vec<Row> {
    let add = |what: &str, value| row(case, named(what), value, "share", Bar::None);
    let late = found.late(|kinds| Some(kinds.region));
    let all = &found.all.region;
    let mut rows = vec![
        add("precision at the end", late.precision()),
        add("recall at the end", late.recall()),
        add("oracle share at the end", found.late_oracle_share()),
        add("false-hot share at the end", late.false_hot()),
        add("precision of all windows", all.precision()),
        add("recall of all windows", all.recall()),
    ];
    if found.all.pages.is_some() {
        let pages = found.late(|kinds| kinds.pages);
        let ten = found.late(|kinds| kinds.pages_of_ten);
        rows.push(add("page truth of a window, precision", pages.precision()));
        rows.push(add("page truth of a window, recall", pages.recall()));
        rows.push(add("page truth of ten windows, precision", ten.precision()));
        rows.push(add("page truth of ten windows, recall", ten.recall()));
    }
    rows
}

/// A sample of the recorder's resident and peak memory in KiB; the line's other fields are ignored.
#[derive(Debug, PartialEq)]
struct Look {
    resident: f64,
    peak: f64,
}

fn looks(text: &str) -> Vec<Look> {
    let look = |line: &str| {
        let words: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        Some(Look { resident: *words.get(1)?, peak: *words.get(2)? })
    };
    text.lines().filter_map(look).collect()
}

fn memory(
    case: &Case,
    instrument: &str,
    named: &dyn Fn(&str) -> String,
    dir: &Path,
) -> Result<Vec<Row>> {
    let path = dir.join("process.txt");
    let looks = looks(&fs::read_to_string(&path).at(path.display())?);
    let Some(last) = looks.last() else {
        return Err(Error::new(Kind::Job, path.display().to_string(), "no window has samples"));
    };
    let bar = match case.memory_bar {
        Some(most) if instrument == OURS || instrument.starts_with("telescope") => Bar::Most(most),
        _ => Bar::None,
    };
    let mut rows =
        vec![row(case, named("memory of the profiler"), last.peak * 1024.0 / 1e6, "MB", bar)];
    if case.is_long() {
        // Skip the first tenth, in which the recorder's memory settles.
        let settled = &looks[looks.len() / 10];
        let growth = last.resident / settled.resident;
        rows.push(row(case, named("memory after an hour"), growth, "times", Bar::Most(FLAT)));
    }
    Ok(rows)
}

/// Row for the CPU of `rates` over that of the kernel's DAMON, if both are known.
pub(super) fn ratio(case: &Case, table: &Table) -> Option<Row> {
    let name = format!("{}, profiler CPU: rates bayes over kernel-damon fixed", case.name);
    let cpu = |instrument| table.value(&cpu_name(case, instrument));
    let (ours, kernel) = (cpu(OURS)?, cpu("kernel-damon:fixed")?);
    let bar = Bar::Most(case.cpu_ratio?);
    (!table.begins(&name) && kernel > 0.0).then(|| row(case, name, ours / kernel, "times", bar))
}

/// Number of slots with and without the instrument, alternating, in one pair for the slowdown. The
/// rate of a single slot varies by a tenth on an emulated machine; the mean of quotients of such
/// rates would be a percent above the quotient of the means, because of the divisors' variance.
pub(super) const TURNS: u32 = 10;

/// Rows for the slowdown, from `slots.txt` with alternating lines `with|without FROM TO` in seconds
/// since boot.
pub(super) fn slowdown(case: &Case, out: &Path) -> Result<Vec<Row>> {
    let path = out.join("slots.txt");
    let text = fs::read_to_string(&path).at(path.display())?;
    let bad = |cause: &str| Error::new(Kind::Job, path.display().to_string(), cause);
    let truth = TruthDir::open(&out.join("truth")).map_err(|e| bad(&e.to_string()))?;
    let rates = slots(&text)
        .iter()
        .map(|(from, to)| truth.rate(Time(*from), Time(*to)))
        .collect::<Option<Vec<f64>>>()
        .ok_or_else(|| bad("the truth does not cover all slots"))?;
    let found = Slowdown::of(&pairs(&rates)).ok_or_else(|| bad("fewer than two sound pairs"))?;
    let name = slowdown_name(case);
    Ok(vec![
        row(case, format!("{name}: mean of {} pairs", found.pairs), found.mean, "share", Bar::None),
        row(case, format!("{name}: upper 95 % bound"), found.upper, "share", Bar::Most(SLOWDOWN)),
    ])
}

/// Mean rates `(with, without)` over the slots of each pair.
fn pairs(rates: &[f64]) -> Vec<(f64, f64)> {
    let mean =
        |slots: &[f64], first| slots.iter().skip(first).step_by(2).sum::<f64>() / f64::from(TURNS);
    rates.chunks_exact(2 * TURNS as usize).map(|slots| (mean(slots, 0), mean(slots, 1))).collect()
}

/// Times of the slots in nanoseconds, without 100 ms at both ends, which are disturbed by the
/// switch.
fn slots(text: &str) -> Vec<(u64, u64)> {
    const EDGE: f64 = 0.1;
    let slot = |line: &str| {
        let mut words = line.split(' ').skip(1).map(str::parse::<f64>);
        let (from, to) = (words.next()?.ok()?, words.next()?.ok()?);
        Some((((from + EDGE) * 1e9) as u64, ((to - EDGE) * 1e9) as u64))
    };
    text.lines().filter_map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lose_their_edges() {
        let text = "with 10.00 12.00\nwithout 12.00 14.02\nnonsense\n";
        assert_eq!(
            slots(text),
            [(10_100_000_000, 11_900_000_000), (12_100_000_000, 13_920_000_000)]
        );
    }

    // Rates that differ between slots, but equally with and without: no slowdown, where a mean of
    // quotients would find (1/2 + 2)/2 - 1 = 25 %.
    #[test]
    fn a_pair_is_several_turns() {
        let turns = [1.0, 2.0, 2.0, 1.0].repeat(TURNS as usize);
        assert_eq!(pairs(&turns), [(1.5, 1.5); 2]);
        assert_eq!(Slowdown::of(&pairs(&turns)).unwrap().mean, 0.0);
    }

    #[test]
    fn looks_are_read_from_the_scenario_s_output() {
        let text = "31.5 4000 5000 12 3\n32.5 4100 5200 14 3\n";
        assert_eq!(looks(text)[1], Look { resident: 4100.0, peak: 5200.0 });
    }
}
