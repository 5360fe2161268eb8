//! The memory that an import takes at most, with the worst files that can be made: some kilobytes
//! that unpack to a thousand times as much.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::ZlibEncoder};
use tierscope_conformance::peak::{self, Peak};
use tierscope_exchange::{Options, import};

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// The ceiling of all readers of foreign files.
const CEILING: usize = 256 << 20;
/// Most regions of a snapshot.
const MOST_REGIONS: usize = 1 << 18;

const REGION: &str =
    r#"{"start":"FIRST","end":"LAST","nr_accesses":{"samples":1},"age":{"aggr_intervals":1}},"#;

/// A record of damo's with one snapshot of `regions`, each made from its number, packed as damo
/// does.
fn record(path: &Path, regions: usize, name: &str) {
    let mut out = ZlibEncoder::new(File::create(path).unwrap(), Compression::fast());
    let head = format!(r#"[{{"kdamond_idx":0,"{name}":0,"target_id":1,"#);
    out.write_all(head.as_bytes()).unwrap();
    out.write_all(br#""intervals":{"sample_us":5000,"aggr_us":100000},"snapshots":[{"#).unwrap();
    out.write_all(br#""start_time":0,"end_time":100000000,"regions":["#).unwrap();
    for number in 0..regions as u64 {
        let (start, end) = (number << 12, (number + 1) << 12);
        let region = REGION.replace("FIRST", &start.to_string()).replace("LAST", &end.to_string());
        let region =
            if number + 1 == regions as u64 { region.trim_end_matches(',') } else { &region };
        out.write_all(region.as_bytes()).unwrap();
    }
    out.write_all(b"]}]}]").unwrap();
    out.finish().unwrap();
}

/// A file of one text that never ends.
fn endless(path: &Path, head: &[u8]) {
    let mut out = ZlibEncoder::new(File::create(path).unwrap(), Compression::fast());
    out.write_all(head).unwrap();
    for _ in 0..512 {
        out.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    out.finish().unwrap();
}

/// Imports a file; returns the error, if there is one.
fn refusal(path: PathBuf) -> Option<String> {
    let scratch = tempfile::tempfile().unwrap();
    let imported = import(&[path], Options::default(), Box::new(scratch), &mut |_, _| Ok(()));
    imported.err().map(|error| error.to_string())
}

// One test: the allocator counts all threads.
#[test]
fn no_file_takes_more_than_the_ceiling() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    record(&at("regions"), MOST_REGIONS, "context_idx");
    record(&at("more regions"), 8 * MOST_REGIONS, "context_idx");
    record(&at("a long key"), 1, &"k".repeat(1 << 20));
    endless(&at("an endless key"), b"[{\"");
    endless(&at("an endless text"), b"[{\"target_id\":\"");
    fs::write(at("deep"), "[".repeat(1 << 24)).unwrap();
    for (name, cause) in [
        ("regions", None),
        ("more regions", Some("more than 262144 regions")),
        ("a long key", Some("a text is longer than 65536 bytes")),
        ("an endless key", Some("a text is longer than 65536 bytes")),
        ("an endless text", Some("a text is longer than 65536 bytes")),
        ("deep", Some("")),
    ] {
        let (refused, bytes) = peak::of(|| refusal(at(name)));
        let length = at(name).metadata().unwrap().len();
        eprintln!("{name}: {} KiB of file, {} MiB of memory", length >> 10, bytes >> 20);
        assert!(bytes <= CEILING, "{name}: {bytes} bytes");
        match cause {
            None => assert_eq!(refused, None, "{name}"),
            Some(cause) => assert!(refused.unwrap().contains(cause), "{name}"),
        }
    }
}
