//! Reads a board's stream block by block, a block being the records under one checksum, and keeps
//! the requests within the address windows of interest.

use std::io::Read;

use tierscope_core::Result;

use super::bus::{BusHeader, Entry, HEADER, RECORD, VALUE};
use super::records::RecordReader;
use super::{Request, Window};

/// Records that are filtered at a time.
const ROOM: usize = 512;
/// Limit on a block's records: no board writes more without a checksum.
pub(super) const MOST_RECORDS: u64 = 1 << 16;

/// Counts of the requests that passed a board, and of the lost ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Requests that the board dropped because its buffer was full.
    pub overruns: u64,
    /// Records missing from the stream.
    pub missing: u64,
    /// Records out of order: after one with a later number.
    pub disordered: u64,
    /// Records dropped because their checksum does not match.
    pub damaged: u64,
}

impl Traffic {
    /// All known losses of requests.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.overruns + self.missing + self.disordered + self.damaged
    }

    /// Adds the counts of another board.
    pub fn add(&mut self, other: &Traffic) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.overruns += other.overruns;
        self.missing += other.missing;
        self.disordered += other.disordered;
        self.damaged += other.damaged;
    }
}

/// State of a reader between two blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// File offset of the next record.
    pub(super) offset: u64,
    /// Records before it, lost ones included.
    pub(super) records: u64,
    /// Time of the clock, in ticks.
    pub(super) ticks: u64,
    pub(super) traffic: Traffic,
    /// The end record was read.
    pub(super) ended: bool,
    /// The clock is unknown since a loss.
    pub(super) adrift: bool,
}

impl Mark {
    /// Counts a request.
    fn count(&mut self, delta: u64, write: bool) {
        self.ticks += delta;
        self.traffic.writes += u64::from(write);
        self.traffic.reads += u64::from(!write);
    }

    /// Number of records that are missing before the current one, which has the number `count`: a
    /// larger gap than the 8-bit record numbers can express.
    fn missing(&self, count: u64) -> Option<u64> {
        let missing = count.wrapping_sub(self.records - 1) & VALUE;
        (1..=VALUE / 2).contains(&missing).then_some(missing)
    }

    /// Counts missing records.
    fn skip(&mut self, missing: u64) {
        self.traffic.missing += missing;
        self.records += missing;
        self.adrift = true;
    }

    /// Sets the clock; false if it is known and differs.
    fn set_clock(&mut self, now: u64) -> bool {
        let passed = now.wrapping_sub(self.ticks) & VALUE;
        // An advance of more than half the clock's range is a clock that went back.
        if passed <= VALUE / 2 {
            self.ticks += passed;
        }
        let was_adrift = std::mem::replace(&mut self.adrift, false);
        passed == 0 || was_adrift
    }
}

/// Reads the stream of one board.
pub struct BoardReader<R> {
    records: RecordReader<R, BusHeader>,
    pub(super) mark: Mark,
}

/// Defects of a stream that do not fail a checksum.
enum Cause {
    Missing(u64),
    Disordered,
    Kind,
    Endless,
    Clock,
    Behind,
}

impl<R: Read> BoardReader<R> {
    /// Opens a stream.
    ///
    /// # Errors
    /// As for [`BusHeader::read`]; I/O errors.
    pub fn new(name: &str, input: R) -> Result<Self> {
        let records = RecordReader::<R, BusHeader>::new(name, input)?;
        let ticks = records.header().start;
        let mark = Mark { offset: HEADER as u64, ticks, ..Mark::default() };
        Ok(Self { records, mark })
    }

    /// Header of the stream.
    #[must_use]
    pub fn header(&self) -> &BusHeader {
        self.records.header()
    }

