//! Records of a board's stream, and its header. PTAT.md has the layout and meaning.

use tierscope_core::Result;
use tierscope_trace::import::bus_monitor::STREAM;
use tierscope_trace::place::{Place, malformed};

use super::records::Header;

/// Bytes of the header.
pub(super) const HEADER: usize = 32;
/// Bytes of a record.
pub(super) const RECORD: usize = 8;
/// Limit on the boards of a machine.
pub const MOST_BOARDS: u8 = 16;
/// Most ticks that a request record can express; longer pauses take a gap record.
pub(super) const MOST_DELTA: u64 = 0xffe;
/// Mask of a record's value: larger numbers are stored modulo 2^40.
pub(super) const VALUE: u64 = (1 << 40) - 1;
/// Mask of a request's address: 48 bits.
pub(super) const ADDRESS: u64 = (1 << 48) - 1;

const SPECIAL: u64 = 0xfff;

/// Header of a board's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusHeader {
    /// Number of the board, from 0.
    pub board: u8,
    /// Number of boards.
    pub boards: u8,
    /// log2 of the bytes of a request: 6, or 5.
    pub grain: u8,
    /// Picoseconds of a tick.
    pub tick_ps: u32,
    /// The common clock at the beginning of the stream, in ticks.
    pub start: u64,
}

impl BusHeader {
    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&STREAM);
        bytes[8] = 1;
        bytes[10..13].copy_from_slice(&[self.board, self.boards, self.grain]);
        bytes[16..20].copy_from_slice(&self.tick_ps.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.start.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// The data are no header, have another version, or values that no board has.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        let wrong = |at, cause: &str| {
            let remedy = "check that it is a board's stream as crates/tlb/PTAT.md describes it";
            Err(malformed(name, Place::Byte(at), cause, remedy))
        };
        let Some(bytes) = bytes.first_chunk::<HEADER>().filter(|b| b.starts_with(&STREAM)) else {
            return wrong(0, "no stream of a bus monitor's board begins like that");
        };
        if crc32fast::hash(&bytes[..28]).to_le_bytes() != bytes[28..] {
            return wrong(28, "the checksum of the header does not match");
        }
        if bytes[8..10] != [1, 0] {
            return wrong(8, "its version is not supported");
        }
        let header = Self {
            board: bytes[10],
            boards: bytes[11],
            grain: bytes[12],
            tick_ps: u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")),
            start: u64::from_le_bytes(bytes[20..28].try_into().expect("eight bytes")),
        };
        let sensible = header.board < header.boards
            && header.boards <= MOST_BOARDS
            && (5..=6).contains(&header.grain)
            && header.tick_ps > 0;
        if sensible { Ok(header) } else { wrong(10, "no board has such properties") }
    }
}

impl Header for BusHeader {
    const BYTES: usize = HEADER;

    fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        Self::read(name, bytes)
    }

    fn record_bytes(&self) -> usize {
        RECORD
    }
}

/// A record, without its number in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A request that crossed the bus.
    Request {
        /// Ticks since the previous record, 0..=4094.
        delta: u64,
        /// Physical address below 2^48.
        address: u64,
        /// Whether it writes.
        write: bool,
    },
    /// A pause of this many ticks.
    Gap(u64),
    /// CRC-32 of the records since the previous record of this kind, or since the header.
    Check(u32),
    /// Number of records before this one.
    Count(u64),
    /// Current time of the clock, in ticks.
    Clock(u64),
    /// Number of requests that were dropped because the board's buffer was full.
    Overrun(u64),
    /// The stream's proper end; number of records before it.
    End(u64),
}

impl Entry {
    /// Encodes the record; `number` is its position in the stream.
    #[inline]
    #[must_use]
    pub fn pack(self, number: u64) -> u64 {
        let special = |kind: u64, value: u64| SPECIAL << 8 | kind << 20 | (value & VALUE) << 24;
        let bits = match self {
            Entry::Request { delta, address, write } => {
                debug_assert!(delta <= MOST_DELTA && address <= ADDRESS);
                delta << 8 | u64::from(write) << 20 | (address & ADDRESS) >> 5 << 21
            }
            Entry::Gap(ticks) => special(0, ticks),
            Entry::Check(sum) => special(1, sum.into()),
            Entry::Count(count) => special(2, count),
            Entry::Clock(ticks) => special(3, ticks),
            Entry::Overrun(lost) => special(4, lost),
            Entry::End(count) => special(5, count),
        };
        bits | number & 0xff
    }

    /// Decodes a record; `None` if it is of no known kind.
    #[inline(always)]
    #[must_use]
    pub fn unpack(bits: u64) -> Option<Self> {
        let delta = bits >> 8 & SPECIAL;
        if delta != SPECIAL {
            let address = bits >> 21 << 5;
            return Some(Entry::Request { delta, address, write: bits >> 20 & 1 == 1 });
        }
        Self::unpack_special(bits)
    }

    #[cold]
    fn unpack_special(bits: u64) -> Option<Self> {
        let value = bits >> 24;
        Some(match bits >> 20 & 15 {
            0 => Entry::Gap(value),
            1 => Entry::Check(u32::try_from(value).ok()?),
            2 => Entry::Count(value),
            3 => Entry::Clock(value),
            4 => Entry::Overrun(value),
            5 => Entry::End(value),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 0x1234_5678_9ac0 is unit 0x91_a2b3_c4d6 of 32 bytes.
    #[test]
    fn records_lie_as_documented() {
        let request = Entry::Request { delta: 5, address: 0x1234_5678_9ac0, write: true };
        assert_eq!(request.pack(0x107), 0x91_a2b3_c4d6 << 21 | 1 << 20 | 5 << 8 | 7);
        assert_eq!(Entry::Overrun(3).pack(0), 3 << 24 | 4 << 20 | 0xfff << 8);
        assert_eq!(Entry::unpack(6 << 20 | 0xfff << 8), None, "no such kind");
        assert_eq!(Entry::unpack(1 << 60 | 1 << 20 | 0xfff << 8), None, "no such checksum");
    }

    #[test]
    fn headers_round_trip_and_damage_is_reported() {
        let header = BusHeader { board: 1, boards: 2, grain: 5, tick_ps: 2500, start: 77 };
        let bytes = header.to_bytes();
        assert_eq!(BusHeader::read("t", &bytes).unwrap(), header);
        for at in 0..HEADER {
            let mut damaged = bytes;
            damaged[at] ^= 4;
            assert!(BusHeader::read("t", &damaged).is_err(), "byte {at}");
        }
        assert!(BusHeader::read("t", &bytes[..31]).is_err());
        let odd = BusHeader { board: 2, ..header }.to_bytes();
        assert!(BusHeader::read("t", &odd).unwrap_err().to_string().contains("byte 10"));
    }

    proptest! {
        #[test]
        fn records_come_back(
            delta in 0..=MOST_DELTA, unit in 0u64..1 << 43, write: bool, value in 0..=VALUE, sum: u32,
            number: u64,
        ) {
            let all = [
                Entry::Request { delta, address: unit << 5, write }, Entry::Gap(value),
                Entry::Check(sum), Entry::Count(value), Entry::Clock(value), Entry::Overrun(value),
                Entry::End(value),
            ];
            for entry in all {
                let bits = entry.pack(number);
                prop_assert_eq!(Entry::unpack(bits), Some(entry));
                prop_assert_eq!(bits & 0xff, number & 0xff);
            }
        }
    }
}
