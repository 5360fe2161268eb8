//! Writes the streams of boards and a kernel's dump: for the simulated machine's monitor, and for
//! conversions from other formats.

use std::io::Write;

use tierscope_core::Result;
use tierscope_trace::compact::not_written;
use tierscope_wire::ptat::KernelEvent;

use super::bus::{BusHeader, Entry, MOST_DELTA, VALUE};
use super::dump::{DumpHeader, DumpRecord};

/// Requests and gaps between two checksums.
const BEAT: u64 = 4096;

/// Writes a board's stream.
pub struct BoardWriter<W> {
    out: W,
    name: String,
    header: BusHeader,
    ticks: u64,
    records: u64,
    since_check: u64,
    block: Vec<u8>,
    lost: u64,
}

impl<W: Write> BoardWriter<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(name: &str, mut out: W, header: BusHeader) -> Result<Self> {
        out.write_all(&header.to_bytes()).map_err(|e| not_written(name, &e))?;
        Ok(Self {
            out,
            name: name.to_owned(),
            header,
            ticks: header.start,
            records: 0,
            since_check: 0,
            block: Vec::new(),
            lost: 0,
        })
    }

    /// Appends a request, in order of time.
    ///
    /// # Errors
    /// I/O errors.
    #[inline]
    pub fn request(&mut self, ticks: u64, address: u64, write: bool) -> Result<()> {
        if self.lost > 0 {
            self.told_losses(ticks)?;
        }
        let mut delta = ticks.saturating_sub(self.ticks);
        if delta > MOST_DELTA {
            delta = self.gap(delta)?;
        }
        self.ticks = self.ticks.max(ticks);
        self.put_checked(Entry::Request { delta, address, write })
    }

    /// Counts a request that the board has no room for; an overrun record precedes the next
    /// request.
    pub fn lose(&mut self) {
        self.lost += 1;
    }

    #[cold]
    fn told_losses(&mut self, ticks: u64) -> Result<()> {
        self.put(Entry::Overrun(self.lost.min(VALUE)));
        self.lost = 0;
        self.ticks = self.ticks.max(ticks);
        self.beat()
    }

    /// Writes gap records for a pause; returns the ticks that the next request expresses itself. A
    /// pause of a month takes thousands of records, with checksums between them as between
    /// requests.
    #[cold]
    fn gap(&mut self, mut ticks: u64) -> Result<u64> {
        while ticks > MOST_DELTA {
            let passed = ticks.min(VALUE);
            ticks -= passed;
            self.ticks += passed;
            self.put_checked(Entry::Gap(passed))?;
        }
        Ok(ticks)
    }

    /// Appends a record, with a checksum after every [`BEAT`] of them.
    #[inline(always)]
    fn put_checked(&mut self, entry: Entry) -> Result<()> {
        self.put(entry);
        self.since_check += 1;
        if self.since_check >= BEAT { self.beat() } else { Ok(()) }
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry) {
        self.block.extend_from_slice(&entry.pack(self.records).to_le_bytes());
        self.records += 1;
    }

    /// Writes a checksum of the records since the last one, then the stream's record count and
    /// clock.
    fn beat(&mut self) -> Result<()> {
        let sum = crc32fast::hash(&self.block);
        self.put(Entry::Check(sum));
        self.out.write_all(&self.block).map_err(|e| not_written(&self.name, &e))?;
        self.block.clear();
        self.since_check = 0;
        self.put(Entry::Count(self.records & VALUE));
        self.put(Entry::Clock(self.ticks & VALUE));
        Ok(())
    }

    /// Header of the stream.
    #[must_use]
    pub fn header(&self) -> &BusHeader {
        &self.header
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(mut self) -> Result<W> {
        if self.lost > 0 {
            self.told_losses(self.ticks)?;
        }
        self.beat()?;
        self.block.clear();
        self.records -= 2;
        self.put(Entry::End(self.records & VALUE));
        let Self { mut out, block, name, .. } = self;
        out.write_all(&block).and_then(|()| out.flush()).map_err(|e| not_written(&name, &e))?;
        Ok(out)
    }
}

/// Writes a kernel's dump.
pub struct DumpWriter<W> {
    out: W,
    name: String,
    header: DumpHeader,
    group: Vec<u8>,
    records: u32,
    all: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(name: &str, mut out: W, header: DumpHeader) -> Result<Self> {
        out.write_all(&header.to_bytes()).map_err(|e| not_written(name, &e))?;
        let name = name.to_owned();
        Ok(Self { out, name, header, group: Vec::new(), records: 0, all: 0 })
    }

    /// Appends a record of the kernel.
    ///
    /// # Errors
    /// I/O errors.
    pub fn record(&mut self, event: &KernelEvent) -> Result<()> {
        match *event {
            KernelEvent::Change(change) => {
                self.put(DumpRecord::Change(change));
                self.put(DumpRecord::Entry(change.entry, change.level, change.reads));
                Ok(())
            }
            KernelEvent::Process { pid, stage } => {
                self.put(DumpRecord::Process(pid, stage));
                Ok(())
            }
            KernelEvent::Tag(number) => self.tag(number),
        }
    }

    fn put(&mut self, record: DumpRecord) {
        record.write(self.header.record, &mut self.group);
        self.records += 1;
        self.all += 1;
    }

    fn tag(&mut self, number: u64) -> Result<()> {
        let sum = crc32fast::hash(&self.group) & 0xff_ffff;
        self.put(DumpRecord::Tag(number, sum));
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.out.write_all(&self.group).map_err(|e| not_written(&self.name, &e))?;
        self.group.clear();
        self.records = 0;
        Ok(())
    }

    /// Counts records that the kernel's buffer had no room for.
    pub fn lose(&mut self, records: u64) {
        self.put(DumpRecord::Lost(records));
    }

    /// Ends the dump; records without a tag are written, and ignored by readers.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(mut self) -> Result<W> {
        let all = self.all;
        self.put(DumpRecord::End(all));
        self.flush()?;
        self.out.flush().map_err(|e| not_written(&self.name, &e))?;
        Ok(self.out)
    }
}
