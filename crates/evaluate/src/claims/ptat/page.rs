//! Section of an experiment on TLB misses, as Markdown.

use std::fmt::Write as _;

use super::super::row::{Row, Section};
use super::super::verdict::{Bounds, Verdict};
use tierscope_core::units::exact_time;

use super::claim::{Claim, Planned, judged};
use super::run::{Outcome, Way};

/// Formats a value, or a dash for `None`.
fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

/// Writes the section of an experiment.
pub(super) fn section(planned: &Planned, outcomes: &[Outcome]) -> Section {
    let first = &planned.variants[0].experiment;
    let mut text = format!(
        "{}. On {}, {} after {} of warm-up, seed {}; a monitor of {} boards with a grain of {} bytes.\nSource: {}.\n\
         Command: `tierscope reproduce ptat {}`\n",
        first.about,
        first.setup.hardware.name,
        exact_time(first.time - first.warm_up),
        exact_time(first.warm_up),
        first.seed,
        planned.monitor.boards,
        planned.monitor.grain,
        first.source,
        planned.name,
    );
    text.push_str(&runs(outcomes));
    text.push('\n');
    let rows = planned.claims.iter().map(|claim| row(claim, outcomes)).collect();
    Section { name: planned.name.to_owned(), before: text, rows, ..Section::default() }
}

/// Table of the runs, in the order in which they ran.
fn runs(outcomes: &[Outcome]) -> String {
    let ran: Vec<&Outcome> =
        outcomes.iter().filter(|outcome| outcome.way != Way::FirstLevel).collect();
    if ran.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n| variant | watched by | ns an operation | slowdown | misses of 1000 operations | walks counted by cores | exact by block |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for outcome in ran {
        let alone = outcomes
            .iter()
            .find(|other| other.variant == outcome.variant && other.way == Way::Nobody);
        let slowdown = alone.and_then(|alone| Some(outcome.nanos_each()? / alone.nanos_each()?));
        let misses = outcome.misses_each().filter(|_| outcome.way != Way::Nobody);
        let exact = match outcome.way {
            Way::Ptat if outcome.exact => "yes",
            Way::Ptat => "no",
            _ => "–",
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {exact} |",
            outcome.variant,
            outcome.way.name(),
            shown(outcome.nanos_each(), 2),
            shown(slowdown, 2),
            shown(misses.map(|each| each * 1000.0), 2),
            shown(outcome.counted_each().map(|each| each * 1000.0), 2),
        );
    }
    text
}

fn row(claim: &Claim, outcomes: &[Outcome]) -> Row {
    let judgement = judged(claim, outcomes);
    let to = claim.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
    let percent = claim.percent.map_or(String::new(), |percent| format!(" ({percent} % of them)"));
    let reason = claim.reason.clone().filter(|_| judgement.verdict != Verdict::Reproduced);
    Row {
        paper: claim.paper.clone(),
        says: claim.says.clone(),
        of: claim.variant.clone(),
        figure: format!("{}{to}{percent}", claim.figure.name()),
        range: Bounds { least: claim.least, most: claim.most },
        ours: judgement.ours,
        once_detected: None,
        verdict: judgement.verdict,
        reason,
        decided_by: Vec::new(),
    }
}
