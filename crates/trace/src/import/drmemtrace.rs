//! Reads post-processed traces of DynamoRIO's drmemtrace: `drmemtrace.*.trace`, plain or
//! compressed.
//!
//! Layout (clients/drcachesim/common/trace_entry.h of DynamoRIO, trace_entry_t): records without
//! padding, little-endian:
//!
//! ```text
//!   0  type   2 bytes
//!   2  size   2 bytes: of a memory reference its bytes, of an instruction its length, of a marker
//!             its kind, of a bundle its number of instructions
//!   4  value  8 bytes (4 for 32-bit programs): address, thread, process, a marker's value
//! ```
//!
//! A file begins with a header record whose value is the version, and ends with a footer record.
//! Versions 1 to 7 differ in the meaning of markers, not in layout. Raw files (`*.raw.*`) are a
//! different format that only DynamoRIO itself can decode, with the program's binaries at hand.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use tierscope_core::{ErrorKind, Result, Time};

use super::records::{Records, number};
use crate::access::{Access, BATCH, Batch, Event, Kind, MAX_THREADS, Source, TOO_MANY};

/// Types of records.
mod kind {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const PREFETCH: u16 = 2;
    pub(super) const PREFETCH_INSTR: u16 = 9;
    pub(super) const INSTR: u16 = 10;
    pub(super) const INSTR_RETURN: u16 = 16;
    pub(super) const INSTR_BUNDLE: u16 = 17;
    pub(super) const THREAD: u16 = 22;
    pub(super) const PID: u16 = 24;
    pub(super) const HEADER: u16 = 25;
    pub(super) const FOOTER: u16 = 26;
    pub(super) const HARDWARE_PREFETCH: u16 = 27;
    pub(super) const MARKER: u16 = 28;
    pub(super) const INSTR_MAYBE_FETCH: u16 = 30;
    pub(super) const INSTR_SYSENTER: u16 = 31;
    pub(super) const PREFETCH_NT: u16 = 32;
    pub(super) const PREFETCH_WRITE_L3_NT: u16 = 46;
    pub(super) const INSTR_TAKEN_JUMP: u16 = 48;
    pub(super) const INSTR_UNTAKEN_JUMP: u16 = 49;
    /// Types from here on are invalid.
    pub(super) const INVALID: u16 = 50;
}

/// Kinds of markers.
mod marker {
    pub(super) const TIMESTAMP: u16 = 2;
    pub(super) const SPLIT_VALUE: u16 = 8;
    pub(super) const FILETYPE: u16 = 9;
    pub(super) const VERSION: u16 = 12;
}

/// The newest version that this reader was written for.
const NEWEST: u64 = 7;
const OLDEST: u64 = 1;
/// File type flag: there are no data references.
const INSTRUCTION_ONLY: u64 = 4;

const REMEDY: &str =
    "check that the file is a post-processed *.trace file of drmemtrace, and whole";

/// Bytes of a record of a 64-bit program, and of a 32-bit one.
pub(super) const LONG: usize = 12;
const SHORT: usize = 8;

/// Reads a drmemtrace file.
pub struct Drmemtrace<R> {
    records: Records<R>,
    length: usize,
    /// The timestamp that counts as time 0, in µs since 1601; the first one in the file if `None`.
    zero: Option<u64>,
    time: Time,
    /// The upper half of the next marker's value.
    upper: Option<u64>,
    /// Accumulated wrap-arounds of 32-bit timestamps, and the last timestamp.
    lost: u64,
    last: u64,
    /// Thread numbers by tid.
    threads: BTreeMap<u64, u32>,
    pids: BTreeMap<u64, u64>,
    now: u64,
    /// Number of the current thread, once it has made an access.
    number: Option<u32>,
    /// Address of the next instruction of a bundle.
    next: u64,
    ended: bool,
    prefetches: u64,
    no_data: bool,
}

impl<R: Read> Drmemtrace<R> {
    /// Reads `input`, whose record length [`record_length`] determined.
    pub fn new(name: &str, input: R, length: usize, zero: Option<u64>) -> Self {
        Self {
            records: Records::new(name, input, length),
            length,
            zero,
            time: Time(0),
            upper: None,
            lost: 0,
            last: 0,
            threads: BTreeMap::new(),
            pids: BTreeMap::new(),
            now: 0,
            number: None,
            next: 0,
            ended: true,
            prefetches: 0,
            no_data: false,
        }
    }

