//! Real servers under a zipfian load with scans: compares the memory that an instrument ranks first
//! with the access counts of all pages, as seen by the host.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tierscope_core::metrics::rates::{GRANULE, TrueRates, oracle_share};
use tierscope_core::{Range, Snapshot, SpaceId};
use tierscope_record::Recording;

use crate::bench::boot::{boot, command_of};
use crate::bench::rows::{Bar, Table, row};
use crate::bench::section::Inputs;
use crate::error::{Context, Error, Kind, Result};
use crate::instrumented::referee;
use crate::progress::say;

/// Prefix of the rows' names, and name of each server.
pub(super) const SERVED: [(&str, &str); 2] =
    [("served redis", "redis"), ("served memcached", "memcached")];

/// Output directories of the scenario's instruments; only ours has a threshold.
const INSTRUMENTS: [(&str, Bar); 2] =
    [("kernel-damon-fixed", Bar::None), ("rates-bayes", Bar::Least(0.9))];

/// Time after the instrument's start at which its result is judged.
const JUDGED_AT: Duration = Duration::from_secs(20);
/// Divisor for the bytes that are selected, of the resident memory: a quarter.
const PART: u64 = 4;

/// Measures a server's rows, unless they are in the table already.
pub(super) fn bench(
    name: &str,
    server: &str,
    inputs: &Inputs<'_>,
    table: &mut Table,
    path: &Path,
) -> Result<()> {
    if table.begins(name) {
        say(format!("{name}: there already"));
        return Ok(());
    }
    say(name);
    let set = format!("server={server}");
    let out = boot(inputs, "served", &format!("-{server}"), |scenario| scenario.assign(&set))?;
    let truth = truth(&out)?;
    let bytes = resident(&out)? / PART;
    let command = command_of("served", &set);
    let add = |what: String, value: f64, unit: &str, bar: Bar| {
        row(format!("{name}: {what}"), value, unit, bar, &command)
    };
    let best = truth.best_share(bytes, GRANULE).unwrap_or(0.0);
    let pages = truth.best_share(bytes, tierscope_core::PAGE_SIZE).unwrap_or(0.0);
    let mut rows = vec![
        add("a quarter of the memory".into(), bytes as f64 / f64::from(1 << 20), "MiB", Bar::None),
        add(
            "share of the accesses that the best 2 MiB of it take".into(),
            best,
            "share",
            Bar::None,
        ),
        add("likewise of the best pages of 4 KiB".into(), pages, "share", Bar::None),
    ];
    for (instrument, bar) in INSTRUMENTS {
        let snapshot = judged(&out.join(instrument))?;
        let mapped = snapshot.regions.iter().map(|region| region.range.bytes()).sum();
        let share =
            |granule| oracle_share(&snapshot, &truth, mapped, bytes, granule).unwrap_or(0.0);
        let what = format!("{instrument}: oracle share, at {} s", JUDGED_AT.as_secs());
        rows.push(add(what, share(GRANULE), "share", bar));
        let what = format!("{instrument}: likewise against pages of 4 KiB");
        rows.push(add(what, share(tierscope_core::PAGE_SIZE), "share", Bar::None));
        let cpu = cpu(&out.join(format!("{instrument}.txt")))?;
        rows.push(add(format!("{instrument}: profiler CPU"), cpu, "% of a CPU", Bar::None));
    }
    table.add(rows, path)
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "served", cause)
}

/// Number of accesses to each page of the server during the measurement.
fn truth(out: &Path) -> Result<TrueRates> {
    let pages = referee::touched(out).map_err(broken)?;
    let page = |(at, count): (u64, u64)| {
        (Range::new(SpaceId(0), at, at + tierscope_core::PAGE_SIZE), count as f64)
    };
    Ok(TrueRates::of(pages.into_iter().map(page)))
}

/// The server's resident bytes before the load.
fn resident(out: &Path) -> Result<u64> {
    let path = out.join("resident.txt");
    let text = fs::read_to_string(&path).at(path.display())?;
    let kib = text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| broken(format!("{}: no figure", path.display())))? << 10)
}

/// The last window of the recording that ends before the result is judged.
fn judged(recording: &Path) -> Result<Snapshot> {
    let recording = Recording::open(recording).map_err(broken)?;
    let time = recording.time().ok_or_else(|| broken("nothing was recorded"))?;
    let until = time.start + JUDGED_AT;
    let windows = recording.during(&(time.start..until));
    let last =
        windows.end.checked_sub(1).ok_or_else(|| broken("no window was recorded in time"))?;
    let mut snapshot = recording.snapshot(last).map_err(broken)?;
    // There is only one process, which has id 0 in the truth.
    snapshot.regions.iter_mut().for_each(|region| region.range.space = SpaceId(0));
    Ok(snapshot)
}

/// CPU usage in percent, from the final output of `tierscope record`.
fn cpu(printed: &Path) -> Result<f64> {
    let text = fs::read_to_string(printed).at(printed.display())?;
    percent(&text)
        .ok_or_else(|| broken(format!("{}: it says no share of a CPU", printed.display())))
}

fn percent(text: &str) -> Option<f64> {
    let (_, rest) = text.rsplit_once('(')?;
    rest.split_once('%')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_cpu_is_read() {
        let printed = "tierscope: recorded 97 windows (19.9 s) in /tmp/recording; profiler took 2.41 s of CPU (12.1 %)\n";
        assert_eq!(percent(printed), Some(12.1));
        assert_eq!(percent("nothing"), None);
    }
}
