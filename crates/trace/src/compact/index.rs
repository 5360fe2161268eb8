//! Index of the blocks of a file, for reading threads independently.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierscope_core::Result;

use super::block::{FILE_HEADER, HEADER, Header, Holds};
use super::reader::{check_start, damaged, read_payload};
use super::{end, unpack};
use crate::access::{Access, Batch, Event};
use crate::place::unreadable;
use crate::summary::Summary;

const MISMATCH: &str = "a block does not match its checksum";

/// A block of accesses: its file offset and header.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    header: Header,
}

/// A complete trace file whose threads can be read independently.
#[derive(Clone, Debug)]
pub struct Index {
    file: Arc<File>,
    path: PathBuf,
    /// Blocks of each thread, in order.
    threads: Vec<Vec<Place>>,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Totals of the trace.
    pub summary: Summary,
}

impl Index {
    /// Reads the block headers, the events and the summary of a file.
    ///
    /// # Errors
    /// The file is no trace, incomplete or damaged; conversion extracts the good part of a damaged
    /// trace first.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
        let mut start = [0; FILE_HEADER];
        let length = read_at(&file, &mut start, 0).map_err(|e| unreadable(&name, &e))?;
        check_start(&name, &start[..length])?;
        let mut index = Self {
            file: Arc::new(file),
            path: path.to_owned(),
            threads: Vec::new(),
            events: Vec::new(),
            summary: Summary::default(),
        };
        index.walk()?;
        Ok(index)
    }

    fn walk(&mut self) -> Result<()> {
        let (mut at, mut number) = (FILE_HEADER as u64, 0);
        loop {
            let header = self.header(at)?;
            if header.number != number {
                let cause = format!("block {} is in the place of block {number}", header.number);
                return Err(self.damaged(at, cause));
            }
            match header.holds {
                Holds::Accesses => self.add(at, header),
                Holds::Events => self.take_events(at, &header)?,
                Holds::End => return self.take_end(at, &header),
            }
            at += HEADER as u64 + u64::from(header.length);
            number += 1;
        }
    }

    fn header(&self, at: u64) -> Result<Header> {
        let mut bytes = [0; HEADER];
        let length = read_at(&self.file, &mut bytes, at).map_err(|e| self.unreadable(&e))?;
        match Header::read(&bytes) {
            Some(header) => Ok(header),
            None if length < HEADER => Err(self.damaged(at, "it is cut short")),
            None => Err(self.damaged(at, "there is no block where one should begin")),
        }
    }

    fn add(&mut self, at: u64, header: Header) {
        let thread = header.thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, Vec::new);
        }
        self.threads[thread].push(Place { at, header });
    }

    fn take_events(&mut self, at: u64, header: &Header) -> Result<()> {
        let mut batch = Batch::default();
        let payload = self.payload(at, header)?;
        if !read_payload(header, &payload, &mut Vec::new(), &mut batch) {
            return Err(self.damaged(at, "a block of events makes no sense"));
        }
        self.events.extend(batch.events.into_iter().map(|(_, event)| event));
        Ok(())
    }

    fn take_end(&mut self, at: u64, header: &Header) -> Result<()> {
        let payload = self.payload(at, header)?;
        let sound = crc32fast::hash(&payload) == header.checksum;
        let mut room = Vec::new();
        let summary = unpack(header, &payload, &mut room).and_then(end::decode);
        self.summary = summary
            .filter(|_| sound)
            .ok_or_else(|| self.damaged(at, "the last block makes no sense"))?;
        Ok(())
    }

    fn payload(&self, at: u64, header: &Header) -> Result<Vec<u8>> {
        let mut bytes = vec![0; header.length as usize];
        let length = read_at(&self.file, &mut bytes, at + HEADER as u64);
        match length.map_err(|e| self.unreadable(&e))? {
            length if length == bytes.len() => Ok(bytes),
            _ => Err(self.damaged(at, "it is cut short")),
        }
    }

    /// Threads that made accesses.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Blocks of a thread.
    #[must_use]
    pub fn blocks(&self, thread: usize) -> usize {
        self.threads.get(thread).map_or(0, Vec::len)
    }

    /// Sequence number in the file of a thread's block; gives the order of writing across threads.
    #[must_use]
    pub fn number(&self, thread: usize, block: usize) -> u64 {
        self.threads[thread][block].header.number
    }

    /// Verifies the checksum of every block.
    ///
    /// # Errors
    /// The first damaged block.
    pub fn check(&self) -> Result<()> {
        for Place { at, header } in self.threads.iter().flatten() {
            if crc32fast::hash(&self.payload(*at, header)?) != header.checksum {
                return Err(self.damaged(*at, MISMATCH));
            }
        }
        Ok(())
    }

    /// Reads a block of a thread; replaces the content of `out` by its accesses.
    ///
    /// # Errors
    /// The block is damaged or unreadable.
    pub fn read(&self, thread: usize, block: usize, out: &mut Vec<Access>) -> Result<()> {
        let Place { at, header } = self.threads[thread][block];
        let payload = self.payload(at, &header)?;
        let mut batch = Batch { accesses: std::mem::take(out), ..Batch::default() };
        batch.clear();
        let sound = read_payload(&header, &payload, &mut Vec::new(), &mut batch);
        *out = batch.accesses;
        if sound { Ok(()) } else { Err(self.damaged(at, MISMATCH)) }
    }

    fn damaged(&self, at: u64, cause: impl std::fmt::Display) -> tierscope_core::Error {
        damaged(&self.path.display().to_string(), at, cause)
    }

    fn unreadable(&self, cause: &std::io::Error) -> tierscope_core::Error {
        unreadable(&self.path.display().to_string(), cause)
    }
}

/// Reads until `out` is full or the file ends.
fn read_at(file: &File, out: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut length = 0;
    while length < out.len() {
        match file.read_at(&mut out[length..], at + length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