    fn take(&mut self, batch: &mut Batch, entry: Entry) -> Result<()> {
        let Entry { kind, size, value } = entry;
        match kind {
            kind::READ => self.access(batch, Kind::Load, value, size)?,
            kind::WRITE => self.access(batch, Kind::Store, value, size)?,
            _ if fetches(kind) => {
                // A zero length only gives the address of the next reference.
                if size > 0 {
                    self.access(batch, Kind::Fetch, value, size)?;
                }
                self.next = value.wrapping_add(size.into());
            }
            kind::INSTR_BUNDLE => self.bundle(batch, size, value)?,
            kind::MARKER => self.marker(size, value)?,
            kind::THREAD => {
                (self.now, self.number) = (value, self.threads.get(&value).copied());
            }
            kind::PID if self.pids.len() >= MAX_THREADS as usize => {
                return Err(self.records.wrong(self.length, TOO_MANY, REMEDY));
            }
            kind::PID => _ = self.pids.insert(self.now, value),
            kind::HEADER => self.version(value)?,
            kind::FOOTER => self.ended = true,
            _ if prefetches(kind) => self.prefetches += 1,
            kind::INVALID.. => {
                let cause = format!("a record of type {kind}, which is none");
                return Err(self.records.wrong(self.length, &cause, REMEDY));
            }
            // Encodings, flushes and thread exits are ignored.
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, batch: &mut Batch, kind: Kind, address: u64, bytes: u16) -> Result<()> {
        let thread = match self.number {
            Some(number) => number,
            None => self.announce(batch)?,
        };
        batch.push(Access { address, time: self.time, thread, bytes, kind });
        Ok(())
    }

    #[cold]
    fn announce(&mut self, batch: &mut Batch) -> Result<u32> {
        let number = self.threads.len() as u32;
        if number >= MAX_THREADS {
            return Err(self.records.wrong(self.length, TOO_MANY, REMEDY));
        }
        self.threads.insert(self.now, number);
        self.number = Some(number);
        let pid = self.pids.get(&self.now).copied().unwrap_or(0);
        batch.event(Event::Thread { number, pid, tid: self.now, name: Arc::from("") });
        Ok(number)
    }

    /// A bundle of consecutive instructions; each byte of the value is a length.
    fn bundle(&mut self, batch: &mut Batch, count: u16, lengths: u64) -> Result<()> {
        let lengths = lengths.to_le_bytes();
        let Some(lengths) = lengths[..self.length - 4].get(..count.into()) else {
            let cause = format!("a bundle of {count} instructions, where {} fit", self.length - 4);
            return Err(self.records.wrong(self.length, &cause, REMEDY));
        };
        for length in lengths {
            self.access(batch, Kind::Fetch, self.next, (*length).into())?;
            self.next = self.next.wrapping_add((*length).into());
        }
        Ok(())
    }

    fn marker(&mut self, kind: u16, value: u64) -> Result<()> {
        let upper = self.upper.take();
        match kind {
            marker::SPLIT_VALUE => self.upper = Some(value << 32),
            marker::TIMESTAMP => self.timestamp(upper, value),
            marker::VERSION => self.version(value)?,
            marker::FILETYPE => self.no_data |= value & INSTRUCTION_ONLY != 0,
            _ => {}
        }
        Ok(())
    }

    fn timestamp(&mut self, upper: Option<u64>, value: u64) {
        let mut micros = upper.unwrap_or(0) | value;
        if self.length == SHORT && upper.is_none() {
            // 32-bit timestamps wrap after 71 minutes.
            self.lost += u64::from(value < self.last) << 32;
            self.last = value;
            micros |= self.lost;
        }
        let zero = *self.zero.get_or_insert(micros);
        self.time = self.time.max(Time(micros.saturating_sub(zero).saturating_mul(1000)));
    }

    fn version(&self, version: u64) -> Result<()> {
        if (OLDEST..=NEWEST).contains(&version) {
            return Ok(());
        }
        let cause = format!("version {version}, and this program knows {OLDEST} to {NEWEST}");
        let remedy = "post-process it with a DynamoRIO whose version is known, or update tierscope";
        Err(self.records.wrong(self.length, &cause, remedy))
    }

    fn end(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(false);
        }
        let remedy = "the file is cut short; everything before it is intact";
        Err(self.records.wrong(0, "it ends without a footer", remedy))
    }
}

/// A record of a trace.
struct Entry {
    kind: u16,
    size: u16,
    value: u64,
}

fn fetches(kind: u16) -> bool {
    matches!(
        kind,
        kind::INSTR
            ..=kind::INSTR_RETURN
                | kind::INSTR_MAYBE_FETCH
                | kind::INSTR_SYSENTER
                | kind::INSTR_TAKEN_JUMP
                | kind::INSTR_UNTAKEN_JUMP
    )
}

fn prefetches(kind: u16) -> bool {
    matches!(
        kind,
        kind::PREFETCH..=kind::PREFETCH_INSTR
            | kind::HARDWARE_PREFETCH
            | kind::PREFETCH_NT..=kind::PREFETCH_WRITE_L3_NT
    )
}

