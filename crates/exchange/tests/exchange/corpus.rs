//! Replays the corpus of the fuzz target `import`.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;

#[path = "../../../../fuzz/import_input.rs"]
mod import_input;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/import")
}

/// DAMON's tracepoint as text: three windows of two targets.
fn trace() -> String {
    let mut text = String::from("# ========\n");
    for window in 1..=3u64 {
        for (target, regions) in [(0, 2u64), (1, 1)] {
            for region in 0..regions {
                let (start, end) = (region * 8192, region * 8192 + 4096);
                text += &format!(
                    "       kdamond.0  4452 [000] {window}.10{target}{region}: damon:damon_aggregated: \
                     target_id={target} nr_regions={regions} {start}-{end}: {} {window}\n",
                    window + region
                );
            }
        }
    }
    text
}

/// The debugfs record file: two aggregations of one target.
fn record_file() -> Vec<u8> {
    let mut bytes = b"damon_recfmt_ver\x02\0\0\0".to_vec();
    for second in 1..=2u64 {
        bytes.extend(second.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(42u64.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(4096u64.to_le_bytes());
        bytes.extend(8192u64.to_le_bytes());
        bytes.extend(7u32.to_le_bytes());
    }
    bytes
}

const JSON: &str = r#"[{"kdamond_idx": 0, "context_idx": 0, "scheme_idx": null, "target_id": 0,
 "intervals": {"sample_us": "5000", "aggr_us": "100000", "ops_update_us": "1000000"}, "scheme_filters": [],
 "snapshots": [{"start_time": "0", "end_time": "100000000", "total_bytes": "4096", "damos_stats": null,
  "sample_interval_us": null, "regions": [{"start": "4,096", "end": "8,192",
   "nr_accesses": {"samples": 3, "percent": null}, "age": {"usec": null, "aggr_intervals": "9"}}]}]}]"#;

const SAMPLES: &str = "redis 4711 [001] 5.000100: 1 cpu/mem-loads/P: 7f1234567890 |OP LOAD| 55d0c0de1234 f (redis)\n\
                       redis 4711 [001] 5.100100: 1 cpu/mem-loads/P: 7f1234567890 |OP LOAD| 55d0c0de1234 f (redis)\n\
                       other 4712 [001] 9.100100: 1 cpu/mem-stores/P: 7f1234560000 |OP STORE| 55d0c0de1234 g (redis)\n";

fn compressed(text: &str) -> Vec<u8> {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(text.as_bytes()).unwrap();
    zlib.finish().unwrap()
}

/// Seed inputs of the fuzzer. The names of valid ones begin with `good` and their number of
/// windows.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("good-3-trace", trace().into()),
        ("good-2-record", record_file()),
        ("good-1-json", JSON.into()),
        ("good-1-json-compressed", compressed(JSON)),
        ("good-2-samples", SAMPLES.into()),
        ("bad-json-cut", JSON[..300].into()),
        ("bad-record-cut", record_file()[..50].into()),
        ("bad-compressed-cut", compressed(JSON)[..40].into()),
        ("good-3-trace-damaged", trace().replace("nr_regions=2", "nr_regions=x").into()),
        ("bad-text", b"#!/bin/sh\necho no recording\n".into()),
    ]
}

#[test]
fn the_corpus_is_read_or_refused() {
    if std::env::var_os("TIERSCOPE_ACCEPT").is_some() {
        seeds().iter().for_each(|(name, data)| fs::write(corpus().join(name), data).unwrap());
    }
    let mut count = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let windows = import_input::import(&fs::read(&path).unwrap());
        if let Some(rest) = name.strip_prefix("good-") {
            let expected = rest.split('-').next().unwrap().parse().ok();
            assert_eq!(windows, expected, "{name}");
        } else if name.starts_with("bad-") {
            assert_eq!(windows, None, "{name}");
        }
        count += 1;
    }
    assert!(
        count >= seeds().len(),
        "make seeds with TIERSCOPE_ACCEPT=1 cargo test -p tierscope-exchange corpus"
    );
}

proptest! {
    // A minimal fuzzer, which runs without a nightly compiler.
    #[test]
    fn a_few_bytes_changed_do_no_harm(
        seed in 0..seeds().len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut data = seeds().swap_remove(seed).1;
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        import_input::import(&data);
    }
}
