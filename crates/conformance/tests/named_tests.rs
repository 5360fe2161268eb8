//! Pages that name a test for each of their sentences: the tests are there.

use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The texts in backquotes of a page.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

/// Tests that a page names as `FILE.rs: TEST`, and that are not there.
fn missing(page: &str) -> Vec<String> {
    let names = quoted(page).filter_map(|text| text.split_once(".rs: "));
    let is_there = |(file, test): &(&str, &str)| {
        let text = std::fs::read_to_string(Path::new(ROOT).join(format!("{file}.rs")));
        text.is_ok_and(|text| text.contains(&format!("fn {test}")))
    };
    names.filter(|name| !is_there(name)).map(|(file, test)| format!("{file}.rs: {test}")).collect()
}

/// Cases of lab/suite.toml that a page names as `VM "NAME"`, and that are not there.
fn missing_cases(page: &str) -> Vec<&str> {
    let suite = std::fs::read_to_string(Path::new(ROOT).join("lab/suite.toml")).unwrap();
    let named = page.match_indices("VM \"").flat_map(|(at, _)| {
        // Several names follow each other: "a", "b".
        let list = page[at + 3..].split(['|', ';', '(']).next().unwrap_or_default();
        list.split('"').skip(1).step_by(2)
    });
    named.filter(|name| !suite.contains(&format!("name = \"{name}\"\n"))).collect()
}

#[test]
fn tests_that_pages_name_are_there() {
    for page in ["ARCHITECTURE.md", "SECURITY.md"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
        assert_eq!(missing(&text), [] as [&str; 0], "{page}");
        let one_line = text.replace("\n", " ");
        assert_eq!(missing_cases(&one_line), [] as [&str; 0], "{page}");
    }
}

#[test]
fn names_that_are_not_there_are_found() {
    let own = "crates/conformance/tests/named_tests.rs: names_that_are_not_there_are_found";
    let page = format!("`{own}` holds, `{own}_twice` does not; VM \"smoke\", \"smoke on Mars\".");
    assert_eq!(missing(&page), [format!("{own}_twice")]);
    assert_eq!(missing_cases(&page), ["smoke on Mars"]);
}
