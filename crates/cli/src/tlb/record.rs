//! `tierscope tlb record`: every access of an unmodified program goes through a model of a
//! machine's TLBs while the program runs, and into a compact trace.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_exchange::Partial;
use tierscope_hw::PageSize;
use tierscope_linux::proc::parse_line;
use tierscope_tlb::attribution::Model;
use tierscope_tlb::record::{
    Counted, Emulation, MOST_THREADS, Recorded, Tape, follow, in_path, plugin,
};
use tierscope_trace::compact::Writer;

use super::source::{machine, page_size, size_name};
use crate::print::{note, print};
use crate::ticker::Ticker;
use crate::units::about_size;

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
    let given =
        args.plugin.clone().or_else(|| std::env::var_os("TIERSCOPE_PLUGIN").map(Into::into));
    let plugin = plugin(given.as_deref())?;
    let program = in_path(&args.program[0])?;
    let model = if args.no_model { None } else { Some(Model::new(&machine, None)?) };
    let partial = args.output.as_deref().map(Partial::create).transpose()?;
    let output = partial.as_ref().zip(args.output.as_deref());
    let writer = output.map(|(partial, path)| writer(partial, path)).transpose()?;
    let stop = stop()?;
    let alone = if args.compare { Some(time_alone(&program, &args.program[1..])?) } else { None };
    let names = (!args.no_names && args.output.is_some()).then_some(&args.wrappers[..]);
    let emulation = Emulation { qemu: &args.qemu, plugin, threads: args.threads, names };
    let begun = Instant::now();
    let emulated = emulation.start(&program, &args.program[1..])?;
    let pid = emulated.child.id().into();
    let mut tape = Tape::new(writer, model, args.pages, pid, mapped_at);
    let mut ticker = Ticker::new("recording", |done, _| format!("{done} accesses"));
    let (status, seen) = follow(emulated, &mut tape, &stop, |done| ticker.tick(done, done))?;
    drop(ticker);
    let took = begun.elapsed();
    let whole = status.success() && !stop.load(Ordering::Relaxed);
    let recorded = tape.finish(whole)?;
    if let Some(partial) = partial {
        partial.keep()?;
    }
    print_result(args, &recorded, seen, took, alone)?;
    match status.success() || stop.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Other, format!("{} failed", program.display()))
            .cause(status)
            .remedy("the recording ends there")),
    }
}

/// Writes the trace into a new file.
fn writer(partial: &Partial, path: &Path) -> Result<Writer<BufWriter<File>>> {
    let name = path.display().to_string();
    let file = partial
        .file()
        .try_clone()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot write {name}")).cause(e))?;
    Writer::new(&name, BufWriter::with_capacity(1 << 18, file))
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

fn print_result(
    args: &RecordArgs,
    recorded: &Recorded,
    seen: Counted,
    took: Duration,
    alone: Option<Duration>,
) -> Result<()> {
    let rate = recorded.accesses as f64 / took.as_secs_f64();
    let each = recorded.bytes as f64 / recorded.accesses.max(1) as f64;
    let slower = alone.map(|alone| took.as_secs_f64() / alone.as_secs_f64().max(1e-9));
    note!(
        "{} accesses of {} threads in {:.2} s ({:.1} M a second){}",
        recorded.accesses,
        recorded.threads,
        took.as_secs_f64(),
        rate / 1e6,
        slower.map_or(String::new(), |slower| format!(", {slower:.1} times as long as alone"))
    );
    if let Some(walks) = recorded.walks {
        let share = 1000.0 * walks as f64 / recorded.accesses.max(1) as f64;
        let (machine, pages) = (&args.machine, size_name(args.pages));
        note!("{walks} misses ({share:.3} of 1000) with pages of {pages} on {machine}");
    }
    if let Some(output) = &args.output {
        let size = about_size(recorded.bytes);
        note!("wrote {}, {size}, {each:.3} bytes an access", output.display());
        if recorded.allocations > 0 {
            note!("recorded {} heap allocations", recorded.allocations);
        }
    }
    if seen.lost > 0 || seen.accesses > recorded.accesses {
        let missing = seen.lost.max(seen.accesses.saturating_sub(recorded.accesses));
        note!("{missing} of {} accesses were lost", seen.accesses);
    }
    if !args.json {
        return Ok(());
    }
    let said = json!({
        "accesses": recorded.accesses, "seen": seen.accesses, "lost": seen.lost, "threads": recorded.threads,
        "seconds": took.as_secs_f64(), "alone_seconds": alone.map(|alone| alone.as_secs_f64()),
        "slowdown": slower, "misses": recorded.walks, "file_bytes": recorded.bytes,
        "bytes_per_access": each, "allocations": recorded.allocations,
    });
    print(&format!("{said:#}\n"))
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
