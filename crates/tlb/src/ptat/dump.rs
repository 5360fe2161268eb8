//! Records of a kernel's dump, and its header. PTAT.md has the layout and meaning.

use tierscope_core::{Level, Result};
use tierscope_trace::import::bus_monitor::DUMP;
use tierscope_trace::place::{Place, malformed};
use tierscope_wire::ptat::{Change, Stage, What, Window};

use super::records::Header;

/// Bytes of the header.
pub(super) const HEADER: usize = 64;
/// Limit on the region: 1 GiB of page tables translates 256 GiB of 4 KiB pages.
pub(super) const MOST_REGION: u64 = 1 << 30;
/// Largest virtual page number that a record can hold.
const PAGES: u64 = (1 << 40) - 1;

/// Header of a kernel's dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// Bytes of a record: 13, or 14 where memory reaches beyond 64 GiB.
    pub record: u8,
    /// Region with the page tables of the monitored processes.
    pub region: Window,
    /// Tag window: reads of its addresses are tags.
    pub tags: Window,
}

impl DumpHeader {
    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&DUMP);
        bytes[8] = 1;
        bytes[10] = self.record;
        let numbers = [self.region.start, self.region.bytes, self.tags.start, self.tags.bytes];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[16 + 8 * at..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// The data are no header, have another version, or invalid values.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        let wrong = |at, cause: &str| {
            let remedy = "check that it is a dump as crates/tlb/PTAT.md describes it";
            Err(malformed(name, Place::Byte(at), cause, remedy))
        };
        let Some(bytes) = bytes.first_chunk::<HEADER>().filter(|b| b.starts_with(&DUMP)) else {
            return wrong(0, "no dump of page tables begins like that");
        };
        if crc32fast::hash(&bytes[..60]).to_le_bytes() != bytes[60..] {
            return wrong(60, "the checksum of the header does not match");
        }
        if bytes[8..10] != [1, 0] {
            return wrong(8, "its version is not supported");
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let window = |at| Window { start: number(at), bytes: number(at + 8) };
        let header = Self { record: bytes[10], region: window(16), tags: window(32) };
        if !(13..=14).contains(&header.record) {
            return wrong(10, "records have 13 or 14 bytes");
        }
        let Window { start, bytes } = header.region;
        let pages = start.is_multiple_of(4096) && bytes.is_multiple_of(4096);
        if !pages || bytes == 0 || bytes > MOST_REGION || start.checked_add(bytes).is_none() {
            return wrong(16, "the region is not made of pages, or larger than 1 GiB");
        }
        let Window { start, bytes } = header.tags;
        let lines = start.is_multiple_of(64) && bytes.is_power_of_two() && bytes >= 4096;
        if !lines || bytes > MOST_REGION || start.checked_add(bytes).is_none() {
            return wrong(32, "the window of tags is no power of two from 4096 to 2^30 bytes");
        }
        Ok(header)
    }
}

impl Header for DumpHeader {
    const BYTES: usize = HEADER;

    fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        Self::read(name, bytes)
    }

    fn record_bytes(&self) -> usize {
        self.record.into()
    }
}

/// A record of the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpRecord {
    /// A change of an entry; an `Entry` record follows that identifies it: `entry` and `reads` are
    /// 0 here.
    Change(Change),
    /// The entry of the previous record: physical address, level, and its reads that are no misses.
    Entry(u64, Level, u8),
    /// Progress of a process.
    Process(u32, Stage),
    /// The end of a group: its number, and the lower 24 bits of the CRC-32 of its records.
    Tag(u64, u32),
    /// Number of records that the kernel dropped because its buffer was full.
    Lost(u64),
    /// The dump's proper end; number of records before it.
    End(u64),
}

const WHATS: [What; 8] = [
    What::Map,
    What::Unmap,
    What::Flags,
    What::Look,
    What::Table,
    What::NoTable,
    What::Place,
    What::Leave,
];
const STAGES: [Stage; 4] = [Stage::Announced, Stage::Executes, Stage::Exited, Stage::Machine];
/// Process record code after those of the other stages: the process runs in a virtual machine,
/// whose number takes the place of the physical page number.
const WITHIN: u64 = 4;
const ENTRY: u8 = 8;
const PROCESS: u8 = 9;
const TAG: u8 = 10;
const LOST: u8 = 11;
const END: u8 = 12;

impl DumpRecord {
    /// Encodes the record, as 13 or 14 bytes.
    pub fn write(&self, length: u8, out: &mut Vec<u8>) {
        let (kind, pid, frame, page) = match *self {
            DumpRecord::Change(change) => {
                let kind = WHATS.iter().position(|what| *what == change.what).unwrap_or(0) as u8;
                let size = (change.level.number() - 1) & 3;
                let kind = kind | size << 4 | u8::from(change.writable) << 6;
                (kind, change.pid, change.frame, change.page)
            }
            DumpRecord::Entry(address, level, reads) => {
                let mut bytes = [0; 14];
                bytes[0] = ENTRY | reads.min(15) << 4;
                let address = address & !7 | u64::from(level.number());
                bytes[5..13].copy_from_slice(&address.to_le_bytes());
                return out.extend_from_slice(&bytes[..usize::from(length)]);
            }
            DumpRecord::Process(pid, Stage::Within(machine)) => {
                (PROCESS, pid, u64::from(machine) & 0xff_ffff, WITHIN)
            }
            DumpRecord::Process(pid, stage) => {
                let at = STAGES.iter().position(|known| *known == stage).unwrap_or(0);
                (PROCESS, pid, 0, at as u64)
            }
            DumpRecord::Tag(number, sum) => (TAG, 0, sum.into(), number),
            DumpRecord::Lost(records) => (LOST, 0, 0, records),
            DumpRecord::End(records) => (END, 0, 0, records),
        };
        let frames = usize::from(length) - 10;
        debug_assert!(matches!(self, DumpRecord::Change(_)) || frame < 1 << 24);
        out.push(kind);
        out.extend_from_slice(&pid.to_le_bytes());
        out.extend_from_slice(&frame.to_le_bytes()[..frames]);
        out.extend_from_slice(&(page & PAGES).to_le_bytes()[..5]);
    }

