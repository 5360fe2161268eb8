//! Draws compared with the model. Each test states the expected value, its standard deviation, and
//! the number of deviations allowed; seeds are fixed.

use tierscope_core::{AccessBits, AccessedSet, HintFaults, Level, Range, Samples, ScanMode};
use tierscope_sim::config::{Period, Sampling};

use super::*;

fn scan(machine: &mut Machine, range: Range, level: Level, clear: bool) -> u64 {
    let mode = ScanMode { clear, ..Default::default() };
    machine.scan(&range, level, mode, &mut AccessedSet::default()).unwrap().young
}

/// Number of young entries of `range` `nanos` ns after a clear, and number of entries.
fn young_after(config: Config, spec: &str, level: Level, nanos: u64) -> (f64, f64) {
    let mut machine = machine(config, spec);
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    pass(&mut machine, SECOND);
    scan(&mut machine, hot, level, true);
    // The scan itself takes time, which counts.
    pass(&mut machine, nanos);
    let entries = level.entries_in(&hot) as f64;
    (scan(&mut machine, hot, level, false) as f64, entries)
}

// 10 GiB, 3 M a second: 1.14 a page and second. After 0.5 s a page is young with probability 1 -
// exp(-0.57) = 0.435; plus the 22 ms that clearing takes. 2.6 M pages: sigma 800.
#[test]
fn leaves_are_young_as_often_as_poisson_says() {
    let mut config = bare();
    config.costs.access_bits.entry_ns = 0;
    config.costs.access_bits.clear_ns = 0;
    config.costs.access_bits.call_ns = 0;
    let spec = "contiguous:space=100GiB,hot=10GiB,at=20GiB,rate=3000000";
    let (young, pages) = young_after(config.clone(), spec, Level::PTE, SECOND / 2);
    let share = 1.0 - (-0.5 * 3e6 / pages).exp();
    let sigma = (pages * share * (1.0 - share)).sqrt();
    assert!((young - pages * share).abs() < 5.0 * sigma, "{young} of {pages}, {share}");
    // Tables of 2 MiB over 5 ms: 585.9 accesses a second each, 2.93 in 5 ms: 0.947. Sigma 16.
    let (young, tables) = young_after(config, spec, Level::PMD, SECOND / 200);
    let share = 1.0 - (-0.005 * 3e6 / tables).exp();
    let sigma = (tables * share * (1.0 - share)).sqrt();
    assert!((young - tables * share).abs() < 5.0 * sigma, "{young} of {tables}, {share}");
}

// With TLB and caches as on hardware the result is the same: they are far too small to hide leaves.
#[test]
fn caches_hide_no_leaf_of_a_large_set() {
    let spec = "contiguous:space=100GiB,hot=10GiB,at=20GiB,rate=3000000";
    let (with, _) = young_after(config(), spec, Level::PTE, SECOND / 10);
    let (without, _) = young_after(bare(), spec, Level::PTE, SECOND / 10);
    assert!((with / without - 1.0).abs() < 0.01, "{with} {without}");
}

// Two samplers of 5000 a second: 10,000 in a second, 90 % in the hot tenth, 9000 ± 30.
#[test]
fn samples_come_at_their_rate_and_fall_where_accesses_fall() {
    let sampling = Some(Sampling::loads_and_stores(Period::PerSecond(5000)));
    let spec = "contiguous:space=10GiB,hot=1GiB,at=0B,share=0.9,writes=0.5,rate=3000000";
    let mut machine = machine(Config { sampling, ..config() }, spec);
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    let mut samples = Vec::new();
    let mut lost = 0;
    for _ in 0..5 {
        pass(&mut machine, SECOND / 5);
        lost += Samples::drain(&mut machine, &mut samples).0;
    }
    // Draining takes time, during which some more are taken.
    assert!((9_900..10_200).contains(&samples.len()) && lost == 0, "{} {lost}", samples.len());
    assert!(samples.windows(2).all(|pair| pair[0].time <= pair[1].time));
    let inside = samples.iter().filter(|sample| hot.contains(sample.at)).count() as f64;
    // The rest is spread evenly: a tenth of it is in the hot range as well.
    let expected = samples.len() as f64 * 0.91;
    assert!((inside - expected).abs() < 6.0 * (expected * 0.09).sqrt(), "{inside} {expected}");
    assert!(machine.disturbed() > Duration::from_millis(15), "{:?}", machine.disturbed());
}

// A ring of 13,107 on one core: a second of two events at 50,000 a second loses most.
#[test]
fn a_reader_that_comes_too_late_loses_samples() {
    let sampling = Some(Sampling::loads_and_stores(Period::PerSecond(50_000)));
    let spec = "contiguous:space=1GiB,hot=1GiB,writes=0.5,rate=3000000";
    let mut machine = machine(Config { sampling, ..config() }, spec);
    pass(&mut machine, SECOND);
    let mut samples = Vec::new();
    let lost = Samples::drain(&mut machine, &mut samples).0;
    assert_eq!((samples.len() as u64 + lost) / 1000, 100);
    assert!(lost > 70_000, "{lost}");
}

// 64 MiB, 16,384 pages, 100,000 accesses a second: after 0.1 s a page was accessed with probability
// 1 - exp(-0.61) = 0.457: 7485 ± 64. Each faults once.
#[test]
fn an_armed_page_faults_once_at_its_first_access() {
    let mut machine = machine(config(), "contiguous:space=1GiB,hot=64MiB,at=0B,rate=100000");
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    machine.arm(&[hot]).unwrap();
    let armed =
        machine.mappings(Duration::ZERO).map(|_| tierscope_core::Clock::now(&machine)).unwrap();
    let mut faults = Vec::new();
    for _ in 0..10 {
        pass(&mut machine, SECOND / 100);
        HintFaults::drain(&mut machine, &mut faults);
    }
    let count = faults.len() as f64;
    assert!((count - 7485.0).abs() < 400.0, "{count}");
    let mut pages: Vec<u64> = faults.iter().map(|fault| fault.at.at >> 12).collect();
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), faults.len());
    assert!(faults.iter().all(|fault| fault.armed <= fault.time && fault.armed <= armed));
    // Pages that are armed again fault again.
    machine.arm(&[hot]).unwrap();
    pass(&mut machine, SECOND / 100);
    faults.clear();
    HintFaults::drain(&mut machine, &mut faults);
    assert!(faults.len() > 700, "{}", faults.len());
}
