//! Claims about several experiments at once, such as which workload gains most, judged by the rows
//! that are stored of them; and claims that hold by the design of what is simulated.

use std::path::Path;

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Result};

use super::chapter::Chapter;
use super::form::check_reason;
use super::row::{Row, Section};
use super::stored;
use super::verdict::{Bounds, Comparison, Seeds, Verdict};

/// Claims by page, as TOML.
const TEXTS: [(&str, &str); 2] = [
    (
        "experiments/telescope/REPRODUCTION.md",
        include_str!("../../../../experiments/telescope/across.toml"),
    ),
    (
        "experiments/multi-clock/REPRODUCTION.md",
        include_str!("../../../../experiments/multi-clock/across.toml"),
    ),
];

/// A stored row: its experiment, what it is of, and its figure.
type Pick = [String; 3];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    claim: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Claim {
    paper: String,
    says: String,
    /// What the row is of.
    of: String,
    /// The row's figure.
    figure: String,
    /// The rows whose mean is judged.
    #[serde(default)]
    these: Vec<Pick>,
    /// The rows whose mean it is divided by.
    #[serde(default)]
    those: Vec<Pick>,
    /// Whether the largest of `these` is judged instead of their mean.
    #[serde(default)]
    largest: bool,
    least: Option<f64>,
    most: Option<f64>,
    reason: Option<String>,
    #[serde(default)]
    decided_by: Vec<String>,
    /// The verdict where there is nothing to run: by construction, for what holds by the design of
    /// what is simulated; not testable here, for what no run can show. `says` gives the ground.
    verdict: Option<Verdict>,
}

/// All commands that decided a reason.
pub(super) fn deciding_commands() -> Vec<String> {
    let texts = TEXTS.iter().filter_map(|(_, text)| toml::from_str::<Text>(text).ok());
    texts.flat_map(|text| text.claim).flat_map(|claim| claim.decided_by).collect()
}

/// Heading of the part of a page.
pub(super) const TITLE: &str = "Claims about several experiments";

/// The section of a page; `None` if nothing is claimed.
///
/// # Errors
/// A stored file cannot be read, or a claim is invalid.
pub(super) fn section(
    root: &Path,
    page: &str,
    chapters: &[&dyn Chapter],
) -> Result<Option<Section>> {
    let Some((_, text)) = TEXTS.iter().find(|(of, _)| *of == page) else { return Ok(None) };
    let known = Stored::read(root, page, chapters)?;
    let rows = claims(text)?.iter().map(|claim| known.judged(claim)).collect();
    let before = "By the rows of other sections; a spread of seeds is from the worst to the best combination.\n\n";
    let name = "across".to_owned();
    Ok(Some(Section { name, before: before.into(), rows, ..Section::default() }))
}

fn claims(text: &str) -> Result<Vec<Claim>> {
    let wrong =
        |cause: String| Error::new(ErrorKind::Data, "claims across experiments").cause(cause);
    let text: Text = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
    for claim in &text.claim {
        check_reason(claim.reason.as_ref(), &claim.decided_by)
            .and_then(|()| match claim.verdict {
                None if claim.these.is_empty() => Err("no rows are named".to_owned()),
                None => Ok(()),
                Some(Verdict::ByConstruction | Verdict::NotTestable) if claim.these.is_empty() => {
                    Ok(())
                }
                Some(_) => Err("only what has no rows is given a verdict".to_owned()),
            })
            .map_err(|cause| wrong(format!("{}: {cause}", claim.says)))?;
    }
    Ok(text.claim)
}

/// The sections stored for a page.
struct Stored(Vec<Section>);

impl Stored {
    fn read(root: &Path, page: &str, chapters: &[&dyn Chapter]) -> Result<Self> {
        Ok(Self(stored::sections(root, page, chapters)?))
    }

    fn figure(&self, [experiment, of, figure]: &Pick) -> Option<Seeds> {
        let section = self.0.iter().find(|section| section.name == *experiment)?;
        section.rows.iter().find(|row| row.of == *of && row.figure == *figure)?.ours
    }

    /// The claim's row; not testable if a row that it needs is not stored.
    fn judged(&self, claim: &Claim) -> Row {
        let all = |picks: &[Pick]| -> Option<Vec<Seeds>> {
            picks.iter().map(|pick| self.figure(pick)).collect()
        };
        let ours = all(&claim.these).and_then(|these| match claim.largest {
            true => largest(&these),
            false => mean(&these),
        });
        let ours = match &claim.those[..] {
            [] => ours,
            those => ours.zip(all(those).and_then(|those| mean(&those))).map(over),
        };
        let bounds = Bounds { least: claim.least, most: claim.most };
        let verdict = match ours {
            None => claim.verdict.unwrap_or(Verdict::NotTestable),
            Some(ours) => bounds.judge(
                ours,
                Comparison::of_ratio(ours, bounds).filter(|_| !claim.those.is_empty()),
            ),
        };
        Row {
            paper: claim.paper.clone(),
            says: claim.says.clone(),
            of: claim.of.clone(),
            figure: claim.figure.clone(),
            range: bounds,
            ours,
            once_detected: None,
            verdict,
            reason: claim.reason.clone(),
            decided_by: claim.decided_by.clone(),
        }
    }
}

