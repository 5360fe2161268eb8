//! Calibrates node 1 to be slower than node 0 by a factor, and measures how accurate that is.
//!
//! The speed of a shared host drifts from second to second, but a delay is a fixed number of
//! nanoseconds: a calibrated delay may be some percent off a minute later. Therefore each round
//! consists of a calibration and a comparison directly after it, and the median of several rounds
//! is reported.

use std::time::Duration;

use serde_json::{Value, json};
use tierscope_core::{Error, Result};
use tierscope_wire::device::Command;

use crate::ring;
use crate::speed::{Pair, Rings, delay_for};

/// Duration of the measurement in a calibration step.
const STEP: Duration = Duration::from_millis(1000);
/// Relative error of the factor at which a calibration stops, and its maximum number of steps.
const CLOSE: f64 = 0.02;
const STEPS: usize = 6;

/// A delay, and the latencies of both nodes with it.
type Step = (u64, Pair);

/// A calibration, and a measurement with its final delay.
struct Round {
    steps: Vec<Step>,
    held: Step,
}

/// Calibrates `rounds` times; the delay of the median round stays set.
///
/// # Errors
/// There is no device, or memory cannot be mapped on a node.
pub(crate) fn calibrate(factor: f64, bytes: u64, rounds: usize, held: Duration) -> Result<Value> {
    ring(Command::Latency, &[0, 0])?;
    let mut rings = Rings::new(bytes)?;
    let mut round = |_| round(&mut rings, factor, held);
    let mut all = (0..rounds.max(1)).map(&mut round).collect::<Result<Vec<Round>>>()?;
    let report: Vec<Value> = all.iter().map(Round::report).collect();
    all.sort_by(|a, b| a.held.1.ratio().total_cmp(&b.held.1.ratio()));
    let (delay, pair) = all[all.len() / 2].held;
    ring(Command::Latency, &[1, delay])?;
    Ok(json!({
        "factor": factor,
        "kib": bytes >> 10,
        "spin_ns": delay,
        "node_0_ns": pair.near,
        "node_1_ns": pair.far,
        "rounds": report,
    }))
}

fn round(rings: &mut Rings, factor: f64, held: Duration) -> Result<Round> {
    let mut measure = |delay: u64, time: Duration| {
        ring(Command::Latency, &[1, delay])?;
        Ok::<Step, Error>((delay, rings.compare(time)))
    };
    let mut steps: Vec<Step> = vec![measure(0, STEP)?];
    steps.push(measure(((factor - 1.0) * steps[0].1.near).round() as u64, STEP)?);
    let off = |step: &Step| (step.1.ratio() / factor - 1.0).abs();
    while steps.len() < STEPS && off(&steps[steps.len() - 1]) > CLOSE {
        steps.push(measure(delay_for(factor, &steps), STEP)?);
    }
    let held = measure(delay_for(factor, &steps), held)?;
    Ok(Round { steps, held })
}

impl Round {
    fn report(&self) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(report).collect();
        json!({ "steps": steps, "held": report(&self.held) })
    }
}

fn report((delay, pair): &Step) -> Value {
    json!({ "spin_ns": delay, "node_0_ns": pair.near, "node_1_ns": pair.far })
}
