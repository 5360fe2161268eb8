//! Reads records of a fixed length through a buffer.

use std::io::Read;

use tierscope_core::{Error, Result};

use crate::place::{Place, malformed, unreadable};

/// Approximate bytes per read.
const BUFFER: usize = 1 << 18;

/// Iterator over records of a fixed length.
pub(super) struct Records<R> {
    input: R,
    name: String,
    length: usize,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// File offset of the buffer's first byte.
    offset: u64,
    ended: bool,
}

impl<R: Read> Records<R> {
    pub(super) fn new(name: &str, input: R, length: usize) -> Self {
        Self {
            input,
            name: name.to_owned(),
            length,
            buffer: vec![0; BUFFER / length * length],
            at: 0,
            end: 0,
            offset: 0,
            ended: false,
        }
    }

    /// Offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// A format error `back` bytes before the next record.
    pub(super) fn wrong(&self, back: usize, cause: &str, remedy: &str) -> Error {
        malformed(&self.name, Place::Byte(self.offset() - back as u64), cause, remedy)
    }

    /// The next record; `None` at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<Option<&[u8]>> {
        if self.end - self.at < self.length && !self.more()? {
            return Ok(None);
        }
        let record = &self.buffer[self.at..self.at + self.length];
        self.at += self.length;
        Ok(Some(record))
    }

    /// Refills the buffer; false at the end.
    #[cold]
    fn more(&mut self) -> Result<bool> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.offset += self.at as u64;
        (self.at, self.end) = (0, self.end - self.at);
        while self.end < self.length && !self.ended {
            let room = &mut self.buffer[self.end..];
            match crate::input::read(&mut self.input, room) {
                Ok(count) => {
                    self.ended = count == 0;
                    self.end += count;
                }
                Err(error) => {
                    self.ended = true;
                    return Err(unreadable(&self.name, &error));
                }
            }
        }
        match self.end {
            0 => Ok(false),
            end if end >= self.length => Ok(true),
            end => {
                self.end = 0;
                let cause = format!("{end} bytes are left where a record has {}", self.length);
                let remedy = "the file is cut short; everything before it is intact";
                Err(malformed(&self.name, Place::Byte(self.offset), cause, remedy))
            }
        }
    }
}

/// A little-endian number of up to 8 bytes.
#[inline]
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}
