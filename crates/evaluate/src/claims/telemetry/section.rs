//! Section of an experiment on telemetry: claims, verdicts and command, as Markdown.

use std::fmt::Write as _;

use tierscope_core::units::about_size;

use super::super::form::of_seeds;
use super::super::row::{Row, Section};
use super::super::varied;
use super::super::verdict::{Bounds, Judgement};
use super::Ran;
use super::experiment::Claim;
use super::judged::{judged, once_detected};
use crate::accuracy::Outcome;

/// Table of the verdicts of an experiment over parameter changes; empty if these runs were skipped.
fn sensitivity(ran: &Ran<'_>) -> String {
    let claims = &ran.experiment.claims;
    let of = |outcomes: &Vec<Outcome>| rows(claims, std::slice::from_ref(outcomes));
    let variants: Vec<varied::Variant<'_>> =
        ran.varied.iter().map(|one| (one.label.as_str(), of(&one.outcomes))).collect();
    varied::table(&rows(claims, &ran.seeds[..1]), &variants)
}

/// Writes the section of an experiment.
pub(super) fn section(ran: &Ran<'_>) -> Section {
    let scenario = &ran.experiment.scenario;
    let mut text = String::new();
    let flush =
        scenario.setup.flush.map_or("no flush".into(), |every| format!("a flush each {every:?}"));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "{about}. {mapped} mapped, {time:?} simulated, caches of {hardware}, {flush}, {seeds}.\nSource: {source}.\n\
         Command: `tierscope reproduce {name}`\n\n",
        name = scenario.name,
        about = scenario.about,
        mapped = about_size(scenario.bytes()),
        time = scenario.time,
        hardware = scenario.setup.hardware.name,
        seeds = of_seeds(scenario.seed, ran.seeds.len()),
        source = scenario.source,
    );
    let rows = rows(&ran.experiment.claims, &ran.seeds);
    let name = scenario.name.clone();
    Section { name, before: text, rows, after: sensitivity(ran), ..Section::default() }
}

/// The rows of claims, by the outcomes of each seed.
pub(super) fn rows(claims: &[Claim], seeds: &[Vec<Outcome>]) -> Vec<Row> {
    claims.iter().map(|claim| row(claim, seeds)).collect()
}

fn row(claim: &Claim, seeds: &[Vec<Outcome>]) -> Row {
    let Judgement { ours, verdict } = judged(claim, seeds);
    Row {
        paper: claim.paper.clone(),
        says: claim.says.clone(),
        of: claim.contender.clone(),
        figure: figure(claim),
        range: range(claim),
        ours,
        once_detected: once_detected(claim, seeds),
        verdict,
        reason: claim.reason.clone(),
        decided_by: claim.decided_by.clone(),
    }
}

fn range(claim: &Claim) -> Bounds {
    Bounds { least: claim.least, most: claim.most }
}

fn figure(claim: &Claim) -> String {
    let to = claim.to.as_ref().map_or(String::new(), |to| format!(" over {to}"));
    format!("{}{to}", claim.figure.name())
}
