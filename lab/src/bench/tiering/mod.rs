//! `make bench-tiering`: placement policies for the memory of real servers on an instrumented
//! machine, written to target/bench/tiering.json; also the checks of a run of the scenario `tier`.

mod check;
mod in_turns;
mod once;
mod peers;
mod results;
mod ten_minutes;
#[cfg(test)]
mod tests;
mod ycsb;

use std::path::PathBuf;

use super::boot::{boot, boot_on, command_of};
use super::section::{Inputs, Section};
use crate::error::Result;
use crate::scenario::Scenario;

pub use check::check;
use results::broken;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "redis", measure: once::redis },
    Section { name: "memcached", measure: once::memcached },
    Section { name: "redis in turns", measure: in_turns::redis },
    Section { name: "memcached in turns", measure: in_turns::memcached },
    Section { name: "redis ycsb-b in turns", measure: ycsb::measure },
    Section { name: "redis, peers of the newest kernel", measure: peers::measure },
    Section { name: "ten minutes", measure: ten_minutes::measure },
];

/// Disables recording, which costs time on an emulated machine.
const UNRECORDED: &str = "record=false";
/// The policy to which the thresholds apply. A page is hot if one of every eight samples within
/// five seconds found it accessed: 6 of 50, the frequency from which METRICS.md calls memory hot,
/// and to which `rates` scales its own threshold. The paper's five accesses in 120 s, of 600
/// windows, do not separate hot from cold here, where an emulated machine is sampled ten times a
/// second: a fiftieth of some 1,500 reads a second is spread over all memory, and every 2 MiB
/// reaches five accesses within ten seconds.
const JUDGED: &str = "hot-region:history=5s,hits=6";
/// Number of turns of each policy.
const TURNS: usize = 5;
/// Minimum time for a turn in seconds, including filling and checking.
const TURN_SECONDS: u64 = 180;

/// Results of policies that ran one after the other in one machine, placing a server's memory.
struct Placed {
    out: PathBuf,
    /// Size of the hot set in bytes.
    hot: f64,
    command: String,
}

fn place(
    inputs: &Inputs<'_>,
    server: &str,
    kind: &str,
    policies: &[&str],
    more: &[&str],
) -> Result<Placed> {
    place_on(None, inputs, (server, kind), policies, more)
}

/// Places as [`place`] does, on a kernel of the matrix.
fn place_on(
    kernel: Option<&str>,
    inputs: &Inputs<'_>,
    (server, kind): (&str, &str),
    policies: &[&str],
    more: &[&str],
) -> Result<Placed> {
    let turns = policies.len() as u64;
    let policies = format!("policies={}", policies.join(" "));
    let set = format!("server={server}");
    let mut hot = 0.0;
    let label = format!("-{server}{kind}");
    let change = |scenario: &mut Scenario| {
        let words = [&policies, &set, UNRECORDED].into_iter().chain(more.iter().copied());
        words.into_iter().try_for_each(|words| scenario.assign(words))?;
        hot = hot_bytes(scenario)?;
        scenario.timeout_s = scenario.timeout_s.max(TURN_SECONDS * turns);
        Ok(())
    };
    let out = match kernel {
        Some(kernel) => boot_on(kernel, inputs, ("tier", &label), change)?,
        None => boot(inputs, "tier", &label, change)?,
    };
    let more: String = more.iter().map(|words| format!(" --set '{words}'")).collect();
    let more = kernel.map_or(more.clone(), |kernel| format!("{more} --kernel {kernel}"));
    let command =
        format!("{} --set '{policies}' --set {UNRECORDED}{more}", command_of("tier", &set));
    Ok(Placed { out, hot, command })
}

/// Output directory names of the job for a list of policies, in which names may occur repeatedly.
fn turns(policies: &[&str]) -> Vec<String> {
    let before = |at: usize| policies[..at].iter().filter(|name| **name == policies[at]).count();
    let place = |at: usize| match before(at) {
        0 => policies[at].to_owned(),
        turns => format!("{}.{}", policies[at], turns + 1),
    };
    (0..policies.len()).map(place).collect()
}

/// Size of the hot set in bytes: of the values that are hot at the same time.
fn hot_bytes(scenario: &Scenario) -> Result<f64> {
    let of = |key: &str| set_number(scenario, key);
    Ok(of("keys")? * of("value_bytes")? * of("hot_keys")?)
}

/// A numeric parameter of the job; values set on the command line are strings.
fn set_number(scenario: &Scenario, key: &str) -> Result<f64> {
    scenario.number(key).ok_or_else(|| broken(format!("the scenario has no number {key}")))
}
