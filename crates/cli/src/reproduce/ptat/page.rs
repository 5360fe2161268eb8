//! The page of the experiments on TLB misses, as Markdown.

use std::fmt::Write as _;

use super::Ran;
use super::claim::{Claim, judged};
use super::run::{Outcome, Way};
use crate::reproduce::claims;
use crate::reproduce::verdict::{Bounds, Verdict};
use crate::units::show_duration;

const HEAD: &str = "# TLB misses: the PTAT paper's claims beside our results

Made by `tierscope reproduce ptat -o experiments/ptat/REPRODUCTION.md`, or with names of single experiments behind `ptat`. Everything is *simulated*:
the machine, its kernel and its bus; no parameter was fitted to a claim, and each stands with its source in `crates/hw/machines`, `crates/sim/costs`
and the experiments' files. Misses under PTAT are what tierscope's own parser makes of what a monitor wrote; those of BadgerTrap what the kernel
counted at its traps; those of counters all walks of the cores that the program ran on. A program that SPEC, PARSEC or SPLASH-2 holds is a `stand-in`:
patterns after it (`crates/workloads/src/stand_in_spec.rs`), so that figures of it tell about instruments, not about the program. Sizes are the
paper's unless a file says otherwise; times are short ones, counted from the first operation on. Slowdown is time an operation over that with nobody
watching; of added time that one is taken off. What the verdicts mean: `core::metrics`. *Direction only* takes an effect that
goes the paper's way and is at least half, at most twice as large as the paper's: of a slowdown and of a speed what is above 1, of a ratio of
misses what is below 1, of a share of misses what is above that of pages alike, of a share of walks that caches answer what is missing to
all; what lies outside is *not reproduced*, whatever its direction.

";

/// Formats a value, or a dash for `None`.
fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}

fn range(claim: &Claim) -> String {
    match (claim.least, claim.most) {
        (Some(least), Some(most)) if least == most => format!("{least}"),
        (least, most) => Bounds { least, most }.to_string(),
    }
}

/// Writes the section of an experiment.
pub(super) fn section(ran: &Ran) -> String {
    let planned = &ran.planned;
    let first = &planned.variants[0].experiment;
    let mut text = format!(
        "## {}\n{}. On {}, {} after {} of warm-up, seed {}; a monitor of {} boards that tell {} bytes apart.\nSource: {}.\n\
         Command: `tierscope reproduce ptat {}`\n",
        planned.name,
        first.about,
        first.setup.hardware.name,
        show_duration(first.time - first.warm_up),
        show_duration(first.warm_up),
        first.seed,
        planned.monitor.boards,
        planned.monitor.grain,
        first.source,
        planned.name,
    );
    text.push_str(&outcomes(&ran.outcomes));
    text.push('\n');
    text.push_str(claims::TABLE);
    for claim in &planned.claims {
        text.push_str(&row(claim, &ran.outcomes));
    }
    text
}

/// Table of the runs, in the order in which they ran.
fn outcomes(outcomes: &[Outcome]) -> String {
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

fn row(claim: &Claim, outcomes: &[Outcome]) -> String {
    let judgement = judged(claim, outcomes);
    let to = claim.to.as_ref().map_or(String::new(), |to| format!(" {to}"));
    let percent = claim.percent.map_or(String::new(), |percent| format!(" ({percent} % of them)"));
    let why = claim.reason.as_ref().filter(|_| judgement.verdict != Verdict::Reproduced);
    let why = why.map_or(String::new(), |reason| format!(": {reason}"));
    format!(
        "| {} ({}) | {} | {}{to}{percent} | {} | {} | {}{why} |\n",
        claim.says,
        claim.paper,
        claim.variant,
        claim.figure.name(),
        range(claim),
        shown(judgement.ours, 3),
        judgement.verdict.name(),
    )
}

/// The page with these sections in place of the old ones of the same names, in the given order.
pub(super) fn merged(page: &str, order: &[&str], ran: &[Ran]) -> String {
    let fresh = |name: &str| ran.iter().find(|ran| ran.planned.name == name).map(section);
    format!("{HEAD}{}", claims::sections(page, order.iter().copied(), fresh))
}
