//! Passes the records of an emulated program to a model of TLBs and to a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tierscope_core::{Access as Touch, Error, ErrorKind, Result, Time};
use tierscope_elf::Elf;
use tierscope_hw::PageSize;
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Kind};
use tierscope_wire::{Note, RawAccess};

use super::emulator::{Counted, Emulated};
use super::mappings::MappingLog;
use super::places::Places;
use crate::attribution::Model;

/// Pause between two drains of the rings, unless one was nearly full.
const PAUSE: Duration = Duration::from_micros(500);

/// Resolution of times in the trace, in nanoseconds. The plugin reads its clock at every eighth
/// access; storing full resolution would take a fifth of the trace and more, while measuring a rate
/// needs a thousand times as long.
const TICK: u64 = 4096;

/// Returns the path of the file that is mapped at an address of a running process, if there is one:
/// process, address.
pub type MappedAt = fn(u64, u64) -> Option<String>;

/// Drains the rings and the log of mappings until the program has exited, or `stop` is set and it
/// was killed. Calls `progress` with the number of accesses so far.
///
/// # Errors
/// A ring is damaged; writing the trace failed.
pub fn follow(
    mut emulated: Emulated,
    tape: &mut Tape,
    stop: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> Result<(ExitStatus, Counted)> {
    let mut log = Log::new(emulated.path("mappings.log"));
    let mut records = Vec::new();
    loop {
        let status = emulated
            .child
            .try_wait()
            .map_err(|e| Error::new(ErrorKind::Other, "cannot wait for the program").cause(e))?;
        // The rings may still hold accesses to memory that is already unmapped: unmap events are
        // written after them.
        let later = tape.mapped(&mut log)?;
        records.clear();
        let full = emulated.drain(&mut records)?;
        tape.records(&records)?;
        tape.unmapped(later)?;
        progress(tape.accesses);
        if let Some(status) = status.filter(|_| records.is_empty()) {
            return Ok((status, emulated.counted()?));
        }
        if stop.load(Ordering::Relaxed) && status.is_none() {
            // A program that ignores the signal is killed.
            let _ = emulated.child.kill();
        }
        if !full {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Incremental reader of the log of mappings.
struct Log {
    path: PathBuf,
    file: Option<BufReader<File>>,
    rest: String,
}

impl Log {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: String::new() }
    }

    /// The next complete line, if there is one.
    fn line(&mut self) -> Option<String> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
        self.file.as_mut()?.read_line(&mut self.rest).ok()?;
        let mut line = self.rest.ends_with('\n').then(|| std::mem::take(&mut self.rest))?;
        line.pop();
        Some(line)
    }
}

/// Consumer of the plugin's records: feeds the model and the trace writer.
pub struct Tape {
    writer: Option<Writer<BufWriter<File>>>,
    model: Option<Model>,
    size: PageSize,
    pid: u64,
    mapped_at: MappedAt,
    log: MappingLog,
    threads: BTreeSet<u16>,
    /// Files whose symbols were written, with their bias.
    named: BTreeSet<(String, u64)>,
    files: BTreeMap<String, Option<Elf>>,
    places: Places,
    /// Pending allocation by thread: address and size, until the record of its call site arrives.
    pending: BTreeMap<u16, (u64, u64)>,
    accesses: u64,
    allocations: u64,
}

/// Summary of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Accesses to data.
    pub accesses: u64,
    /// Number of heap allocations.
    pub allocations: u64,
    /// Size of the trace.
    pub bytes: u64,
    /// Number of threads.
    pub threads: usize,
    /// TLB misses, if a model counted them.
    pub walks: Option<u64>,
}

impl Tape {
    /// Feeds the accesses of process `pid` to a model, with pages of that size, and to a trace.
    #[must_use]
    pub fn new(
        writer: Option<Writer<BufWriter<File>>>,
        model: Option<Model>,
        size: PageSize,
        pid: u64,
        mapped_at: MappedAt,
    ) -> Self {
        Self {
            writer,
            model,
            size,
            pid,
            mapped_at,
            log: MappingLog::new(pid),
            threads: BTreeSet::new(),
            named: BTreeSet::new(),
            files: BTreeMap::new(),
            places: Places::default(),
            pending: BTreeMap::new(),
            accesses: 0,
            allocations: 0,
        }
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        match &mut self.writer {
            Some(writer) => writer.event(event),
            None => Ok(()),
        }
    }

