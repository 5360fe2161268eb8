//! Pages of claims in Markdown, made from what is stored: parts with a heading of the first level,
//! one for a chapter, and sections with one of the second level, one for an experiment. And the
//! index of the pages, with their verdicts.

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

use super::across;
use super::chapter::Chapter;
use super::differing;
use super::row::Section;
use super::stored::{self, Stored};
use super::verdict::Verdict;

/// The index of the pages, relative to the top.
const INDEX: &str = "REPRODUCTION.md";

/// The heading in the index below which claims that are not reproduced are listed.
const DIFFERING: &str = "## Figures that differ from the papers\n";

/// Writes the pages of the chapters, and the counts of their verdicts in the index.
///
/// # Errors
/// A file cannot be read or written, or is damaged.
pub(super) fn write(root: &Path, chapters: &[&dyn Chapter]) -> Result<()> {
    let index = root.join(INDEX);
    let mut text = std::fs::read_to_string(&index).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {}", index.display()))
            .cause(error)
            .remedy("name a checkout of this repository")
    })?;
    for page in pages(chapters) {
        crate::save(&root.join(page), &made(root, page, chapters, |_| true)?)?;
    }
    text = index_of(root, &text, chapters)?;
    crate::save(&index, &text)
}

/// The index with the claims that are not reproduced, and the counts of the verdicts.
///
/// # Errors
/// As [`stored::read`].
pub(super) fn index_of(root: &Path, text: &str, chapters: &[&dyn Chapter]) -> Result<String> {
    let (mut text, mut differing) = (text.to_owned(), String::new());
    for page in pages(chapters) {
        let counted = made_of_claims(root, page, chapters)?;
        text = with_counts(&text, page, Verdict::ALL.map(|verdict| count(&counted, verdict)));
        differing += &differing::table(page, &sections(root, page, chapters)?);
    }
    Ok(with_part(&text, DIFFERING, &differing))
}

/// The sections of a page that do not repeat claims of others.
fn sections(root: &Path, page: &str, chapters: &[&dyn Chapter]) -> Result<Vec<Section>> {
    let mut sections = stored::sections(root, page, chapters)?;
    sections.retain(|section| section.variant_of.is_none());
    sections.extend(across::section(root, page, chapters)?);
    Ok(sections)
}

/// The text with what is below a heading, up to the next one of its level, replaced.
fn with_part(text: &str, heading: &str, part: &str) -> String {
    let Some((before, after)) = text.split_once(heading) else { return text.to_owned() };
    let rest = after.find("\n## ").map_or("", |at| &after[at..]);
    format!("{before}{heading}{part}{rest}")
}

/// The pages of the chapters, each once.
pub(super) fn pages(chapters: &[&dyn Chapter]) -> Vec<&'static str> {
    let mut all = Vec::new();
    for page in chapters.iter().map(|chapter| chapter.page()) {
        if !all.contains(&page) {
            all.push(page);
        }
    }
    all
}

/// A page of the sections that are `wanted`.
///
/// # Errors
/// As [`stored::read`].
pub(super) fn made(
    root: &Path,
    page: &str,
    chapters: &[&dyn Chapter],
    wanted: impl Fn(&Stored) -> bool,
) -> Result<String> {
    let mut parts = Vec::new();
    for chapter in chapters.iter().filter(|chapter| chapter.page() == page) {
        let all = stored::all(root, *chapter)?;
        let sections: Vec<String> =
            all.iter().filter(|stored| wanted(stored)).map(Stored::markdown).collect();
        let part = format!("# {}\n{}", chapter.title(), chapter.part(&sections.join("\n"))?);
        parts.push(format!("{}\n", part.trim_end()));
    }
    if let Some(section) = across::section(root, page, chapters)? {
        parts.push(format!("# {}\n\n{}", across::TITLE, section.markdown("")));
    }
    Ok(parts.join("\n"))
}

/// A page without the sections that repeat claims of others.
pub(super) fn made_of_claims(root: &Path, page: &str, chapters: &[&dyn Chapter]) -> Result<String> {
    made(root, page, chapters, |stored| stored.section.variant_of.is_none())
}

/// Rows of tables whose last cell is this verdict, with or without a reason.
pub(super) fn count(page: &str, verdict: Verdict) -> usize {
    let last = |line: &str| Some(line.strip_suffix('|')?.rsplit('|').next()?.trim().to_owned());
    let cells = page.lines().filter(|line| line.starts_with('|')).filter_map(last);
    cells.filter(|cell| cell.split(':').next() == Some(verdict.name())).count()
}

/// The index with these counts in the row of a page.
pub(super) fn with_counts(index: &str, page: &str, counts: [usize; 6]) -> String {
    let link = format!("]({page}) | ");
    let counts = counts.map(|count| count.to_string()).join(" | ");
    let line = |line: &str| match line.split_once(&link) {
        Some((before, _)) => format!("{before}{link}{counts} |\n"),
        None => format!("{line}\n"),
    };
    index.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::CHAPTERS;
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn text(path: &str) -> String {
        std::fs::read_to_string(format!("{ROOT}/{path}")).expect("a page")
    }

    #[test]
    fn pages_are_as_they_are_made_from_what_is_stored() {
        for page in pages(&CHAPTERS) {
            let made = made(Path::new(ROOT), page, &CHAPTERS, |_| true);
            let made = made.unwrap_or_else(|error| panic!("{error}"));
            assert!(made == text(page), "{page} is old: run `tierscope reproduce --pages -o .`");
        }
    }

    // Claims that were added or changed have their rows.
    #[test]
    fn rows_are_as_they_are_judged_by_stored_outcomes() {
        let changed = stored::judge_again(Path::new(ROOT), &CHAPTERS, false);
        let old = changed.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(old, [""; 0], "run `tierscope reproduce --pages -o .`");
    }

    #[test]
    fn the_index_counts_the_verdicts_and_begins_with_what_differs() {
        let index = text(INDEX);
        let made = index_of(Path::new(ROOT), &index, &CHAPTERS);
        assert!(made == Ok(index), "run `tierscope reproduce --pages -o .`");
        assert_eq!(with_part("a\n## x\nb\n\n## y\n", "## x\n", "c\n"), "a\n## x\nc\n\n## y\n");
    }

    // A paper makes a claim once: no two rows are about the same, but those of variants.
    #[test]
    fn rows_have_keys_of_their_own() {
        for page in pages(&CHAPTERS) {
            let mut keys = std::collections::BTreeSet::new();
            for chapter in CHAPTERS.into_iter().filter(|chapter| chapter.page() == page) {
                let all = stored::all(Path::new(ROOT), chapter).expect("they can be read");
                for Stored { section, .. } in &all {
                    for row in &section.rows {
                        let key = (section.name.clone(), row.key().map(str::to_owned));
                        assert!(keys.insert(key.clone()), "two rows are {key:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn counts_take_the_place_of_old_ones() {
        let index = "# x\n| a | [p](p.md) | 1 | 2 |\n| b | [q](q.md) | 3 |\n";
        let new = with_counts(index, "p.md", [1, 0, 2, 0, 0, 5]);
        assert_eq!(new, "# x\n| a | [p](p.md) | 1 | 0 | 2 | 0 | 0 | 5 |\n| b | [q](q.md) | 3 |\n");
        let page =
            "| a | reproduced |\n| b | not reproduced: so it is |\n| c | reproduced: well |\n";
        let of = |verdict| count(page, verdict);
        assert_eq!((of(Verdict::Reproduced), of(Verdict::NotReproduced)), (2, 1));
    }
}
