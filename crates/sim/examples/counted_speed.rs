//! Slowdown of the exact machine by telemetry in its memory controller: `cargo run --release -p
//! tierscope-sim --example counted_speed [SECONDS]`.
//!
//! Every access of the workload misses the caches: the worst case for a controller. Two machines
//! run alternately, one without a bus observer, one with eight pipelines (NEMO's largest
//! deployment) in front of all memory: attached and idle; with one that counts by huge page
//! (listing 2); with seven more that count base pages of 112 of them (listing 1). Each figure is
//! the median over turns of the ratio of CPU times for an access, minus 1; printed as one JSON
//! object a line.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{BusObserver, Clock, Key, Ports, ReadEffect, Result, Rule, RuleLimits};
use tierscope_hw::Machine as Hardware;
use tierscope_nemo::{Driver, Functional, Geometry, Memory};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Machine, Process, Setup};
use tierscope_workloads::generate;

/// The prototype's memory, nearly filled by the workload.
const MEMORY: u64 = 16 << 30;
const SPEC: &str = "contiguous:space=15GiB,hot=15GiB";
/// log2 of a huge page.
const HUGE: u8 = 21;
/// Number of huge pages whose base pages are counted at a time.
const AT_ONCE: u64 = 112;
const TURNS: u32 = 9;

/// Rules of the pipelines.
#[derive(Clone, Copy, PartialEq)]
enum Counting {
    Nothing,
    HugePages,
    BasePagesToo,
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn machine<B: BusObserver>(observer: B) -> Result<Machine<B>> {
    let mut hardware = Hardware::ready_made("xeon-gold-6430-cxl")?;
    hardware.tiers.truncate(1);
    hardware.tiers[0].mib = MEMORY >> 20;
    let setup = Setup::new(hardware, Costs::ready_made("linux")?);
    let mut machine = Machine::observed(&setup, observer)?;
    machine.start(&Process { populate: true, ..Process::new(generate::from_spec(SPEC)?) })?;
    Ok(machine)
}

fn program(machine: &mut dyn Ports, counting: Counting) -> Result<()> {
    let counters = machine.counters()?;
    let limits = RuleLimits::of_memory(MEMORY);
    let by_huge = || Rule::build().key(Key::ALL_MEMORY, HUGE).on_read(ReadEffect::Reset(0));
    if counting != Counting::Nothing {
        let rule = counters.register(&by_huge().finish(&limits)?)?;
        for key in 0..MEMORY >> HUGE {
            counters.translate(rule, key, Some(key as u32))?;
        }
    }
    if counting == Counting::BasePagesToo {
        let rule = by_huge().offset((1 << HUGE) - 1, 12).finish(&limits)?;
        let rule = counters.register_states(&rule, AT_ONCE * 512)?;
        for page in 0..AT_ONCE {
            counters.translate(rule, page * 64, Some(page as u32 * 512))?;
        }
    }
    Ok(())
}

/// Host CPU nanoseconds of an access, over `time` of CPU time.
fn slice<B: BusObserver>(machine: &mut Machine<B>, time: Duration) -> f64 {
    let before = machine.account().counts.accesses;
    let began = cpu_time();
    while cpu_time() - began < time {
        machine.wait(machine.now() + Duration::from_micros(500));
    }
    let accesses = machine.account().counts.accesses - before;
    (cpu_time() - began).as_nanos() as f64 / accesses.max(1) as f64
}

fn slower(counting: Counting, time: Duration) -> Result<f64> {
    let Geometry { pipelines, channels, banks } = Geometry::PROTOTYPE;
    let engine = Functional::new(Memory::single(MEMORY, channels)?, pipelines, banks)?;
    let (mut alone, mut counted) = (machine(())?, machine(Driver::new(engine))?);
    program(&mut counted, counting)?;
    let each = time / TURNS / 2;
    // Warm-up of both machines.
    slice(&mut alone, each);
    slice(&mut counted, each);
    let turn = |_| {
        let baseline = slice(&mut alone, each);
        slice(&mut counted, each) / baseline - 1.0
    };
    let mut ratios: Vec<f64> = (0..TURNS).map(turn).collect();
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ratios.len() / 2])
}

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(6.0);
    let cases = [
        ("idle", Counting::Nothing),
        ("huge pages", Counting::HugePages),
        ("huge pages, and base pages of 112", Counting::BasePagesToo),
    ];
    for (name, counting) in cases {
        let percent = slower(counting, Duration::from_secs_f64(seconds))? * 100.0;
        println!("{{\"counting\":\"{name}\",\"percent\":{percent:.2}}}");
    }
    Ok(())
}
