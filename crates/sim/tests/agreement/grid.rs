//! Both modes over a grid of sizes, page sizes, rates, backgrounds and flush periods: shares of
//! young entries of the hot range and of a cold one, after 1, 5, 20 and 100 ms, and the
//! instruments' reports.
//!
//! Accesses to hot and to all memory alternate one by one (`burst=1`), since densities do not model
//! bursts.
//!
//! Some cells run in plain tests; all of them with `cargo test -p tierscope-sim --release --test
//! agreement -- --ignored --nocapture grid`, whose output is kept in `grid.md`.

use tierscope_core::{AccessedSet, Level, Ports, Range, ScanMode};

use super::instruments::run;
use super::*;

/// Milliseconds after a clear.
const AFTER: [u64; 4] = [1, 5, 20, 100];
/// Bytes of a range whose leaves are scanned.
const SAMPLE: u64 = 64 << 20;

/// A cell of the grid.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Hot bytes, and all bytes.
    hot: &'static str,
    space: &'static str,
    huge: bool,
    rate: u64,
    /// Percent of the accesses that go to all memory.
    background: u64,
    flush_ms: Option<u64>,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pages = if self.huge { "2M" } else { "4K" };
        let flush = self.flush_ms.map_or("none".into(), |ms| format!("{ms} ms"));
        let Cell { hot, space, rate, background, .. } = self;
        write!(f, "{hot} of {space} | {pages} | {rate} | {background} % | {flush}")
    }
}

impl Cell {
    fn case(&self, seed: u64) -> Case {
        let Cell { hot, space, rate, background, .. } = self;
        let share = 1.0 - *background as f64 / 100.0;
        let spec =
            format!("contiguous:space={space},hot={hot},at=5GiB,share={share},rate={rate},burst=1");
        let mut case = Case { seed, huge: self.huge, ..Case::new(&spec, [1 << 17, 1024]) };
        case.hardware = Hardware::ready_made("xeon-gold-6430-cxl").unwrap();
        case.hardware.tiers[0].mib = 1 << 17;
        case.flush = self.flush_ms.map(Duration::from_millis);
        case
    }
}

/// Number of rounds; the full grid uses fewer where shares are means over many entries.
const ROUNDS: u32 = 24;

/// Shares of young entries: by range (hot, cold), level and time after the clear.
type Shares = [[[f64; 4]; 3]; 2];

fn levels() -> impl Iterator<Item = Level> {
    (1..=3).filter_map(Level::new)
}

/// The part of a range that is scanned at a level: whole entries within it, or the ones that
/// contain it.
fn part(range: &Range, level: Level) -> Range {
    if level == Level::PTE {
        Range { end: range.end.min(range.start + SAMPLE), ..*range }
    } else {
        *range
    }
}

fn scan(machine: &mut impl Ports, range: &Range, level: Level, clear: bool) -> f64 {
    let mut set = AccessedSet::default();
    let mode = ScanMode { clear, ..ScanMode::default() };
    let access = machine.access_bits().unwrap();
    access.scan(&part(range, level), level, mode, &mut set).unwrap();
    set.young_count() as f64 / set.entries() as f64
}

fn shares(case: &Case, machine: &mut impl Ports, rounds: u32) -> Shares {
    let hot = case.hot_at(Time(0)).as_slice()[0];
    // Two GiB from the middle of a GiB on, so that no entry contains hot bytes too.
    let cold = Range::new(hot.space, BASE + (1 << 30), BASE + (3 << 30));
    let mut sums = Shares::default();
    pass(machine, 150 * MILLISECOND);
    for _ in 0..rounds {
        for range in [&hot, &cold] {
            levels().for_each(|level| _ = scan(machine, range, level, true));
        }
        let mut since = 0;
        for (at, after) in AFTER.into_iter().enumerate() {
            pass(machine, (after - since) * MILLISECOND);
            since = after;
            for (range, of_range) in [&hot, &cold].into_iter().zip(&mut sums) {
                for (level, of_level) in levels().zip(of_range) {
                    of_level[at] += scan(machine, range, level, false) / f64::from(rounds);
                }
            }
        }
        // Not in step with a tick or a flush.
        pass(machine, 7_300_000);
    }
    sums
}

