//! Allowed dependencies between crates: the table of rooms in ARCHITECTURE.md, compared with the
//! output of `cargo metadata`. There is no other list.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Rooms that are crates, and the rooms that each may use. A row is
/// `` | `FOLDER` | contents | ROOM, ROOM | ``; "–" stands for none, and a room without an entry in
/// the last column is no crate. Footnote marks are ignored.
fn allowed(page: &str) -> Arrows {
    let section = page.split("\n## ").find(|section| section.starts_with("Rooms\n"));
    let rows = section.expect("there is a section on rooms").lines();
    let room = |row: &str| {
        let cells: Vec<&str> = row.strip_prefix("| `")?.split(" | ").collect();
        let [name, _, uses] = cells[..] else { return None };
        let name = name.trim_end_matches('`').rsplit('/').next()?;
        let uses = uses.trim_end_matches('|').trim();
        let plain = |room: &str| room.trim().trim_end_matches(|c: char| !c.is_ascii()).to_owned();
        let uses = uses.split(',').map(plain).filter(|room| !room.is_empty());
        row.trim_end().ends_with(" |").then(|| (name.to_owned(), uses.collect()))
    };
    rows.filter_map(room).collect()
}

/// Dependencies of each crate of the workspace on others, without development dependencies.
fn used() -> Arrows {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .other_options(vec!["--offline".into()])
        .no_deps()
        .exec()
        .expect("cargo describes the workspace");
    let room = |package: &str| package.strip_prefix("tierscope-").map(str::to_owned);
    let of = |package: &cargo_metadata::Package| {
        let from = room(&package.name).expect("packages are named tierscope-ROOM");
        let used = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        (from, used.filter_map(|dependency| room(&dependency.name)).collect())
    };
    metadata.packages.iter().map(of).collect()
}

fn of_page() -> Arrows {
    allowed(&std::fs::read_to_string(PAGE).expect("ARCHITECTURE.md is there"))
}

#[test]
fn rooms_use_only_allowed_rooms() {
    let allowed = of_page();
    for (from, uses) in used() {
        let may =
            allowed.get(&from).unwrap_or_else(|| panic!("ARCHITECTURE.md has no room {from}"));
        let more: Vec<_> = uses.difference(may).collect();
        assert!(more.is_empty(), "by ARCHITECTURE.md {from} may not use {more:?}");
        let unused: Vec<_> = may.difference(&uses).collect();
        assert!(unused.is_empty(), "by ARCHITECTURE.md {from} uses {unused:?}, but it does not");
    }
}

#[test]
fn every_room_with_dependencies_is_a_crate() {
    let used = used();
    for (room, uses) in of_page() {
        assert!(uses.is_empty() || used.contains_key(&room), "there is no crate {room}");
    }
}

#[test]
fn conformance_is_for_tests_only() {
    let users = used().into_iter().filter(|(_, uses)| uses.contains("conformance"));
    let users: Vec<String> = users.map(|(room, _)| room).collect();
    assert!(users.is_empty(), "{users:?} use conformance outside of their tests");
}

#[test]
fn rows_are_read() {
    let page = "# A\n\n## Rooms\n| room | holds | may use |\n| --- | --- | --- |\n\
                | `crates/core` | words | – |\n| `lab/plugin` | a | core, conformance² |\n\
                | `kmod` | C | |\n\n## Next\n| `crates/no` | a | core |\n";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected = [("core", names(&[])), ("plugin", names(&["conformance", "core"]))];
    let read: Vec<_> = allowed(page).into_iter().filter(|(room, _)| room != "kmod").collect();
    assert_eq!(read, expected.map(|(room, uses): (&str, BTreeSet<String>)| (room.into(), uses)));
}
