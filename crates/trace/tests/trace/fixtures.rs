//! Files of foreign formats. tests/fixtures/README.md describes their origin.

use tierscope_trace::compact::{Reader, Writer};
use tierscope_trace::{Batch, Event, Format, Kind, Options, Tally, open, read_all};

use crate::{fixture, read};

// Valgrind counted 127,651 instructions, and printed 39,645 lines of data accesses.
#[test]
fn a_real_trace_of_lackey() {
    let trace = open(&fixture("true.lackey.xz"), Options::default()).unwrap();
    assert_eq!(trace.format, Format::Lackey);
    let batch = read("true.lackey.xz");
    let count = |kind| batch.accesses.iter().filter(|access| access.kind == kind).count();
    assert_eq!(count(Kind::Fetch), 127_651);
    assert_eq!(batch.accesses.len() - count(Kind::Fetch), 39_645);
    let first = batch.accesses[0];
    assert_eq!((first.kind, first.address, first.bytes), (Kind::Fetch, 0x0401_ab70, 3));
}

#[test]
fn a_real_trace_takes_less_than_two_bytes_an_access() {
    let batch = read("true.lackey.xz");
    let mut data = batch.clone();
    data.accesses.retain(|access| access.kind != Kind::Fetch);
    for batch in [batch, data] {
        let mut writer = Writer::new("memory", Vec::new()).unwrap();
        writer.batch(&batch).unwrap();
        let (bytes, summary, length) = writer.finish(true).unwrap();
        assert_eq!((bytes.len() as u64, summary.total()), (length, batch.accesses.len() as u64));
        let each = bytes.len() as f64 / batch.accesses.len() as f64;
        println!("{each:.3} bytes an access, of {}", batch.accesses.len());
        assert!(each < 2.0, "{each}");
        let mut again = Batch::default();
        read_all(&mut Reader::new("memory", &bytes[..]).unwrap(), &mut again).unwrap();
        assert_eq!(again.accesses, batch.accesses);
    }
}

/// Checks a file written by our generator: two alternating threads, 500 steps of a fetch, a load
/// and a store each.
fn as_generated(name: &str, format: Format, timed: bool, threads: usize) {
    let trace = open(&fixture(name), Options::default()).unwrap();
    assert_eq!(trace.format, format, "{name}");
    let batch = read(name);
    let mut tally = Tally::default();
    batch.events.iter().for_each(|(_, event)| tally.event(event));
    batch.accesses.iter().for_each(|access| tally.access(access));
    let summary = tally.summary(true);
    assert_eq!(summary.accesses(), [500, 500, 0, 500], "{name}");
    assert_eq!((summary.threads.len(), summary.last.0 > 0), (threads, timed), "{name}");
    let loads: Vec<_> = batch.accesses.iter().filter(|a| a.kind == Kind::Load).collect();
    let first = if name.contains("32") { 0 } else { 0x7f00_0000_0000 };
    assert!(loads.iter().enumerate().all(|(at, a)| a.address == first + 64 * at as u64));
    let announced = |event: &Event| matches!(event, Event::Thread { .. });
    assert!(batch.events.iter().all(|(_, event)| announced(event)));
}

#[test]
fn generated_files_hold_their_accesses() {
    as_generated("steps.drmemtrace.gz", Format::Drmemtrace, true, 2);
    as_generated("steps.drmemtrace.zip", Format::Drmemtrace, true, 2);
    as_generated("steps32.drmemtrace.lz4", Format::Drmemtrace, true, 2);
    as_generated("steps.champsim.xz", Format::Champsim, false, 1);
    as_generated("steps.cloudsuite.gz", Format::ChampsimCloudsuite, false, 2);
}
