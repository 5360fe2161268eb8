//! Verdicts with parameters changed, as a table (METRICS.md, claim verdicts).

use std::fmt::Write as _;

use super::row::Row;
use super::verdict::number;

/// Header of the table.
pub(super) const HEADER: &str =
    "| claim of | figure | ours | least | most | verdicts |\n|---|---|---|---|---|---|\n";

/// The rows of all claims in a variant, with its label.
pub(super) type Variant<'a> = (&'a str, Vec<Row>);

/// A table of the verdicts on all claims by one seed, unchanged and in all variants with the same
/// seed; empty if there are no variants.
pub(super) fn table(unchanged: &[Row], variants: &[Variant<'_>]) -> String {
    if variants.is_empty() {
        return String::new();
    }
    let mut text = format!("\nOver {} variants:\n\n{HEADER}", variants.len());
    for (number, row) in unchanged.iter().enumerate() {
        let all: Vec<(&str, &Row)> =
            variants.iter().filter_map(|(label, rows)| Some((*label, rows.get(number)?))).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} {} | {} | {} | {} | {} |",
            row.of,
            row.figure,
            row.range,
            mean(row).map_or("none".into(), self::number),
            extreme(&all, f64::lt),
            extreme(&all, f64::gt),
            changes(row, &all),
        );
    }
    text
}

fn mean(row: &Row) -> Option<f64> {
    row.ours.map(|ours| ours.mean)
}

/// The most extreme figure by the comparison `is`, with its variant; "none" if no figure is
/// defined.
fn extreme(all: &[(&str, &Row)], is: fn(&f64, &f64) -> bool) -> String {
    let known = all.iter().filter_map(|(label, row)| Some((label, mean(row)?)));
    let found = known.reduce(|best, next| if is(&next.1, &best.1) { next } else { best });
    found.map_or("none".into(), |(label, ours)| format!("{} ({label})", number(ours)))
}

/// The verdict, and the variants in which it differs.
fn changes(here: &Row, all: &[(&str, &Row)]) -> String {
    let verdict = here.verdict.name();
    let others = all.iter().filter(|(_, row)| row.verdict != here.verdict);
    let others: Vec<String> =
        others.map(|(label, row)| format!("{} at {label}", row.verdict.name())).collect();
    match others.is_empty() {
        true => format!("{verdict} in all"),
        false => format!("{verdict}, but {}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{Bounds, Seeds, Verdict};
    use super::*;

    fn row(ours: f64, verdict: Verdict) -> Row {
        Row {
            paper: "figure 5".into(),
            says: "it gains".into(),
            of: "multi-clock".into(),
            figure: "rate over static".into(),
            range: Bounds { least: Some(1.2), most: None },
            ours: Seeds::of([Some(ours)]),
            once_detected: None,
            verdict,
            reason: None,
            decided_by: Vec::new(),
        }
    }

    #[test]
    fn a_line_has_the_extremes_and_the_verdicts_that_differ() {
        let variant = |label, ours, verdict| (label, vec![row(ours, verdict)]);
        let variants = [
            variant("costs least", 1.4, Verdict::Reproduced),
            variant("costs most", 1.1, Verdict::DirectionOnly),
        ];
        let text = table(&[row(1.3, Verdict::Reproduced)], &variants);
        let line = text.lines().last().expect("there is a line");
        assert!(line.contains("| 1.300 | 1.100 (costs most) | 1.400 (costs least) | "), "{line}");
        assert!(line.ends_with("reproduced, but direction only at costs most |"), "{line}");
        let same = table(&[row(1.3, Verdict::Reproduced)], &variants[..1]);
        assert!(same.ends_with("| reproduced in all |\n"), "{same}");
        assert_eq!(table(&[row(1.3, Verdict::Reproduced)], &[]), "");
    }
}
