//! Checks of a run of the scenario `tier` in `make test`.

use std::path::Path;
use std::process::Command;

use super::results::{Phase, Run, broken, json};
use super::{set_number, turns};
use crate::bench::outputs::{self, number, tierscope};
use crate::command::capture;
use crate::error::Result;
use crate::progress::say;
use crate::scenario::Scenario;

/// Least share of the hot values that a policy has to bring to node 0 in one of two phases.
const LEAST_GAIN: f64 = 0.1;

/// Checks each policy's results in `out`: pages were moved, the byte account adds up, the policy
/// stopped when requested and left the server running, and every value is intact.
///
/// # Errors
/// A check fails.
pub fn check(out: &Path, scenario: &Scenario) -> Result<()> {
    let text = |key: &str| scenario.text(key).unwrap_or_default();
    let keys = set_number(scenario, "keys")?;
    let policies: Vec<&str> = text("policies").split_whitespace().collect();
    for (policy, place) in policies.iter().copied().zip(turns(&policies)) {
        let dir = out.join(place);
        let run = Run::read(&dir)?;
        if run.checked < keys {
            return Err(broken(format!(
                "{policy}: {} of {keys} values were read back",
                run.checked
            )));
        }
        if policy == "kernel" || policy == "static" {
            continue;
        }
        let ended = &json(&dir.join("account.json"))?["ended"];
        if ended != "stopped" {
            return Err(broken(format!("{policy} ended by {ended}, not by being stopped")));
        }
        // On a busy host an emulated server shows its hot set late: one of both phases suffices.
        let at_first = |phase: &Phase| phase.over_time[0].unwrap_or(0.0);
        let gained = |phase: &Phase| phase.share.unwrap_or(0.0) >= at_first(phase) + LEAST_GAIN;
        let share = run.first.share.unwrap_or(0.0);
        if run.promoted == 0.0 || !(gained(&run.first) || gained(&run.second)) {
            return Err(broken(format!(
                "{policy} promoted {} bytes, and {share:.2} of the hot values are on node 0",
                run.promoted
            )));
        }
        replay(policy, &dir)?;
        say(format!(
            "{policy}: {:.0} MiB up, {:.0} down; {:.2} and {:.2} of the hot values on node 0",
            run.promoted / f64::from(1 << 20),
            run.demoted / f64::from(1 << 20),
            share,
            run.second.share.unwrap_or(0.0),
        ));
    }
    Ok(())
}

/// Checks that a region-based policy was recorded such that its windows can be replayed under it.
fn replay(policy: &str, dir: &Path) -> Result<()> {
    let recording = dir.join("recording");
    if !policy.starts_with("hot-region") || !recording.exists() {
        return Ok(());
    }
    let words = ["whatif", "--fast", "1G", "--policy", policy, "--json"];
    let printed = capture(Command::new(tierscope()?).args(words).arg(&recording))?;
    let report = outputs::figures(&printed);
    match number(&report, "/replays/0/moves/promoted_bytes") {
        Ok(bytes) if bytes > 0.0 => Ok(()),
        _ => Err(broken(format!(
            "{policy}: replayed from {} it promotes nothing",
            recording.display()
        ))),
    }
}
