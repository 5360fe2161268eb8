//! Readers of foreign trace formats: detected by content, read batch by batch.

pub mod bus_monitor;
pub mod champsim;
pub mod csv;
pub mod drmemtrace;
pub mod lackey;
pub mod perf_script;
mod records;

use std::fs;
use std::path::{Path, PathBuf};

use tierscope_core::{Result, Time};

use crate::access::{Access, BATCH, Batch, Event, Source};
use crate::compact;
use crate::input::{Input, Progress};
use crate::order::ByTime;
use crate::place::{Place, excerpt, malformed, unreadable};
use champsim::{Champsim, Form};
use csv::Csv;
use drmemtrace::Drmemtrace;
use lackey::Lackey;
use perf_script::PerfScript;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// tierscope's compact format.
    Compact,
    /// Text of Valgrind's lackey.
    Lackey,
    /// Post-processed file of DynamoRIO's drmemtrace.
    Drmemtrace,
    /// ChampSim's input_instr.
    Champsim,
    /// ChampSim's cloudsuite_instr.
    ChampsimCloudsuite,
    /// CSV with a header line.
    Csv,
    /// Memory samples printed by `perf script`.
    PerfScript,
    /// A directory with the capture of a memory bus monitor: its TLB misses. `tierscope_tlb::open`
    /// reads it.
    BusMonitor,
}

impl Format {
    /// Every format, in the order of detection.
    pub const ALL: [Format; 8] = [
        Format::Compact,
        Format::Drmemtrace,
        Format::Lackey,
        Format::PerfScript,
        Format::Csv,
        Format::Champsim,
        Format::ChampsimCloudsuite,
        Format::BusMonitor,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Compact => "compact",
            Format::Lackey => "lackey",
            Format::Drmemtrace => "drmemtrace",
            Format::Champsim => "champsim",
            Format::ChampsimCloudsuite => "champsim-cloudsuite",
            Format::Csv => "csv",
            Format::PerfScript => "perf-script",
            Format::BusMonitor => "bus-monitor",
        }
    }

    /// A one-line description.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Format::Compact => "tierscope's own",
            Format::Lackey => "text of valgrind --tool=lackey --trace-mem=yes",
            Format::Drmemtrace => "post-processed file, or directory, of DynamoRIO's drmemtrace",
            Format::Champsim => "ChampSim's input_instr: records of 64 bytes",
            Format::ChampsimCloudsuite => "ChampSim's cloudsuite_instr: records of 96 bytes",
            Format::Csv => {
                "a line of column names (address, kind, size, thread, pid, time_ns), then values"
            }
            Format::PerfScript => "text of perf script with memory samples",
            Format::BusMonitor => {
                "directory of a bus monitor: board-0.bus, … and dump.ptat; its TLB misses"
            }
        }
    }

    /// What is kept of it, what is lost, and what it was tested against: for docs/formats.md.
    #[must_use]
    pub fn facts(self) -> [&'static str; 3] {
        match self {
            Format::Compact => ["everything", "nothing", "itself"],
            Format::Lackey => [
                "accesses with address, size and kind; the pid",
                "lines that are no records (counted); it has no times and threads",
                "Valgrind 3.19 (`crates/trace/tests/fixtures`)",
            ],
            Format::Drmemtrace => [
                "accesses with address, size, kind, thread and time",
                "prefetches (counted), encodings of instructions, markers but times",
                "the layout of its versions 1 to 7",
            ],
            Format::Champsim | Format::ChampsimCloudsuite => [
                "fetches, loads and stores with their addresses",
                "registers and branches; it has no sizes, times and threads",
                "the layout in its source",
            ],
            Format::Csv => [
                "address, kind, size, thread, pid, time",
                "other columns; an access of more than 32 KiB is several",
                "its own export",
            ],
            Format::PerfScript => [
                "address, kind, time, pid, tid and name of the thread",
                "samples without an address of the process (counted), latencies, levels of caches",
                "perf 6.1 (page faults: the lab has no memory samples)",
            ],
            Format::BusMonitor => {
                ["TLB misses: reads of page tables", "nothing", "our plugin for QEMU"]
            }
        }
    }

    /// Detects the format from the beginning of a trace.
    #[must_use]
    pub fn of(start: &[u8]) -> Option<Self> {
        let fits = |format: &Format| match format {
            Format::Compact => compact::looks_like(start),
            Format::Lackey => lackey::looks_like(start),
            Format::Drmemtrace => drmemtrace::record_length(start).is_some(),
            Format::Champsim => champsim::form_of(start) == Some(Form::Plain),
            Format::ChampsimCloudsuite => champsim::form_of(start) == Some(Form::Cloudsuite),
            Format::Csv => csv::looks_like(start),
            Format::PerfScript => perf_script::looks_like(start),
            Format::BusMonitor => bus_monitor::looks_like(start),
        };
        Format::ALL.into_iter().find(fits)
    }
}

