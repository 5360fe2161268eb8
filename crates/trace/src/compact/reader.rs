//! Reads the compact format, including damaged files.

use std::io::Read;

use tierscope_core::{Error, ErrorKind, Result, Time};

use super::block::{FILE_HEADER, HEADER, Header, Holds, MAGIC, MARK, VERSION, unpack};
use super::{code, end, events};
use crate::access::{Batch, Source};
use crate::place::{Place, malformed, unreadable};
use crate::summary::Summary;

/// Bytes per read.
const BUFFER: usize = 1 << 18;

/// Reads a trace from its beginning to its end. After an error it continues with the next intact
/// block.
pub struct Reader<R> {
    window: Window<R>,
    name: String,
    /// Sequence number expected of the next block.
    next: u64,
    /// The front of the window is not a block: a header has to be searched.
    lost: bool,
    ended: bool,
    room: Vec<u8>,
    summary: Option<Summary>,
}

impl<R: Read> Reader<R> {
    /// Reads `input`; `name` is used in errors.
    ///
    /// # Errors
    /// The input lacks the header of a trace, or has an unknown version.
    pub fn new(name: &str, input: R) -> Result<Self> {
        let mut window = Window::new(input);
        window.fill(FILE_HEADER).map_err(|e| unreadable(name, &e))?;
        check_start(name, window.bytes())?;
        window.drop_front(FILE_HEADER);
        Ok(Self {
            window,
            name: name.to_owned(),
            next: 0,
            lost: false,
            ended: false,
            room: Vec::new(),
            summary: None,
        })
    }

    /// Totals of the trace, once its end block was read.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Fills the window to at least `length` bytes, or to the end of the input. A read error ends
    /// the trace.
    fn fill_window(&mut self, length: usize) -> Result<()> {
        self.window.fill(length).map_err(|e| {
            self.ended = true;
            unreadable(&self.name, &e)
        })
    }

    /// Reads a block; false at the end.
    fn block(&mut self, batch: &mut Batch) -> Result<bool> {
        let header = match self.header()? {
            Some(header) => header,
            None => return Ok(false),
        };
        let whole = HEADER + header.length as usize;
        let at = self.window.offset;
        self.fill_window(whole)?;
        let bytes = self.window.bytes();
        if bytes.len() < whole {
            self.ended = true;
            let cause = format!(
                "it is cut short: {} bytes are left of a block of {whole}; \
                 everything before it is intact",
                bytes.len()
            );
            return Err(damaged(&self.name, at, cause));
        }
        let payload = &bytes[HEADER..whole];
        if crc32fast::hash(payload) != header.checksum {
            // Bytes of the payload may be missing: the next block may begin within it.
            self.lost = true;
            self.window.drop_front(MARK.len());
            let cause = format!("block {} does not match its checksum", header.number);
            return Err(damaged(&self.name, at, cause));
        }
        let expected = self.next;
        self.next = header.number.saturating_add(1).max(expected);
        if header.number < expected {
            self.window.drop_front(whole);
            let cause = format!(
                "block {} comes after block {}, and is left out",
                header.number,
                expected - 1
            );
            return Err(damaged(&self.name, at, cause));
        }
        let before = (batch.accesses.len(), batch.events.len());
        let taken = take(&header, payload, &mut self.room, batch, &mut self.summary);
        if !taken {
            batch.accesses.truncate(before.0);
            batch.events.truncate(before.1);
        }
        self.window.drop_front(whole);
        match () {
            () if !taken => {
                let cause = format!("block {} makes no sense", header.number);
                Err(damaged(&self.name, at, cause))
            }
            () if header.number > expected => {
                let missing = header.number - expected;
                let cause = format!("{missing} blocks are missing before block {}", header.number);
                Err(damaged(&self.name, at, cause))
            }
            () if header.holds == Holds::End => self.end().map(|()| false),
            () => Ok(true),
        }
    }

    /// The header at the front of the window, or else the next one that can be found; none at the
    /// end.
    fn header(&mut self) -> Result<Option<Header>> {
        if self.ended {
            return Ok(None);
        }
        let at = self.window.offset;
        self.fill_window(HEADER)?;
        let start = self.window.bytes();
        let header = start.first_chunk().and_then(Header::read);
        if header.is_some() || self.lost {
            self.lost = false;
            return match header {
                Some(header) => Ok(Some(header)),
                None => self.search(),
            };
        }
        if start.len() < HEADER {
            self.ended = true;
            let cause =
                "it is cut short: the last block is missing; everything before it is intact";
            return Err(damaged(&self.name, at, cause));
        }
        self.lost = true;
        let cause = "there is no block where one should begin";
        Err(damaged(&self.name, at, cause))
    }