    /// Decodes a record; `None` if it is of no known kind.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        let (kind, upper) = (first & 15, first >> 4);
        let pid = u32::from_le_bytes(*rest.first_chunk()?);
        let frames = bytes.len().checked_sub(10)?;
        let frame = number(rest.get(4..4 + frames)?);
        let page = number(rest.get(4 + frames..)?);
        if kind == ENTRY {
            let address = number(rest.get(4..12)?);
            let level = Level::new((address & 7) as u8)?;
            let plain = pid == 0 && rest[12..].iter().all(|byte| *byte == 0);
            return plain.then_some(DumpRecord::Entry(address & !7, level, upper));
        }
        if let Some(what) = WHATS.get(usize::from(kind)) {
            let level = Level::new((upper & 3) + 1).filter(|_| upper < 8 && upper & 3 < 3)?;
            let writable = upper & 4 != 0;
            let (entry, reads) = (0, 0);
            let change = Change { what: *what, pid, level, writable, page, frame, entry, reads };
            return Some(DumpRecord::Change(change));
        }
        let within = kind == PROCESS && page == WITHIN && frame < 1 << 24;
        let plain = kind == TAG || frame == 0 || within;
        if upper != 0 || (kind != PROCESS && pid != 0) || !plain {
            return None;
        }
        Some(match kind {
            PROCESS if within => DumpRecord::Process(pid, Stage::Within(frame as u32)),
            PROCESS => DumpRecord::Process(pid, *STAGES.get(usize::try_from(page).ok()?)?),
            TAG => DumpRecord::Tag(page, u32::try_from(frame).ok().filter(|sum| *sum < 1 << 24)?),
            LOST => DumpRecord::Lost(page),
            END => DumpRecord::End(page),
            _ => return None,
        })
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(what: What, level: Level, writable: bool) -> Change {
        let (page, frame) = (0x7f_1234_5678, 0xab_cdef);
        Change { what, pid: 0x0102_0304, level, writable, page, frame, entry: 0, reads: 0 }
    }

    #[test]
    fn records_lie_as_documented() {
        let mut bytes = Vec::new();
        DumpRecord::Change(change(What::Unmap, Level::PMD, true)).write(13, &mut bytes);
        assert_eq!(bytes, [0x51, 4, 3, 2, 1, 0xef, 0xcd, 0xab, 0x78, 0x56, 0x34, 0x12, 0x7f]);
        bytes.clear();
        DumpRecord::Entry(0x2000_0000_1008, Level::PTE, 2).write(14, &mut bytes);
        assert_eq!(bytes, [0x28, 0, 0, 0, 0, 9, 0x10, 0, 0, 0, 0x20, 0, 0, 0]);
    }

    #[test]
    fn malformed_records_are_refused() {
        for first in [0x0d, 0x0f, 0x30, 0x80, 0x1a] {
            let mut bytes = [0; 13];
            bytes[0] = first;
            assert_eq!(DumpRecord::read(&bytes), None, "{first:#x}");
        }
        assert_eq!(DumpRecord::read(&[]), None);
    }

    #[test]
    fn headers_round_trip_and_damage_is_reported() {
        let region = Window { start: 1 << 45, bytes: 256 << 20 };
        let tags = Window { start: (1 << 45) - (1 << 20), bytes: 1 << 20 };
        let header = DumpHeader { record: 14, region, tags };
        let bytes = header.to_bytes();
        assert_eq!(DumpHeader::read("t", &bytes).unwrap(), header);
        for at in 0..HEADER {
            let mut damaged = bytes;
            damaged[at] ^= 16;
            assert!(DumpHeader::read("t", &damaged).is_err(), "byte {at}");
        }
        let none = DumpHeader { region: Window { bytes: 0, ..region }, ..header };
        assert!(DumpHeader::read("t", &none.to_bytes()).is_err());
        let endless = DumpHeader { tags: Window { bytes: 1 << 40, ..tags }, ..header };
        assert!(DumpHeader::read("t", &endless.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn records_come_back(
            long: bool, pid: u32, frame in 0u64..1 << 24, page in 0..=PAGES, level in 1u8..=3,
            writable: bool, what in 0usize..8, stage in 0usize..4, entry: u64, reads in 0u8..16,
        ) {
            let length = if long { 14 } else { 13 };
            let level = Level::new(level).expect("1..=3");
            let what = WHATS[what];
            let change =
                Change { what, pid, level, writable, page, frame, entry: 0, reads: 0 };
            let all = [
                DumpRecord::Change(change), DumpRecord::Entry(entry & !7, level, reads),
                DumpRecord::Process(pid, STAGES[stage]),
                DumpRecord::Process(pid, Stage::Within(frame as u32)),
                DumpRecord::Tag(page, frame as u32),
                DumpRecord::Lost(page), DumpRecord::End(page),
            ];
            for record in all {
                let mut bytes = Vec::new();
                record.write(length, &mut bytes);
                prop_assert_eq!(bytes.len(), usize::from(length));
                prop_assert_eq!(DumpRecord::read(&bytes), Some(record));
            }
        }
    }
}
