//! Reads accesses from CSV.
//!
//! The first line that is neither empty nor a `#` comment names the columns, and determines the
//! separator: comma, semicolon or tab. Column order is free, case is ignored, unknown columns are
//! skipped:
//!
//! | column | other names | content | default |
//! | --- | --- | --- | --- |
//! | `address` | `addr`, `vaddr`, `va` | first byte: hex with `0x`, else decimal | refused |
//! | `address_hex` | `addr_hex`, `vaddr_hex`, `va_hex` | the same in hex, `0x` optional | |
//! | `kind` | `type`, `op`, `operation`, `access`, `rw` | see below | all are loads |
//! | `write` | `is_write`, `store`, `is_store` | `0`, `false`; `1`, `true` | |
//! | `size` | `bytes`, `length` | bytes, up to 16 MiB | 0: not known |
//! | `thread` | `tid`, `thread_id`, `cpu` | a number | one thread |
//! | `pid` | `process` | a number | 0 |
//! | `time_ns`, `time_us`, `time_ms`, `time_s` | `time`, `timestamp`, `ts` | see below | no times |
//!
//! Kinds are `load`, `read`, `l`, `r`; `store`, `write`, `s`, `w`; `modify`, `m`, `rw`; `fetch`,
//! `instruction`, `i`, `x`. Times count from any moment, with or without a fraction; those without
//! a unit in their name are in ns.
//!
//! An access of more than 32 KiB is several. Times count from the earliest access, and must not go
//! backwards within a thread.
//!
//! `csv_core` splits a line into fields and resolves quotes (RFC 4180). Lines are found here: their
//! length is limited, so that memory is, and a quoted field cannot contain a line end.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use csv_core::{ReadFieldResult, ReadRecordResult, ReaderBuilder, Terminator};
use tierscope_core::{Result, Time};

use crate::access::{Access, BATCH, Batch, Event, Kind, MAX_THREADS, Source, TOO_MANY};
use crate::place::excerpt;
use crate::text::Lines;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Address,
    Hex,
    Kind,
    Write,
    Size,
    Thread,
    Pid,
    /// A time; nanoseconds per unit.
    Time(u64),
}

/// Columns by name.
const NAMES: &[(&[&str], Column)] = &[
    (&["address", "addr", "vaddr", "va"], Column::Address),
    (&["address_hex", "addr_hex", "vaddr_hex", "va_hex"], Column::Hex),
    (&["kind", "type", "op", "operation", "access", "rw"], Column::Kind),
    (&["write", "is_write", "store", "is_store"], Column::Write),
    (&["size", "bytes", "length"], Column::Size),
    (&["thread", "tid", "thread_id", "cpu"], Column::Thread),
    (&["pid", "process"], Column::Pid),
    (&["time_ns", "time", "timestamp", "ts"], Column::Time(1)),
    (&["time_us"], Column::Time(1_000)),
    (&["time_ms"], Column::Time(1_000_000)),
    (&["time_s"], Column::Time(1_000_000_000)),
];

/// Kinds by name.
const KINDS: &[(&[&str], Kind)] = &[
    (&["load", "read", "l", "r"], Kind::Load),
    (&["store", "write", "s", "w"], Kind::Store),
    (&["modify", "m", "rw"], Kind::Modify),
    (&["fetch", "instruction", "i", "x"], Kind::Fetch),
];

fn by_name<T: Copy>(table: &[(&[&str], T)], name: &[u8]) -> Option<T> {
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    table.iter().find(|(names, _)| names.iter().any(is)).map(|(_, value)| *value)
}

/// The columns of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout(Vec<Option<Column>>);

impl Layout {
    /// Parses the header line; also returns the parser of the lines below it.
    fn of(line: &[u8]) -> Result<(Self, Fields), LineError> {
        let separators = [b',', b'\t', b';'];
        let count = |wanted: &u8| line.iter().filter(|byte| *byte == wanted).count();
        let separator = separators.into_iter().max_by_key(count).unwrap_or(b',');
        let mut fields = Fields::separated_by(separator);
        fields.split(line)?;
        let columns: Vec<_> = fields.iter().map(|name| by_name(NAMES, name)).collect();
        let has =
            |wanted: fn(&Column) -> bool| columns.iter().flatten().filter(|c| wanted(c)).count();
        let addresses = has(|column| matches!(column, Column::Address | Column::Hex));
        let times = has(|column| matches!(column, Column::Time(_)));
        let kinds = has(|column| matches!(column, Column::Kind | Column::Write));
        let others = [Column::Size, Column::Thread, Column::Pid];
        let twice = others.iter().any(|o| columns.iter().flatten().filter(|c| *c == o).count() > 1);
        match (addresses, times.max(kinds)) {
            (1, 0 | 1) if !twice => Ok((Self(columns), fields)),
            (0, _) => Err(LineError::at(0, "no column is called `address`")),
            _ => Err(LineError::at(0, "two columns hold the same")),
        }
    }
}