    /// Searches for the next block header.
    fn search(&mut self) -> Result<Option<Header>> {
        loop {
            self.fill_window(HEADER)?;
            let bytes = self.window.bytes();
            if bytes.len() < HEADER {
                self.ended = true;
                let cause = "no whole block follows";
                return Err(damaged(&self.name, self.window.offset, cause));
            }
            let found = memchr::memmem::find_iter(bytes, &MARK).find_map(|place| {
                let header = Header::read(bytes[place..].first_chunk()?)?;
                Some((place, header))
            });
            match found {
                Some((place, header)) => {
                    self.window.drop_front(place);
                    return Ok(Some(header));
                }
                // The last bytes may be the start of a header.
                None => {
                    let searched = bytes.len() - (HEADER - 1);
                    self.window.drop_front(searched);
                }
            }
        }
    }

    /// Checks that nothing follows the end block.
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        let at = self.window.offset;
        self.fill_window(1)?;
        let rest = self.window.bytes();
        if rest.is_empty() {
            return Ok(());
        }
        Err(damaged(&self.name, at, "there are bytes behind the last block; they are ignored"))
    }
}

impl<R: Read> Source for Reader<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        self.block(batch)
    }

    fn go_on(&self) -> bool {
        !self.ended
    }

    fn whole(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.whole)
    }

    fn notes(&self) -> Vec<String> {
        let stopped = self.summary.as_ref().is_some_and(|summary| !summary.whole);
        let note = "writing it was stopped before the program's end";
        stopped.then(|| note.to_owned()).into_iter().collect()
    }
}

/// Decodes a payload; false if it is invalid.
fn take(
    header: &Header,
    payload: &[u8],
    room: &mut Vec<u8>,
    batch: &mut Batch,
    summary: &mut Option<Summary>,
) -> bool {
    let Some(mut plain) = unpack(header, payload, room) else { return false };
    match header.holds {
        Holds::Accesses => {
            let (thread, time) = (header.thread, Time(header.time));
            code::decode(plain, thread, time, header.count, batch).is_some()
        }
        Holds::Events => {
            let events = (0..header.count).map_while(|_| events::decode(&mut plain));
            let events: Vec<_> = events.collect();
            let sound = events.len() == header.count as usize && plain.is_empty();
            events.into_iter().for_each(|event| batch.event(event));
            sound
        }
        Holds::End => {
            *summary = end::decode(plain);
            summary.is_some()
        }
    }
}

/// Decodes the payload of a single block of accesses or events.
pub(super) fn read_payload(
    header: &Header,
    payload: &[u8],
    room: &mut Vec<u8>,
    batch: &mut Batch,
) -> bool {
    crc32fast::hash(payload) == header.checksum && take(header, payload, room, batch, &mut None)
}

/// Checks the header of a file.
pub(super) fn check_start(name: &str, start: &[u8]) -> Result<()> {
    let Some(start) = start.first_chunk::<FILE_HEADER>().filter(|s| s[..8] == MAGIC) else {
        let remedy = "check that this is a trace of tierscope, copied as binary data";
        return Err(malformed(name, Place::Byte(0), "it does not begin as a trace does", remedy));
    };
    let number = |at: usize| u32::from_le_bytes(*start[at..].first_chunk().expect("within"));
    if number(12) != crc32fast::hash(&start[..12]) {
        return Err(damaged(name, 8, "its first bytes do not match their checksum"));
    }
    match number(8) {
        1 | VERSION => Ok(()),
        version => Err(Error::new(ErrorKind::Version, format!("cannot read the trace {name}"))
            .cause(format_args!("it is of version {version}, this program reads 1 to {VERSION}"))
            .remedy("use a tierscope of the version that wrote it")),
    }
}

pub(super) fn damaged(name: &str, at: u64, cause: impl std::fmt::Display) -> Error {
    let remedy = "get the file again, or convert it: its intact part is kept";
    malformed(name, Place::Byte(at), cause, remedy)
}

/// A sliding window over the input.
struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    /// File offset of the window's first byte.
    offset: u64,
}

impl<R: Read> Window<R> {
    fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), start: 0, offset: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Fills the window to at least `length` bytes, or to the end of the input.
    fn fill(&mut self, length: usize) -> std::io::Result<()> {
        while self.buffer.len() - self.start < length {
            self.buffer.drain(..self.start);
            self.start = 0;
            let have = self.buffer.len();
            // Reads in small steps: `length` may be wrong in a damaged file.
            let more = (length - have).clamp(BUFFER / 4, BUFFER);
            self.buffer.resize(have + more, 0);
            let count = crate::input::read(&mut self.input, &mut self.buffer[have..]);
            self.buffer.truncate(have + count.as_ref().unwrap_or(&0));
            if count? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn drop_front(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }
}
