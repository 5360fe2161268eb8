//! Replays the corpus of the fuzz target `trace`.

use std::path::Path;

use tierscope_trace::Format;

#[path = "../../../../fuzz/trace_input.rs"]
mod trace_input;
#[path = "../../../../fuzz/verdict.rs"]
mod verdict;

/// Names begin with `good` or `bad`, then the format. Good files are read to the end, all others
/// are refused at some point, and no file crashes the reader of any format.
#[test]
fn traces_are_read_or_refused() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut seeds = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let data = std::fs::read(&path).unwrap();
        // The first byte chooses the format.
        let chosen = Format::ALL.get(usize::from(data[0])).copied();
        let read = trace_input::read(&data[1..], chosen);
        verdict::judge(&name, read.is_some_and(|accesses| accesses > 0));
        for format in Format::ALL {
            trace_input::read(&data[1..], Some(format));
        }
        seeds += 1;
    }
    assert!(seeds >= 14, "{seeds}");
}
