//! Tiers of the ready-made machines in the exact machine: the latency of a pointer chase, and the
//! bandwidth that cores reach at full load, next to the configured values.
//!
//! `cargo run -p tierscope-sim --example tiers` prints one JSON object.

use std::collections::BTreeMap;

use serde::Serialize;
use tierscope_core::{Clock, Result, Tier, Time};
use tierscope_hw::config::{MemoryTier, READY_MADE};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Account, Machine, Placement, Process, Setup};
use tierscope_workloads::generate;

/// Simulated time of a measurement.
const TIME: Time = Time(2_000_000);
/// MiB of each tier here; the figures do not depend on it.
const MIB: u64 = 4096;

#[derive(Serialize)]
struct Figures {
    latency_ns: f64,
    configured_latency_ns: u32,
    read_mib_s: f64,
    configured_read_mib_s: u64,
    write_mib_s: f64,
    /// None where a write of a line is one of a larger unit, after a read of it.
    configured_write_mib_s: Option<u64>,
}

/// No cache, no prefetcher: only the memory remains.
fn bare(hardware: &Hardware) -> Result<Setup> {
    let mut hardware = hardware.clone();
    (hardware.llc, hardware.prefetcher) = (None, None);
    hardware.timing.private_kib = 0;
    hardware.tiers.iter_mut().for_each(|tier| tier.mib = MIB);
    Ok(Setup::new(hardware, Costs::ready_made("linux")?))
}

fn run(setup: &Setup, process: &Process) -> Result<Account> {
    let mut machine = Machine::new(setup)?;
    machine.start(process)?;
    while machine.now() < TIME {
        machine.wait(TIME);
    }
    Ok(machine.account())
}

/// One 1 GiB page, so that there are hardly any walks.
fn process(tier: u8, writes: bool) -> Result<Process> {
    let spec = format!("contiguous:space=1GiB,hot=1GiB,writes={}", u8::from(writes));
    Ok(Process {
        placement: Placement::Bind(Tier(tier)),
        populate: true,
        pages: PageSize::G1,
        ..Process::new(generate::from_spec(&spec)?)
    })
}

/// A chase alone: one request at a time, which waits for none before it. On eight times the
/// channels and bandwidth, so that a line's time on a channel is none of its latency.
fn latency(hardware: &Hardware, tier: u8) -> Result<f64> {
    let mut setup = bare(hardware)?;
    setup.hardware.tiers.iter_mut().for_each(|tier| {
        tier.read_mib_s *= 8;
        tier.write_mib_s *= 8;
        tier.medium.channels *= 8;
        tier.ranges.clear();
        tier.medium.ranges.clear();
    });
    let chase = Process { overlap: Some(1), ..process(tier, false)? };
    let account = run(&setup, &chase)?;
    Ok(TIME.0 as f64 / account.counts.accesses as f64)
}

/// More cores than some processors have, each with more lines in flight than it really has, so that
/// the memory is the bottleneck.
fn bandwidth(hardware: &Hardware, tier: u8, writes: bool) -> Result<f64> {
    let mut setup = bare(hardware)?;
    (setup.cpus, setup.hardware.processor.cores) = (32, 32);
    setup.hardware.timing.fill_buffers = 64;
    // More fill buffers than the processor may have; its ranges would refuse them.
    setup.hardware.timing.ranges.clear();
    let streams = Process { threads: setup.cpus, non_temporal: writes, ..process(tier, writes)? };
    let account = run(&setup, &streams)?;
    let lines = if writes { account.lines_written } else { account.lines_read };
    Ok(lines[usize::from(tier)] as f64 * 64.0 / f64::from(1 << 20) / (TIME.0 as f64 / 1e9))
}

fn figures(hardware: &Hardware, number: u8, tier: &MemoryTier) -> Result<Figures> {
    // Accesses are at random: a medium of larger units reads a unit for each line.
    let lines = tier.medium.unit.map_or(1, |unit| u64::from(unit.bytes) / 64);
    Ok(Figures {
        latency_ns: latency(hardware, number)?,
        configured_latency_ns: tier.read_ns,
        read_mib_s: bandwidth(hardware, number, false)?,
        configured_read_mib_s: tier.read_mib_s / lines,
        write_mib_s: bandwidth(hardware, number, true)?,
        configured_write_mib_s: (lines == 1).then_some(tier.write_mib_s),
    })
}

fn main() -> Result<()> {
    let mut all: BTreeMap<String, Figures> = BTreeMap::new();
    for (name, text) in READY_MADE {
        let hardware = Hardware::parse(name, text)?;
        // This machine does not model time.
        if *name == "qemu-tcg" {
            continue;
        }
        for (number, tier) in (0..).zip(&hardware.tiers) {
            all.insert(format!("{name} {}", tier.name), figures(&hardware, number, tier)?);
        }
    }
    println!("{}", serde_json::to_string(&all).unwrap_or_default());
    Ok(())
}
