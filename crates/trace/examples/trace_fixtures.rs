//! Writes the generated (as opposed to traced) files of tests/fixtures and the corpus of the fuzz
//! target `trace`: `cargo run -p tierscope-trace --example trace_fixtures tests/fixtures
//! ../../fuzz/corpus/trace`, in crates/trace.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::Path;

use tierscope_core::Time;
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Format, Kind};

/// Steps of each thread; a step is a fetch, a load and a store.
const STEPS: u64 = 500;
/// A moment in 2026, in µs since 1601.
const MOMENT: u64 = 13_411_000_000_000_000;

/// Records of drmemtrace in the documented layout (see src/import/drmemtrace.rs).
struct Drmemtrace {
    bytes: Vec<u8>,
    value: usize,
}

impl Drmemtrace {
    fn put(&mut self, kind: u16, size: u16, value: u64) {
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        self.bytes.extend(&value.to_le_bytes()[..self.value]);
    }

    /// Two threads that alternate every 50 steps, with timestamps 10 µs apart.
    fn steps(value: usize, steps: u64) -> Vec<u8> {
        let mut file = Self { bytes: Vec::new(), value };
        let filetype = if value == 8 { 0x40 } else { 0x20 };
        file.put(25, 0, 6);
        file.put(28, 12, 6);
        file.put(28, 9, filetype);
        for step in 0..steps {
            if step % 50 == 0 {
                file.put(22, 0, 1001 + step / 50 % 2);
                file.put(24, 0, 1001);
                file.put(28, 2, MOMENT + step / 50 * 10);
                file.put(28, 3, 1);
            }
            file.put(10, 4, 0x40_1000 + 4 * (step % 100));
            file.put(0, 8, load(step));
            file.put(1, 8, 0x10_0000 + 8 * (step % 10));
        }
        file.put(23, 0, 1001);
        file.put(26, 0, 0);
        file.bytes
    }
}

/// Address that a step loads from: consecutive cache lines.
fn load(step: u64) -> u64 {
    0x7f00_0000_0000 + 64 * step
}

