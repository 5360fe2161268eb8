//! Time: latency, bandwidth, and costs of telemetry.

use std::time::Duration;

use tierscope_core::{AccessedSet, Clock, Level, Ports, Probe, ScanMode, Target, Tier, Time};
use tierscope_hw::PageSize;
use tierscope_sim::exact::{Machine, Placement, Process, Setup};
use tierscope_workloads::generate;

use crate::stage::setup;

const MILLISECOND: Time = Time(1_000_000);

fn process(spec: &str, tier: u8) -> Process {
    let workload = generate::from_spec(spec).expect("it makes sense");
    Process { placement: Placement::Bind(Tier(tier)), populate: true, ..Process::new(workload) }
}

fn run(setup: &Setup, process: &Process, until: Time) -> Machine {
    let mut machine = Machine::new(setup).expect("it is possible");
    machine.start(process).expect("it fits");
    while machine.now() < until {
        machine.wait(until);
    }
    machine
}

/// No cache, no prefetcher, one 1 GiB page: only the memory remains.
fn bare(mut setup: Setup) -> Setup {
    setup.hardware.llc = None;
    setup.hardware.prefetcher = None;
    setup
}

#[test]
fn a_pointer_chase_takes_the_unloaded_latency_to_the_nanosecond() {
    let setup = bare(setup([4096, 4096]));
    for tier in [0, 1] {
        let chase = Process {
            overlap: Some(1),
            pages: PageSize::G1,
            ..process("contiguous:space=1GiB,hot=1GiB", tier)
        };
        let machine = run(&setup, &chase, MILLISECOND);
        let counts = machine.account().counts;
        let latency = u64::from(setup.hardware.tiers[usize::from(tier)].read_ns);
        // One walk of three entries, and what the core's window holds may have begun.
        let expected = 1_000_000 / latency;
        assert!(counts.accesses.abs_diff(expected) < 80, "{} of {expected}", counts.accesses);
        assert_eq!(counts.served[usize::from(tier)], counts.accesses);
    }
}

/// MiB a second that cores read from or write to a tier at full load.
fn loaded(tier: u8, writes: bool) -> (f64, f64) {
    let mut setup = bare(setup([4096, 4096]));
    // Enough cores to saturate the tier.
    (setup.cpus, setup.hardware.timing.fill_buffers) = (32, 64);
    // In sequence: Optane moves whole units of four lines.
    let spec = format!("contiguous:space=1GiB,hot=1GiB,stride=64B,writes={}", u8::from(writes));
    let streams =
        Process { threads: 32, pages: PageSize::G1, non_temporal: writes, ..process(&spec, tier) };
    let account = run(&setup, &streams, MILLISECOND).account();
    let lines = if writes { account.lines_written } else { account.lines_read };
    let config = &setup.hardware.tiers[usize::from(tier)];
    let configured = if writes { config.write_mib_s } else { config.read_mib_s };
    (lines[usize::from(tier)] as f64 * 64.0 / 1.048_576 * 1e-3, configured as f64)
}

#[test]
fn loaded_bandwidth_is_within_five_percent_of_the_configured() {
    for (tier, writes) in [(0, false), (0, true), (1, false), (1, true)] {
        let (moved, configured) = loaded(tier, writes);
        assert!((moved / configured - 1.0).abs() < 0.05, "{moved} of {configured} MiB/s");
    }
}

#[test]
fn probes_and_scans_cost_the_profiler_time() {
    let setup = setup([128, 128]);
    let mut machine = run(&setup, &process("contiguous:space=64MiB,hot=64MiB", 0), MILLISECOND);
    let range = machine.mappings(Duration::ZERO).expect("they are known").mappings[0].range;
    let before = (machine.now(), machine.cpu_time().profiler);
    let mut probes = vec![Probe::test(range.at(0), Level::PTE); 1000];
    machine.access_bits().expect("it has them").probe(&mut probes).expect("it answers");
    // 64 MiB: 128 KiB of leaf entries are in the private caches, as all above: four reads of 14
    // cycles at 2.1 GHz next to 100 ns of work.
    let cost = Duration::from_nanos(1000 + 126_667);
    assert_eq!(machine.cpu_time().profiler - before.1, cost);
    assert!(machine.now() >= before.0 + cost, "time goes by meanwhile");
    let before = machine.cpu_time().profiler;
    let mut set = AccessedSet::default();
    let access = machine.access_bits().expect("it has them");
    let stats = access.scan(&range, Level::PTE, ScanMode::default(), &mut set).expect("it scans");
    assert_eq!(stats.present, 64 << 8);
    let visited = Duration::from_nanos(1000 + 8 * stats.visited);
    assert_eq!(machine.cpu_time().profiler - before, visited);
}

#[test]
fn a_profiler_on_the_targets_core_slows_it_down() {
    let accesses = |cpu| {
        let mut setup = setup([128, 128]);
        setup.profiler_cpu = cpu;
        let workload = process("contiguous:space=64MiB,hot=64MiB", 0);
        let mut machine = run(&setup, &workload, Time(20_000_000));
        let before = machine.account().counts.accesses;
        let range = machine.mappings(Duration::ZERO).expect("they are known").mappings[0].range;
        let mut probes = vec![Probe::test(range.at(0), Level::PTE); 7800];
        machine.access_bits().expect("it has them").probe(&mut probes).expect("it answers");
        while machine.now() < Time(22_000_000) {
            machine.wait(Time(22_000_000));
        }
        (machine.account().counts.accesses - before) as f64
    };
    let share = accesses(Some(0)) / accesses(None);
    // The profiler took 0.989 of 2 ms.
    assert!((share - 0.5).abs() < 0.03, "{share}");
}

#[test]
fn memory_mode_serves_a_small_set_from_fast_memory() {
    let mut setup = setup([64, 1024]);
    setup.memory_mode = true;
    setup.hardware.llc = None;
    let served = |spec: &str| {
        let workload = generate::from_spec(spec).expect("it makes sense");
        let process = Process { populate: true, ..Process::new(workload) };
        run(&setup, &process, Time(30_000_000)).account().counts.served
    };
    let fits = served("contiguous:space=8MiB,hot=8MiB");
    assert!(fits[0] > 2 * fits[1], "all but the first touches: {fits:?}");
    let spills = served("contiguous:space=640MiB,hot=640MiB");
    assert!(spills[0] * 5 < spills[1], "a tenth at most: {spills:?}");
}
