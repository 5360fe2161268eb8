//! The density machine from outside: the conformance suite, its three laws, its draws compared with
//! the model, placement and moves of memory, and every instrument on it.

mod bursts;
mod counters;
mod hot_lists;
mod instruments;
mod laws;
mod placement;
mod sparse;
mod statistics;
mod swap;

use std::time::Duration;

use tierscope_conformance::access_bits::{self, Touchable};
use tierscope_conformance::residency;
use tierscope_core::{
    AccessBits, AccessedSet, Addr, CpuTime, Level, Mappings, Missing, Ports, Range, Result,
    ScanMode, SpaceId, Target, Time, Wake,
};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::config::Costs;
use tierscope_sim::density::{Config, Machine, Start};
use tierscope_workloads::Workload;
use tierscope_workloads::generate::from_spec;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

/// Telescope's platform; a flush every 5 ms, as in the lab.
fn config() -> Config {
    let hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
    let flush = Some(Duration::from_millis(5));
    Config { flush, ..Config::of(&hardware, Costs::ready_made("linux").unwrap()) }
}

/// Telescope's platform with `tib` TiB in the slowest tier, for footprints beyond any real machine.
fn roomy(tib: u64) -> Config {
    let mut config = config();
    config.hardware.tiers.last_mut().unwrap().mib = tib << 20;
    config
}

/// Telescope's platform without caches that could hide an access.
fn bare() -> Config {
    Config { tlb_pages: [0; 2], upper_entries: [0; 6], ..config() }
}

fn workload(spec: &str) -> Workload {
    from_spec(spec).unwrap()
}

fn machine(config: Config, spec: &str) -> Machine {
    Machine::new(config, &workload(spec)).unwrap()
}

/// The whole first area.
fn area(machine: &mut Machine) -> Range {
    machine.mappings(Duration::ZERO).unwrap().mappings[0].range
}

fn pass(machine: &mut Machine, nanos: u64) {
    use tierscope_core::Clock as _;
    let until = machine.now() + Duration::from_nanos(nanos);
    machine.wait(until);
}

struct Touched(Machine);

impl tierscope_core::Clock for Touched {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.0.wait(until)
    }
}

impl Target for Touched {
    fn mappings(&mut self, max_age: Duration) -> Result<std::sync::Arc<Mappings>> {
        self.0.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.0.cpu_time()
    }
}

impl Ports for Touched {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.0.access_bits()
    }
}

impl Touchable for Touched {
    fn touch(&mut self, addr: Addr) {
        self.0.touch(addr);
    }
}

// Only the suite accesses the upper half.
#[test]
fn accessed_bits_conform() {
    for start in [Start::Young, Start::Cleared] {
        let mut machine =
            machine(Config { start, ..config() }, "needle:space=64MiB,hot=4KiB,at=0B");
        let whole = area(&mut machine);
        let quiet = Range::new(whole.space, whole.start + 32 * MIB, whole.start + 40 * MIB);
        access_bits::conforms(&mut Touched(machine), quiet);
    }
}

#[test]
fn a_resident_page_is_hidden_until_a_flush() {
    let spec = "needle:space=64MiB,hot=4KiB,at=0B,rate=100000";
    let mut machine = machine(Config { flush: None, ..config() }, spec);
    let whole = area(&mut machine);
    let (hot, idle) = (whole.at(0), whole.at(32 * MIB));
    residency::a_flush_uncovers_a_resident_page(&mut machine, hot, idle, true);
}

// 2 MiB take 9 of 10 accesses, and stay in the TLBs; 16,384 pages share 100,000 a second evenly.
#[test]
fn background_is_seen_next_to_a_hot_set() {
    let spec = "contiguous:space=64MiB,hot=2MiB,at=0B,share=0.9,rate=1000000";
    let mut machine = machine(Config { flush: None, ..config() }, spec);
    let whole = area(&mut machine);
    let cold = Range { start: whole.start + 2 * MIB, ..whole };
    residency::background_sets_leaves_at_its_rate(&mut machine, cold, 100_000.0 / 16_384.0);
}

#[test]
fn another_space_is_gone() {
    use tierscope_core::{Probe, State};
    let mut machine = machine(config(), "needle:space=64MiB");
    let mut probe = [Probe::test(Addr { space: SpaceId(7), at: 0 }, Level::PTE)];
    machine.probe(&mut probe).unwrap();
    assert_eq!(probe[0].answer.state, State::Gone);
}

