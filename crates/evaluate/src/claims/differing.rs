//! The claims that are not reproduced, as the index begins with them: a row for each claim in
//! words, with all its cases that differ.

use std::fmt::Write as _;

use super::row::{Row, Section};
use super::verdict::{Bounds, Verdict};

/// Cases of one claim that differ.
struct Group<'a> {
    of: &'a Row,
    cases: Vec<String>,
}

/// Table of the claims of these sections that are not reproduced, below the name of their page.
pub(super) fn table(page: &str, sections: &[Section]) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for section in sections {
        for row in section.rows.iter().filter(|row| row.verdict == Verdict::NotReproduced) {
            let ours = row.ours.map_or("none".into(), |ours| ours.to_string());
            let case = format!("{}, {}: {ours}", section.name, row.of);
            match groups.iter_mut().find(|group| is_one_claim(group.of, row)) {
                Some(group) => group.cases.push(case),
                None => groups.push(Group { of: row, cases: vec![case] }),
            }
        }
    }
    let mut text =
        format!("\n[{page}]({page}):\n\n| claim | figure | paper | ours |\n|---|---|---|---|\n");
    for Group { of, cases } in &groups {
        let Row { paper, says, figure, range, .. } = of;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {says} ({paper}) | {figure} | {range} | {} |", cases.join("; "));
    }
    if groups.is_empty() { String::new() } else { text }
}

fn is_one_claim(one: &Row, other: &Row) -> bool {
    let words = |row: &Row| (row.paper.clone(), row.says.clone(), row.figure.clone());
    let Bounds { least, most } = one.range;
    words(one) == words(other) && (least, most) == (other.range.least, other.range.most)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Seeds;
    use super::*;

    fn row(says: &str, of: &str, verdict: Verdict) -> Row {
        Row {
            paper: "figure 5".into(),
            says: says.into(),
            of: of.into(),
            figure: "rate".into(),
            range: Bounds { least: Some(1.2), most: None },
            ours: Seeds::of([Some(0.5)]),
            once_detected: None,
            verdict,
            reason: None,
            decided_by: Vec::new(),
        }
    }

    #[test]
    fn cases_of_a_claim_that_differ_are_one_row() {
        let rows = vec![
            row("gains", "a", Verdict::NotReproduced),
            row("gains", "b", Verdict::Reproduced),
            row("gains", "c", Verdict::NotReproduced),
        ];
        let section = Section { name: "x".into(), rows, ..Section::default() };
        let text = table("page.md", &[section]);
        let line = "| gains (figure 5) | rate | ≥ 1.2 | x, a: 0.500; x, c: 0.500 |\n";
        assert!(text.ends_with(line) && text.matches('\n').count() == 6, "{text}");
        let rows = vec![row("gains", "b", Verdict::Reproduced)];
        assert_eq!(table("page.md", &[Section { rows, ..Section::default() }]), "");
    }
}