impl<R: Read> Source for Drmemtrace<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        while batch.accesses.len() < before + BATCH {
            let Some(record) = self.records.advance()? else { break };
            let entry = Entry {
                kind: u16::from_le_bytes([record[0], record[1]]),
                size: u16::from_le_bytes([record[2], record[3]]),
                value: number(&record[4..]),
            };
            self.ended = false;
            self.take(batch, entry)?;
        }
        if batch.accesses.len() > before { Ok(true) } else { self.end() }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.prefetches > 0 {
            notes.push(format!("{} prefetches are left out", self.prefetches));
        }
        if self.no_data {
            notes.push("it was traced with instructions only: there are no data accesses".into());
        }
        notes
    }
}

/// The record length, if the file begins like drmemtrace's: a header, then a marker, a thread or a
/// process.
#[must_use]
pub fn record_length(start: &[u8]) -> Option<usize> {
    let word = |at: usize| start.get(at..at + 2).map(number);
    if word(0)? != u64::from(kind::HEADER) || word(2)? != 0 {
        return None;
    }
    let follows = |at: usize| match word(at) {
        Some(next) => [kind::MARKER, kind::THREAD, kind::PID].map(u64::from).contains(&next),
        // A file with only a header.
        None => start.len() == at,
    };
    [LONG, SHORT].into_iter().find(|length| {
        let value = start.get(4..*length).map(number);
        value.is_some_and(|value| value < 1000) && follows(*length)
    })
}

/// Whether a file begins like a raw one, which only DynamoRIO can decode: in offline_entry_t a
/// header has type 6 (bits 61 to 63) and extended type 0 or 7.
#[must_use]
pub fn is_raw(start: &[u8]) -> bool {
    let Some(first) = start.get(..8).map(number) else { return false };
    // The lower bits are the version, 2 to 9 so far.
    first >> 61 == 6 && start.len() >= 16
}

/// The first timestamp of a file, in µs since 1601, if its first records have one.
#[must_use]
pub fn first_moment(start: &[u8]) -> Option<u64> {
    let length = record_length(start).filter(|length| *length == LONG)?;
    let records = start.chunks_exact(length);
    let timestamp = |record: &&[u8]| {
        number(&record[..2]) == u64::from(kind::MARKER)
            && number(&record[2..4]) == u64::from(marker::TIMESTAMP)
    };
    let found = records.into_iter().find(timestamp)?;
    Some(number(&found[4..]))
}

