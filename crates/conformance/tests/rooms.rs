//! Allowed dependencies between crates: the arrows of ARCHITECTURE.md, compared with the output of
//! `cargo metadata`.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// A crate and the crates that it may depend on. A crate that is not listed may not exist.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("elf", &[]),
    ("hw", &["core"]),
    ("wire", &["core"]),
    ("instruments", &["core"]),
    ("policies", &["core"]),
    ("workloads", &["core", "wire"]),
    ("toucher", &["core", "workloads"]),
    ("linux", &["core", "wire", "nemo"]),
    ("nemo", &["core", "wire"]),
    ("trace", &["core", "workloads"]),
    ("record", &["core"]),
    ("sim", &["core", "hw", "workloads", "wire"]),
    ("tlb", &["core", "elf", "hw", "wire", "workloads", "trace", "sim"]),
    ("report", &["core", "record"]),
    ("exchange", &["core", "record", "trace"]),
    ("conformance", &["core"]),
    (
        "cli",
        &[
            "core",
            "hw",
            "wire",
            "instruments",
            "policies",
            "workloads",
            "linux",
            "nemo",
            "trace",
            "tlb",
            "record",
            "sim",
            "report",
            "exchange",
        ],
    ),
    (
        "lab",
        &[
            "core",
            "hw",
            "wire",
            "instruments",
            "linux",
            "nemo",
            "record",
            "report",
            "workloads",
            "toucher",
        ],
    ),
    ("plugin", &["core", "elf", "hw", "wire", "nemo"]),
];

#[test]
fn rooms_use_only_what_the_plan_allows() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .other_options(vec!["--offline".into()])
        .no_deps()
        .exec()
        .expect("cargo describes the workspace");
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let room = |package: &str| package.strip_prefix("tierscope-").map(str::to_owned);
    for package in &metadata.packages {
        let from = room(&package.name).expect("packages are named tierscope-ROOM");
        let allowed = arrows.get(from.as_str()).unwrap_or_else(|| panic!("unknown room {from}"));
        let used = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        for to in used.filter_map(|dependency| room(&dependency.name)) {
            assert!(allowed.contains(&to.as_str()), "{from} may not use {to}");
        }
    }
}

#[test]
fn conformance_is_for_tests_only() {
    let allowed = ARROWS.iter().any(|(_, uses)| uses.contains(&"conformance"));
    assert!(!allowed, "nothing but tests uses conformance");
}
