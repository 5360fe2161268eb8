//! `tierscope tlb record`: every access of an unmodified program goes through a model of a
//! machine's TLBs while the program runs, and into a compact trace.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use tierscope_core::{Access as Touch, Error, ErrorKind, Result, Time};
use tierscope_elf::Elf;
use tierscope_exchange::Partial;
use tierscope_hw::PageSize;
use tierscope_linux::proc::parse_line;
use tierscope_tlb::mappings::MappingLog;
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Kind};
use tierscope_wire::{Note, RawAccess};

use super::emulator::{Emulated, Emulation, MOST_THREADS, in_path, plugin};
use super::model::Model;
use super::places::Places;
use super::source::{machine, page_size, size_name};
use crate::print as report;
use crate::ticker::Ticker;
use crate::units::show_bytes;

/// Pause between two drains of the rings, unless one was nearly full.
const PAUSE: Duration = Duration::from_micros(500);

/// Resolution of times in the trace, in nanoseconds. The plugin reads its clock at every eighth
/// access; storing full resolution would take a fifth of the trace and more, while measuring a rate
/// needs a thousand times as long.
const TICK: u64 = 4096;

/// Flags of `tierscope tlb record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File to write, for `tierscope tlb report` and `whatif`; must be new. Without it nothing is
    /// written. Times in it have a resolution of four microseconds
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The machine whose TLBs the accesses go through as the program runs: a ready-made one, or a
    /// TOML file
    #[arg(long, value_name = "MACHINE", default_value = "xeon-e5-2620v2")]
    pub machine: String,

    /// Page size of the accesses: 4K, 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = page_size)]
    pub pages: PageSize,

    /// Only write the trace: run no model at the same time
    #[arg(long, requires = "output")]
    pub no_model: bool,

    /// Run the program once without instrumentation first, and report the slowdown
    #[arg(long)]
    pub compare: bool,

    /// Largest number of concurrent threads that are recorded
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS as i64))]
    pub threads: u32,

    /// QEMU's user emulation
    #[arg(long, value_name = "PATH", default_value = "qemu-x86_64")]
    pub qemu: PathBuf,

    /// QEMU's plugin; by default $TIERSCOPE_PLUGIN, or libtierscope_plugin.so next to this program
    #[arg(long, value_name = "PATH")]
    pub plugin: Option<PathBuf>,

    /// Leave out functions and call sites of allocations: the file is smaller, and reports show
    /// mappings only
    #[arg(long)]
    pub no_names: bool,

    /// Allocation wrappers, such as xmalloc: functions whose callers count as the call sites of
    /// allocations; they need a symbol in their file
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "no_names")]
    pub wrappers: Vec<String>,

    /// Print a summary of the recording as JSON on stdout, after the program's own output
    #[arg(long)]
    pub json: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub program: Vec<OsString>,
}

pub(super) fn run(args: &RecordArgs) -> Result<()> {
    let machine = machine(&args.machine)?;
    let told = args.plugin.clone().or_else(|| std::env::var_os("TIERSCOPE_PLUGIN").map(Into::into));
    let plugin = plugin(told.as_deref())?;
    let program = in_path(&args.program[0])?;
    let model = if args.no_model { None } else { Some(Model::new(&machine, None)?) };
    let partial = args.output.as_deref().map(Partial::create).transpose()?;
    let name = args.output.as_ref().map_or(String::new(), |path| path.display().to_string());
    let writer = match &partial {
        None => None,
        Some(partial) => {
            let file = partial
                .file()
                .try_clone()
                .map_err(|e| Error::new(ErrorKind::Io, format!("cannot write {name}")).cause(e))?;
            Some(Writer::new(&name, BufWriter::with_capacity(1 << 18, file))?)
        }
    };
    let stop = stop()?;
    let alone = if args.compare { Some(time_alone(&program, &args.program[1..])?) } else { None };
    let names = (!args.no_names && args.output.is_some()).then_some(&args.wrappers[..]);
    let emulation = Emulation { qemu: &args.qemu, plugin, threads: args.threads, names };
    let begun = Instant::now();
    let emulated = emulation.start(&program, &args.program[1..])?;
    let mut tape = Tape::new(writer, model, args.pages, emulated.child.id().into());
    let (status, seen) = follow(emulated, &mut tape, &stop)?;
    let took = begun.elapsed();
    let whole = status.success() && !stop.load(Ordering::Relaxed);
    let told = tape.finish(whole)?;
    if let Some(partial) = partial {
        partial.keep()?;
    }
    tell(args, &told, seen, took, alone)?;
    match status.success() || stop.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Other, format!("{} failed", program.display()))
            .cause(status)
            .remedy("what it did until then was recorded")),
    }
}

/// Sets a flag on the first SIGINT or SIGTERM; the program gets the terminal's Ctrl-C as well, and
/// the trace so far is kept. A second signal has its default effect.
fn stop() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Error::new(ErrorKind::Other, "cannot wait for signals").cause(e))?;
    }
    Ok(stop)
}

fn time_alone(program: &Path, arguments: &[OsString]) -> Result<Duration> {
    let begun = Instant::now();
    let status = Command::new(program).args(arguments).status();
    status.map_err(|e| {
        Error::new(ErrorKind::NoTarget, format!("cannot run {}", program.display())).cause(e)
    })?;
    Ok(begun.elapsed())
}

/// Accesses counted by the plugin, and records lost.
type Counted = (u64, u64);