/// Options for reading a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The format; `None` to detect it from the content.
    pub format: Option<Format>,
    /// Refuse malformed lines of a lackey trace, instead of leaving them out.
    pub strict: bool,
}

/// A trace that is open.
pub struct Trace {
    /// Its format.
    pub format: Format,
    /// Reader of its content.
    pub source: Box<dyn Source>,
    /// Progress of reading its file.
    pub read: Progress,
    /// Size of its file or files as stored (possibly compressed); 0 if unknown.
    pub bytes: u64,
}

/// Opens a file, standard input (`-`) or a drmemtrace directory.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Usage`] if it does not exist; unknown formats.
pub fn open(path: &Path, options: Options) -> Result<Trace> {
    let metadata = path.metadata();
    if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
        return open_directory(path);
    }
    let mut trace = of_input(Input::open(path)?, options)?;
    trace.bytes = metadata.map_or(0, |metadata| metadata.len());
    Ok(trace)
}

/// As [`open()`], for an input that is already open.
///
/// # Errors
/// Unknown formats.
pub fn of_input(input: Input, options: Options) -> Result<Trace> {
    let Input { name, bytes, start, read } = input;
    if start.is_empty() {
        let remedy = "check that the tracer wrote something";
        return Err(malformed(&name, Place::Whole, "it is empty", remedy));
    }
    let Some(format) = options.format.or_else(|| Format::of(&start)) else {
        return Err(unknown(&name, &start));
    };
    let source: Box<dyn Source> = match format {
        Format::Compact => Box::new(ByTime::new(compact::Reader::new(&name, bytes)?)),
        Format::Lackey => Box::new(Lackey::new(&name, bytes, !options.strict)),
        Format::Drmemtrace => {
            let Some(length) = drmemtrace::record_length(&start) else {
                let remedy = "omit --from to detect the format from the content";
                return Err(malformed(&name, Place::Byte(0), "no header of drmemtrace", remedy));
            };
            Box::new(ByTime::new(Drmemtrace::new(&name, bytes, length, None)))
        }
        Format::Champsim => Box::new(Champsim::new(&name, bytes, Form::Plain)),
        Format::ChampsimCloudsuite => Box::new(Champsim::new(&name, bytes, Form::Cloudsuite)),
        Format::Csv => Box::new(ByTime::from_zero(Csv::new(&name, bytes))),
        Format::PerfScript => Box::new(ByTime::new(PerfScript::new(&name, bytes))),
        Format::BusMonitor => {
            let cause = "a file alone is no capture of a bus monitor";
            let remedy = "name the directory with board-0.bus, … and dump.ptat";
            return Err(malformed(&name, Place::Whole, cause, remedy));
        }
    };
    Ok(Trace { format, source, read, bytes: 0 })
}

fn unknown(name: &str, start: &[u8]) -> tierscope_core::Error {
    if drmemtrace::is_raw(start) {
        return drmemtrace::nothing_in(name, true);
    }
    let end = memchr::memchr(b'\n', start).unwrap_or(start.len().min(60));
    let cause = format!("it is of no known format: it begins with {}", excerpt(&start[..end]));
    let remedy = "name the format with --from; `tierscope trace convert --help` lists them";
    malformed(name, Place::Byte(0), cause, remedy)
}

