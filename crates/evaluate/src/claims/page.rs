//! A page of claims in Markdown: parts with a heading of the first level, one for a chapter, and
//! sections with one of the second level, one for an experiment.

use tierscope_core::Result;

use super::chapter::{Chapter, Section};

/// Parts of a page: text up to the next heading of the first level. The first one has no heading if
/// the page begins without.
fn parts(page: &str) -> Vec<&str> {
    let headings = page.match_indices("# ").map(|(at, _)| at);
    let begins = headings.filter(|at| *at == 0 || page[..*at].ends_with('\n'));
    let mut starts: Vec<usize> = begins.collect();
    if !page.trim().is_empty() && starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([page.len()]);
    starts.iter().zip(ends).map(|(start, end)| &page[*start..end]).collect()
}

/// Whether a part is that of a chapter.
fn is_of(part: &str, chapter: &dyn Chapter) -> bool {
    part.strip_prefix("# ").and_then(|text| text.lines().next()) == Some(chapter.title())
}

/// The page with this section in place of the old one of the same name. The chapter's part is
/// written anew around its sections; other parts are kept, in the order of the `chapters`.
pub(super) fn merged(
    page: &str,
    chapters: &[&dyn Chapter],
    chapter: &dyn Chapter,
    fresh: &Section,
) -> Result<String> {
    let mut parts = parts(page);
    let found = parts.iter().position(|part| is_of(part, chapter));
    let old = found.map_or("", |at| parts[at]);
    let of = |name: &str| (name == fresh.name).then(|| fresh.text.clone());
    let sections = sections(old, chapter.experiments().into_iter(), of);
    let part = format!("# {}\n{}", chapter.title(), chapter.part(&sections)?);
    match found {
        Some(at) => parts[at] = &part,
        None => {
            let own = chapters.iter().position(|known| known.name() == chapter.name());
            let later =
                |part: &&str| chapters.iter().skip(own.unwrap_or(0)).any(|c| is_of(part, *c));
            let at = parts.iter().position(later).unwrap_or(parts.len());
            parts.insert(at, &part);
        }
    }
    let parts: Vec<String> = parts.iter().map(|part| format!("{}\n", part.trim_end())).collect();
    Ok(parts.join("\n"))
}

/// Rebuilds the sections of a part in the order of their names: fresh ones replace those of the
/// same name.
pub fn sections<'a>(
    part: &str,
    names: impl Iterator<Item = &'a str>,
    fresh: impl Fn(&str) -> Option<String>,
) -> String {
    let old: Vec<&str> = part.split("\n## ").skip(1).collect();
    let kept = |name: &str| {
        let found = old.iter().find(|text| text.starts_with(&format!("{name}\n")));
        found.map(|text| format!("## {}\n", text.trim_end()))
    };
    let all: Vec<String> = names.filter_map(|name| fresh(name).or_else(|| kept(name))).collect();
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::CHAPTERS;
    use super::*;

    fn merge(page: &str, chapter: &dyn Chapter, name: &'static str, text: &str) -> String {
        let section = Section { name, text: format!("## {name}\n{text}\n") };
        merged(page, &CHAPTERS, chapter, &section).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn sections_take_the_place_of_their_own_and_of_no_others() {
        let [telemetry, _, _, placement, nemo, _] = CHAPTERS;
        let page = "before\n\n# MULTI-CLOCK: claims about placement policies\nhead\n\n\
                    ## ycsb-a\nold a\n\n## ycsb-b\nold b\n\n## gone\nold\n\n# Other\nx\n";
        let page = merge(page, placement, "ycsb-a", "new a");
        let title = placement.title();
        assert!(page.starts_with(&format!("before\n\n# {title}\n\nMade by")), "{page}");
        assert!(page.contains("## ycsb-a\nnew a\n\n## ycsb-b\nold b\n\n# Other\nx\n"), "{page}");
        assert!(!page.contains("old a") && !page.contains("## gone"), "{page}");
        let page = merge(&page, nemo, "nemo-flexkvs", "r");
        let page = merge(&page, telemetry, "masim-1gb", "m");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("## masim-1gb\nm\n\n# MULTI-CLOCK") < at("## ycsb-a\nnew a"));
        assert!(at("old b\n\n# Other\nx\n\n# NEMO") < at("## nemo-flexkvs\nr\n"));
    }

    #[test]
    fn nemo_keeps_its_sections_in_their_order() {
        let nemo = CHAPTERS[4];
        let page = merge("", nemo, "nemo-neighbour", "one");
        let page = merge(&page, nemo, "nemo-flexkvs", "two");
        let page = merge(&page, nemo, "nemo-neighbour", "three");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        let [flexkvs, neighbour] = ["flexkvs\ntwo\n\n", "neighbour\nthree\n\n"].map(at);
        assert!(flexkvs < neighbour && neighbour < at("## Section 6.1"));
        assert!(!page.contains("\none\n") && page.matches("## What is not judged").count() == 1);
    }

    // Each section of the pages in this repository, put in its own place: nothing changes.
    #[test]
    fn pages_are_written_as_they_are() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for chapter in CHAPTERS {
            let page = format!("{root}{}", chapter.page());
            let page = std::fs::read_to_string(page).expect("it is there");
            for name in chapter.experiments() {
                // An experiment without a section has not been run for this page yet.
                let Some(start) = page.find(&format!("## {name}\n")) else { continue };
                let rest = &page[start..];
                let ends = ["\n## ", "\n# "].map(|next| rest.find(next));
                let end = ends.into_iter().flatten().min().unwrap_or(rest.len());
                let text = format!("{}\n", rest[..end].trim_end());
                let section = Section { name, text };
                let again = merged(&page, &CHAPTERS, chapter, &section).expect("it merges");
                assert!(again == page, "{name} changes the page");
            }
        }
    }
}
