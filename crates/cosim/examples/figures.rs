//! Figures of the co-simulation, as lines of JSON: `cargo run --release -p tierscope-cosim
//! --example figures -- WHAT`, with WHAT one of
//!
//! - `equal CHANNEL SEED REQUESTS`: circuit and cycle model on random programs;
//! - `defects`: where each seeded defect of the circuit is found;
//! - `rates`: requests and lines a cycle and channel;
//! - `geometry PIPELINES CHANNELS`: SRAM by the models' geometry, in bits.

use serde_json::json;
use tierscope_core::{BusRecord, Result, Time};
use tierscope_cosim::compare::{Outcome, Run, run};
use tierscope_cosim::controller::Controller;
use tierscope_cosim::defects::DEFECTS;
use tierscope_cosim::lane::CircuitLane;
use tierscope_cosim::stream::counting;
use tierscope_nemo::cycle::ports::In;
use tierscope_nemo::engine::{At, Control, Engine};
use tierscope_nemo::geometry::MAX_BANKS;
use tierscope_nemo::program::Slot;
use tierscope_nemo::{Geometry, Memory};

const RUN: Run<'_> =
    Run { seed: 1, channel: 0, requests: 0, cycles: 60_000, defect: None, mutation: None };
/// Requests in which a defect must be found.
const SEARCHED: u64 = 20_000_000;
/// Cycles of a rate.
const CYCLES: u64 = 1_000_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    match (arguments.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("equal"), Some(channel), Some(seed), Some(requests)) => {
            equal(&Run { seed, channel: channel as usize, requests, ..RUN })
        }
        (Some("defects"), ..) => defects(),
        (Some("rates"), ..) => rates(),
        (Some("geometry"), Some(pipelines), Some(channels), _) => {
            geometry(pipelines as usize, channels as usize);
            Ok(())
        }
        _ => panic!("equal CHANNEL SEED REQUESTS, defects, rates, or geometry PIPELINES CHANNELS"),
    }
}

fn equal(run_of: &Run<'_>) -> Result<()> {
    let Outcome { difference, programs, events, coverage } = run(run_of)?;
    for (option, count) in &coverage.0 {
        eprintln!("{count:>12} {option}");
    }
    println!(
        "{}",
        json!({
            "channel": run_of.channel, "programs": programs, "requests": events.requests,
            "cycles": events.cycles, "options": coverage.0.len(), "missing": coverage.missing(),
            "differences": u64::from(difference.is_some()),
            "difference": difference.map(|difference| difference.what),
        })
    );
    Ok(())
}

fn defects() -> Result<()> {
    for defect in &DEFECTS {
        let outcome = run(&Run { requests: SEARCHED, cycles: 6000, defect: Some(defect), ..RUN })?;
        let at = outcome.difference.map(|found| (found.request, found.cycle));
        println!(
            "{}",
            json!({
                "defect": defect.name, "file": defect.file, "found": at.is_some(),
                "request": at.map(|at| at.0), "cycle": at.map(|at| at.1),
            })
        );
    }
    Ok(())
}

/// One request a cycle, all of one state, so that each depends on the one before.
fn request_rate() -> Result<f64> {
    let mut lane = CircuitLane::new(0, None)?;
    let control = |slot| In { request: None, control: Some(slot) };
    lane.clock(control(Slot::Program(Some(counting()))));
    while !lane.is_idle() {
        lane.clock(In::default());
    }
    lane.clock(control(Slot::Translate(0, Some(0))));
    let mut last = 0;
    for cycle in 0..CYCLES + 2 {
        let record = BusRecord::new(Time(cycle), 64 * (cycle % 64), false);
        let request = (cycle < CYCLES).then(|| record.into());
        let out = lane.clock(In { request, control: None });
        // A request that ends without the one before it would leave the sum behind.
        last = if out[0] >> 5 & 1 == 1 { out[2] } else { last };
    }
    assert_eq!(lane.status().dropped, 0);
    Ok(last as f64 / CYCLES as f64)
}

/// Lines of the states in a row.
fn line_rate() -> Result<f64> {
    let mut controller = Controller::new(Memory::single(1 << 30, 2)?, 2)?;
    controller.control(At { controller: 0, pipeline: 1 }, Control::Program(Some(counting())));
    let (lines, cycles) = controller.stream(1, 1024, 1024);
    // Two cycles of the stages before the first line.
    Ok(lines.len() as f64 / (cycles - 2) as f64)
}

fn rates() -> Result<()> {
    println!("{}", json!({ "requests": request_rate()?, "lines": line_rate()? }));
    Ok(())
}

fn geometry(pipelines: usize, channels: usize) {
    let geometry = Geometry { pipelines, channels, banks: pipelines * MAX_BANKS };
    let bits = [geometry.table_bytes(), geometry.state_bytes(), geometry.capture_bytes()];
    let [table, states, capture] = bits.map(|bytes| bytes * 8);
    println!("{}", json!({ "table": table, "states": states, "capture": capture }));
}
