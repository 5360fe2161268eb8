//! Body of the fuzz target `trace`; crates/trace replays the corpus with it.

use std::io::Cursor;

use tierscope_core::Time;
use tierscope_trace::compact::{Reader, Writer};
use tierscope_trace::{Batch, Format, Input, Kind, Options, Source, of_input};

/// Maximum number of batches that are read from an input.
const BATCHES: usize = 1000;

/// Reads all batches of a source, continuing after errors; returns the number of errors.
fn drain(source: &mut dyn Source, all: &mut Batch) -> usize {
    let mut errors = 0;
    for _ in 0..BATCHES {
        match source.fill(all) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => {
                errors += 1;
                if !source.go_on() {
                    break;
                }
            }
        }
    }
    errors
}

/// Reads `data` as `format`, or as the format that it looks like. Accesses survive writing and
/// reading in the compact format, thread by thread. Returns their number if there was no error.
pub(crate) fn read(data: &[u8], format: Option<Format>) -> Option<usize> {
    let input = Input::new("input", Box::new(Cursor::new(data.to_vec()))).ok()?;
    let mut trace = of_input(input, Options { format, strict: true }).ok()?;
    let mut batch = Batch::default();
    let errors = drain(&mut *trace.source, &mut batch);
    let accesses = batch.accesses.len();
    assert!(batch.events.iter().all(|(at, _)| *at <= accesses));
    // A damaged file may have unordered times within a thread, which the writer refuses.
    if in_order(&batch) {
        assert_eq!(by_thread(&again(&batch)), by_thread(&batch));
    }
    (errors == 0).then_some(accesses)
}

/// Whether the times of each thread are in order.
fn in_order(batch: &Batch) -> bool {
    by_thread(batch).is_sorted_by_key(|access| (access.0, access.1))
}

/// The batch after writing and reading in the compact format.
fn again(batch: &Batch) -> Batch {
    let mut writer = Writer::new("memory", Vec::new()).expect("memory can be written to");
    writer.batch(batch).expect("it is in order");
    let (bytes, summary, _) = writer.finish(true).expect("memory can be written to");
    assert_eq!(summary.total(), batch.accesses.len() as u64);
    let mut reader = Reader::new("memory", &bytes[..]).expect("it was just written");
    let mut again = Batch::default();
    assert_eq!(drain(&mut reader, &mut again), 0);
    assert_eq!(reader.summary(), Some(&summary));
    again
}

/// Thread, time, address, length and kind of each access, grouped by thread.
fn by_thread(batch: &Batch) -> Vec<(u32, Time, u64, u16, Kind)> {
    let fields = |a: &tierscope_trace::Access| (a.thread, a.time, a.address, a.bytes, a.kind);
    let mut all: Vec<_> = batch.accesses.iter().map(fields).collect();
    all.sort_by_key(|access| access.0);
    all
}
