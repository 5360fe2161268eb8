//! Slowdown of a target whose translations are flushed every 20, 50 or 100 ms, on the TLBs of three
//! real cores: the exact machine, access by access, with everything modelled.
//!
//! `cargo run -p tierscope-sim --example flush_slowdown`: a thread reads at random, 90 % within a
//! hot set that just fits the TLBs (where a flush costs the most) or that exceeds them, the rest
//! all over 4 GiB, as fast as the machine can; an instrument requests a flush in every period. The
//! same accesses with and without flushes, from the same state; the slowdown is the share of
//! accesses that are missing after half a second, due to interrupts and walks together. Bar: 0.5 %.
//!
//! The figures of 2026-11-23; in huge pages 3 GiB are hot on the last two cores, which is less than
//! or about the reach of their TLBs:
//!
//! | core | pages | hot set | M accesses/s | 20 ms | 50 ms | 100 ms |
//! |---|---|---|---|---|---|---|
//! | xeon-e5-2620v2 | 4K | 2 MiB, held by the TLBs | 86.9 | 0.022 % | 0.008 % | 0.003 % |
//! | xeon-e5-2620v2 | 4K | 8 MiB, four times as much | 51.2 | 0.009 % | 0.003 % | 0.001 % |
//! | xeon-e5-2620v2 | 2M | 64 MiB, held by the TLBs | 97.5 | 0.006 % | 0.002 % | 0.001 % |
//! | xeon-e5-2620v2 | 2M | 256 MiB, four times as much | 52.5 | 0.005 % | 0.002 % | 0.000 % |
//! | xeon-gold-6238m | 4K | 6 MiB, held by the TLBs | 84.7 | 0.058 % | 0.022 % | 0.010 % |
//! | xeon-gold-6238m | 4K | 24 MiB, four times as much | 47.1 | 0.017 % | 0.006 % | 0.003 % |
//! | xeon-gold-6238m | 2M | 3072 MiB, held by the TLBs | 78.9 | 0.085 % | 0.032 % | 0.014 % |
//! | xeon-gold-6430-cxl | 4K | 8 MiB, held by the TLBs | 132.8 | 0.031 % | 0.011 % | 0.005 % |
//! | xeon-gold-6430-cxl | 4K | 32 MiB, four times as much | 91.4 | 0.011 % | 0.004 % | 0.002 % |
//! | xeon-gold-6430-cxl | 2M | 3072 MiB, held by the TLBs | 97.1 | 0.079 % | 0.030 % | 0.013 % |

use std::time::Duration;

use tierscope_core::{AccessBits, Clock, Time};
use tierscope_hw::config::TlbArray;
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Machine, Process, Setup};
use tierscope_workloads::generate::from_spec;

const MACHINES: [&str; 3] = ["xeon-e5-2620v2", "xeon-gold-6238m", "xeon-gold-6430-cxl"];
const EVERY_MS: [u64; 3] = [20, 50, 100];
/// Largest hot set in bytes.
const MOST: u64 = 3 << 30;
/// Simulated time of a measurement, after a warm-up of a tenth of it.
const MEASURED: Duration = Duration::from_millis(500);

fn main() {
    println!("| core | pages | hot set | M accesses/s | 20 ms | 50 ms | 100 ms |");
    println!("|---|---|---|---|---|---|---|");
    for name in MACHINES {
        let mut hardware = Hardware::ready_made(name).expect("a ready-made machine");
        hardware.tiers[0].mib = 16 << 10;
        for pages in [PageSize::K4, PageSize::M2] {
            let held = reach(&hardware, pages);
            let rows = [("held by the TLBs", held.min(MOST)), ("four times as much", 4 * held)];
            for (what, hot) in rows.into_iter().filter(|(_, hot)| *hot <= MOST) {
                row(&hardware, pages, (what, hot));
            }
        }
    }
}

/// Reach of the TLBs in bytes.
fn reach(hardware: &Hardware, pages: PageSize) -> u64 {
    let takes = |array: &&TlbArray| array.pages.contains(&pages);
    let translation = &hardware.translation;
    let array = translation.l2.iter().find(takes).or(translation.l1.iter().find(takes));
    u64::from(array.map_or(0, |array| array.entries)) * pages.bytes()
}

fn row(hardware: &Hardware, pages: PageSize, (what, hot): (&str, u64)) {
    let without = accesses(hardware, pages, hot, None);
    let name = if pages == PageSize::K4 { "4K" } else { "2M" };
    let rate = without as f64 / MEASURED.as_secs_f64() / 1e6;
    print!("| {} | {name} | {} MiB, {what} | {rate:.1} |", hardware.name, hot >> 20);
    for every in EVERY_MS {
        let with = accesses(hardware, pages, hot, Some(Duration::from_millis(every)));
        print!(" {:.3} % |", 100.0 * (1.0 - with as f64 / without as f64));
    }
    println!();
}

/// Accesses executed by a thread in the measured time.
fn accesses(hardware: &Hardware, pages: PageSize, hot: u64, flush: Option<Duration>) -> u64 {
    let setup = Setup::new(hardware.clone(), Costs::ready_made("linux").expect("they are there"));
    let mut machine = Machine::new(&setup).expect("it is possible");
    let spec = format!("contiguous:space=4GiB,hot={hot},at=512MiB,share=0.9,burst=1");
    let workload = from_spec(&spec).expect("it is possible");
    let process = Process { populate: true, pages, ..Process::new(workload) };
    machine.start(&process).expect("there is memory");
    machine.wait(Time(0));
    run(&mut machine, MEASURED / 10, None);
    let before = machine.account().counts.accesses;
    run(&mut machine, MEASURED, flush);
    machine.account().counts.accesses - before
}

fn run(machine: &mut Machine, time: Duration, flush: Option<Duration>) {
    let end = machine.now() + time;
    let mut due = machine.now() + flush.unwrap_or(time);
    while machine.now() < end {
        machine.wait(due.min(end));
        if flush.is_some() && machine.now() >= due {
            AccessBits::flush(machine).expect("it can");
        }
        while due <= machine.now() {
            due += flush.unwrap_or(time);
        }
    }
}
