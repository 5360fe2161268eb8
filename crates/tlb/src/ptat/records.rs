//! Framing that the streams of boards and the kernel's dump have in common: a header, then records
//! of one length.

use std::io::Read;

use tierscope_core::{Error, Result};
use tierscope_trace::input;
use tierscope_trace::place::{Place, malformed, unreadable};

/// Approximate bytes per read.
const BUFFER: usize = 1 << 17;

/// Header of a file of records.
pub(super) trait Header: Sized {
    /// Bytes of the header.
    const BYTES: usize;

    /// Decodes a header, which may be cut short.
    fn decode(name: &str, bytes: &[u8]) -> Result<Self>;

    /// Bytes of a record.
    fn record_bytes(&self) -> usize;
}

/// Reads a file's header, and buffers its records.
pub(super) struct RecordReader<R, H> {
    input: R,
    name: String,
    header: H,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    eof: bool,
}

impl<R: Read, H: Header> RecordReader<R, H> {
    /// Reads the header; `name` is used in errors.
    ///
    /// # Errors
    /// As for [`Header::decode`]; I/O errors.
    pub(super) fn new(name: &str, mut input: R) -> Result<Self> {
        let mut buffer = vec![0; BUFFER];
        let mut length = 0;
        while length < H::BYTES {
            match input::read(&mut input, &mut buffer[length..H::BYTES]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(unreadable(name, &error)),
            }
        }
        let header = H::decode(name, &buffer[..length])?;
        Ok(Self { input, name: name.to_owned(), header, buffer, at: 0, end: 0, eof: false })
    }

    pub(super) fn header(&self) -> &H {
        &self.header
    }

    /// Continues with an input that is at the beginning of a record.
    pub(super) fn resume(&mut self, input: R) {
        (self.input, self.eof) = (input, false);
        (self.at, self.end) = (0, 0);
    }

    /// The bytes that are read but not yet taken.
    #[inline(always)]
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Takes that many of the buffered bytes.
    #[inline(always)]
    pub(super) fn take(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The bytes taken last, since the buffer was filled.
    #[inline(always)]
    pub(super) fn taken(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.at - bytes..self.at]
    }

    /// Whether a record is buffered, after a read if necessary.
    ///
    /// # Errors
    /// I/O errors.
    #[inline(always)]
    pub(super) fn has_record(&mut self) -> Result<bool> {
        Ok(self.end - self.at >= self.header.record_bytes() || self.more()?)
    }

    /// Refills the buffer; whether it has another record.
    #[cold]
    fn more(&mut self) -> Result<bool> {
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        let length = self.header.record_bytes();
        while self.end < length && !self.eof {
            match input::read(&mut self.input, &mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(count) => self.end += count,
                Err(error) => return Err(unreadable(&self.name, &error)),
            }
        }
        Ok(self.end >= length)
    }

    /// Whether anything follows the records that were taken.
    ///
    /// # Errors
    /// I/O errors.
    pub(super) fn has_rest(&mut self) -> Result<bool> {
        let more = self.end > self.at || self.more()? || self.end > 0;
        Ok(more && !self.eof)
    }

    /// The error for a defect at an offset of the file.
    pub(super) fn wrong(&self, at: u64, cause: &str, remedy: &str) -> Error {
        malformed(&self.name, Place::Byte(at), cause, remedy)
    }
}
