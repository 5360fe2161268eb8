//! Blocks of the compact format: file and block headers, compression and checksums. FORMAT.md has
//! the layout.

use std::borrow::Cow;

use crate::access::MAX_THREADS;

/// Magic number of a file: a byte that is not text, `TSTR`, and line ends that a text-mode transfer
/// would change.
pub(super) const MAGIC: [u8; 8] = *b"\x89TSTR\r\n\x1a";
/// The version that is written; older ones can be read as well.
pub(super) const VERSION: u32 = 2;
/// Bytes of the file header: magic number, version, checksum.
pub(super) const FILE_HEADER: usize = 16;

/// Magic number of a block.
pub(super) const MARK: [u8; 4] = *b"\xb1TSB";
/// Bytes of a block header.
pub(super) const HEADER: usize = 48;
/// Limit on a payload's bytes, packed or not; of the end block, whose summary lists all pages.
pub(super) const LONGEST: u32 = 1 << 24;
pub(super) const LONGEST_END: u32 = 1 << 26;

/// Limit on a block's accesses.
pub(super) const MOST: u32 = 1 << 20;
/// Limit on a block's events, and on places and allocations among its accesses: in memory each
/// takes some twenty times its bytes.
pub(super) const MOST_EVENTS: u32 = 1 << 17;

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Accesses,
    Events,
    End,
}

/// Header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) holds: Holds,
    /// The payload is an LZ4 block.
    pub(super) packed: bool,
    /// Bytes of the payload as stored.
    pub(super) length: u32,
    /// Bytes of the unpacked payload.
    pub(super) unpacked: u32,
    /// The thread that made the accesses.
    pub(super) thread: u32,
    /// Number of accesses or events.
    pub(super) count: u32,
    /// Sequence number: blocks before this one.
    pub(super) number: u64,
    /// Time of the first access, in ns.
    pub(super) time: u64,
    /// CRC-32 of the payload.
    pub(super) checksum: u32,
}

impl Header {
    pub(super) fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = match self.holds {
            Holds::Accesses => 1,
            Holds::Events => 2,
            Holds::End => 3,
        };
        bytes[5] = self.packed.into();
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.unpacked.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.thread.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are no valid block header.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("within"));
        let u64_at = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("within"));
        if bytes[..4] != MARK || u32_at(44) != crc32fast::hash(&bytes[..44]) {
            return None;
        }
        let holds = match bytes[4] {
            1 => Holds::Accesses,
            2 => Holds::Events,
            3 => Holds::End,
            _ => return None,
        };
        let header = Self {
            holds,
            packed: bytes[5] == 1,
            length: u32_at(8),
            unpacked: u32_at(12),
            thread: u32_at(16),
            count: u32_at(20),
            number: u64_at(24),
            time: u64_at(32),
            checksum: u32_at(40),
        };
        let most = if holds == Holds::Events { MOST_EVENTS } else { MOST };
        let longest = if holds == Holds::End { LONGEST_END } else { LONGEST };
        let sound = bytes[5] <= 1
            && bytes[6..8] == [0, 0]
            && header.length <= longest
            && header.unpacked <= longest
            && header.thread < MAX_THREADS
            && header.count <= most
            && (header.packed || header.length == header.unpacked);
        sound.then_some(header)
    }
}

/// The header of a file.
pub(super) fn file_header() -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Packs a payload as an LZ4 block, unless that is longer than the payload.
pub(super) fn pack(plain: &[u8]) -> (bool, Cow<'_, [u8]>) {
    let packed = lz4_flex::block::compress(plain);
    if packed.len() < plain.len() { (true, packed.into()) } else { (false, plain.into()) }
}

/// Unpacks a payload; `None` if that fails or the length differs from the header's.
pub(super) fn unpack<'a>(
    header: &Header,
    payload: &'a [u8],
    room: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    if !header.packed {
        return Some(payload);
    }
    room.resize(header.unpacked as usize, 0);
    let length = lz4_flex::block::decompress_into(payload, room).ok()?;
    (length == header.unpacked as usize).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_documented_layout() {
        let header = Header {
            holds: Holds::Accesses,
            packed: true,
            length: 5,
            unpacked: 6,
            thread: 7,
            count: 8,
            number: 9,
            time: 10,
            checksum: 11,
        };
        let bytes = header.write();
        assert_eq!(bytes[..8], [0xb1, b'T', b'S', b'B', 1, 1, 0, 0]);
        let words = [8, 12, 16, 20, 24, 28, 32, 36, 40].map(|at| bytes[at]);
        assert_eq!(words, [5, 6, 7, 8, 9, 0, 10, 0, 11]);
        assert_eq!(Header::read(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn incompressible_payloads_are_stored_as_they_are() {
        assert!(pack(&[7; 100]).0);
        assert_eq!(pack(b"abc"), (false, b"abc"[..].into()));
    }
}