fn mean(all: &[Seeds]) -> Option<Seeds> {
    let of = |part: fn(&Seeds) -> f64| all.iter().map(part).sum::<f64>() / all.len() as f64;
    let mean = Seeds { mean: of(|s| s.mean), least: of(|s| s.least), most: of(|s| s.most) };
    (!all.is_empty()).then_some(mean)
}

fn largest(all: &[Seeds]) -> Option<Seeds> {
    all.iter().copied().reduce(|best, next| if next.mean > best.mean { next } else { best })
}

/// A figure over another, of unrelated runs.
fn over((these, those): (Seeds, Seeds)) -> Seeds {
    Seeds {
        mean: these.mean / those.mean,
        least: these.least / those.most,
        most: these.most / those.least,
    }
}

#[cfg(test)]
mod tests {
    use super::super::CHAPTERS;
    use super::super::chapter::Extent;
    use super::*;

    const HEAD: &str = "[[claim]]\npaper = \"p\"\nsays = \"s\"\nof = \"o\"\nfigure = \"f\"\n";

    fn row(of: &str, figures: [f64; 2]) -> Row {
        Row {
            paper: "p".into(),
            says: "s".into(),
            of: of.into(),
            figure: "rate".into(),
            range: Bounds { least: None, most: None },
            ours: Seeds::of(figures.map(Some)),
            once_detected: None,
            verdict: Verdict::Reproduced,
            reason: None,
            decided_by: Vec::new(),
        }
    }

    fn judged(text: &str) -> (Option<Seeds>, Verdict) {
        let section = |name: &str, rows| Section { name: name.into(), rows, ..Section::default() };
        let known = Stored(vec![
            section("x", vec![row("a", [2.0, 4.0]), row("b", [1.0, 1.0])]),
            section("y", vec![row("a", [1.0, 2.0])]),
        ]);
        let claims = claims(&format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{error}"));
        let row = known.judged(&claims[0]);
        (row.ours, row.verdict)
    }

    // Means of 3, 1 and 1.5: 3 over 1.5 is 2, between 2/2 and 4/1; the mean of all is 11/6.
    #[test]
    fn rows_of_several_experiments_are_compared() {
        let rows = "these = [[\"x\", \"a\", \"rate\"]]\nthose = [[\"y\", \"a\", \"rate\"]]\n";
        let (ours, verdict) = judged(&format!("{rows}least = 1.0\n"));
        assert_eq!(ours, Some(Seeds { mean: 2.0, least: 1.0, most: 4.0 }));
        assert_eq!(verdict, Verdict::NoDifference);
        assert_eq!(judged(&format!("{rows}most = 3.0\n")).1, Verdict::Reproduced);
        let all = "[[\"x\", \"a\", \"rate\"], [\"x\", \"b\", \"rate\"], [\"y\", \"a\", \"rate\"]]";
        let (ours, _) = judged(&format!("these = {all}\nleast = 1.0\n"));
        assert!(ours.is_some_and(|ours| (ours.mean - 5.5 / 3.0).abs() < 1e-12));
        let (ours, _) = judged(&format!("these = {all}\nlargest = true\nleast = 1.0\n"));
        assert_eq!(ours.map(|ours| ours.mean), Some(3.0));
        assert_eq!(judged("verdict = \"by-construction\"\n"), (None, Verdict::ByConstruction));
        let given = format!("{HEAD}verdict = \"reproduced\"\n");
        assert!(claims(&given).is_err(), "a verdict that a run gives");
        let missing = judged("these = [[\"z\", \"a\", \"rate\"]]\nleast = 1.0\n");
        assert_eq!(missing, (None, Verdict::NotTestable));
    }

    // A row that is named is one that some experiment has, whether or not it was run.
    #[test]
    fn named_rows_are_claimed_by_their_experiments() {
        for (page, text) in TEXTS {
            let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
            let known = Stored::read(root, page, &CHAPTERS).expect("they can be read");
            let claims = claims(text).unwrap_or_else(|error| panic!("{error}"));
            for pick in claims.iter().flat_map(|claim| claim.these.iter().chain(&claim.those)) {
                let planned = CHAPTERS.iter().find_map(|chapter| {
                    let name = chapter.experiments().into_iter().find(|name| *name == pick[0])?;
                    Some(chapter.plan(name, Extent::QUICK).expect("it is whole").judged(&[]))
                });
                let claimed = planned.unwrap_or_default();
                let claimed = claimed.iter().any(|row| row.of == pick[1] && row.figure == pick[2]);
                assert!(claimed || known.figure(pick).is_some(), "{pick:?}");
            }
        }
    }
}
