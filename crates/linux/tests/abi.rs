//! Compiles `kmod/tierscope_abi.h` and compares it with the Rust twin, field by field.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use tierscope_linux::abi;

type Layout = BTreeMap<String, u64>;

/// Collects a struct's size and the offsets of its fields, under their C names.
macro_rules! layout {
    ($out:ident, $c_name:literal, $rust:ty, [$($field:ident),+ $(,)?]) => {
        $out.insert($c_name.to_string(), size_of::<$rust>() as u64);
        $($out.insert(
            format!("{}.{}", $c_name, stringify!($field)),
            offset_of!($rust, $field) as u64,
        );)+
    };
}

macro_rules! constants {
    ($out:ident, [$($name:ident),+ $(,)?]) => {
        $($out.insert(format!("TIERSCOPE_{}", stringify!($name)), abi::$name as u64);)+
    };
}

fn rust_layout() -> Layout {
    let mut out = Layout::new();
    layout!(
        out,
        "tierscope_info",
        abi::Info,
        [
            size,
            abi,
            levels,
            hardware_levels,
            features,
            max_probes,
            lock_budget_us,
            flush_interval_us,
        ]
    );
    layout!(
        out,
        "tierscope_attach",
        abi::Attach,
        [size, pid, selftest_addr, flags, proven_levels, owner, reserved]
    );
    layout!(out, "tierscope_probe", abi::Probe, [addr, level, op, state, reached, kind, reserved]);
    layout!(
        out,
        "tierscope_probes",
        abi::Probes,
        [size, count, probes, done, lock_holds, lock_ns_max, cleared_by_others,]
    );
    layout!(
        out,
        "tierscope_scan",
        abi::Scan,
        [
            size,
            level,
            flags,
            reserved,
            start,
            end,
            young,
            present,
            cursor,
            judged,
            visited,
            found_present,
            found_young,
            pruned,
            leaves,
            lock_holds,
            lock_ns_max,
            cleared_by_others,
        ]
    );
    layout!(out, "tierscope_flush", abi::Flush, [size, cpus]);
    layout!(out, "tierscope_holds", abi::Holds, [ns_max, by_length]);
    layout!(
        out,
        "tierscope_stats",
        abi::Stats,
        [
            size,
            reserved,
            probes,
            scanned,
            contended,
            flushes,
            interrupts,
            mmap_holds,
            mapping_holds,
        ]
    );
    constants!(
        out,
        [
            ABI_VERSION,
            MAX_LEVELS,
            HOLD_BUCKETS,
            FEATURE_PTI,
            FEATURE_LA57,
            FEATURE_HANDBACK,
            FEATURE_MAPPING_LOCKS,
            ATTACH_SHARED,
            OP_TEST,
            OP_TEST_AND_CLEAR,
            STATE_UNMAPPED,
            STATE_ABSENT,
            STATE_OLD,
            STATE_YOUNG,
            STATE_REFUSED,
            KIND_NONE,
            KIND_TABLE,
            KIND_PAGE,
            KIND_HUGETLB,
            KIND_SPECIAL,
            SCAN_CLEAR,
            SCAN_PRUNE,
            JUDGED,
            JUDGED_YOUNG,
            JUDGED_LEAF,
            IOC_MAGIC,
            IOC_INFO,
            IOC_ATTACH,
            IOC_PROBE,
            IOC_SCAN,
            IOC_STATS,
            IOC_FLUSH,
        ]
    );
    out
}

/// All names that the header defines, parsed from its text, so that none can be missing on the Rust
/// side.
fn names_in(header: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = String::new();
    for line in header.lines() {
        if let Some(name) = line.strip_prefix("struct ").and_then(|l| l.strip_suffix(" {")) {
            names.push(name.to_string());
            open = name.to_string();
        } else if line.starts_with("};") {
            open.clear();
        } else if !open.is_empty() {
            let field = line.trim().trim_end_matches(';').rsplit([' ', '\t']).next().unwrap();
            names.push(format!("{open}.{}", field.split('[').next().unwrap()));
        } else if let Some(define) = line.strip_prefix("#define TIERSCOPE_") {
            names.push(format!("TIERSCOPE_{}", define.split([' ', '\t']).next().unwrap()));
        }
    }
    names.retain(|n| n != "TIERSCOPE_ABI_H" && n != "TIERSCOPE_DEVICE_NAME");
    names
}

fn c_program(names: &[String]) -> String {
    let mut c = String::from("#include <stdio.h>\n#include <stddef.h>\n");
    c += "#include \"tierscope_abi.h\"\nint main(void) {\n";
    for name in names {
        let value = match name.split_once('.') {
            Some((of, field)) => format!("offsetof(struct {of}, {field})"),
            None if name.starts_with("TIERSCOPE_") => name.clone(),
            None => format!("sizeof(struct {name})"),
        };
        c += &format!("printf(\"{name} %llu\\n\", (unsigned long long)({value}));\n");
    }
    c + "return 0; }\n"
}

fn c_layout(kmod: &Path, names: &[String]) -> Layout {
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, c_program(names)).unwrap();
    let built = Command::new("cc").arg("-I").arg(kmod).arg(&source).arg("-o").arg(&binary).status();
    assert!(built.unwrap().success(), "the header does not compile");
    let printed = Command::new(&binary).output().unwrap().stdout;
    let line = |line: &str| {
        let (name, value) = line.split_once(' ').unwrap();
        (name.to_string(), value.parse().unwrap())
    };
    String::from_utf8(printed).unwrap().lines().map(line).collect()
}

#[test]
fn the_rust_twin_equals_the_header() {
    if Command::new("cc").arg("--version").output().is_err() {
        tierscope_conformance::skip::skipped("there is no C compiler `cc` to read the header with");
        return;
    }
    let kmod = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kmod");
    let header = std::fs::read_to_string(kmod.join("tierscope_abi.h")).unwrap();
    let names = names_in(&header);
    assert!(names.len() > 60, "only {} names found in the header", names.len());
    let (c, rust) = (c_layout(&kmod, &names), rust_layout());
    let differs = |name: &&String| c.get(*name) != rust.get(*name);
    for name in c.keys().chain(rust.keys()).filter(differs) {
        eprintln!("{name}: header {:?}, Rust {:?}", c.get(name), rust.get(name));
    }
    assert!(c == rust, "the names above differ: change src/abi.rs and raise the version");
    assert!(header.contains(&format!("TIERSCOPE_DEVICE_NAME\t\"{}\"", abi::DEVICE_NAME)));
}
