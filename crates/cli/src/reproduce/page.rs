//! The page of claims, verdicts and commands, as Markdown.

use std::fmt::Write;

use super::Ran;
use super::experiment::Claim;
use super::verdict::judged;
use crate::units::show_bytes;

const HEAD: &str = "# The papers' claims beside our results

Made by `tierscope reproduce -o REPRODUCTION.md`; a test runs some of it anew and compares. Everything here is *simulated*, by densities
(`crates/sim/src/density`): no instrument and no parameter was fitted to a claim. What the figures and the verdicts mean: `core::metrics`
(recall and precision are quoted once precision and recall reach 0.9 for four windows, over all windows where they never do). CPU is of one
CPU, at the costs of `crates/sim/costs/linux.toml`.

";

/// The whole page.
pub(super) fn page(ran: &[Ran]) -> String {
    let sections: Vec<String> = ran.iter().map(section).collect();
    format!("{HEAD}{}", sections.join("\n"))
}

/// The section of an experiment.
pub(super) fn section(ran: &Ran) -> String {
    let scenario = &ran.experiment.scenario;
    let mut text = String::new();
    let flush =
        scenario.config.flush.map_or("no flush".into(), |every| format!("a flush each {every:?}"));
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "## {name}\n{about}. {mapped} mapped, {time:?} simulated, caches of {hardware}, {flush}, seed {seed}.\nSource: {source}.\n\
         Command: `tierscope reproduce {name}`\n\n| claim | of | figure | paper | ours | verdict |\n|---|---|---|---|---|---|\n",
        name = scenario.name,
        about = scenario.about,
        mapped = show_bytes(scenario.workload.bytes()),
        time = scenario.time,
        hardware = scenario.hardware.name,
        seed = scenario.config.seed,
        source = scenario.source,
    );
    for claim in &ran.experiment.claims {
        let judgement = judged(claim, &ran.outcomes);
        let reason = claim.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        let _ = writeln!(
            text,
            "| {} ({}) | {} | {} | {} | {} | {}{reason} |",
            claim.says,
            claim.paper,
            claim.contender,
            claim.figure.name(),
            range(claim),
            judgement.ours.map_or("none".into(), number),
            judgement.verdict.name(),
        );
    }
    text
}

fn range(claim: &Claim) -> String {
    match (claim.least, claim.most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("≥ {least}"),
        (None, Some(most)) => format!("≤ {most}"),
        (None, None) => "any".into(),
    }
}

fn number(value: f64) -> String {
    match value {
        _ if value.is_infinite() => "never".into(),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
