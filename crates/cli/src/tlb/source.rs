//! Input of `tlb report` and `tlb whatif`: accesses of a trace, each with the function that made
//! it; or misses of a capture.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tierscope_core::{Access as Touch, Error, ErrorKind, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_tlb::ptat::Files;
use tierscope_trace::{Batch, Event, Format, Kind, Options};

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
        let options = Options { format: self.from, lenient: true };
        let mut trace = tierscope_tlb::ptat::open(&self.file, options)?;
        let mut threads = Threads::default();
        read(&mut trace, |batch| {
            threads.pass(batch, listener);
            Ok(())
        })
    }
}

/// A data access, with its process and the code that made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) thread: u32,
    pub(super) pid: u64,
    pub(super) address: u64,
    pub(super) access: Touch,
    /// The instruction's address or its function's start, if the trace has it.
    pub(super) from: Option<From>,
}

/// Code address of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct From {
    pub(super) address: u64,
    /// The address is a function's start, not an instruction's.
    pub(super) function: bool,
}

/// Consumer of a trace.
pub(super) trait Listener {
    fn event(&mut self, event: &Event);
    /// An allocation by a process.
    fn given(&mut self, _pid: u64, _start: u64, _bytes: u64, _site: &Arc<str>) {}
    fn access(&mut self, seen: Seen);
}

/// Process and current code address of each thread.
#[derive(Default)]
struct Threads(Vec<(u64, Option<From>)>);

impl Threads {
    fn pass(&mut self, batch: &Batch, listener: &mut dyn Listener) {
        let mut at = 0;
        for (before, event) in &batch.events {
            self.accesses(batch, at, *before, listener);
            at = *before;
            if let Event::Thread { number, pid, .. } = event {
                self.of(*number).0 = *pid;
            }
            if let Event::Given { thread, start, bytes, site } = event {
                listener.given(self.of(*thread).0, *start, *bytes, site);
            }
            listener.event(event);
        }
        self.accesses(batch, at, batch.accesses.len(), listener);
    }

    fn of(&mut self, thread: u32) -> &mut (u64, Option<From>) {
        let at = thread as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, (0, None));
        }
        &mut self.0[at]
    }

    fn accesses(&mut self, batch: &Batch, from: usize, to: usize, listener: &mut dyn Listener) {
        for access in &batch.accesses[from..to] {
            let thread = self.of(access.thread);
            if access.kind == Kind::Fetch {
                thread.1 = Some(From { address: access.address, function: access.bytes == 0 });
                continue;
            }
            let (pid, from) = *thread;
            let touch = if access.kind == Kind::Load { Touch::Load } else { Touch::Store };
            let thread = access.thread;
            listener.access(Seen { thread, pid, address: access.address, access: touch, from });
        }
    }
}

/// Loads a ready-made machine by name, or a machine from a file.
pub(super) fn machine(text: &str) -> Result<Machine> {
    if !Path::new(text).is_file() {
        return Machine::ready_made(text);
    }
    let content = std::fs::read_to_string(text).map_err(|e| {
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