// 64 MiB in huge pages, 32 of them hot: 3 M accesses a second reach each within a millisecond.
#[test]
fn a_probe_of_a_huge_leaf_covers_all_its_pages() {
    use tierscope_core::{LeafKind, Probe, State};
    let bare = Config { huge: true, tlb_huge: [0; 2], ..bare() };
    let mut machine = machine(bare, "contiguous:space=127MiB,hot=64MiB,at=0B,rate=3000000");
    let whole = area(&mut machine);
    assert_eq!(whole.bytes(), 128 * MIB, "areas are rounded up to huge pages, as in exact mode");
    pass(&mut machine, 10_000_000);
    let (hot, cold) = (whole.at(MIB + 4096), whole.at(100 * MIB));
    let levels = [Level::PTE, Level::PMD, Level::PUD];
    let mut probes: Vec<Probe> = levels.iter().map(|level| Probe::test(hot, *level)).collect();
    probes.push(Probe::test(cold, Level::PTE));
    machine.probe(&mut probes).unwrap();
    let answers: Vec<_> =
        probes.iter().map(|p| (p.answer.state, p.answer.reached.unwrap(), p.answer.kind)).collect();
    assert_eq!(answers[0], (State::Young, Level::PMD, LeafKind::Page));
    assert_eq!(answers[1], (State::Young, Level::PMD, LeafKind::Page));
    assert_eq!(answers[2], (State::Young, Level::PUD, LeafKind::Table));
    assert_eq!(answers[3], (State::Old, Level::PMD, LeafKind::Page));
    let mut set = AccessedSet::default();
    for (level, entries) in [(Level::PTE, 512), (Level::PMD, 1)] {
        let mode = ScanMode { present: true, ..ScanMode::default() };
        let stats = machine.scan(&whole, level, mode, &mut set).unwrap();
        assert_eq!((stats.visited, stats.leaves), (64, [0, 64, 0, 0, 0]), "{level}");
        assert_eq!((stats.young, stats.present), (32 * entries, 64 * entries), "{level}");
        assert_eq!(set.young_count(), stats.young);
    }
    // A part of a huge page reports only itself, and clears the whole huge page.
    let part = Range::new(whole.space, whole.start + 4096, whole.start + 8192);
    let mode = ScanMode { clear: true, ..ScanMode::default() };
    let stats = machine.scan(&part, Level::PTE, mode, &mut set).unwrap();
    assert_eq!((stats.visited, stats.young, set.entries()), (1, 1, 1));
    let first = &mut [Probe::test(whole.at(0), Level::PTE)];
    machine.probe(first).unwrap();
    assert_eq!(first[0].answer.state, State::Old);
    pass(&mut machine, 1_000_000);
    machine.probe(first).unwrap();
    assert_eq!(first[0].answer.state, State::Young);
}

// 2^50 bytes have a million level-3 entries, plus one if they are not aligned: each is charged as
// an entry, and none needs a draw.
#[test]
fn a_scan_of_a_petabyte_finds_hot_memory_and_is_charged_in_full() {
    use tierscope_core::Clock as _;
    let radix = tierscope_core::Radix { levels: 5, ..config().radix };
    let mut machine = machine(
        Config { radix, ..roomy(1100) },
        "contiguous:space=1024TiB,hot=10GiB,at=512TiB,rate=3000000",
    );
    let whole = area(&mut machine);
    pass(&mut machine, SECOND);
    let before = machine.now();
    let mut set = AccessedSet::default();
    let stats = machine.scan(&whole, Level::PUD, ScanMode::default(), &mut set).unwrap();
    assert_eq!((stats.visited, stats.young), ((1 << 20) + 1, 11));
    let costs = Costs::ready_made("linux").unwrap().access_bits;
    let nanos = costs.call_ns + costs.entry_ns * stats.visited;
    assert_eq!((machine.now() - before).as_nanos() as u64, nanos);
    let mode = ScanMode { prune: true, ..Default::default() };
    let stats = machine.scan(&whole, Level::PUD, mode, &mut set).unwrap();
    assert_eq!((stats.visited, stats.young, stats.pruned), (2049 + 512, 11, 2048));
}

#[test]
fn a_workload_that_does_not_fit_is_refused() {
    let roomy = roomy(200);
    let spec = "needle:space=126TiB,hot=4KiB";
    assert!(Machine::new(roomy.clone(), &workload(spec)).is_ok());
    let error = Machine::new(config(), &workload(spec)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("MiB with its page tables in 7077888 MiB of memory"), "{error}");
    let spec = "needle:space=128TiB,hot=4KiB";
    let error = Machine::new(roomy, &workload(spec)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("does not fit") && error.contains("5 levels"), "{error}");
    let none = Config { cores: 0, ..config() };
    assert!(Machine::new(none, &workload("needle:space=1GiB")).is_err());
}
