//! Input of `tlb report` and `tlb whatif`: a trace of accesses, or a capture.

use std::path::{Path, PathBuf};

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_tlb::attribution::{Listener, Threads};
use tierscope_tlb::ptat::{Capture, Damage, Files, Misses, Sink, open};
use tierscope_trace::{Format, Options};

use crate::print::note;
use crate::stop::Stop;
use crate::ticker::{self, Ticker};
use crate::trace::{Read, read};

/// Flags that select the trace and its format.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A trace of accesses in any format of `tierscope trace convert`, - for standard input, or a
    /// directory with a bus monitor's board-0.bus, … and dump.ptat
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The trace's format; detected from its content by default
    #[arg(long, value_name = "FORMAT", value_parser = crate::trace::formats())]
    pub from: Option<Format>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Refuse a trace of which a part makes no sense, instead of leaving that part out
    #[arg(long)]
    pub strict: bool,
}

impl TraceArgs {
    /// Whether the path is a directory with a bus monitor's capture.
    pub(super) fn is_capture(&self) -> bool {
        Files::are_in(&self.file)
    }

    pub(super) fn is_piped(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    /// Reads the whole trace, and feeds its accesses to a listener.
    pub(super) fn accesses(&self, listener: &mut dyn Listener) -> Result<Read> {
        let options = Options { format: self.from, strict: self.strict };
        let mut trace = open(&self.file, options)?;
        let mut threads = Threads::default();
        read(&mut trace, self.strict, |batch| {
            threads.pass(batch, listener);
            Ok(())
        })
    }

    /// Parses a capture to its end, or until a signal requests a stop.
    pub(super) fn parsed<S: Sink>(&self, sink: &mut S) -> Result<(Misses, Damage)> {
        let mut capture = Capture::open(&self.file)?;
        let stop = Stop::on_signals()?;
        let mut ticker = Ticker::new("reading", ticker::bytes);
        while capture.step(sink) {
            if stop.check("report").is_err() {
                note!("stopped; this covers the part that was read");
                break;
            }
            ticker.tick(capture.read(), capture.bytes);
        }
        drop(ticker);
        Ok(capture.finish_into(sink))
    }
}

/// Loads a ready-made machine by name, or a machine from a file.
pub(super) fn machine(text: &str) -> Result<Machine> {
    if !Path::new(text).is_file() {
        return Machine::ready_made(text);
    }
    let content = tierscope_workloads::text_file::read(text).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot read {text}")).cause(e).remedy("check the file")
    })?;
    Machine::parse(text, &content)
}

/// Parses a page size: 4K, 2M or 1G.
pub(super) fn page_size(text: &str) -> Result<PageSize, String> {
    match text {
        "4K" | "4k" => Ok(PageSize::K4),
        "2M" | "2m" => Ok(PageSize::M2),
        "1G" | "1g" => Ok(PageSize::G1),
        _ => Err("pages have 4K, 2M or 1G".into()),
    }
}

pub(super) fn size_name(size: PageSize) -> &'static str {
    match size {
        PageSize::K4 => "4K",
        PageSize::M2 => "2M",
        PageSize::G1 => "1G",
    }
}
