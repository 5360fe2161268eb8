//! Cost of a reclaim policy's page-table walk as mapped memory grows
//! while the accessed part stays constant, on density machines, at the costs of
//! `crates/sim/costs/linux.toml`.
//!
//! Nothing is reclaimed, so that all walks are alike. The first walk, which sees everything for the
//! first time, is left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use serde::Serialize;
use tierscope_core::drive::{Course, tier};
use tierscope_core::units::about_size;
use tierscope_core::{Budget, Error, ErrorKind, Policy, Result, Time};
use tierscope_hw::Machine as Hardware;
use tierscope_instruments::metronome::Metronome;
use tierscope_policies::registry::{by_name, make};
use tierscope_report::svg::{LineChart, Mark};
use tierscope_sim::config::Costs;
use tierscope_sim::density::{Config, Machine, Start};
use tierscope_workloads::generate;

use crate::runner::Runner;

/// Ready-made hardware of the machines.
const HARDWARE: &str = "xeon-gold-6354";
/// Number of walks, including the first: an even number of others, because `mglru-telescope` may
/// skip a table in every other one.
const WALKS: u32 = 7;
/// Time between two walks; a walk over a terabyte takes seconds.
const INTERVAL: Duration = Duration::from_secs(20);
/// Accesses per second.
const RATE: f64 = 1e6;
/// Alignment of the accessed range, which is in the middle: the memory that one table maps.
const TABLE: u64 = 2 << 20;

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sizes of mapped memory in bytes, ascending.
    pub sizes: Vec<u64>,
    /// Reclaim policies, as `NAME:key=value,…`.
    pub policies: Vec<String>,
    /// Accessed bytes, the same for each size.
    pub hot: u64,
}

/// Results: cost of walks by size and policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Ready-made hardware of the machines.
    pub hardware: &'static str,
    /// Accessed bytes, the same for each size.
    pub hot_bytes: u64,
    /// Accesses per second.
    pub rate: f64,
    /// Number of walks that the mean is taken over.
    pub walks: u32,
    /// Results by size, ascending.
    pub curve: Vec<Point>,
    /// Cost at the largest size relative to the smallest, by policy.
    pub growth: BTreeMap<String, f64>,
}

/// Results for one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Mapped memory in GiB.
    pub gib: f64,
    /// Milliseconds per walk, by policy.
    pub ms: BTreeMap<String, f64>,
}

impl Point {
    /// Mapped memory, as text.
    #[must_use]
    pub fn size(&self) -> String {
        about_size((self.gib * f64::from(1 << 30)) as u64)
    }
}

impl Report {
    /// The report of a curve, with its growth.
    #[must_use]
    pub fn new(hot_bytes: u64, curve: Vec<Point>) -> Self {
        let mut growth = BTreeMap::new();
        if let (Some(first), Some(last)) = (curve.first(), curve.last()) {
            let over = |(policy, ms): (&String, &f64)| {
                Some((policy.clone(), last.ms.get(policy)? / ms.max(1e-9)))
            };
            growth = first.ms.iter().filter_map(over).collect();
        }
        Self { hardware: HARDWARE, hot_bytes, rate: RATE, walks: WALKS - 1, curve, growth }
    }
}

/// Measures the walks of all policies at all sizes.
///
/// # Errors
/// An invalid policy or size, reported before any run; [`ErrorKind::Other`] if it was stopped.
pub fn run(settings: &Settings, runner: &Runner<'_>) -> Result<Report> {
    check(settings)?;
    let Settings { sizes, policies, hot } = settings;
    let jobs: Vec<(u64, &String)> =
        sizes.iter().flat_map(|bytes| policies.iter().map(move |p| (*bytes, p))).collect();
    let nanos = vec![end().0; jobs.len()];
    let walks = runner.side_by_side(&nanos, |index, _: &AtomicU64| {
        let (bytes, policy) = jobs[index];
        walk_ms(policy, bytes, *hot, runner.stop())
    })?;
    if runner.is_stopped() {
        return Err(Error::new(ErrorKind::Other, "stopped")
            .cause("an interrupted walk is no measurement")
            .remedy("name fewer or smaller sizes"));
    }
    let mut walks = walks.into_iter().flatten();
    let point = |bytes: &u64| Point {
        gib: *bytes as f64 / f64::from(1 << 30),
        ms: policies.iter().cloned().zip(walks.by_ref()).collect(),
    };
    Ok(Report::new(*hot, sizes.iter().map(point).collect()))
}

