//! For how long memory has been idle: the kernel's DAMON_STAT and our recordings, against a toucher
//! whose areas fall idle one after the other.
//!
//! DAMON_STAT gives percentiles of the machine's physical memory. The areas fill most of it, and
//! what is left has been idle since boot, so that the hottest area is at its lowest percentiles.
//! Each reader is asked for the middle of each area.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tierscope_core::{Heat, Region, Snapshot};
use tierscope_record::Recording;
use tierscope_workloads::truth_dir::TruthDir;

use crate::bench::boot::boot_on;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::error::{Context, Error, Kind, Result};
use crate::scenario::Scenario;

/// Prefix of the rows' names.
pub(super) const NAME: &str = "idle percentiles";

const KERNEL: &str = "newest";
const AREAS: usize = 4;

/// Measures the rows.
pub(super) fn measure(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let (mut area, mut memory) = (0, 0);
    let out = boot_on(KERNEL, inputs, ("idle", ""), |scenario: &mut Scenario| {
        area = (scenario.number("area_mib").unwrap_or(0.0) as u64) << 20;
        memory = scenario.memory_mb << 20;
        Ok(())
    })?;
    let text = |name: &str| fs::read_to_string(out.join(name)).at(name);
    let number = |name: &str| -> Result<f64> {
        let text = text(name)?;
        text.trim().parse().map_err(|_| broken(format!("{name} is no number: {text:?}")))
    };
    let kernels = percentiles(&text("damon-stat.txt")?)?;
    let recording = Recording::open(out.join("recording")).map_err(broken)?;
    let (ours, at) = ours(&recording)?;

    let middles = (0..AREAS as u64).map(|index| index * area + area / 2);
    let (at_kernel, at_ours) = ((number("damon-stat-at.txt")? * 1e9) as u64, at.0);
    let readers = [
        (
            "DAMON_STAT",
            truths(&out.join("truth-damon-stat"), at_kernel)?,
            middles.clone().map(|middle| kernels[(middle * 100 / memory) as usize]).collect(),
        ),
        (
            "rates",
            truths(&out.join("truth-ours"), at_ours)?,
            middles.map(|middle| idle_at(&ours, middle)).collect::<Vec<_>>(),
        ),
    ];
    let command = format!("target/debug/lab run idle --kernel {KERNEL}");
    let mut rows = Vec::new();
    let mut add = |what: String, value: f64, unit: &str| {
        rows.push(row(format!("{NAME}: {what}"), value, unit, Bar::None, &command));
    };
    for (reader, truths, found) in &readers {
        for (index, (truth, idle)) in truths.iter().zip(found).enumerate() {
            let name = |what: &str| format!("{reader}, area {}, {what}", index + 1);
            add(name("idle for"), idle.as_secs_f64(), "s");
            add(name("truly"), truth.as_secs_f64(), "s");
        }
        let off = truths.iter().zip(found).map(|(truth, idle)| truth.abs_diff(*idle));
        add(format!("{reader}, farthest off"), off.max().unwrap_or_default().as_secs_f64(), "s");
    }
    let seconds = number("damon-stat-at.txt")? - first_access(&out.join("truth-damon-stat"))?;
    let cpu = number("damon-stat-ticks.txt")? / 100.0 / seconds;
    add("DAMON_STAT, CPU".into(), 100.0 * cpu, "% of a CPU");
    let commits = recording.commits();
    let (first, last) = (&commits[0], &commits[commits.len() - 1]);
    let profiler = last.cpu.profiler.saturating_sub(first.cpu.profiler).as_secs_f64();
    add(
        "rates, CPU".into(),
        100.0 * profiler / last.end.since(first.end).as_secs_f64().max(1e-9),
        "% of a CPU",
    );
    Ok(rows)
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, NAME, cause)
}

/// The percentiles that DAMON_STAT gives in milliseconds, 0 to 100; negative ones are memory in
/// use.
fn percentiles(text: &str) -> Result<Vec<Duration>> {
    let numbers = text.trim().split(',').map(|word| word.trim().parse::<i64>());
    let all: Vec<i64> = numbers.collect::<std::result::Result<_, _>>().map_err(broken)?;
    if all.len() != 101 {
        return Err(broken(format!("DAMON_STAT gave {} percentiles instead of 101", all.len())));
    }
    Ok(all.into_iter().map(|ms| Duration::from_millis(ms.max(0) as u64)).collect())
}

