//! Section of an experiment on telemetry: claims, verdicts and command, as Markdown.

use std::fmt::Write;

use tierscope_core::units::about_size;

use super::super::form::of_seeds;
use super::super::row::{Row, Section};
use super::super::verdict::{Bounds, Judgement, Seeds, Verdict, number};
use super::Ran;
use super::experiment::Claim;
use super::judged::{judged, once_detected};
use crate::accuracy::Outcome;

/// Header of the table of verdicts over parameter changes.
pub(super) const SENSITIVITY: &str =
    "| claim of | figure | ours | least | most | verdicts |\n|---|---|---|---|---|---|\n";

/// Table of the verdicts of an experiment over parameter changes; empty if these runs were skipped.
fn sensitivity(ran: &Ran<'_>) -> String {
    if ran.varied.is_empty() {
        return String::new();
    }
    let mut text = format!("\nOver {} variants:\n\n{SENSITIVITY}", ran.varied.len());
    for claim in &ran.experiment.claims {
        let here = judged(claim, &ran.seeds[..1]);
        let all: Vec<(&str, Judgement)> = ran
            .varied
            .iter()
            .map(|varied| {
                (varied.label.as_str(), judged(claim, std::slice::from_ref(&varied.outcomes)))
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} {} | {} | {} | {} | {} |",
            claim.contender,
            figure(claim),
            range(claim),
            mean(here.ours),
            extreme(&all, f64::lt),
            extreme(&all, f64::gt),
            changes(here.verdict, &all),
        );
    }
    text
}

/// The most extreme figure by the comparison `is`, with its variant; "none" if no figure is
/// defined.
fn extreme(all: &[(&str, Judgement)], is: fn(&f64, &f64) -> bool) -> String {
    let known = all.iter().filter_map(|(label, judgement)| Some((label, judgement.ours?.mean)));
    let found = known.reduce(|best, next| if is(&next.1, &best.1) { next } else { best });
    found.map_or("none".into(), |(label, ours)| format!("{} ({label})", number(ours)))
}

/// The verdict, and the variants in which it differs.
fn changes(verdict: Verdict, all: &[(&str, Judgement)]) -> String {
    let others: Vec<String> = all
        .iter()
        .filter(|(_, judgement)| judgement.verdict != verdict)
        .map(|(label, judgement)| format!("{} at {label}", judgement.verdict.name()))
        .collect();
    match others.is_empty() {
        true => format!("{} in all", verdict.name()),
        false => format!("{}, but {}", verdict.name(), others.join(", ")),
    }
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

fn mean(ours: Option<Seeds>) -> String {
    ours.map_or("none".into(), |ours| number(ours.mean))
}