fn check(settings: &Settings) -> Result<()> {
    let refuse = |what: &str, cause: String, remedy: &str| {
        Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
    };
    if settings.hot < TABLE {
        let cause = format!("{} are less than a table of 2 MiB maps", about_size(settings.hot));
        return refuse("cannot access so little", cause, "give more with --hot");
    }
    if let Some(bytes) = settings.sizes.iter().find(|bytes| **bytes < settings.hot) {
        let cause =
            format!("{} are to be accessed of {}", about_size(settings.hot), about_size(*bytes));
        return refuse("a size is too small", cause, "give a larger one, or less with --hot");
    }
    for line in &settings.policies {
        let name = line.split(':').next().unwrap_or(line);
        if by_name(name).is_some_and(|entry| !entry.reclaims) {
            let cause = format!("`{name}` does not give memory back, and walks over no tables");
            return refuse("cannot take the cost of its walks", cause, "take mglru or its kin");
        }
        make(&as_measured(line))?;
    }
    Ok(())
}

/// Adds the benchmark's walk interval and reclaim target to the policy's settings.
fn as_measured(line: &str) -> String {
    let join = if line.contains(':') { ',' } else { ':' };
    format!("{line}{join}interval={}s,share=0", INTERVAL.as_secs())
}

fn first_end() -> Time {
    Time(0) + (INTERVAL - Duration::from_millis(100))
}

fn end() -> Time {
    first_end() + INTERVAL * (WALKS - 1)
}

/// Mean CPU time of a walk's probes and scans, in milliseconds.
fn walk_ms(policy: &str, bytes: u64, hot: u64, stop: &Arc<AtomicBool>) -> Result<f64> {
    let mut hardware = Hardware::ready_made(HARDWARE)?;
    hardware.tiers[0].mib = hardware.tiers[0].mib.max(2 * (bytes >> 20));
    let costs = Costs::ready_made("linux")?;
    let config = Config { rate: Some(RATE), start: Start::Young, ..Config::of(&hardware, costs) };
    let at = (bytes - hot) / 2 / TABLE * TABLE;
    let spec = format!("contiguous:space={bytes}B,hot={hot}B,at={at}B");
    let machine = Machine::new(config, &generate::from_spec(&spec)?)?;
    let mut machine = machine.with_stop(Arc::clone(stop));
    let mut policy = make(&as_measured(policy))?;
    go_on(&mut machine, &mut *policy, first_end())?;
    let before = machine.account().spent.telemetry;
    go_on(&mut machine, &mut *policy, end())?;
    let spent = machine.account().spent.telemetry - before;
    Ok(spent.as_secs_f64() * 1e3 / f64::from(WALKS - 1))
}

fn go_on(machine: &mut Machine, policy: &mut dyn Policy, until: Time) -> Result<()> {
    let mut mover = machine.mover();
    let (budget, course) = (Budget { bytes: u64::MAX }, Course::until(until));
    let mut clock = Metronome::new(Duration::from_secs(1));
    tier(machine, &mut clock, policy, &mut mover, budget, &course, &mut ()).map(drop)
}

const HEIGHT: f64 = 360.0;
/// Right margin for the policies' names.
const RIGHT: f64 = 170.0;

