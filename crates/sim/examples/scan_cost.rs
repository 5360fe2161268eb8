//! What a walk costs as memory grows and the part of it that is accessed stays the same: `mglru-linear`,
//! `mglru` and `mglru-telescope` on machines of densities, at the costs of `costs/linux.toml`.
//!
//! `cargo run --release -p tierscope-sim --example scan_cost -- 1,4,16` prints one JSON object; sizes in GiB.

use std::time::Duration;

use serde_json::{Value, json};
use tierscope_core::drive::{Course, Sink, Window, tier};
use tierscope_core::{Budget, Error, ErrorKind, Result, Time};
use tierscope_hw::Machine as Hardware;
use tierscope_instruments::metronome::Metronome;
use tierscope_policies::make;
use tierscope_sim::config::Costs;
use tierscope_sim::density::{Config, Machine, Start};
use tierscope_workloads::generate;

/// Walks: the first meets everything for the first time and is left out.
const WALKS: u32 = 6;
/// From one to the next; a walk of a terabyte takes seconds.
const INTERVAL: Duration = Duration::from_secs(20);
/// What is accessed, in MiB, and how often in a second.
const HOT: u64 = 512;
const RATE: f64 = 1e6;

struct Nobody;

impl Sink for Nobody {
    fn window(&mut self, _: &Window<'_>) -> Result<()> {
        Ok(())
    }
}

/// Milliseconds of the looks of a walk, in the mean: machines give nothing back, so that every walk is alike.
fn walk_ms(policy: &str, gib: u64) -> Result<f64> {
    let mut hardware = Hardware::ready_made("xeon-gold-6354")?;
    hardware.tiers[0].mib = 8 << 20;
    let costs = Costs::ready_made("linux")?;
    let config = Config { rate: Some(RATE), start: Start::Young, ..Config::of(&hardware, costs) };
    let spec = format!("contiguous:space={gib}GiB,hot={HOT}MiB,at=256MiB");
    let mut machine = Machine::new(config, &generate::from_spec(&spec)?)?;
    let line = format!("{policy}:interval={}s,share=0", INTERVAL.as_secs());
    let until = |machine: &mut Machine, policy: &mut dyn tierscope_core::Policy, time: Time| {
        let mut mover = machine.mover();
        let (budget, course) = (Budget { bytes: u64::MAX }, Course::until(time));
        let mut clock = Metronome::new(Duration::from_secs(1));
        tier(machine, &mut clock, policy, &mut mover, budget, &course, &mut Nobody).map(drop)
    };
    let mut policy = make(&line)?;
    let first = Time(0) + (INTERVAL - Duration::from_millis(100));
    until(&mut machine, &mut *policy, first)?;
    let before = machine.account().spent.telemetry;
    until(&mut machine, &mut *policy, first + INTERVAL * (WALKS - 1))?;
    let spent = machine.account().spent.telemetry - before;
    Ok(spent.as_secs_f64() * 1e3 / f64::from(WALKS - 1))
}

fn main() -> Result<()> {
    let sizes = std::env::args().nth(1).unwrap_or_else(|| "1,4,16".into());
    let sizes: Vec<u64> =
        sizes
            .split(',')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| Error::new(ErrorKind::Usage, "sizes in GiB, like 1,4,16").cause(e))?;
    let policies = ["mglru-linear", "mglru", "mglru-telescope"];
    let mut curve: Vec<Value> = Vec::new();
    for gib in &sizes {
        let mut point = json!({ "gib": gib });
        for policy in policies {
            let name = policy.strip_prefix("mglru-").unwrap_or(policy);
            point[format!("{name}_ms")] = walk_ms(policy, *gib)?.into();
        }
        eprintln!("{point}");
        curve.push(point);
    }
    let growth = |name: &str| {
        let of =
            |point: Option<&Value>| point.and_then(|point| point[format!("{name}_ms")].as_f64());
        of(curve.last()).zip(of(curve.first())).map(|(last, first)| last / first)
    };
    let growth = json!({
        "linear": growth("linear"), "mglru": growth("mglru"), "telescope": growth("telescope"),
    });
    println!("{}", json!({ "curve": curve, "growth": growth }));
    Ok(())
}