    /// Counts up to the last block read.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.mark.traffic
    }

    /// Continues from a saved state; `input` must be at that offset.
    pub(super) fn resume(&mut self, input: R, mark: Mark) {
        self.records.resume(input);
        self.mark = mark;
    }

    /// Appends the requests of the next block that lie in one of the windows. False at the end.
    ///
    /// # Errors
    /// Records are missing, out of order or damaged, or the stream is cut short: one error a block,
    /// with its offset. The intact requests of the block are in `out`, and the next call continues
    /// after the damage.
    pub fn fill(&mut self, windows: &[Window; 2], out: &mut Vec<Request>) -> Result<bool> {
        if self.mark.ended {
            return Ok(false);
        }
        let (before, kept) = (self.mark, out.len());
        let mut trouble = None;
        let mut sum = crc32fast::Hasher::new();
        loop {
            if !self.has_record()? {
                return self.cut_short(before, trouble);
            }
            let waiting = self.records.buffered().len();
            let last = self.run(windows, out, &mut trouble);
            let taken = waiting - self.records.buffered().len();
            // A checksum record does not cover itself.
            let unsummed = if last.is_some() { RECORD } else { 0 };
            sum.update(&self.records.taken(taken)[..taken - unsummed]);
            let at = self.mark.offset - RECORD as u64;
            match last {
                None if self.mark.records - before.records <= MOST_RECORDS => {}
                None => trouble = trouble.or(Some((at, Cause::Endless))),
                Some(Entry::Check(expected)) => {
                    return match self.verdict(sum.finalize() == expected, before, at) {
                        Ok(()) => self.report(trouble).map(|()| true),
                        Err(error) => {
                            out.truncate(kept);
                            Err(error)
                        }
                    };
                }
                Some(_) => {
                    self.mark.ended = true;
                    return self.report(trouble).map(|()| true);
                }
            }
            if matches!(trouble, Some((_, Cause::Endless))) {
                out.truncate(kept);
                self.mark.ended = true;
                return self.report(trouble).map(|()| true);
            }
        }
    }

    /// Processes the buffered records up to and including a checksum or end record, which it
    /// returns.
    #[inline(always)]
    fn run(
        &mut self,
        windows: &[Window; 2],
        out: &mut Vec<Request>,
        trouble: &mut Option<(u64, Cause)>,
    ) -> Option<Entry> {
        let bytes = self.records.buffered();
        let mark = &mut self.mark;
        let [first, second] = *windows;
        let (mut ticks, mut number, mut writes, mut reads) = (mark.ticks, mark.records, 0, 0);
        let mut taken = 0;
        let mut special = None;
        // Whether a request lies in a window is unpredictable: the loop has no branch on it, and
        // its buffer fits into the L1 cache.
        let mut room = [Request { ticks: 0, bits: 0 }; ROOM];
        'all: for part in bytes.chunks(ROOM * RECORD) {
            let mut kept = 0;
            for record in part.chunks_exact(RECORD) {
                let bits = u64::from_le_bytes(record.try_into().expect("eight bytes"));
                if (bits ^ number) & 0xff != 0 || bits >> 8 & 0xfff == 0xfff {
                    special = Some(bits);
                    out.extend_from_slice(&room[..kept]);
                    break 'all;
                }
                taken += RECORD;
                number += 1;
                ticks += bits >> 8 & 0xfff;
                let (address, write) = (bits >> 21 << 5, bits >> 20 & 1);
                writes += write;
                reads += 1 - write;
                room[kept % ROOM] = Request { ticks, bits: address | write };
                kept += usize::from(first.holds(address) | second.holds(address));
            }
            out.extend_from_slice(&room[..kept]);
        }
        (mark.ticks, mark.records) = (ticks, number);
        mark.traffic.reads += reads;
        mark.traffic.writes += writes;
        mark.offset += taken as u64;
        self.records.take(taken);
        special.and_then(|bits| self.special(bits, windows, out, trouble))
    }

    /// A record other than a request, or one out of sequence.
    #[cold]
    fn special(
        &mut self,
        bits: u64,
        windows: &[Window; 2],
        out: &mut Vec<Request>,
        trouble: &mut Option<(u64, Cause)>,
    ) -> Option<Entry> {
        let mark = &mut self.mark;
        let offset = mark.offset;
        mark.offset += RECORD as u64;
        self.records.take(RECORD);
        let mut note = |cause| _ = trouble.get_or_insert((offset, cause));
        let ahead = bits.wrapping_sub(mark.records) & 0xff;
        if ahead >= 128 {
            mark.traffic.disordered += 1;
            note(Cause::Disordered);
            return None;
        }
        if ahead > 0 {
            mark.skip(ahead);
            note(Cause::Missing(ahead));
        }
        mark.records += 1;
        let entry = Entry::unpack(bits);
        match entry {
            Some(Entry::Request { delta, address, write }) => {
                mark.count(delta, write);
                if windows.iter().any(|window| window.holds(address)) {
                    out.push(Request::new(mark.ticks, address, write));
                }
            }
            Some(Entry::Gap(passed)) => mark.ticks += passed,
            Some(Entry::Overrun(lost)) => {
                mark.traffic.overruns += lost;
                mark.adrift = true;
            }
            Some(Entry::Count(count)) => {
                if let Some(missing) = mark.missing(count) {
                    mark.skip(missing);
                    note(Cause::Missing(missing));
                }
            }
            Some(Entry::Clock(now)) => {
                if !mark.set_clock(now) {
                    note(Cause::Clock);
                }
            }
            Some(Entry::End(count)) => {
                if let Some(missing) = mark.missing(count) {
                    mark.traffic.missing += missing;
                    note(Cause::Missing(missing));
                }
                return entry;
            }
            Some(Entry::Check(_)) => return entry,
            None => note(Cause::Kind),
        }
        None
    }

    /// Checks a block's checksum; on a mismatch its requests count as damaged.
    fn verdict(&mut self, sound: bool, before: Mark, at: u64) -> Result<()> {
        if sound {
            return Ok(());
        }
        let traffic = &mut self.mark.traffic;
        let requests = |traffic: &Traffic| {
            traffic.reads + traffic.writes + traffic.missing + traffic.disordered
        };
        let lost = requests(traffic) - requests(&before.traffic);
        *traffic = before.traffic;
        traffic.damaged += lost;
        self.mark.records = before.records + (self.mark.offset - before.offset) / RECORD as u64;
        self.mark.adrift = true;
        let cause = format!(
            "the checksum of the records from byte {} on does not match; they are left out",
            before.offset
        );
        Err(self.records.wrong(
            at,
            &cause,
            "the rest is used; record again if counts must be exact",
        ))
    }

    fn report(&mut self, trouble: Option<(u64, Cause)>) -> Result<()> {
        let Some((at, cause)) = trouble else { return Ok(()) };
        let text = match cause {
            Cause::Missing(count) => format!("{count} records or more are missing before it"),
            Cause::Disordered => "a record follows a later one; it is left out".into(),
            Cause::Kind => "a record is of no known kind".into(),
            Cause::Clock => "the clock does not continue from the records before it".into(),
            Cause::Behind => "there is data after the end".into(),
            Cause::Endless => {
                format!("there is no checksum among {MOST_RECORDS} records: no board writes that")
            }
        };
        Err(self.records.wrong(at, &text, "the rest is used; counts are not exact"))
    }

    /// The file ends without an end record.
    fn cut_short(&mut self, before: Mark, trouble: Option<(u64, Cause)>) -> Result<bool> {
        self.mark.ended = true;
        let rest = self.records.buffered().len();
        self.report(trouble)?;
        let cause = match rest {
            0 => "the stream ends without its end".to_owned(),
            rest => format!("{rest} bytes are left where a record has {RECORD}"),
        };
        let remedy = format!(
            "it is cut short; the last records, from byte {} on, were used without a checksum",
            before.offset
        );
        Err(self.records.wrong(self.mark.offset, &cause, &remedy))
    }

    fn has_record(&mut self) -> Result<bool> {
        let found = self.records.has_record();
        self.mark.ended |= found.is_err();
        found
    }

    /// After the end record: checks that nothing follows.
    ///
    /// # Errors
    /// Data follow the end record.
    pub fn finish(&mut self) -> Result<()> {
        if self.records.has_rest()? {
            return self.report(Some((self.mark.offset, Cause::Behind)));
        }
        Ok(())
    }
}
