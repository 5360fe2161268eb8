//! Reading a trace: its flags, its progress, and its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use signal_hook::consts::{SIGINT, SIGTERM};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_trace::{Batch, Format, Options, Trace};

use crate::print::note;
use crate::ticker::{self, Ticker};

/// The trace to read.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// The trace, or a directory of drmemtrace; - for standard input. It may be compressed with
    /// gzip, xz, lz4 or snappy, or be a zip archive
    #[arg(value_name = "IN")]
    pub input: PathBuf,

    /// The trace's format; detected from its content by default
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub from: Option<Format>,

    /// Skip lines of lackey's text that are not records, such as the program's own output
    #[arg(long)]
    pub lenient: bool,
}

impl InputArgs {
    pub(super) fn open(&self) -> Result<Trace> {
        tierscope_tlb::ptat::open(&self.input, Options { format: self.from, lenient: self.lenient })
    }
}

/// Parser of format names, for clap.
pub(crate) fn formats() -> impl TypedValueParser<Value = Format> {
    let names = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names).map(|name| {
        Format::ALL.into_iter().find(|format| format.name() == name).unwrap_or(Format::Compact)
    })
}

/// How reading a trace ended.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Stopped by Ctrl-C or SIGTERM.
    pub(crate) stopped: bool,
    /// The trace covers the program's whole run.
    to_the_end: bool,
    /// The first error, and the number of damaged places.
    pub(super) damage: Option<Error>,
    pub(crate) damages: u64,
}

impl Read {
    /// Whether the trace was read completely.
    pub(crate) fn whole(&self) -> bool {
        !self.stopped && self.to_the_end && self.damages == 0
    }

    /// The error to end the command with, if any.
    pub(crate) fn verdict(self, kept: &str) -> Result<()> {
        let Some(damage) = self.damage else { return Ok(()) };
        match self.damages {
            1 => note!("{kept}"),
            count => {
                note!("damaged in {count} places, the first is named below; {kept}")
            }
        }
        Err(damage)
    }
}

/// Reads a trace to its end, or until a signal requests a stop; skips damaged parts if the format
/// allows it.
pub(crate) fn read(trace: &mut Trace, mut take: impl FnMut(&Batch) -> Result<()>) -> Result<Read> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the program: after the first one it may be waiting for input that
        // never arrives.
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
            // Ctrl-C has also stopped the tracer at the other end of a pipe: its last line is
            // truncated.
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
    trace.source.notes().iter().for_each(|note| note!("{note}"));
    Ok(read)
}