/// Records of ChampSim in the documented layout (see src/import/champsim.rs).
fn champsim(cloudsuite: bool, steps: u64) -> Vec<u8> {
    let (bytes, written, read) = if cloudsuite { (96, 24, 56) } else { (64, 16, 32) };
    let record = |step: u64| {
        let mut record = vec![0; bytes];
        let mut put =
            |at: usize, value: u64| record[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(0, 0x40_1000 + 4 * (step % 100));
        put(written, 0x10_0000 + 8 * (step % 10));
        put(read, load(step));
        record[8] = u8::from(step % 100 == 99);
        record[9] = record[8];
        record[10] = 7;
        if cloudsuite {
            record[88] = (step / 50 % 2) as u8;
        }
        record
    };
    (0..steps).flat_map(record).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = liblzma::write::XzEncoder::new(Vec::new(), 9);
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut out = lz4_flex::frame::FrameEncoder::new(Vec::new());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

/// A zip archive of two members, like drmemtrace's chunks.
fn zip(bytes: &[u8]) -> Vec<u8> {
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, part) in [("chunk.0000", &bytes[..6001]), ("chunk.0001", &bytes[6001..])] {
        out.start_file(name, options).expect("memory");
        out.write_all(part).expect("memory");
    }
    out.finish().expect("memory").into_inner()
}

/// A trace in the compact format with a few records of every kind.
fn compact() -> Vec<u8> {
    let mut writer = Writer::new("memory", Vec::new()).expect("memory");
    let event = |writer: &mut Writer<_>, event| writer.event(&event).expect("memory");
    for number in 0..2 {
        let name = "worker".into();
        event(&mut writer, Event::Thread { number, pid: 7, tid: 8 + u64::from(number), name });
    }
    for step in 0..300u64 {
        let access = Access {
            address: load(step * step),
            time: Time(step / 10 * 100),
            thread: (step % 2) as u32,
            bytes: 1 << (step % 5),
            kind: Kind::ALL[step as usize % 4],
        };
        writer.access(&access).expect("memory");
        if step % 70 == 3 {
            let (thread, start, bytes) = (access.thread, load(step), 64 + step);
            let site = if step < 100 { "main+0x5" } else { "grow+0x1c" }.into();
            event(&mut writer, Event::Given { thread, start, bytes, site });
        }
        if step == 200 {
            let (pid, start, bytes) = (7, load(0), 4096);
            event(&mut writer, Event::Unmap { time: Time(2000), pid, start, bytes });
        }
    }
    writer.finish(true).expect("memory").0
}

fn corpus(dir: &Path) -> std::io::Result<()> {
    let number =
        |format| Format::ALL.iter().position(|known| *known == format).unwrap_or(255) as u8;
    let write = |name: &str, format: Option<Format>, bytes: &[u8]| {
        let chosen = format.map_or(255, number);
        fs::write(dir.join(name), [&[chosen], bytes].concat())
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 5].to_vec();
    let flipped = |mut bytes: Vec<u8>, at: usize| {
        bytes[at] ^= 0x10;
        bytes
    };
    let lackey = b"==7== Lackey\nI  0401ab70,3\n S 1fff000748,8\n L 0421,4\n M 0421,4\n==7== \n";
    let csv = b"time_us;tid;addr;rw;size\n1;1;0x7000;r;8\n2.5;2;28672;w;4\n";
    let perf =
        b"# header\nredis 4711/4712 [0] 5.000001: 1 mem-loads: 7f12 |OP LOAD|LVL L1| 55d0c0 f\n";
    let drmemtrace = Drmemtrace::steps(8, 60);
    write("good-compact", None, &compact())?;
    // good-compact-1 was written by version 1 of the format; it is kept as it is.
    write("bad-compact-cut", None, &cut(&compact()))?;
    write("bad-compact-flipped", Some(Format::Compact), &flipped(compact(), 200))?;
    write("bad-compact-header", Some(Format::Compact), &flipped(compact(), 9))?;
    write("good-lackey", None, lackey)?;
    write("bad-lackey-cut", Some(Format::Lackey), &lackey[..40])?;
    write("bad-lackey-words", Some(Format::Lackey), b"I  0401ab70,3\nhello\n")?;
    write("good-csv", None, csv)?;
    write("bad-csv-names", Some(Format::Csv), b"a,b\n1,2\n")?;
    write("bad-csv-backwards", Some(Format::Csv), b"time,addr\n5,1\n9,2\n7,3\n")?;
    write("good-perf-script", None, perf)?;
    write("bad-perf-script-address", Some(Format::PerfScript), b"x 1 5.1: cycles:\n")?;
    write("good-drmemtrace", None, &drmemtrace)?;
    write("good-drmemtrace-32", None, &Drmemtrace::steps(4, 60))?;
    write("bad-drmemtrace-cut", Some(Format::Drmemtrace), &cut(&drmemtrace))?;
    write("bad-drmemtrace-type", Some(Format::Drmemtrace), &flipped(drmemtrace, 121))?;
    write("good-champsim", None, &champsim(false, 20))?;
    write("good-champsim-cloudsuite", None, &champsim(true, 20))?;
    write("bad-champsim-cut", Some(Format::Champsim), &cut(&champsim(false, 20)))?;
    write("bad-nothing", None, b"#!/bin/sh\necho\n")
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(fixtures), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("give two directories: fixtures, corpus"));
    };
    let (fixtures, seeds) = (Path::new(&fixtures), Path::new(&seeds));
    fs::create_dir_all(fixtures)?;
    fs::create_dir_all(seeds)?;
    let long = Drmemtrace::steps(8, STEPS);
    fs::write(fixtures.join("steps.drmemtrace.gz"), gzip(&long))?;
    fs::write(fixtures.join("steps.drmemtrace.zip"), zip(&long))?;
    fs::write(fixtures.join("steps32.drmemtrace.lz4"), lz4(&Drmemtrace::steps(4, STEPS)))?;
    fs::write(fixtures.join("steps.champsim.xz"), xz(&champsim(false, STEPS)))?;
    fs::write(fixtures.join("steps.cloudsuite.gz"), gzip(&champsim(true, STEPS)))?;
    corpus(seeds)
}
