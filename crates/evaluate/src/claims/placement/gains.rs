//! Gains of policies as shares of what the oracle gains: (policy - static) / (oracle - static), by
//! rates, for the run and each of its phases.

use std::fmt::Write as _;

use super::super::verdict::Seeds;
use crate::contest::{Bound, Outcome};

/// Gain of the oracle below which a share of it is noise.
const LEAST: f64 = 0.005;

/// Writes a table with a row for each policy but the first, which gains are over.
pub(super) fn write(seeds: &[Vec<Outcome>], text: &mut String) {
    let Some([first, others @ ..]) = seeds.first().map(Vec::as_slice) else { return };
    if others.iter().all(|outcome| outcome.policy != Bound::Oracle.name()) {
        return;
    }
    let phases: Vec<Option<&str>> = match &*first.phases {
        [] => vec![None],
        phases => phases.iter().map(|phase| Some(&*phase.name)).collect(),
    };
    let names: Vec<&str> = phases.iter().map(|phase| phase.unwrap_or("run")).collect();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "\nGain over {}, as a share of the oracle's; of the oracle, its rate over that of {}:\n\n\
         | policy | {} |\n|---{}|",
        first.policy,
        first.policy,
        names.join(" | "),
        "|---".repeat(names.len())
    );
    for outcome in others {
        let cell = |phase: &Option<&str>| {
            share(seeds, &outcome.policy, *phase).map_or("–".into(), |share| share.to_string())
        };
        let cells: Vec<String> = phases.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", outcome.policy, cells.join(" | "));
    }
}

/// Share of the oracle's gain, or of the oracle its rate over the first; `None` if a rate is not
/// known, or the oracle gains nothing.
fn share(seeds: &[Vec<Outcome>], policy: &str, phase: Option<&str>) -> Option<Seeds> {
    let of = |outcomes: &Vec<Outcome>| {
        let rate =
            |name: &str| rate(outcomes.iter().find(|outcome| outcome.policy == name)?, phase);
        let first = rate(&outcomes.first()?.policy).filter(|first| *first > 0.0)?;
        let oracle = rate(Bound::Oracle.name())? / first;
        match policy == Bound::Oracle.name() {
            true => Some(oracle),
            false => {
                (oracle - 1.0 > LEAST).then_some((rate(policy)? / first - 1.0) / (oracle - 1.0))
            }
        }
    };
    Seeds::of(seeds.iter().map(of))
}

fn rate(outcome: &Outcome, phase: Option<&str>) -> Option<f64> {
    let Some(name) = phase else { return Some(outcome.operations_per_second) };
    let phase = outcome.phases.iter().find(|phase| phase.name == name)?;
    Some(phase.operations_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::PhaseRow;

    fn outcome(policy: &str, rates: [f64; 2]) -> Outcome {
        let phase = |(name, rate): (&str, f64)| PhaseRow {
            name: name.into(),
            operations_per_second: rate,
            ..PhaseRow::default()
        };
        let phases = ["load", "a"].into_iter().zip(rates).map(phase).collect();
        Outcome { policy: policy.into(), phases, ..Outcome::default() }
    }

    // The oracle gains a half over 100 in `a`, the policy a fifth and two fifths of that; the
    // oracle gains nothing in `load`.
    #[test]
    fn a_gain_is_a_share_of_what_can_be_gained() {
        let with = |rate: f64| {
            let rates = [100.0, rate];
            vec![
                outcome("static", [100.0; 2]),
                outcome("x", rates),
                outcome("oracle", [100.0, 150.0]),
            ]
        };
        let seeds = [with(110.0), with(120.0)];
        let mut text = String::new();
        write(&seeds, &mut text);
        assert!(text.contains("| x | – | 0.300 (0.200 to 0.400) |"), "{text}");
        assert!(text.contains("| oracle | 1.000 | 1.500 |"), "{text}");
        let mut text = String::new();
        write(&[vec![outcome("static", [1.0; 2]), outcome("x", [1.0; 2])]], &mut text);
        assert!(text.is_empty(), "there is no oracle");
    }
}
