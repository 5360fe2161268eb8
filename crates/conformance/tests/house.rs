//! Checks that `crates/cli` holds arguments, printing and one file for each command: it is small,
//! and its files import each other in no large circle. Tests do not count: neither `#[cfg(test)]`
//! items nor files called `tests.rs`. `--nocapture` prints the figures.

#[path = "source/code.rs"]
mod code;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use code::code;
use source::rust_files;

/// Maximum number of lines that are not blank.
const LINES: usize = 9_000;
/// Maximum number of files in a circle of imports.
const CIRCLE: usize = 3;

const CLI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/src");

/// A module by its path from the crate's root, which is empty.
type Module = Vec<String>;

/// The text without `#[cfg(test)]` items. Items end as rustfmt leaves them: by `;` in the first
/// line, or by a brace in the column of the first line.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let first = lines.by_ref().find(|line| !line.trim_start().starts_with("#["));
        if first.is_some_and(|first| first.ends_with('{')) {
            lines.by_ref().find(|line| *line == end);
        }
    }
    kept
}

/// Paths in a text, as `a::b::c`; a tree of imports gives a path for each of its leaves.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    // The paths before each open brace that follows `::`, or `None` for another brace.
    let mut open: Vec<Option<Vec<String>>> = Vec::new();
    let (mut path, mut joined): (Vec<String>, bool) = (Vec::new(), false);
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if word > 0 {
            if !joined {
                found.push(std::mem::take(&mut path));
                path = open.last().cloned().flatten().unwrap_or_default();
            }
            path.push(rest[..word].to_owned());
            (at, joined) = (at + word, false);
        } else if rest.starts_with("::") {
            (at, joined) = (at + 2, true);
        } else {
            match c {
                '{' if joined => open.push(Some(std::mem::take(&mut path))),
                '{' => open.push(None),
                '}' => drop(open.pop()),
                _ => {}
            }
            (at, joined) = (at + c.len_utf8(), false);
        }
    }
    found.push(path);
    found.retain(|path| path.len() > 1);
    found
}

/// The module that a path leads to from within `own`, as deep as there are modules; `None` for a
/// path into another crate, or into a type.
fn target(own: &Module, path: &[String], all: &BTreeSet<Module>) -> Option<Module> {
    let mut at = own.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|word| word == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        first => {
            at.push(first.to_owned());
            if !all.contains(&at) {
                return None;
            }
            rest = &path[1..];
        }
    }
    for word in rest {
        at.push(word.clone());
        if !all.contains(&at) {
            at.pop();
            break;
        }
    }
    Some(at)
}

/// Modules of a crate, and the modules that each imports from.
fn imports(root: &Path, files: &[PathBuf]) -> BTreeMap<Module, BTreeSet<Module>> {
    let module = |file: &PathBuf| -> Module {
        let path = file.strip_prefix(root).expect("it is below").with_extension("");
        let mut module: Module = path.iter().map(|n| n.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| last == "mod" || last == "lib");
        module
    };
    let all: BTreeSet<Module> = files.iter().map(module).collect();
    let of = |file: &PathBuf| {
        let own = module(file);
        let text = code(&without_tests(&fs::read_to_string(file).expect("it can be read")));
        let mut targets: BTreeSet<Module> =
            paths(&text).iter().filter_map(|path| target(&own, path, &all)).collect();
        targets.remove(&own);
        (own, targets)
    };
    files.iter().map(of).collect()
}

/// Everything that a module imports from, directly or not.
fn reached(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module.clone()) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    seen
}

/// Groups of modules that all import from each other, directly or not.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<String>> {
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module, reached(module, imports))).collect();
    let around = |module: &&Module| all[*module].contains(*module);
    let circle = |module: &Module| -> Vec<String> {
        let others = all[module].iter().filter(|other| all[other].contains(module));
        others.map(|other| other.join("/")).collect()
    };
    imports.keys().filter(around).map(circle).collect()
}

fn product_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    rust_files(Path::new(CLI), &mut files);
    files.retain(|file| !file.ends_with("tests.rs") && !file.iter().any(|part| part == "tests"));
    files
}

#[test]
fn the_command_line_is_small() {
    let lines = |file: &PathBuf| {
        let text = without_tests(&fs::read_to_string(file).expect("it can be read"));
        text.lines().filter(|line| !line.trim().is_empty()).count()
    };
    let files = product_files();
    let all: usize = files.iter().map(lines).sum();
    println!("crates/cli/src: {all} lines in {} files, at most {LINES}", files.len());
    assert!(all <= LINES, "crates/cli/src has {all} lines outside tests, more than {LINES}");
}

#[test]
fn the_command_line_has_no_large_circles() {
    let files: Vec<PathBuf> = product_files();
    let circles = circles(&imports(Path::new(CLI), &files));
    for circle in &circles {
        println!("crates/cli/src: a circle of {}: {}", circle.len(), circle.join(", "));
    }
    let large: Vec<_> = circles.iter().filter(|circle| circle.len() > CIRCLE).collect();
    assert!(large.is_empty(), "circles of more than {CIRCLE} files: {large:?}");
}

#[test]
fn paths_are_found_in_trees_and_bodies() {
    let text = "use crate::{a::b, c::{self, d}}; // crate::e\nfn f() { super::g::h(\"crate::i\") }";
    let joined: Vec<String> = paths(&code(text)).iter().map(|path| path.join("::")).collect();
    assert_eq!(joined, ["crate::a::b", "crate::c::self", "crate::c::d", "super::g::h"]);
}

#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_owned()];
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")];
    let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in edges {
        imports.entry(module(from)).or_default().insert(module(to));
        imports.entry(module(to)).or_default();
    }
    assert_eq!(circles(&imports), [["a", "b", "c"].map(str::to_owned).to_vec()].into());
}

#[test]
fn tests_do_not_count() {
    let text = "a\n#[cfg(test)]\nmod tests {\n    x\n}\nb\n    #[cfg(test)]\n    use c;\nd\n";
    assert_eq!(without_tests(text), "a\nb\nd\n");
}