fn worst(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Prints a cell's shares in both modes; returns the greatest difference by level.
fn shares_of(cell: &Cell, rounds: u32) -> [f64; 3] {
    let case = Case { free: true, ..cell.case(1) };
    let exact = shares(&case, &mut case.exact(), rounds);
    let density = shares(&case, &mut case.density(), rounds);
    let mut differ = [0.0f64; 3];
    for (name, (exact, density)) in ["hot", "cold"].iter().zip(exact.iter().zip(&density)) {
        if *name == "cold" && cell.background == 0 {
            continue;
        }
        for (level, (exact, density)) in exact.iter().zip(density).enumerate() {
            let by = worst(exact, density);
            differ[level] = differ[level].max(by);
            println!("| {cell} | {name} {} | {exact:.2?} | {density:.2?} | {by:.2} |", level + 1);
        }
    }
    differ
}

/// Prints precision and recall of an instrument in both modes; returns the greater difference.
fn reports_of(cell: &Cell, which: (&'static str, &'static str), seeds: u64) -> f64 {
    let mut means = [[0.0; 2]; 2];
    for seed in 1..=seeds {
        let case = cell.case(seed);
        let reports = [
            run(&case, &mut case.exact(), which, seed),
            run(&case, &mut case.density(), which, seed),
        ];
        for (mean, report) in means.iter_mut().zip(reports) {
            mean.iter_mut().zip(report).for_each(|(mean, x)| *mean += x / seeds as f64);
        }
    }
    let [exact, density] = means;
    let by = (exact[0] - density[0]).abs().max((exact[1] - density[1]).abs());
    println!("| {cell} | {} {} | {exact:.2?} | {density:.2?} | {by:.2} |", which.0, which.1);
    by
}

const SIZES: [[&str; 2]; 3] = [["64MiB", "16GiB"], ["1GiB", "16GiB"], ["4GiB", "64GiB"]];

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for [hot, space] in SIZES {
        for huge in [false, true] {
            for rate in [300_000, 3_000_000] {
                for background in [0, 2, 10] {
                    for flush_ms in [None, Some(50), Some(5)] {
                        cells.push(Cell { hot, space, huge, rate, background, flush_ms });
                    }
                }
            }
        }
    }
    cells
}

const INSTRUMENTS: [(&str, &str); 3] = [("rates", "bayes"), ("scan", "plain"), ("damon", "fixed")];

#[test]
#[ignore = "minutes: cargo test -p tierscope-sim --release --test agreement -- --ignored --nocapture grid"]
fn grid_of_shares() {
    let differ = cells()
        .iter()
        .map(|cell| shares_of(cell, ROUNDS))
        .fold([0.0; 3], |a, b| std::array::from_fn(|level| f64::max(a[level], b[level])));
    println!("greatest difference by level: {differ:.3?}");
}

#[test]
#[ignore = "minutes: cargo test -p tierscope-sim --release --test agreement -- --ignored --nocapture grid"]
fn grid_of_reports() {
    let wanted =
        |cell: &&Cell| cell.rate > 1_000_000 && cell.background != 2 && cell.flush_ms != Some(50);
    for which in INSTRUMENTS {
        // Where little is hot, DAMON's reports depend on the chance of its first draws.
        let seeds = if which.0 == "damon" { 6 } else { 1 };
        let differ = cells()
            .iter()
            .filter(wanted)
            .map(|cell| reports_of(cell, which, seeds))
            .fold(0.0, f64::max);
        println!("greatest difference of {}: {differ:.3}", which.0);
    }
}

/// Cells for plain tests: each size, page size, background and flush period once or twice.
fn some() -> Vec<Cell> {
    let cell = |size: usize, huge, rate, background, flush_ms| {
        let [hot, space] = SIZES[size];
        Cell { hot, space, huge, rate, background, flush_ms }
    };
    vec![
        cell(0, false, 3_000_000, 10, None),
        cell(0, true, 300_000, 2, Some(50)),
        cell(1, false, 3_000_000, 0, None),
        cell(1, false, 300_000, 10, Some(5)),
        cell(1, true, 3_000_000, 0, None),
        cell(1, true, 3_000_000, 10, Some(50)),
        cell(2, true, 3_000_000, 2, None),
        cell(2, true, 300_000, 0, Some(50)),
    ]
}

// Shares of leaves and tables are means over thousands of entries: 0.08 is the model's error. Of
// level 3 there are one to five entries in 24 rounds: sigma of a difference is 0.14 where half of
// them are young, so 0.42 is three sigma.
#[test]
fn shares_agree_over_the_grid() {
    for cell in some() {
        let differ = shares_of(&cell, ROUNDS);
        let most = [0.08, 0.08, 0.42];
        assert!(differ.iter().zip(most).all(|(by, most)| *by <= most), "{cell}: {differ:?}");
    }
}
