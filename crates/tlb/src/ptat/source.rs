//! A capture as a trace: each TLB miss becomes an access to the missed page.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tierscope_core::{Result, Time};
use tierscope_trace::{Access, Batch, Event, Format, Kind, Options, Progress, Source, Trace};

use super::capture::{Capture, Files};
use super::parser::{Block, Sink};

/// Opens a trace; of a bus monitor's capture, it has the misses as accesses.
///
/// # Errors
/// As for [`Capture::open`] and [`tierscope_trace::open`].
pub fn open(path: &Path, options: Options) -> Result<Trace> {
    if !Files::are_in(path) {
        return tierscope_trace::open(path, options);
    }
    let capture = Capture::open(path)?;
    let (read, bytes) = (Progress::default(), capture.bytes);
    let source = Box::new(Misses::new(capture, read.clone()));
    Ok(Trace { format: Format::BusMonitor, source, read, bytes })
}

/// Yields the misses one by one, in order of time.
struct Misses {
    capture: Capture<File>,
    ears: Ears,
    read: Progress,
    counted: u64,
    ended: bool,
}

impl Misses {
    fn new(capture: Capture<File>, read: Progress) -> Self {
        let tick_ps = u64::from(capture.tick_ps());
        Self { capture, ears: Ears { tick_ps, ..Ears::default() }, read, counted: 0, ended: false }
    }
}

#[derive(Default)]
struct Ears {
    tick_ps: u64,
    threads: BTreeMap<u32, u32>,
    out: Batch,
    /// Misses of blocks with more than one mapped page, whose page is a guess.
    shared: u64,
}

impl Sink for Ears {
    fn miss(&mut self, ticks: u64, block: &Block) {
        let mut pages = block.pages();
        let Some(page) = pages.next() else { return };
        self.shared += u64::from(pages.next().is_some());
        let thread = match self.threads.get(&page.pid) {
            Some(thread) => *thread,
            None => {
                let number = self.threads.len() as u32;
                let pid = page.pid.into();
                self.threads.insert(page.pid, number);
                self.out.event(Event::Thread { number, pid, tid: pid, name: Arc::from("") });
                number
            }
        };
        let time = Time((u128::from(ticks) * u128::from(self.tick_ps) / 1000) as u64);
        self.out.push(Access { address: page.start(), time, thread, bytes: 0, kind: Kind::Load });
    }
}

impl Source for Misses {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        while !self.ended && self.ears.out.accesses.is_empty() {
            self.ended = !self.capture.step(&mut self.ears);
            let read = self.capture.read();
            self.read.add(read - self.counted);
            self.counted = read;
        }
        let before = batch.accesses.len();
        for (at, event) in self.ears.out.events.drain(..) {
            batch.events.push((before + at, event));
        }
        batch.accesses.append(&mut self.ears.out.accesses);
        match self.capture.take_error() {
            Some(error) => Err(error),
            None => Ok(batch.accesses.len() > before),
        }
    }

    fn go_on(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        let shared = self.ears.shared;
        let note = format!(
            "{shared} misses are of blocks that map several pages, and count for the first page; pages that the kernel announces \
             later are among them: `tierscope tlb report` counts exactly"
        );
        (shared > 0).then_some(note).into_iter().collect()
    }
}