/// Reads accesses from CSV.
pub struct Csv<R> {
    lines: Lines<R>,
    layout: Option<(Layout, Fields)>,
    /// No further line can be read.
    stuck: bool,
    /// Number and last time by pid and thread.
    threads: BTreeMap<(u64, u64), (u32, Time)>,
}

impl<R: Read> Csv<R> {
    /// Reads `input`.
    pub fn new(name: &str, input: R) -> Self {
        Self {
            lines: Lines::new(name, input),
            layout: None,
            stuck: false,
            threads: BTreeMap::new(),
        }
    }
}

impl<R: Read> Source for Csv<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        while batch.accesses.len() < before + BATCH {
            let next = self.lines.advance();
            self.stuck = next.is_err() && !self.lines.is_too_long();
            let next = next?;
            let Some((line, ends)) = next else { break };
            let text = self.lines.bytes(line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.is_empty() || text[0] == b'#' {
                continue;
            }
            let parsed = match &mut self.layout {
                None => Layout::of(text).map(|layout| self.layout = Some(layout)),
                Some((layout, fields)) => Row::of(layout, fields, text)
                    .and_then(|row| row.access(&mut self.threads, batch)),
            };
            if let Err(wrong) = parsed {
                let cut = if ends { "" } else { "; the last line may be cut short" };
                let cause = format!("{} in {}{cut}", wrong.cause, excerpt(text));
                let fields = self.layout.as_ref().map(|(_, fields)| fields);
                let column = fields.map_or(0, |fields| fields.start_of(text, wrong.field));
                return Err(self.lines.wrong(column, &cause, REMEDY));
            }
        }
        Ok(batch.accesses.len() > before)
    }

    /// A damaged line does not affect the others.
    fn go_on(&self) -> bool {
        self.layout.is_some() && !self.stuck
    }
}

const REMEDY: &str = "correct the line; `tierscope trace convert --help` names the columns";

/// A parse error of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LineError {
    /// Number of the field, from 0; one behind the last for the end of the line.
    field: usize,
    cause: &'static str,
}

impl LineError {
    fn at(field: usize, cause: &'static str) -> Self {
        Self { field, cause }
    }
}

/// Largest access, and the pieces that it is split into: an [`Access`] has up to 65535 bytes.
const LARGEST: u32 = 16 << 20;
const PIECE: u32 = 32 << 10;

/// The values of a line.
#[derive(Default)]
struct Row {
    address: u64,
    kind: Kind,
    bytes: u32,
    thread: u64,
    pid: u64,
    /// Time, and the number of its field.
    nanos: Option<(u64, usize)>,
}

impl Row {
    fn of(Layout(columns): &Layout, fields: &mut Fields, line: &[u8]) -> Result<Self, LineError> {
        fields.split(line)?;
        let mut row = Self::default();
        for (number, column) in columns.iter().enumerate() {
            let text =
                fields.get(number).ok_or(LineError::at(number, "fewer fields than columns"))?;
            if let Some(column) = column {
                row.take(*column, text, number).ok_or(LineError::at(number, expected(*column)))?;
            }
        }
        match fields.get(columns.len()) {
            None => Ok(row),
            Some(_) => Err(LineError::at(columns.len(), "more fields than columns")),
        }
    }

    fn take(&mut self, column: Column, text: &[u8], number: usize) -> Option<()> {
        match column {
            Column::Address => self.address = address(text)?,
            Column::Hex => self.address = hex(strip(text))?,
            Column::Kind => self.kind = by_name(KINDS, text)?,
            Column::Write => self.kind = if flag(text)? { Kind::Store } else { Kind::Load },
            Column::Size => {
                self.bytes = decimal(text)?.try_into().ok().filter(|bytes| *bytes <= LARGEST)?;
            }
            Column::Thread => self.thread = decimal(text)?,
            Column::Pid => self.pid = decimal(text)?,
            Column::Time(unit) => self.nanos = Some((nanos(text, unit)?, number)),
        }
        Some(())
    }

