//! Makes node 1 slower than node 0 by a factor, and tells how well that holds.
//!
//! A host that others share drifts from one second to the next, and a delay is a number of nanoseconds: what fits now
//! is some percent off a minute later. So a round is a calibration and a comparison right after it, and the median of
//! several rounds is told.

use std::time::Duration;

use serde_json::{Value, json};
use tierscope_core::{Error, Result};
use tierscope_wire::device::Command;

use crate::ring;
use crate::speed::{Pair, Rings, delay_for};

/// How long a step of a calibration measures.
const STEP: Duration = Duration::from_millis(1000);
/// How close to the factor a calibration comes before it stops, and steps that it takes at most.
const CLOSE: f64 = 0.02;
const STEPS: usize = 6;

/// What a delay made of both nodes.
type Step = (u64, Pair);

/// A calibration, and what its delay made of both nodes afterwards.
struct Round {
    steps: Vec<Step>,
    held: Step,
}

/// So many rounds; the delay of the median one stays set.
///
/// # Errors
/// There is no device, or no such memory.
pub(crate) fn calibrate(factor: f64, bytes: u64, rounds: usize, held: Duration) -> Result<Value> {
    ring(Command::Latency, &[0, 0])?;
    let mut rings = Rings::new(bytes)?;
    let mut round = |_| round(&mut rings, factor, held);
    let mut all = (0..rounds.max(1)).map(&mut round).collect::<Result<Vec<Round>>>()?;
    let told: Vec<Value> = all.iter().map(Round::told).collect();
    all.sort_by(|a, b| a.held.1.ratio().total_cmp(&b.held.1.ratio()));
    let (delay, pair) = all[all.len() / 2].held;
    ring(Command::Latency, &[1, delay])?;
    Ok(json!({
        "factor": factor,
        "kib": bytes >> 10,
        "spin_ns": delay,
        "node_0_ns": pair.near,
        "node_1_ns": pair.far,
        "rounds": told,
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
    fn told(&self) -> Value {
        let steps: Vec<Value> = self.steps.iter().map(told).collect();
        json!({ "steps": steps, "held": told(&self.held) })
    }
}

fn told((delay, pair): &Step) -> Value {
    json!({ "spin_ns": delay, "node_0_ns": pair.near, "node_1_ns": pair.far })
}