/// Draws milliseconds per walk against mapped bytes, both on logarithmic scales.
#[must_use]
pub fn draw(report: &Report) -> String {
    let walks = || report.curve.iter().flat_map(|point| point.ms.values());
    let power = |ms: f64| ms.max(1e-6).log10();
    let bottom = walks().fold(f64::INFINITY, |least, ms| least.min(power(*ms))).floor();
    let top = walks().fold(bottom + 1.0, |most, ms| most.max(power(*ms))).ceil();
    let height = |ms: f64| (power(ms) - bottom) / (top - bottom);
    let up: Vec<Mark> = (bottom as i32..=top as i32)
        .map(|power| {
            let ms = 10f64.powi(power);
            (height(ms), if power < 3 { format!("{ms} ms") } else { format!("{} s", ms / 1e3) })
        })
        .collect();
    let across: Vec<Mark> =
        report.curve.iter().map(|point| (point.gib.log2(), point.size())).collect();
    let from = across.first().map_or(0.0, |mark| mark.0);
    let across: Vec<Mark> = across.into_iter().map(|(at, name)| (at - from, name)).collect();
    let end = across.last().map_or(1.0, |mark| mark.0).max(1e-9);
    let title = format!(
        "a walk over page tables against bytes mapped, {} accessed; simulated",
        about_size(report.hot_bytes)
    );
    let mut chart = LineChart::scaled(&title, HEIGHT, RIGHT, (end, &across), &up);
    let policies = report.curve.first().map(|point| point.ms.keys()).into_iter().flatten();
    for (index, policy) in policies.enumerate() {
        let of = |point: &Point| point.ms.get(policy).map(|ms| height(*ms));
        let places = across.iter().zip(&report.curve);
        let points = places.filter_map(|((at, _), point)| Some((*at, of(point)?)));
        chart.line(index, points);
        chart.name(index, policy);
    }
    chart.file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sizes: &[u64], policy: &str) -> Settings {
        Settings { sizes: sizes.to_vec(), policies: vec![policy.into()], hot: 4 << 20 }
    }

    // 16 and 64 MiB, 4 MiB accessed: 4096 and 16,384 entries of 8 ns, some µs for calls and for
    // clearing a thousand.
    #[test]
    fn a_linear_walk_grows_with_memory_and_one_from_above_does_not() {
        let stop = Arc::default();
        let walk = |policy, mib: u64| {
            walk_ms(policy, mib << 20, 4 << 20, &stop).unwrap_or_else(|error| panic!("{error}"))
        };
        let linear = [16, 64].map(|mib| walk("mglru-linear", mib));
        let above = [16, 64].map(|mib| walk("mglru-telescope", mib));
        assert!(linear[1] - linear[0] >= 0.09, "{linear:?}");
        assert!(above[1] - above[0] < 0.01 && above[1] < linear[1], "{above:?}");
    }

    #[test]
    fn unmeasurable_sizes_and_policies_are_refused() {
        assert!(check(&settings(&[1 << 30], "mglru")).is_ok());
        let refused = |settings: Settings| check(&settings).expect_err("it is wrong").to_string();
        assert!(refused(settings(&[1 << 20], "mglru")).contains("too small"));
        assert!(refused(settings(&[1 << 30], "static")).contains("walks"));
        assert!(check(&settings(&[1 << 30], "alchemy")).is_err());
        assert!(refused(Settings { hot: 1, ..settings(&[1 << 30], "mglru") }).contains("little"));
    }

    // 1 and 4 GiB, 2 and 80 ms: the scale has powers of ten from 1 to 100 ms.
    #[test]
    fn walks_are_drawn_on_logarithmic_scales() {
        let point = |gib, ms| Point { gib, ms: [("a".to_owned(), ms)].into_iter().collect() };
        let report = Report::new(1 << 20, vec![point(1.0, 2.0), point(4.0, 80.0)]);
        assert_eq!(report.growth["a"], 40.0);
        let svg = draw(&report);
        assert!(svg.contains(">1 ms<") && svg.contains(">100 ms<"), "{svg}");
        // 0.15 and 0.95 of the height of 280, from the bottom at 320.
        assert!(svg.contains(r#"points="50,277.86 730,53.57""#), "{svg}");
    }
}
