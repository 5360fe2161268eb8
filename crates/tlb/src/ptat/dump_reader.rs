//! Reads a kernel's dump by groups: the records before a tag take effect together.

use std::io::Read;

use tierscope_core::Result;
use tierscope_wire::ptat::{Change, Stage};

use super::dump::{DumpHeader, DumpRecord, HEADER};
use super::records::{Header as _, RecordReader};

/// Limit on a group's records; unmapping a whole region takes fewer.
const MOST_RECORDS: usize = 1 << 28;
/// Most consecutive missing groups; a larger jump in numbers is damage.
const MOST_MISSING: u64 = 1 << 20;

/// Records that take effect together, at a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Group numbers are consecutive, from 0.
    pub number: u64,
    /// Changes of entries, in order.
    pub changes: Vec<Change>,
    /// Processes that reached another stage.
    pub processes: Vec<(u32, Stage)>,
    /// Number of records that the kernel dropped.
    pub lost: u64,
}

/// State of a reader between two groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// File offset of the next record.
    pub(super) offset: u64,
    /// Records before it.
    pub(super) records: u64,
    /// Number expected of the next group.
    pub(super) next: u64,
    /// The end record was read.
    pub(super) ended: bool,
}

/// Reads a dump.
pub struct DumpReader<R> {
    records: RecordReader<R, DumpHeader>,
    pub(super) mark: Mark,
}

impl<R: Read> DumpReader<R> {
    /// Opens a dump.
    ///
    /// # Errors
    /// As for [`DumpHeader::read`]; I/O errors.
    pub fn new(name: &str, input: R) -> Result<Self> {
        let records = RecordReader::new(name, input)?;
        Ok(Self { records, mark: Mark { offset: HEADER as u64, ..Mark::default() } })
    }

    /// Header of the dump.
    #[must_use]
    pub fn header(&self) -> &DumpHeader {
        self.records.header()
    }

    /// Continues from a saved state; `input` must be at that offset.
    pub(super) fn resume(&mut self, input: R, mark: Mark) {
        self.records.resume(input);
        self.mark = mark;
    }

    /// Reads the next group. False at the end.
    ///
    /// # Errors
    /// A group is damaged or missing, or the dump is cut short; the error has the offset. A damaged
    /// group is skipped, and the next call continues after it.
    pub fn group(&mut self, group: &mut Group) -> Result<bool> {
        *group = Group::default();
        if self.mark.ended {
            return Ok(false);
        }
        let first = self.mark.offset;
        let mut sum = crc32fast::Hasher::new();
        let mut open = None;
        let mut wrong: Option<(u64, &str)> = None;
        let mut records = 0;
        loop {
            let at = self.mark.offset;
            let Some(record) = self.record()? else { return self.cut_short(first, records) };
            records += 1;
            let read = DumpRecord::read(record);
            if !matches!(read, Some(DumpRecord::Tag(..))) {
                sum.update(record);
            }
            if open.is_some() && !matches!(read, Some(DumpRecord::Entry(..))) {
                wrong.get_or_insert((at, "a change is not followed by its entry"));
                open = None;
            }
            match read {
                Some(DumpRecord::Change(change)) => open = Some(change),
                Some(DumpRecord::Entry(entry, level, reads)) => match open.take() {
                    Some(change) => group.changes.push(Change { entry, level, reads, ..change }),
                    None => _ = wrong.get_or_insert((at, "an entry follows no change")),
                },
                Some(DumpRecord::Process(pid, stage)) => group.processes.push((pid, stage)),
                Some(DumpRecord::Lost(count)) => group.lost += count,
                Some(DumpRecord::Tag(number, expected)) => {
                    group.number = number;
                    let sound = sum.finalize() & 0xff_ffff == expected;
                    return self.verdict(group, sound, wrong, (first, at));
                }
                Some(DumpRecord::End(count)) => {
                    group.changes.clear();
                    return self.end(count, records > 1, (first, at)).map(|()| false);
                }
                None => _ = wrong.get_or_insert((at, "a record is of no known kind")),
            }
            if records > MOST_RECORDS {
                self.mark.ended = true;
                return Err(self.wrong(first, "there is no tag among 2^28 records"));
            }
        }
    }

    /// Checks the end record, at `at`; `open` if records follow the last tag, from `first` on.
    fn end(&mut self, count: u64, open: bool, (first, at): (u64, u64)) -> Result<()> {
        self.mark.ended = true;
        let before = self.mark.records - 1;
        match (count == before, open) {
            (true, false) => Ok(()),
            (true, true) => Err(self.wrong(first, "the last group has no tag")),
            _ => {
                let cause =
                    format!("the end record counts {count} records, but {before} are there");
                Err(self.wrong(at, &cause))
            }
        }
    }

    /// Checks a group's integrity and number.
    fn verdict(
        &mut self,
        group: &mut Group,
        sound: bool,
        wrong: Option<(u64, &str)>,
        (first, at): (u64, u64),
    ) -> Result<bool> {
        let expected = self.mark.next;
        let missing = group.number.wrapping_sub(expected);
        let near = missing < MOST_MISSING;
        // A number below the expected one wraps to a huge distance.
        let past = if near { expected + missing + 1 } else { expected };
        if let Some((place, cause)) = wrong.filter(|_| !sound) {
            self.mark.next = past;
            group.changes.clear();
            let cause = format!("{cause}; the group from byte {first} on is left out");
            return Err(self.wrong(place, &cause));
        }
        if !sound {
            self.mark.next = past;
            group.changes.clear();
            let cause = format!(
                "the checksum of the group from byte {first} on does not match; it is left out"
            );
            return Err(self.wrong(at, &cause));
        }
        if let Some((place, cause)) = wrong {
            return Err(self.wrong(place, cause));
        }
        if !near {
            group.changes.clear();
            let number = group.number;
            let cause = format!("group {number} is in the place of {expected}; it is left out");
            return Err(self.wrong(at, &cause));
        }
        self.mark.next = group.number + 1;
        Ok(true)
    }

    /// The next record; `None` at the end.
    fn record(&mut self) -> Result<Option<&[u8]>> {
        let found = self.records.has_record();
        self.mark.ended |= found.is_err();
        if !found? {
            return Ok(None);
        }
        let length = self.records.header().record_bytes();
        self.records.take(length);
        self.mark.offset += length as u64;
        self.mark.records += 1;
        Ok(Some(self.records.taken(length)))
    }

    fn cut_short(&mut self, first: u64, records: usize) -> Result<bool> {
        self.mark.ended = true;
        let cause = match (records, self.records.buffered().len()) {
            (0, 0) => "the dump ends without its end".to_owned(),
            (count, rest) => format!("{count} records and {rest} bytes follow the last tag"),
        };
        Err(self.wrong(first, &format!("{cause}: it is cut short")))
    }

    fn wrong(&self, at: u64, cause: &str) -> tierscope_core::Error {
        let remedy = "the rest is used; misses of pages in it may be missing";
        self.records.wrong(at, cause, remedy)
    }
}
