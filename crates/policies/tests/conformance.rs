//! Runs the conformance suite on every policy.

use tierscope_conformance::policy::{Traits, acts_on_regions, conforms};
use tierscope_policies::make;

/// A policy of 4 KiB pages that promotes half of the hot set within `seconds`.
fn small(line: &str, seconds: f64) {
    let traits = Traits { promotes: Some(seconds), ..Traits::default() };
    conforms(&|| make(line).expect("it can be made"), &traits);
}

/// A policy of blocks of 2 MiB that promotes half of the hot set within `seconds`.
fn blocks(line: &str, mapped: u64, seconds: f64) {
    let traits = Traits { promotes: Some(seconds), mapped, huge: false, reclaims: None };
    conforms(&|| make(line).expect("it can be made"), &traits);
}

#[test]
fn static_tiering() {
    let traits = Traits { promotes: None, ..Traits::default() };
    conforms(&|| make("static").expect("it can be made"), &traits);
}

// 1024 pages per second of a list of 14,000: the hand completes a cycle in 14 s, and a page is
// promoted after two visits there and two on the short active list.
#[test]
fn multi_clock() {
    small("multi-clock", 45.0);
}

#[test]
fn multi_clock_with_all_options() {
    small("multi-clock:scan=4096,dirty-weight=2,adjust=true,swap=false", 20.0);
}

#[test]
fn nimble_selection() {
    small("nimble-selection", 45.0);
}

#[test]
fn nimble() {
    small("nimble:interval=1s", 12.0);
}

#[test]
fn autotiering_cpm() {
    small("autotiering-cpm", 5.0);
}

#[test]
fn autotiering_opm() {
    small("autotiering-opm", 5.0);
}

#[test]
fn autonuma() {
    small("autonuma", 5.0);
}

#[test]
fn tpp() {
    small("tpp", 5.0);
}

#[test]
fn thermostat() {
    blocks("thermostat:interval=3s,slowdown=0.001", 64 << 20, 8.0);
}

#[test]
fn hemem() {
    blocks("hemem", 1 << 30, 10.0);
    blocks("hemem:least=0", 64 << 20, 10.0);
}

#[test]
fn hemem_first() {
    blocks("hemem-first:least=0", 64 << 20, 10.0);
}

#[test]
fn hemem_nemo() {
    blocks("hemem-nemo:least=0,every=20", 64 << 20, 10.0);
    blocks("hemem-nemo-all:least=0,every=20", 64 << 20, 10.0);
}

#[test]
fn memtis() {
    small("memtis", 10.0);
    blocks("memtis:adapt=500,cool=2000", 64 << 20, 12.0);
}

#[test]
fn memtis_nemo() {
    small("memtis-nemo", 10.0);
    let traits = Traits { promotes: Some(12.0), mapped: 256 << 20, huge: true, reclaims: None };
    let all = "memtis-nemo-all:adapt=500,cool=2000,every=100,slow-ns=1000";
    conforms(&|| make(all).expect("it can be made"), &traits);
}

#[test]
fn amp() {
    small("amp-lru", 4.0);
    small("amp-lfu", 4.0);
    small("amp-random:chunk=4096", 4.0);
}

#[test]
fn hot_region() {
    blocks("hot-region", 64 << 20, 5.0);
    blocks("hot-region:verify-pages=4,round=4MiB,retry=1s", 64 << 20, 5.0);
}

/// A reclaim policy, tested with small pages and with huge ones.
fn gives_back(line: &str, seconds: f64) {
    for huge in [false, true] {
        let traits = Traits { promotes: None, mapped: 64 << 20, huge, reclaims: Some(seconds) };
        conforms(&|| make(line).expect("it can be made"), &traits);
    }
}

#[test]
fn mglru() {
    gives_back("mglru", 12.0);
}

#[test]
fn mglru_linear() {
    gives_back("mglru-linear", 12.0);
}

#[test]
fn mglru_telescope() {
    gives_back("mglru-telescope", 12.0);
}

#[test]
fn cold_regions() {
    gives_back("cold-regions:cold=2s", 12.0);
}

#[test]
fn huge_pages() {
    let huge = |line: &'static str, promotes| {
        let traits = Traits { promotes, mapped: 256 << 20, huge: true, reclaims: None };
        conforms(&|| make(line).expect("it can be made"), &traits);
    };
    huge("multi-clock", Some(8.0));
    huge("nimble-selection", Some(8.0));
    huge("hot-region", Some(5.0));
    huge("memtis:adapt=500,cool=2000,slow-ns=1000", Some(12.0));
    huge("amp-lfu", Some(4.0));
    huge("autonuma", Some(5.0));
    huge("autotiering-opm", Some(5.0));
}

// Validates the suite's case of unknown regions: with the same regions known, these policies do
// move pages.
#[test]
fn known_regions_move() {
    let acts =
        |line: &str| acts_on_regions(&|| make(line).expect("it can be made"), &Traits::default());
    let [hot, _] = acts("hot-region");
    let [_, cold] = acts("cold-regions:cold=2s");
    assert!(hot && cold, "hot {hot}, cold {cold}");
}

#[test]
fn every_page_is_visited() {
    let here = include_str!("conformance.rs");
    for entry in tierscope_policies::all() {
        let named = [format!("\"{}\"", entry.name), format!("\"{}:", entry.name)];
        assert!(named.iter().any(|name| here.contains(name.as_str())), "{}", entry.name);
    }
}