    /// Writes new mappings; returns the unmap events, which are to be written later.
    fn mapped(&mut self, log: &mut Log) -> Result<Vec<Event>> {
        let mut later = Vec::new();
        let (pid, mapped_at) = (self.pid, self.mapped_at);
        while let Some(line) = log.line() {
            let told = self.log.line(&line, &mut |at| mapped_at(pid, at));
            for (event, offset) in told {
                match event {
                    Event::Unmap { .. } => later.push(event),
                    event => {
                        self.event(&event)?;
                        self.names(&event, offset)?;
                    }
                }
            }
        }
        Ok(later)
    }

    fn unmapped(&mut self, events: Vec<Event>) -> Result<()> {
        events.iter().try_for_each(|event| self.event(event))
    }

    /// Writes the data symbols of a mapped file, and adds its functions to the known places.
    fn names(&mut self, event: &Event, offset: Option<u64>) -> Result<()> {
        let (Event::Map { start, bytes, name, .. }, Some(offset)) = (event, offset) else {
            return Ok(());
        };
        if self.writer.is_none() {
            return Ok(());
        }
        let read = || Elf::open(Path::new(&**name));
        let elf = self.files.entry(name.to_string()).or_insert_with(read);
        let Some(elf) = elf else { return Ok(()) };
        let Some(bias) = elf.bias(*start, offset) else { return Ok(()) };
        let first = self.named.insert((name.to_string(), bias));
        self.places.add(name, *start, *bytes, bias, elf, first);
        if !first {
            return Ok(());
        }
        // Symbols of functions are written on their first call: a file has thousands, and a program
        // calls few.
        let objects = elf.symbols.iter().filter(|symbol| !symbol.function);
        let symbols: Vec<Event> = objects
            .map(|symbol| Event::Symbol {
                pid: self.pid,
                start: bias.wrapping_add(symbol.address),
                bytes: symbol.bytes,
                name: symbol.name.as_str().into(),
            })
            .collect();
        symbols.iter().try_for_each(|symbol| self.event(symbol))
    }

    fn records(&mut self, records: &[RawAccess]) -> Result<()> {
        for record in records {
            if self.threads.insert(record.cpu) {
                let (number, tid) = (u32::from(record.cpu), u64::from(record.cpu));
                let name = Arc::from("");
                self.event(&Event::Thread { number, pid: self.pid, tid, name })?;
            }
            if let Some(note) = record.note() {
                self.note(record, note)?;
                continue;
            }
            self.accesses += 1;
            if let Some(writer) = &mut self.writer {
                let kind = if record.store { Kind::Store } else { Kind::Load };
                let (thread, bytes) = (u32::from(record.cpu), 1 << record.size_log2);
                let (address, time) = (record.address, Time(record.time.0 / TICK * TICK));
                writer.access(&Access { address, time, thread, bytes, kind })?;
            }
            if let Some(model) = &mut self.model {
                let touch = if record.store { Touch::Store } else { Touch::Load };
                let who = (u32::from(record.cpu), self.pid);
                let _ = model.access(who, record.address, touch, self.size);
            }
        }
        Ok(())
    }

    /// Handles a record other than an access: a function entry, or a part of an allocation.
    fn note(&mut self, record: &RawAccess, note: Note) -> Result<()> {
        let thread = u32::from(record.cpu);
        match note {
            Note::Function(address) => {
                if let Some((bytes, name)) = self.places.met(address) {
                    let (pid, start) = (self.pid, address);
                    self.event(&Event::Symbol { pid, start, bytes, name })?;
                }
                let Some(writer) = &mut self.writer else { return Ok(()) };
                let time = Time(record.time.0 / TICK * TICK);
                writer.access(&Access { address, time, thread, bytes: 0, kind: Kind::Fetch })
            }
            Note::Given(start) => {
                self.pending.insert(record.cpu, (start, 0));
                Ok(())
            }
            Note::Bytes(bytes) => {
                self.pending.entry(record.cpu).or_default().1 = bytes;
                Ok(())
            }
            Note::Site(address) => {
                // One of an allocation's three records was lost.
                let Some((start, bytes)) = self.pending.remove(&record.cpu) else { return Ok(()) };
                let site = self.places.site(address);
                self.allocations += 1;
                self.event(&Event::Given { thread, start, bytes, site })
            }
        }
    }

    /// Ends the trace; `whole` if it covers the program's whole run.
    ///
    /// # Errors
    /// Writing the trace failed.
    pub fn finish(self, whole: bool) -> Result<Recorded> {
        let walks = self.model.map(|model| model.counts.walks);
        let (accesses, threads) = (self.accesses, self.threads.len());
        let bytes = match self.writer {
            Some(writer) => writer.finish(whole)?.2,
            None => 0,
        };
        Ok(Recorded { accesses, allocations: self.allocations, bytes, threads, walks })
    }
}
