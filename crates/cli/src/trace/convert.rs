//! `tierscope trace convert`: writes a trace in another format.

use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_exchange::Partial;
use tierscope_trace::compact::Writer;
use tierscope_trace::csv::CsvWriter;
use tierscope_trace::{Batch, Kind, Summary, Trace};

use super::input::{InputArgs, Read, read};
use super::{info, parquet};
use crate::print::{note, print};

/// Flags of `tierscope trace convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The trace to read.
    #[command(flatten)]
    pub input: InputArgs,

    /// File to write; must be new. - for CSV on standard output
    #[arg(value_name = "OUT")]
    pub output: PathBuf,

    /// Output format; by default CSV if OUT ends with .csv or is -, otherwise compact
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<To>,

    /// Name of the traced machine in the partitions of Parquet; machines may share a directory
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,

    /// Leave out instruction fetches
    #[arg(long)]
    pub no_fetches: bool,

    /// Print a summary of the output as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// tierscope's own format: blocks with checksums, a byte or less per access
    Compact,
    /// Columns time_ns, pid, thread, address, size, kind
    Csv,
    /// The columns of CSV as partitioned Parquet, OUT/accesses/machine=HOST/part-0.parquet; needs
    /// --host
    Parquet,
}

pub(super) fn run(args: &ConvertArgs) -> Result<()> {
    let standard_output = args.output.as_os_str() == "-";
    let is_csv = args.output.extension().is_some_and(|extension| extension == "csv");
    let to = args.to.unwrap_or(if standard_output || is_csv { To::Csv } else { To::Compact });
    let mut trace = args.input.open()?;
    if to == To::Parquet {
        return parquet::write(args, &mut trace);
    }
    if !standard_output {
        return to_file(args, &mut trace, to);
    }
    if to != To::Csv || args.json {
        return Err(Error::new(ErrorKind::Usage, "cannot write to standard output")
            .cause("it takes only CSV, without a summary")
            .remedy("name a file, or leave out --json and --to"));
    }
    let closed = Cell::new(false);
    let out = Pipe { out: io::stdout().lock(), closed: &closed };
    match write(args, &mut trace, "standard output", to, out) {
        // The reader closed the pipe: that is not an error.
        Err(_) if closed.get() => Ok(()),
        Err(error) => Err(error),
        Ok((read, ..)) => read.verdict("the readable part was written"),
    }
}

/// Standard output, with a flag that is set once the reader has closed the pipe.
struct Pipe<'a> {
    out: io::StdoutLock<'a>,
    closed: &'a Cell<bool>,
}

impl Pipe<'_> {
    fn watch<T>(&self, written: io::Result<T>) -> io::Result<T> {
        written.inspect_err(|e| self.closed.set(e.kind() == io::ErrorKind::BrokenPipe))
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.watch(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.watch(flushed)
    }
}

fn to_file(args: &ConvertArgs, trace: &mut Trace, to: To) -> Result<()> {
    let partial = Partial::create(&args.output)?;
    let name = args.output.display().to_string();
    let out = BufWriter::with_capacity(1 << 18, partial.file());
    let (read, summary, bytes) = write(args, trace, &name, to, out)?;
    if let Some(damage) = read.damage.as_ref().filter(|_| args.input.strict) {
        return Err(damage.clone());
    }
    partial.keep()?;
    let stopped = if read.stopped { ", as far as it was read" } else { "" };
    note!("wrote {} accesses into {name}{stopped}", summary.total());
    if args.json {
        let text = info::json(&args.output, to_name(to), bytes, &summary, read.damages);
        print(&format!("{text:#}\n"))?;
    }
    read.verdict(&format!("the readable part is in {name}"))
}

fn to_name(to: To) -> &'static str {
    match to {
        To::Compact => "compact",
        To::Csv => "csv",
        To::Parquet => "parquet",
    }
}

/// Writes a whole trace; returns how reading ended, the summary of the output, and its size in
/// bytes.
fn write(
    args: &ConvertArgs,
    trace: &mut Trace,
    name: &str,
    to: To,
    out: impl Write,
) -> Result<(Read, Summary, u64)> {
    let mut kept = Batch::default();
    match to {
        To::Compact => {
            let mut writer = Writer::new(name, out)?;
            let read = read(trace, args.input.strict, |batch| {
                writer.batch(chosen(args, batch, &mut kept))
            })?;
            let whole = read.whole();
            let (_, summary, bytes) = writer.finish(whole)?;
            Ok((read, summary, bytes))
        }
        To::Csv | To::Parquet => {
            let mut writer = CsvWriter::new(name, out)?;
            let read = read(trace, args.input.strict, |batch| {
                writer.batch(chosen(args, batch, &mut kept))
            })?;
            let whole = read.whole();
            let (summary, bytes) = writer.finish(whole)?;
            Ok((read, summary, bytes))
        }
    }
}

/// The batch without filtered accesses; `kept` is a reused buffer.
pub(super) fn chosen<'a>(args: &ConvertArgs, batch: &'a Batch, kept: &'a mut Batch) -> &'a Batch {
    if !args.no_fetches {
        return batch;
    }
    kept.clear();
    let mut from = 0;
    let mut copy = |kept: &mut Batch, to: usize| {
        let data = batch.accesses[from..to].iter().filter(|access| access.kind != Kind::Fetch);
        kept.accesses.extend(data);
        from = to;
    };
    for (at, event) in &batch.events {
        copy(kept, *at);
        kept.event(event.clone());
    }
    copy(kept, batch.accesses.len());
    kept
}
