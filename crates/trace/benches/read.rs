//! Reading and writing speed of traces on one core, in records per second: `cargo bench -p
//! tierscope-trace`.
//!
//! The accesses are those of a real program: tests/fixtures/true.lackey.xz, repeated ten times.
//! TRACE=FILE replaces it by another lackey trace.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierscope_trace::compact::{Reader, Writer};
use tierscope_trace::csv::CsvWriter;
use tierscope_trace::{Access, Batch, Input, Kind, Options, Source, Tally, of_input};

/// The lackey trace as uncompressed text.
fn text() -> Vec<u8> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/true.lackey.xz");
    let path = std::env::var("TRACE").unwrap_or_else(|_| own.to_owned());
    let mut bytes = Vec::new();
    let mut input = Input::open(Path::new(&path)).expect("it is there");
    input.bytes.read_to_end(&mut bytes).expect("it is whole");
    if path == own { bytes.repeat(10) } else { bytes }
}

/// Reads a source to its end, batch by batch; returns the number of accesses and a sum over them,
/// so that the compiler cannot skip any.
fn drain(source: &mut dyn Source, mut each: impl FnMut(&[Access])) -> u64 {
    let mut batch = Batch::default();
    let mut count = 0;
    while source.fill(&mut batch).expect("it is sound") {
        count += batch.accesses.len() as u64;
        each(&batch.accesses);
        batch.clear();
    }
    count + batch.accesses.len() as u64
}

/// A reader of text, whose format is detected.
fn reader(text: &[u8]) -> Box<dyn Source> {
    let input = Input::new("text", Box::new(std::io::Cursor::new(text.to_vec()))).expect("memory");
    of_input(input, Options::default()).expect("a known format").source
}

fn as_csv(accesses: &[Access]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = CsvWriter::new("memory", &mut text).expect("memory");
    let batch = Batch { accesses: accesses.to_vec(), events: Vec::new() };
    writer.batch(&batch).expect("memory");
    writer.finish(true).expect("memory");
    text
}

fn packed(accesses: &[Access]) -> Vec<u8> {
    let mut writer = Writer::new("memory", Vec::new()).expect("memory");
    let batch = Batch { accesses: accesses.to_vec(), events: Vec::new() };
    writer.batch(&batch).expect("in order");
    writer.finish(true).expect("memory").0
}

fn traces(criterion: &mut Criterion) {
    let text = text();
    let mut all = Vec::new();
    let count = drain(&mut *reader(&text), |accesses| all.extend_from_slice(accesses));
    let data: Vec<_> = all.iter().copied().filter(|access| access.kind != Kind::Fetch).collect();

    for (name, text) in [("lackey text", &text), ("CSV", &as_csv(&all))] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(count)).sample_size(10);
        group.bench_function("read", |bencher| {
            bencher.iter(|| drain(&mut *reader(text), |accesses| _ = black_box(accesses)));
        });
        group.finish();
    }

    for (name, accesses) in [("compact, all", &all), ("compact, data", &data)] {
        let bytes = packed(accesses);
        let each = bytes.len() as f64 / accesses.len() as f64;
        println!("{name}: {} accesses, {each:.3} bytes an access", accesses.len());
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(accesses.len() as u64)).sample_size(10);
        group.bench_function("read", |bencher| {
            bencher.iter(|| {
                let mut reader = Reader::new("memory", &bytes[..]).expect("ours");
                drain(&mut reader, |accesses| _ = black_box(accesses))
            });
        });
        group.bench_function("write", |bencher| bencher.iter(|| packed(accesses).len()));
        group.finish();
    }

    let mut group = criterion.benchmark_group("summary");
    group.throughput(Throughput::Elements(count)).sample_size(10);
    group.bench_function("count", |bencher| {
        bencher.iter(|| {
            let mut tally = Tally::default();
            all.iter().for_each(|access| tally.access(access));
            tally.summary(true).total()
        });
    });
    group.finish();
}

criterion_group!(benches, traces);
criterion_main!(benches);