/// Drains the rings and the log of mappings until the program has exited.
fn follow(
    mut emulated: Emulated,
    tape: &mut Tape,
    stop: &AtomicBool,
) -> Result<(ExitStatus, Counted)> {
    let mut log = Log::new(emulated.path("mappings.log"));
    let mut ticker = Ticker::new("recording", |done, _| format!("{done} accesses"));
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
        ticker.tick(tape.accesses, tape.accesses);
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
struct Tape {
    writer: Option<Writer<BufWriter<File>>>,
    model: Option<Model>,
    size: PageSize,
    pid: u64,
    log: MappingLog,
    threads: BTreeSet<u16>,
    /// Files whose symbols were written, with their bias.
    named: BTreeSet<(String, u64)>,
    files: BTreeMap<String, Option<Elf>>,
    places: Places,
    /// Pending allocation by thread: address and size, until the record of its call site arrives.
    given: BTreeMap<u16, (u64, u64)>,
    accesses: u64,
    gifts: u64,
}

/// Summary of a recording.
struct Recorded {
    accesses: u64,
    /// Number of heap allocations.
    gifts: u64,
    bytes: u64,
    threads: usize,
    walks: Option<u64>,
}

impl Tape {
    fn new(
        writer: Option<Writer<BufWriter<File>>>,
        model: Option<Model>,
        size: PageSize,
        pid: u64,
    ) -> Self {
        Self {
            writer,
            model,
            size,
            pid,
            log: MappingLog::new(pid),
            threads: BTreeSet::new(),
            named: BTreeSet::new(),
            files: BTreeMap::new(),
            places: Places::default(),
            given: BTreeMap::new(),
            accesses: 0,
            gifts: 0,
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
        let pid = self.pid;
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
                self.given.insert(record.cpu, (start, 0));
                Ok(())
            }
            Note::Bytes(bytes) => {
                self.given.entry(record.cpu).or_default().1 = bytes;
                Ok(())
            }
            Note::Site(address) => {
                // One of an allocation's three records was lost.
                let Some((start, bytes)) = self.given.remove(&record.cpu) else { return Ok(()) };
                let site = self.places.site(address);
                self.gifts += 1;
                self.event(&Event::Given { thread, start, bytes, site })
            }
        }
    }

    fn finish(self, whole: bool) -> Result<Recorded> {
        let walks = self.model.map(|model| model.counts.walks);
        let (accesses, threads) = (self.accesses, self.threads.len());
        let bytes = match self.writer {
            Some(writer) => writer.finish(whole)?.2,
            None => 0,
        };
        Ok(Recorded { accesses, gifts: self.gifts, bytes, threads, walks })
    }
}

/// Path of the file mapped at an address of a process, while the process runs.
fn mapped_at(pid: u64, address: u64) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| file_at(line, address)).map(str::to_owned)
}

/// Path of the file in a line of /proc/PID/maps, if that mapping contains the address.
fn file_at(line: &str, address: u64) -> Option<&str> {
    let mapping = parse_line(line.as_bytes()).ok()?;
    let name = std::str::from_utf8(mapping.name).ok().filter(|name| name.starts_with('/'))?;
    (mapping.start..mapping.end).contains(&address).then_some(name)
}

fn tell(
    args: &RecordArgs,
    told: &Recorded,
    (seen, lost): Counted,
    took: Duration,
    alone: Option<Duration>,
) -> Result<()> {
    let rate = told.accesses as f64 / took.as_secs_f64();
    let each = told.bytes as f64 / told.accesses.max(1) as f64;
    let slower = alone.map(|alone| took.as_secs_f64() / alone.as_secs_f64().max(1e-9));
    eprintln!(
        "tierscope: {} accesses of {} threads in {:.2} s ({:.1} M a second){}",
        told.accesses,
        told.threads,
        took.as_secs_f64(),
        rate / 1e6,
        slower.map_or(String::new(), |slower| format!(", {slower:.1} times as long as alone"))
    );
    if let Some(walks) = told.walks {
        let share = 1000.0 * walks as f64 / told.accesses.max(1) as f64;
        let (machine, pages) = (&args.machine, size_name(args.pages));
        eprintln!(
            "tierscope: {walks} misses ({share:.3} of 1000) with pages of {pages} on {machine}"
        );
    }
    if let Some(output) = &args.output {
        let size = show_bytes(told.bytes);
        eprintln!("tierscope: wrote {}, {size}, {each:.3} bytes an access", output.display());
        if told.gifts > 0 {
            eprintln!("tierscope: it was given memory {} times", told.gifts);
        }
    }
    if lost > 0 || seen > told.accesses {
        let missing = lost.max(seen.saturating_sub(told.accesses));
        eprintln!("tierscope: {missing} of {seen} accesses were lost");
    }
    if !args.json {
        return Ok(());
    }
    let said = json!({
        "accesses": told.accesses, "seen": seen, "lost": lost, "threads": told.threads,
        "seconds": took.as_secs_f64(), "alone_seconds": alone.map(|alone| alone.as_secs_f64()),
        "slowdown": slower, "misses": told.walks, "file_bytes": told.bytes,
        "bytes_per_access": each, "allocations": told.gifts,
    });
    report::print(&format!("{said:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_found_by_an_address() {
        let line = "7f00-7f10 r-xp 00001000 08:01 99                 /usr/lib/a b.so";
        assert_eq!(file_at(line, 0x7f0f), Some("/usr/lib/a b.so"));
        assert_eq!(file_at(line, 0x7f10), None);
        assert_eq!(file_at("7f00-7f10 rw-p 00000000 00:00 0   [heap]", 0x7f00), None);
        assert_eq!(file_at("", 0), None);
    }
}
