//! Writes traces as CSV, for spreadsheets and scripts: with the columns that our CSV reader
//! understands.

use std::io::Write;

use tierscope_core::Result;

use crate::access::{Batch, Event};
use crate::compact::not_written;
use crate::summary::{Summary, Tally};

/// The header line.
const NAMES: &str = "time_ns,pid,thread,address,size,kind\n";
/// Bytes that are buffered before a write, about.
const ENOUGH: usize = 1 << 16;

/// Writes CSV.
pub struct CsvWriter<W> {
    out: W,
    name: String,
    text: Vec<u8>,
    /// Pid and tid by thread number.
    threads: Vec<(u64, u64)>,
    tally: Tally,
    bytes: u64,
}

impl<W: Write> CsvWriter<W> {
    /// Begins a CSV file in `out`; `name` is used in errors.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn new(name: &str, out: W) -> Result<Self> {
        let (name, text) = (name.to_owned(), NAMES.as_bytes().to_vec());
        Ok(Self { out, name, text, threads: Vec::new(), tally: Tally::default(), bytes: 0 })
    }

    /// Appends a batch. Of the events only threads are represented, by the pid and thread columns.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn batch(&mut self, batch: &Batch) -> Result<()> {
        let mut events = batch.events.iter().peekable();
        for (at, access) in batch.accesses.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before <= at) {
                self.event(event);
            }
            let number = access.thread as usize;
            let (pid, tid) = self.threads.get(number).copied().unwrap_or((0, access.thread.into()));
            let (time, address, bytes) = (access.time.0, access.address, access.bytes);
            let kind = access.kind.name();
            // Writes to memory cannot fail.
            let _ = writeln!(self.text, "{time},{pid},{tid},{address:#x},{bytes},{kind}");
            self.tally.access(access);
            if self.text.len() >= ENOUGH {
                self.flush()?;
            }
        }
        events.for_each(|(_, event)| self.event(event));
        Ok(())
    }

    fn event(&mut self, event: &Event) {
        self.tally.event(event);
        let Event::Thread { number, pid, tid, .. } = event else { return };
        let at = *number as usize;
        if self.threads.len() <= at {
            let unknown = self.threads.len() as u64..=at as u64;
            self.threads.extend(unknown.map(|number| (0, number)));
        }
        self.threads[at] = (*pid, *tid);
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes += self.text.len() as u64;
        self.out.write_all(&self.text).map_err(|e| not_written(&self.name, &e))?;
        self.text.clear();
        Ok(())
    }

    /// Ends the file; returns the totals and the bytes written.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn finish(mut self, whole: bool) -> Result<(Summary, u64)> {
        self.flush()?;
        self.out.flush().map_err(|e| not_written(&self.name, &e))?;
        Ok((self.tally.summary(whole), self.bytes))
    }
}
