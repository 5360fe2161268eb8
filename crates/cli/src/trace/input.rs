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

    /// Refuse a trace of which a part makes no sense; without it, that part is left out: a damaged
    /// line or block, or the program's own output in lackey's text
    #[arg(long)]
    pub strict: bool,
}

impl InputArgs {
    pub(super) fn open(&self) -> Result<Trace> {
        tierscope_tlb::ptat::open(&self.input, Options { format: self.from, strict: self.strict })
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
    strict: bool,
}

impl Read {
    /// Whether the trace was read completely.
    pub(crate) fn whole(&self) -> bool {
        !self.stopped && self.to_the_end && self.damages == 0
    }

    /// The error to end the command with, if any; other damage is reported on stderr.
    pub(crate) fn verdict(self, kept: &str) -> Result<()> {
        match self.damage {
            Some(damage) if self.strict => return Err(damage),
            Some(damage) if self.damages == 1 => note!("{kept}: {damage}"),
            Some(damage) => {
                note!("{kept}: it is damaged in {} places, first: {damage}", self.damages)
            }
            None => {}
        }
        Ok(())
    }
}

/// Reads a trace to its end, or until a signal requests a stop; skips damaged parts if the format
/// allows it. If `strict`, reading ends at the first one.
///
/// # Errors
/// Those of `take`; there is no access in the trace.
pub(crate) fn read(
    trace: &mut Trace,
    strict: bool,
    mut take: impl FnMut(&Batch) -> Result<()>,
) -> Result<Read> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the program: after the first one it may be waiting for input that
        // never arrives.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Error::new(ErrorKind::Other, "cannot wait for signals").cause(e))?;
    }
    let mut ticker = Ticker::new("reading", ticker::bytes);
    let (mut read, mut accesses) = (Read { strict, ..Read::default() }, 0);
    let mut batch = Batch::default();
    loop {
        if stop.load(Ordering::Relaxed) {
            read.stopped = true;
            return Ok(read);
        }
        batch.clear();
        let filled = trace.source.fill(&mut batch);
        take(&batch)?;
        accesses += batch.accesses.len();
        match filled {
            Ok(true) => {}
            Ok(false) => break,
            // Ctrl-C has also stopped the tracer at the other end of a pipe: its last line is
            // truncated.
            Err(_) if stop.load(Ordering::Relaxed) => {}
            Err(error) => {
                read.damages += 1;
                read.damage.get_or_insert(error);
                if strict || !trace.source.go_on() {
                    break;
                }
            }
        }
        let done = trace.read.bytes();
        ticker.tick(done, trace.bytes.max(done));
    }
    drop(ticker);
    if accesses == 0 && !read.stopped {
        return Err(read.damage.unwrap_or_else(|| {
            Error::new(ErrorKind::Data, "cannot use the trace")
                .cause("there is no access in it")
                .remedy("check that the tracer wrote something")
        }));
    }
    read.to_the_end = trace.source.whole();
    trace.source.notes().iter().for_each(|note| note!("{note}"));
    Ok(read)
}