    fn access(
        self,
        threads: &mut BTreeMap<(u64, u64), (u32, Time)>,
        batch: &mut Batch,
    ) -> Result<(), LineError> {
        let (nanos, field) = self.nanos.unwrap_or_default();
        let count = threads.len() as u32;
        if count == MAX_THREADS {
            return Err(LineError::at(0, TOO_MANY));
        }
        let (pid, tid) = (self.pid, self.thread);
        let (number, last) = threads.entry((pid, tid)).or_insert_with(|| {
            batch.event(Event::Thread { number: count, pid, tid, name: Arc::from("") });
            (count, Time(0))
        });
        if Time(nanos) < *last {
            return Err(LineError::at(field, "time goes backwards within the thread"));
        }
        *last = Time(nanos);
        let (mut address, mut left) = (self.address, self.bytes);
        loop {
            let bytes = left.min(PIECE) as u16;
            batch.push(Access { address, time: *last, thread: *number, bytes, kind: self.kind });
            left -= u32::from(bytes);
            address = address.wrapping_add(bytes.into());
            if left == 0 {
                return Ok(());
            }
        }
    }
}

fn expected(column: Column) -> &'static str {
    match column {
        Column::Address => "no address: hex begins with 0x (or call the column `address_hex`)",
        Column::Hex => "no address in hex",
        Column::Kind => "none of load, store, modify, fetch",
        Column::Write => "neither 0 nor 1",
        Column::Size => "no size from 0 to 16777216",
        Column::Thread | Column::Pid => "no number",
        Column::Time(_) => "no time",
    }
}

/// The fields of a line.
struct Fields {
    separator: u8,
    parser: csv_core::Reader,
    /// The fields one after the other, without separators: the first `written` bytes.
    text: Vec<u8>,
    written: usize,
    /// End in `text` of each of `count` fields.
    ends: Vec<usize>,
    count: usize,
}

impl Fields {
    fn separated_by(separator: u8) -> Self {
        let parser = parser(separator);
        Self { separator, parser, text: Vec::new(), written: 0, ends: vec![0; 16], count: 0 }
    }

    /// Splits a line without its end.
    fn split(&mut self, line: &[u8]) -> Result<(), LineError> {
        self.text.resize(self.text.len().max(line.len() + 1), 0);
        (self.count, self.written) = (0, 0);
        if self.parse(line) || self.parse(b"\n") {
            return Ok(());
        }
        self.parser.reset();
        Err(LineError::at(0, "a quote is not closed"))
    }

    /// Parses a part of a line; whether it ended the line.
    fn parse(&mut self, mut part: &[u8]) -> bool {
        while !part.is_empty() {
            if self.count == self.ends.len() {
                self.ends.resize(2 * self.count, 0);
            }
            let text = &mut self.text[self.written..];
            let ends = &mut self.ends[self.count..];
            let (result, read, written, ended) = self.parser.read_record(part, text, ends);
            self.written += written;
            self.count += ended;
            if result == ReadRecordResult::Record {
                return true;
            }
            part = &part[read..];
        }
        false
    }

    /// A field without surrounding spaces and quotes; `None` behind the last one.
    fn get(&self, number: usize) -> Option<&[u8]> {
        let end = *self.ends[..self.count].get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(trimmed(&self.text[start..end]))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map_while(|number| self.get(number))
    }

    /// Position in `line` of the first byte of a field, or of the line's end.
    fn start_of(&self, line: &[u8], number: usize) -> usize {
        // A clone of a `csv_core::Reader` lacks most of its tables (csv-core 0.1.13).
        let mut parser = parser(self.separator);
        let (mut text, mut at) = (vec![0; line.len() + 1], 0);
        for _ in 0..number {
            let (result, read, _) = parser.read_field(&line[at..], &mut text);
            at += read;
            if result != (ReadFieldResult::Field { record_end: false }) {
                return line.len();
            }
        }
        at
    }
}

fn parser(separator: u8) -> csv_core::Reader {
    ReaderBuilder::new().delimiter(separator).terminator(Terminator::Any(b'\n')).build()
}

/// The field without surrounding spaces; also without quotes that follow such a space, which
/// `csv_core` leaves in place.
fn trimmed(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(field)
}

fn strip(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text)
}

fn address(text: &[u8]) -> Option<u64> {
    let digits = strip(text);
    if digits.len() < text.len() { hex(digits) } else { decimal(text) }
}

fn hex(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

fn flag(text: &[u8]) -> Option<bool> {
    by_name(&[(&["0", "false"], false), (&["1", "true"], true)], text)
}

/// Nanoseconds of a decimal number of `unit` nanoseconds; fractions of a nanosecond are cut off.
fn nanos(text: &[u8], unit: u64) -> Option<u64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    let whole = decimal(whole)?.checked_mul(unit)?;
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let scaled = fraction.iter().fold((0, unit), |(sum, unit), digit| {
        (sum + u64::from(digit - b'0') * unit / 10, unit / 10)
    });
    whole.checked_add(scaled.0)
}

