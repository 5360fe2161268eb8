//! `tierscope trace`: access traces, from one format into another, and what is in them.

mod convert;
mod info;
mod parquet;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_trace::{Batch, Format, Options, Trace};

use crate::ticker::{self, Ticker};

pub use convert::ConvertArgs;
pub use info::InfoArgs;

/// What can be done with a trace.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Write a trace in tierscope's compact format, as CSV, or as Parquet
    Convert(ConvertArgs),
    /// Tell what is in a trace: accesses, threads, footprint, reads and writes
    Info(InfoArgs),
}

/// Runs it.
///
/// # Errors
/// [`ErrorKind::Data`] with the place for a trace that is damaged; what could be read was.
pub fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Info(args) => info::run(args),
    }
}

/// The trace to read.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// The trace, or a directory of drmemtrace's; - for standard input. It may be compressed with gzip,
    /// xz, lz4 or snappy, or be a zip archive
    #[arg(value_name = "IN")]
    pub input: PathBuf,

    /// Its format; told by its content otherwise
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub from: Option<Format>,

    /// Leave out lines of lackey's text that are no records, such as the program's own output
    #[arg(long)]
    pub lenient: bool,
}

impl InputArgs {
    fn open(&self) -> Result<Trace> {
        tierscope_trace::open(&self.input, Options { format: self.from, lenient: self.lenient })
    }
}

/// Formats by name, for clap.
pub(crate) fn formats() -> impl TypedValueParser<Value = Format> {
    let names = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names).map(|name| {
        Format::ALL.into_iter().find(|format| format.name() == name).unwrap_or(Format::Compact)
    })
}

/// How reading a trace ended.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Ctrl-C or SIGTERM came.
    pub(crate) stopped: bool,
    /// The trace itself goes to the program's end.
    to_the_end: bool,
    /// The first damage, and how many there were.
    damage: Option<Error>,
    pub(crate) damages: u64,
}

impl Read {
    /// Whether everything was read.
    pub(crate) fn whole(&self) -> bool {
        !self.stopped && self.to_the_end && self.damages == 0
    }

    /// The error to end with.
    pub(crate) fn verdict(self, kept: &str) -> Result<()> {
        let Some(damage) = self.damage else { return Ok(()) };
        match self.damages {
            1 => eprintln!("tierscope: {kept}"),
            count => {
                eprintln!("tierscope: damaged in {count} places, the first told below; {kept}")
            }
        }
        Err(damage)
    }
}

/// Reads a trace to its end, or until a signal asks to stop, past what is damaged if the format allows that.
pub(crate) fn read(trace: &mut Trace, mut take: impl FnMut(&Batch) -> Result<()>) -> Result<Read> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the program: the first may wait for input that never comes.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Error::new(ErrorKind::Other, "cannot wait for signals").cause(e))?;
    }
    let mut ticker = Ticker::new("reading", ticker::bytes);
    let mut read = Read::default();
    let mut batch = Batch::default();
    loop {
        if stop.load(Ordering::Relaxed) {
            read.stopped = true;
            return Ok(read);
        }
        batch.clear();
        let filled = trace.source.fill(&mut batch);
        take(&batch)?;
        match filled {
            Ok(true) => {}
            Ok(false) => break,
            // Ctrl-C stopped the tracer at the other end of a pipe as well: its last line is cut.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                read.damages += 1;
                read.damage.get_or_insert(error);
                if !trace.source.go_on() {
                    break;
                }
            }
        }
        let done = trace.read.bytes();
        ticker.tick(done, trace.bytes.max(done));
    }
    drop(ticker);
    read.to_the_end = trace.source.whole();
    trace.source.notes().iter().for_each(|note| eprintln!("tierscope: {note}"));
    Ok(read)
}