/// The error for a directory (one file a thread) that contains no trace.
pub(super) fn nothing_in(name: &str, raw: bool) -> tierscope_core::Error {
    let (cause, remedy) = match raw {
        true => (
            "it holds raw files, which only DynamoRIO can decode",
            "post-process it: drrun -t drmemtrace -indir DIR",
        ),
        false => ("it holds no *.trace file of drmemtrace", "name a trace file"),
    };
    tierscope_core::Error::new(ErrorKind::Data, format!("cannot read the trace {name}"))
        .cause(cause)
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_all;

    /// Writes records in the documented layout.
    struct Written {
        bytes: Vec<u8>,
        length: usize,
    }

    impl Written {
        fn new(length: usize) -> Self {
            let mut written = Self { bytes: Vec::new(), length };
            written.put(25, 0, 7).put(28, 12, 7).put(28, 9, 0x40).put(22, 0, 71).put(24, 0, 70);
            written
        }

        fn put(&mut self, kind: u16, size: u16, value: u64) -> &mut Self {
            self.bytes.extend(kind.to_le_bytes());
            self.bytes.extend(size.to_le_bytes());
            self.bytes.extend(&value.to_le_bytes()[..self.length - 4]);
            self
        }
    }

    fn read(written: &Written) -> (Batch, Result<()>) {
        let mut batch = Batch::default();
        let length = record_length(&written.bytes).unwrap();
        let mut source = Drmemtrace::new("t", &written.bytes[..], length, None);
        let ended = read_all(&mut source, &mut batch);
        (batch, ended)
    }

    const NOW: u64 = 13_000_000_000_000_000;

    // Two threads, each in a file of its own, take turns: 71 at 0 and 9 µs, 72 at 5 and 12 µs.
    #[test]
    fn files_of_a_directory_are_merged_by_time() {
        let dir = tempfile::tempdir().unwrap();
        for (tid, times) in [(71, [0, 9]), (72, [5, 12])] {
            let mut written = Written { bytes: Vec::new(), length: LONG };
            written.put(25, 0, 7).put(28, 12, 7).put(28, 9, 0x40).put(22, 0, tid).put(24, 0, 70);
            for micros in times {
                written.put(28, 2, NOW + micros).put(0, 8, 0x7000 + micros);
            }
            written.put(26, 0, 0);
            std::fs::write(dir.path().join(format!("{tid}.trace")), &written.bytes).unwrap();
        }
        let mut trace = crate::open(dir.path(), crate::Options::default()).unwrap();
        let mut batch = Batch::default();
        read_all(&mut *trace.source, &mut batch).unwrap();
        let seen = batch.accesses.iter().map(|a| (a.time.0 / 1000, a.address - 0x7000, a.thread));
        let seen: Vec<_> = seen.collect();
        assert_eq!(seen, [(0, 0, 0), (5, 5, 1), (9, 9, 0), (12, 12, 1)]);
    }

    #[test]
    fn references_threads_and_times() {
        let mut written = Written::new(LONG);
        written.put(28, 2, NOW).put(47, 8, 0x1234).put(10, 3, 0x401000).put(0, 8, 0x7000);
        written.put(28, 2, NOW + 5).put(22, 0, 72).put(24, 0, 70).put(49, 2, 0x401003);
        written.put(1, 4, 0x7010).put(3, 1, 0x8000).put(22, 0, 71).put(29, 2, 0x401003);
        written.put(0, 1, 0x7020).put(23, 0, 71).put(26, 0, 0);
        let (batch, ended) = read(&written);
        assert_eq!(ended, Ok(()));
        let access = |kind, address, bytes, thread, nanos| Access {
            address,
            time: Time(nanos),
            thread,
            bytes,
            kind,
        };
        let expected = [
            access(Kind::Fetch, 0x401000, 3, 0, 0),
            access(Kind::Load, 0x7000, 8, 0, 0),
            access(Kind::Fetch, 0x401003, 2, 1, 5000),
            access(Kind::Store, 0x7010, 4, 1, 5000),
            access(Kind::Load, 0x7020, 1, 0, 5000),
        ];
        assert_eq!(batch.accesses, expected);
        let thread = |number, tid| Event::Thread { number, pid: 70, tid, name: "".into() };
        assert_eq!(batch.events, [(0, thread(0, 71)), (2, thread(1, 72))]);
    }

    #[test]
    fn bundles_are_instructions_in_a_row() {
        let mut written = Written::new(LONG);
        written.put(10, 4, 0x1000).put(17, 3, 0x02_01_07).put(26, 0, 0);
        let (batch, ended) = read(&written);
        let fetched: Vec<_> = batch.accesses.iter().map(|a| (a.address, a.bytes)).collect();
        assert_eq!(
            (ended, fetched),
            (Ok(()), vec![(0x1000, 4), (0x1004, 7), (0x100b, 1), (0x100c, 2)])
        );
    }

    #[test]
    fn times_of_32_bit_programs_continue_beyond_32_bits() {
        let mut written = Written::new(SHORT);
        written
            .put(28, 2, 0xffff_fffe)
            .put(0, 4, 0x8000_0000)
            .put(28, 2, 3)
            .put(1, 4, 4)
            .put(26, 0, 0);
        let (batch, ended) = read(&written);
        let seen: Vec<_> = batch.accesses.iter().map(|a| (a.address, a.time.0)).collect();
        assert_eq!((ended, seen), (Ok(()), vec![(0x8000_0000, 0), (4, 5000)]));
    }

    #[test]
    fn errors_have_a_position() {
        type Write = fn(&mut Written);
        const CUT: Write = |written| written.bytes.truncate(5 * LONG + 7);
        let cases: [(Write, &str); 6] = [
            (|w| _ = w.put(0, 8, 1), "byte 72: it ends without a footer"),
            (|w| _ = w.put(50, 8, 1), "byte 60: a record of type 50"),
            (|w| _ = w.put(17, 9, 1), "byte 60: a bundle of 9 instructions, where 8 fit"),
            (|w| _ = w.put(28, 12, 8), "byte 60: version 8"),
            (|w| CUT(w.put(0, 8, 1)), "byte 60: 7 bytes are left where a record has 12"),
            (|_| (), "byte 60: it ends without a footer"),
        ];
        for (write, part) in cases {
            let mut written = Written::new(LONG);
            write(&mut written);
            let error = read(&written).1.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn files_are_recognised() {
        assert_eq!(record_length(&Written::new(LONG).bytes), Some(LONG));
        assert_eq!(record_length(&Written::new(SHORT).bytes), Some(SHORT));
        assert_eq!(record_length(b"I  04000000,3\n L 0400"), None);
        assert_eq!(first_moment(&Written::new(LONG).put(28, 2, NOW).bytes), Some(NOW));
        assert_eq!(first_moment(&Written::new(LONG).bytes), None);
    }
}