/// Whether a file begins with a header line of known columns.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    let mut lines = start.split(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    let header = lines.find(|line| !line.is_empty() && line[0] != b'#');
    header.is_some_and(|line| Layout::of(line).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_all;
    use crate::order::ByTime;

    fn read(text: &str) -> (Batch, Result<()>) {
        let mut batch = Batch::default();
        let mut source = ByTime::from_zero(Csv::new("t", text.as_bytes()));
        let ended = read_all(&mut source, &mut batch);
        (batch, ended)
    }

    #[test]
    fn columns_in_any_order() {
        let text = "# made by hand\nTime_us;extra;ADDR;op;tid;size\r\n\
                    10.5;x;0x7000;R;4;8\r\n11;y;28673;write;5;\"4\"\n\n12;;0x10;m;4;1";
        let (batch, ended) = read(text);
        assert_eq!(ended, Ok(()));
        let access = |time, address, kind, thread, bytes| Access {
            address,
            time: Time(time),
            thread,
            bytes,
            kind,
        };
        let expected = [
            access(0, 0x7000, Kind::Load, 0, 8),
            access(500, 0x7001, Kind::Store, 1, 4),
            access(1500, 0x10, Kind::Modify, 0, 1),
        ];
        assert_eq!(batch.accesses, expected);
        assert_eq!(batch.events.len(), 2);
    }

    #[test]
    fn an_address_is_all_that_is_needed() {
        let (batch, ended) = read("address_hex\nff\n0x10\n");
        assert_eq!(ended, Ok(()));
        let seen: Vec<_> = batch.accesses.iter().map(|a| (a.address, a.kind)).collect();
        assert_eq!(seen, [(255, Kind::Load), (16, Kind::Load)]);
    }

    #[test]
    fn quoted_fields_may_contain_separators_and_quotes() {
        let text = "note,address, size\n\"a, \"\"b\"\"\",\"0x10\", \"4\"\n";
        let (batch, ended) = read(text);
        assert_eq!(ended, Ok(()));
        let seen: Vec<_> = batch.accesses.iter().map(|a| (a.address, a.bytes)).collect();
        assert_eq!(seen, [(16, 4)]);
    }

    #[test]
    fn large_accesses_are_split() {
        let (batch, ended) = read("addr,size\n16,65537\n");
        assert_eq!(ended, Ok(()));
        let seen: Vec<_> = batch.accesses.iter().map(|a| (a.address, a.bytes)).collect();
        assert_eq!(seen, [(16, 32768), (16 + 32768, 32768), (16 + 65536, 1)]);
    }

    // Thread 4 begins before thread 5, whose lines come first.
    #[test]
    fn threads_are_in_order_of_time() {
        let (batch, ended) = read("time,tid,addr\n70,5,1\n90,5,2\n60,4,3\n90,4,4\n");
        assert_eq!(ended, Ok(()));
        let seen: Vec<_> = batch.accesses.iter().map(|a| (a.time.0, a.address)).collect();
        assert_eq!(seen, [(0, 3), (10, 1), (30, 4), (30, 2)]);
    }

    #[test]
    fn errors_have_a_position() {
        let cases = [
            ("a,b\n1,2\n", "line 1, column 1 (byte 0): no column is called `address`"),
            ("addr,address_hex\n", "line 1, column 1 (byte 0): two columns"),
            ("addr,write,op\n", "line 1, column 1 (byte 0): two columns"),
            ("addr,size\n7000,4\nff,4\n", "line 3, column 1 (byte 17): no address: hex"),
            ("addr,size\n1,16777217\n", "line 2, column 3 (byte 12): no size"),
            ("addr,size\n1\n", "line 2, column 2 (byte 11): fewer fields"),
            ("addr,size\n1,2,3\n", "line 2, column 5 (byte 14): more fields"),
            ("addr,op\n1,z\n", "line 2, column 3 (byte 10): none of load"),
            ("time,addr\n5,1\n4,1\n", "line 3, column 1 (byte 14): time goes backwards"),
            ("time,addr\n5,1\n9,1\n7,1\n", "line 4, column 1 (byte 18): time goes backwards"),
            ("addr\n1\n+1", "line 3, column 1 (byte 7): no address"),
            ("addr,x,op\n1,\"a,b\",z\n", "line 2, column 9 (byte 18): none of load"),
            ("addr,x\n1,\"a\n", "line 2, column 1 (byte 7): a quote is not closed"),
        ];
        for (text, part) in cases {
            let error = read(text).1.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(nanos(b"1.5", 1_000_000_000), Some(1_500_000_000));
        assert_eq!(nanos(b"0.000000001", 1_000_000_000), Some(1));
        assert_eq!(nanos(b"7.9", 1), Some(7));
        assert_eq!((nanos(b"7.", 1), nanos(b".7", 1), nanos(b"-1", 1)), (None, None, None));
        assert_eq!(nanos(b"99999999999999999999", 1), None);
    }
}