/// Opens a drmemtrace directory: one file a thread, in it or in its subdirectory `trace`.
fn open_directory(path: &Path) -> Result<Trace> {
    let name = path.display().to_string();
    let inner = path.join("trace");
    let within = if inner.is_dir() { &inner } else { path };
    let mut files = Vec::new();
    let mut moments = Vec::new();
    let mut bytes = 0;
    for entry in fs::read_dir(within).map_err(|e| unreadable(&name, &e))? {
        let file = entry.map_err(|e| unreadable(&name, &e))?.path();
        let called =
            |part: &str| file.file_name().is_some_and(|n| n.to_string_lossy().contains(part));
        if !file.is_file() || !(called(".trace") || called(".memtrace")) {
            continue;
        }
        let input = Input::open(&file)?;
        if drmemtrace::record_length(&input.start).is_some() {
            moments.extend(drmemtrace::first_moment(&input.start));
            bytes += file.metadata().map_or(0, |metadata| metadata.len());
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(drmemtrace::nothing_in(&name, path.join("raw").is_dir()));
    }
    files.sort();
    let read = Progress::default();
    let zero = moments.into_iter().min();
    let files = files.into_iter().map(Part::new).collect();
    let source = Files { files, zero, threads: 0, notes: Vec::new(), read: read.clone() };
    let source = Box::new(ByTime::new(source));
    Ok(Trace { format: Format::Drmemtrace, source, read, bytes })
}

/// The files of a drmemtrace directory, on a common clock, merged by time.
struct Files {
    files: Vec<Part>,
    zero: Option<u64>,
    /// Number of threads so far.
    threads: u32,
    notes: Vec<String>,
    read: Progress,
}

/// A file of a directory.
struct Part {
    path: PathBuf,
    source: Option<Drmemtrace<Box<dyn std::io::Read + Send>>>,
    /// Read, and passed on up to `at` and `event`.
    batch: Batch,
    at: usize,
    event: usize,
    /// The number among all threads of each of its threads.
    numbers: Vec<u32>,
    ended: bool,
}

impl Part {
    fn new(path: PathBuf) -> Self {
        let (batch, numbers) = (Batch::default(), Vec::new());
        Self { path, source: None, batch, at: 0, event: 0, numbers, ended: false }
    }

    /// Time of its next access.
    fn next(&self) -> Option<Time> {
        self.batch.accesses.get(self.at).map(|access| access.time)
    }
}

impl Source for Files {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        while batch.accesses.len() < before + BATCH {
            for file in 0..self.files.len() {
                self.read_more(file)?;
            }
            let mut order: Vec<(Time, usize)> = Vec::with_capacity(self.files.len());
            order.extend(self.files.iter().enumerate().filter_map(|(at, f)| Some((f.next()?, at))));
            let Some((_, first)) = order.iter().copied().min() else { break };
            let others = order.into_iter().filter(|(_, at)| *at != first);
            self.pass_on(first, others.min().map(|(time, _)| time), batch);
        }
        Ok(batch.accesses.len() > before)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Damage in one file does not affect the others.
    fn go_on(&self) -> bool {
        true
    }
}

impl Files {
    /// Reads the next batch of a file of which everything was passed on.
    fn read_more(&mut self, number: usize) -> Result<()> {
        let file = &mut self.files[number];
        if file.ended || file.next().is_some() {
            return Ok(());
        }
        if file.source.is_none() {
            let input = Input::open(&file.path)?;
            let length = drmemtrace::record_length(&input.start).unwrap_or(drmemtrace::LONG);
            file.source = Some(Drmemtrace::new(&input.name, input.bytes, length, self.zero));
        }
        (file.at, file.event) = (0, 0);
        file.batch.clear();
        let Some(source) = &mut file.source else { return Ok(()) };
        let filled = source.fill(&mut file.batch);
        if !matches!(filled, Ok(true)) {
            file.ended = true;
            self.notes.extend(source.notes());
            self.read.add(file.path.metadata().map_or(0, |metadata| metadata.len()));
        }
        filled.map(|_| ())
    }

    /// Passes the accesses of a file up to `until` on.
    fn pass_on(&mut self, number: usize, until: Option<Time>, batch: &mut Batch) {
        let file = &mut self.files[number];
        while let Some(access) = file.batch.accesses.get(file.at) {
            while let Some((_, event)) =
                file.batch.events.get(file.event).filter(|(before, _)| *before <= file.at)
            {
                file.event += 1;
                if let Event::Thread { pid, tid, name, .. } = event {
                    let (number, pid, tid, name) = (self.threads, *pid, *tid, name.clone());
                    batch.event(Event::Thread { number, pid, tid, name });
                    file.numbers.push(self.threads);
                    self.threads += 1;
                }
            }
            if until.is_some_and(|until| access.time > until) {
                return;
            }
            let thread = file.numbers.get(access.thread as usize).copied().unwrap_or_default();
            batch.push(Access { thread, ..*access });
            file.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_from_their_content() {
        let cases: [(&[u8], Option<Format>); 5] = [
            (b"==1== x\n==1== y\nI  0400,3\n", Some(Format::Lackey)),
            (b"address,kind\n", Some(Format::Csv)),
            (b"redis 4711 5.0: mem: 7f12\n", Some(Format::PerfScript)),
            (b"#!/bin/sh\necho\n", None),
            (b"", None),
        ];
        for (start, format) in cases {
            assert_eq!(Format::of(start), format, "{}", String::from_utf8_lossy(start));
        }
    }
}