/// Bytes with the time since their last access, by the last window of a recording, and the end of
/// that window.
fn ours(recording: &Recording) -> Result<(Vec<(Duration, u64)>, tierscope_core::Time)> {
    let commits = recording.commits();
    let last = commits.len().checked_sub(1).ok_or_else(|| broken("no window"))?;
    let snapshot = recording.snapshot(last).map_err(broken)?;
    // Windows may be longer than configured.
    let lasted = |windows: usize| {
        snapshot.end.since(commits[(last + 1).saturating_sub(windows.max(1))].start)
    };
    Ok((idle_times(&snapshot, lasted), snapshot.end))
}

/// Idle times of regions with their bytes, least first. The age of a cold region counts its windows
/// without an access; `lasted` is how long that many windows up to the end took. Memory that is
/// accessed, without evidence whether it is hot, is not idle; of other unknown memory nothing is
/// known.
fn idle_times(snapshot: &Snapshot, lasted: impl Fn(usize) -> Duration) -> Vec<(Duration, u64)> {
    let idle_time = |region: &Region| match region.heat() {
        Heat::Hot | Heat::Warm => Some(Duration::ZERO),
        Heat::Cold => Some(lasted(region.age as usize)),
        Heat::Unknown(_) => region.rate.filter(|rate| rate.low > 0.0).map(|_| Duration::ZERO),
        Heat::Unseen => None,
    };
    let idle = |region: &Region| Some((idle_time(region)?, region.range.bytes()));
    let mut all: Vec<_> = snapshot.regions.iter().filter_map(idle).collect();
    all.sort_unstable();
    all
}

/// The idle time of the byte that `before` bytes were accessed later than.
fn idle_at(all: &[(Duration, u64)], before: u64) -> Duration {
    let mut sum = 0;
    let found = all.iter().find(|(_, bytes)| {
        sum += bytes;
        sum > before
    });
    found.or(all.last()).map_or(Duration::ZERO, |(idle, _)| *idle)
}

/// Time since the last access to each area at `at`, by the truth's phases: least first.
fn truths(dir: &Path, at: u64) -> Result<Vec<Duration>> {
    let truth = TruthDir::open(dir).map_err(broken)?;
    let changes: Vec<u64> = truth.changes().into_iter().map(|time| time.0).collect();
    if changes.len() < AREAS {
        return Err(broken(format!("{} phases instead of {AREAS}", changes.len())));
    }
    let ends = changes[1..AREAS].iter().rev();
    let idle = ends.map(|end| Duration::from_nanos(at.saturating_sub(*end)));
    Ok(std::iter::once(Duration::ZERO).chain(idle).collect())
}

/// Seconds since boot at which the toucher began.
fn first_access(dir: &Path) -> Result<f64> {
    let truth = TruthDir::open(dir).map_err(broken)?;
    let (from, _) = truth.span().ok_or_else(|| broken("nothing was accessed"))?;
    Ok(from.0 as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Range, Rate, SpaceId, Time, Unknown};

    const S: Duration = Duration::from_secs(1);

    // 10 bytes in use, 20 idle for 3 s, 5 for 9 s.
    #[test]
    fn idle_times_are_those_of_the_byte_at_a_rank() {
        let all = [(Duration::ZERO, 10), (3 * S, 20), (9 * S, 5)];
        let found = [0, 9, 10, 29, 30, 99].map(|before| idle_at(&all, before));
        assert_eq!(found, [Duration::ZERO, Duration::ZERO, 3 * S, 3 * S, 9 * S, 9 * S]);
        assert_eq!(idle_at(&[], 1), Duration::ZERO);
    }

    // Pages of 4 KiB: cold for three windows; unknown, accessed at least once a second; unknown,
    // perhaps not accessed at all; not looked at.
    #[test]
    fn memory_in_use_is_not_idle_though_its_heat_is_undecided() {
        let region = |samples| Region::sampled(Range::new(SpaceId(0), 0, 4096), 0.0, samples);
        let undecided = |low| Region {
            unknown: Some(Unknown::Evidence),
            rate: Some(Rate { low, mean: 2.0, high: 9.0 }),
            age: 7,
            ..region(40)
        };
        let regions =
            vec![Region { age: 3, ..region(40) }, undecided(1.0), undecided(0.0), region(0)];
        let snapshot = Snapshot { start: Time(0), end: Time(1), samples: 40, regions };
        let found = idle_times(&snapshot, |windows| windows as u32 * S);
        assert_eq!(found, [(Duration::ZERO, 4096), (3 * S, 4096)]);
    }

    #[test]
    fn all_percentiles_are_read() {
        let text: Vec<String> = (-1..100).map(|ms| ms.to_string()).collect();
        let read = percentiles(&format!("{}\n", text.join(","))).unwrap();
        assert_eq!((read.len(), read[0], read[100]), (101, Duration::ZERO, S * 99 / 1000));
        assert!(percentiles("1,2,3").is_err() && percentiles("x").is_err());
    }
}
