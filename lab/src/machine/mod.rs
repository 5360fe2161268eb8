//! Checks of a run of the scenario `machine`: exact counters, reads of counters without loss,
//! delivered interrupts, and records of TLB misses that agree with the guest's page map and with an
//! independent model.

pub(crate) mod misses;
mod naive;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::{Context, Error, Kind, Result};
use crate::progress::say;

pub(crate) fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "the instrumented machine", cause)
}

pub(crate) fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).at(path.display())?;
    serde_json::from_str(&text).map_err(|e| broken(format!("{}: {e}", path.display())))
}

fn same(what: &str, one: &Value, other: &Value) -> Result<()> {
    match one == other && !one.is_null() {
        true => Ok(()),
        false => Err(broken(format!("{what}: {one} and {other} should be the same"))),
    }
}

/// Checks the results of a run in `out`.
///
/// # Errors
/// A check fails.
pub fn check(out: &Path) -> Result<()> {
    let plugin = json(&out.join("plugin.json"))?;
    same("vCPUs whose CR3 is proven", &plugin["counts"]["proven"], &2.into())?;
    same("records lost", &plugin["counts"]["records_lost"], &0.into())?;
    same("rings that failed", &plugin["read"]["failed"], &Value::Array(vec![]))?;
    let counters = json(&out.join("counters.json"))?;
    same("pages counted wrongly", &counters["wrong_pages"], &0.into())?;
    let doorbell = json(&out.join("doorbell.json"))?;
    same("counted and loaded under traffic", &doorbell["counted"], &doorbell["loads"])?;
    let interrupt = json(&out.join("interrupt.json"))?;
    same("interrupts raised and seen", &interrupt["raised"], &interrupt["seen"])?;
    let placed = json(&out.join("placed.json"))?;
    same("pages placed elsewhere than the kernel says", &placed["wrong_pages"], &0.into())?;
    let found = misses::read(out)?;
    found.check()?;
    say(format!(
        "{} of {} pages' records agree with the page map; {} misses, the model has {}",
        found.agreeing, found.records, found.misses, found.expected
    ));
    Ok(())
}
