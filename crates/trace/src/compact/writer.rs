//! Writes the compact format.

use std::io::Write;
use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, Result, Time};

use super::block::{Header, Holds, LONGEST_END, file_header, pack};
use super::code::Encoder;
use super::{end, events};
use crate::access::{Access, Batch, Event, MAX_THREADS};
use crate::order::WINDOW;
use crate::summary::{Summary, Tally};

/// Maximum accesses of a block.
const ACCESSES: u32 = 1 << 16;
/// Approximate bytes of a block before compression.
const BYTES: usize = 1 << 18;
/// Approximate bytes of all open blocks: above it all of them are written.
const OPEN: usize = 64 << 20;
/// Accesses after which all open blocks are written, so that a reader restores the order of time
/// across threads.
const LATE: u64 = WINDOW as u64 / 2;

/// Writes a trace block by block. Blocks already written stay readable whatever happens later; a
/// trace without [`Writer::finish`] is recognised as cut short.
pub struct Writer<W> {
    out: W,
    /// Name of the output, for errors.
    name: String,
    /// Open block of each thread, by number.
    open: Vec<Option<Box<Encoder>>>,
    /// Bytes reserved for open blocks.
    reserved: usize,
    events: Vec<u8>,
    event_count: u32,
    blocks: u64,
    bytes: u64,
    tally: Tally,
    /// Accesses so far, and when all open blocks were written last.
    count: u64,
    written: u64,
    /// Thread of the last access.
    thread: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a trace in `out`; `name` is used in errors.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn new(name: &str, out: W) -> Result<Self> {
        let mut writer = Self {
            out,
            name: name.to_owned(),
            open: Vec::new(),
            reserved: 0,
            events: Vec::new(),
            event_count: 0,
            blocks: 0,
            bytes: 0,
            tally: Tally::default(),
            count: 0,
            written: 0,
            thread: 0,
        };
        writer.put(&file_header())?;
        Ok(writer)
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// As for [`Writer::access`].
    pub fn batch(&mut self, batch: &Batch) -> Result<()> {
        let mut from = 0;
        for (at, event) in &batch.events {
            self.accesses(&batch.accesses[from..*at])?;
            self.event(event)?;
            from = *at;
        }
        self.accesses(&batch.accesses[from..])
    }

    fn accesses(&mut self, accesses: &[Access]) -> Result<()> {
        accesses.iter().try_for_each(|access| self.access(access))
    }

    /// Appends an access.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if the access precedes the last one of its thread; write errors of
    /// `out`.
    #[inline]
    pub fn access(&mut self, access: &Access) -> Result<()> {
        if access.thread != self.thread {
            self.switch(access)?;
        }
        self.count += 1;
        let encoder = match self.open.get_mut(access.thread as usize) {
            Some(Some(encoder)) => encoder,
            _ => self.begin(access.thread)?,
        };
        if !encoder.put(access) {
            return Err(self.backwards(access));
        }
        let full = encoder.count >= ACCESSES || encoder.out.len() >= BYTES || !encoder.has_room();
        self.tally.access(access);
        if full {
            self.close(access.thread as usize).and_then(|()| self.close_late())
        } else {
            Ok(())
        }
    }

    /// Another thread goes on. Without times, the order of blocks is that of accesses.
    #[cold]
    fn switch(&mut self, access: &Access) -> Result<()> {
        let last = std::mem::replace(&mut self.thread, access.thread) as usize;
        if access.time == Time(0) && last < self.open.len() {
            self.close(last)?;
        }
        self.close_late()
    }

    /// Writes all open blocks if they are old.
    fn close_late(&mut self) -> Result<()> {
        if self.count - self.written < LATE {
            return Ok(());
        }
        self.written = self.count;
        self.close_all()
    }

    /// Appends an event. One that changes mappings is placed after all accesses before it.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        if let Event::Given { thread, start, bytes, site } = event {
            return self.given(*thread, *start, *bytes, site);
        }
        if matches!(event, Event::Map { .. } | Event::Unmap { .. }) {
            self.close_all()?;
        }
        self.tally.event(event);
        events::encode(event, &mut self.events);
        self.event_count += 1;
        if self.events.len() >= BYTES || self.event_count >= ACCESSES {
            self.close_events()
        } else {
            Ok(())
        }
    }

    /// Appends an allocation to the thread's block.
    fn given(&mut self, thread: u32, start: u64, bytes: u64, site: &Arc<str>) -> Result<()> {
        let encoder = match self.open.get_mut(thread as usize) {
            Some(Some(encoder)) => encoder,
            _ => self.begin(thread)?,
        };
        encoder.given(start, bytes, site);
        if encoder.out.len() >= BYTES { self.close(thread as usize) } else { Ok(()) }
    }

    /// Ends the trace; `whole` records whether it covers the program's whole run. Returns the
    /// output, the totals and the bytes written.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn finish(mut self, whole: bool) -> Result<(W, Summary, u64)> {
        self.close_all()?;
        self.close_events()?;
        let mut summary = self.tally.summary(whole);
        let mut plain = Vec::new();
        end::encode(&summary, &mut plain);
        if plain.len() > LONGEST_END as usize {
            // Sparse accesses over tens of terabytes: too many footprint blocks for one payload;
            // they can be recomputed from the accesses.
            summary.footprints.clear();
            plain.clear();
            end::encode(&summary, &mut plain);
        }
        self.block(Holds::End, 0, 0, 0, &plain)?;
        self.out.flush().map_err(|e| not_written(&self.name, &e))?;
        Ok((self.out, summary, self.bytes))
    }

    #[cold]
    fn begin(&mut self, thread: u32) -> Result<&mut Encoder> {
        if self.reserved >= OPEN {
            self.close_all()?;
            self.open.iter_mut().for_each(|encoder| *encoder = None);
            self.reserved = 0;
        }
        if thread >= MAX_THREADS {
            return Err(Error::new(
                ErrorKind::Data,
                format!("cannot write the trace {}", self.name),
            )
            .cause(format_args!("it has more than {MAX_THREADS} threads"))
            .remedy("number threads densely, from 0 on"));
        }
        let at = thread as usize;
        if at >= self.open.len() {
            self.open.resize_with(at + 1, || None);
        }
        self.reserved += BYTES;
        Ok(self.open[at].insert(Box::new(Encoder::new())))
    }

    #[cold]
    fn backwards(&self, access: &Access) -> Error {
        Error::new(ErrorKind::Data, format!("cannot write the trace {}", self.name))
            .cause(format_args!(
                "the time of thread {} goes backwards, to {} ns",
                access.thread, access.time.0
            ))
            .remedy("give the accesses of a thread in order of time")
    }

    /// Writes the open block of a thread, unless it is empty.
    #[cold]
    fn close(&mut self, thread: usize) -> Result<()> {
        self.close_events()?;
        let Some(mut encoder) = self.open[thread].take() else { return Ok(()) };
        if !encoder.out.is_empty() {
            let (count, time) = (encoder.count, encoder.begins.0);
            self.block(Holds::Accesses, thread as u32, count, time, &encoder.out)?;
            encoder.clear();
        }
        self.open[thread] = Some(encoder);
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        (0..self.open.len()).try_for_each(|thread| self.close(thread))
    }

    fn close_events(&mut self) -> Result<()> {
        if self.event_count == 0 {
            return Ok(());
        }
        let plain = std::mem::take(&mut self.events);
        let count = std::mem::take(&mut self.event_count);
        self.block(Holds::Events, 0, count, 0, &plain)
    }

    fn block(
        &mut self,
        holds: Holds,
        thread: u32,
        count: u32,
        time: u64,
        plain: &[u8],
    ) -> Result<()> {
        let (packed, payload) = pack(plain);
        let header = Header {
            holds,
            packed,
            length: payload.len() as u32,
            unpacked: plain.len() as u32,
            thread,
            count,
            number: self.blocks,
            time,
            checksum: crc32fast::hash(&payload),
        };
        self.blocks += 1;
        self.put(&header.write())?;
        self.put(&payload)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|e| not_written(&self.name, &e))
    }
}

/// The error for a failed write to `name`.
#[must_use]
pub fn not_written(name: &str, cause: &std::io::Error) -> Error {
    Error::new(cause.into(), format!("cannot write the trace {name}"))
        .cause(cause)
        .remedy("choose a place that has room")
}
