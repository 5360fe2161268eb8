//! A section of a page of claims, and its rows: as they are stored, and as a page shows them.

use serde::{Deserialize, Serialize};

use super::verdict::{Bounds, Seeds, Verdict};

/// Header of a table of claims.
const TABLE: &str = "| claim | of | figure | paper | ours | verdict |\n|---|---|---|---|---|---|\n";

/// A claim, our figure and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Row {
    /// Place in the paper.
    pub paper: String,
    /// The claim in words.
    pub says: String,
    /// The policy or instrument, and the case of the experiment if it has several.
    pub of: String,
    /// The measured quantity, and the other policy if it is a ratio.
    pub figure: String,
    /// The range that the paper claims.
    pub range: Bounds,
    /// Our figure, if it is defined.
    pub ours: Option<Seeds>,
    /// The figure over the windows after each detection, if the claim has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once_detected: Option<Seeds>,
    /// Verdict on the claim.
    pub verdict: Verdict,
    /// Explanation of the outcome, if it needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Commands that change the suspected cause, and show that the figure follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<String>,
}

impl Row {
    /// What the row is about, within its experiment: no other row of a paper has the same.
    #[must_use]
    pub fn key(&self) -> [&str; 3] {
        [&self.paper, &self.of, &self.figure]
    }

    /// Whether a figure of some of the seeds agrees with the stored one: it lies within their
    /// spread, widened on both sides by itself, and at least by a tenth of the mean.
    #[must_use]
    pub fn agrees(&self, again: &Row) -> bool {
        let (Some(ours), Some(again)) = (self.ours, again.ours) else {
            return self.ours.is_none() && again.ours.is_none();
        };
        let margin = (ours.most - ours.least).max(0.1 * ours.mean.abs());
        let known = ours.least - margin..=ours.most + margin;
        // Infinite figures are equal or not; their margin is no number.
        again.mean == ours.mean || (known.contains(&again.least) && known.contains(&again.most))
    }

    /// The row of a table in Markdown, with a line feed.
    #[must_use]
    pub fn markdown(&self) -> String {
        let Row { paper, says, of, figure, range, .. } = self;
        let ours = self.ours.map_or("none".into(), |ours| ours.to_string());
        let later = self.once_detected.map_or(String::new(), |s| format!("; once detected {s}"));
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        let by: String = self.decided_by.iter().map(|command| format!(" (`{command}`)")).collect();
        let verdict = self.verdict.name();
        format!(
            "| {says} ({paper}) | {of} | {figure} | {range} | {ours}{later} | {verdict}{reason}{by} |\n"
        )
    }
}

/// An experiment's section of a page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Section {
    /// Name of the experiment.
    pub name: String,
    /// The experiment whose claims this one repeats with another set-up; they count once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
    /// Markdown between the heading and the claims.
    #[serde(with = "lines")]
    pub before: String,
    /// The claims, in their order.
    pub rows: Vec<Row>,
    /// Markdown after the claims.
    #[serde(default, skip_serializing_if = "String::is_empty", with = "lines")]
    pub after: String,
}

impl Section {
    /// Markdown, including the heading; with `note` below it.
    #[must_use]
    pub fn markdown(&self, note: &str) -> String {
        let rows: String = self.rows.iter().map(Row::markdown).collect();
        let table = if rows.is_empty() { "" } else { TABLE };
        format!("## {}\n{note}{}{table}{rows}{}", self.name, self.before, self.after)
    }
}

/// Text as an array of lines, so that a change of a line is one in a file.
pub(super) mod lines {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(text.lines())
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<String, D::Error> {
        let lines = Vec::<String>::deserialize(from)?;
        Ok(lines.into_iter().map(|line| line + "\n").collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figures: &[f64]) -> Row {
        Row {
            paper: "figure 5".into(),
            says: "faster".into(),
            of: "ours, a".into(),
            figure: "rate over static".into(),
            range: Bounds { least: Some(1.2), most: None },
            ours: Seeds::of(figures.iter().copied().map(Some)),
            once_detected: None,
            verdict: Verdict::DirectionOnly,
            reason: None,
            decided_by: Vec::new(),
        }
    }

    #[test]
    fn a_section_is_read_as_it_was_stored() {
        let mut never = row(&[f64::INFINITY]);
        never.reason = Some("it is".into());
        never.decided_by = vec!["x".into()];
        let section = Section {
            name: "a".into(),
            before: "one\n\ntwo\n".into(),
            rows: vec![row(&[1.0, 1.2]), never],
            ..Section::default()
        };
        let text = serde_json::to_string(&section).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Section>(&text).expect("it was"), section);
        assert_eq!(
            section.markdown("note\n"),
            format!(
                "## a\nnote\none\n\ntwo\n{TABLE}\
                 | faster (figure 5) | ours, a | rate over static | ≥ 1.2 | 1.100 (1.000 to 1.200) | direction only |\n\
                 | faster (figure 5) | ours, a | rate over static | ≥ 1.2 | never | direction only: it is (`x`) |\n"
            )
        );
    }

    // Stored: 1.0 to 1.2, so 0.8 to 1.4 agrees; 2, so 1.8 to 2.2.
    #[test]
    fn figures_agree_within_twice_their_spread_or_a_tenth() {
        let agrees = |stored: &[f64], again: &[f64]| row(stored).agrees(&row(again));
        assert!(agrees(&[1.0, 1.2], &[0.81, 1.39]) && !agrees(&[1.0, 1.2], &[1.0, 1.41]));
        assert!(agrees(&[2.0], &[2.19]) && !agrees(&[2.0], &[1.79]));
        assert!(agrees(&[f64::INFINITY], &[f64::INFINITY]) && !agrees(&[f64::INFINITY], &[1.0]));
        assert!(agrees(&[], &[]) && !agrees(&[], &[1.0]) && !agrees(&[1.0], &[]));
    }
}
