//! Compresses columns into LZ4 frames.
//!
//! Repetitions in a column of fixed-width values are mostly one or two values apart: constants,
//! values that hardly change, alternating hot and cold. Searching only there needs no hash table
//! and, on such columns, a fraction of the instructions of a general compressor.
//!
//! Formats: `doc/lz4_Frame_format.md` and `doc/lz4_Block_format.md` of the LZ4 project. Any LZ4
//! reader can decompress the frames.

/// Magic number; version 1, independent blocks, no checksums, no content size.
const MAGIC: [u8; 5] = [0x04, 0x22, 0x4d, 0x18, 0x60];

/// Maximum bytes of a block before compression, with the frame descriptor's encoding and its
/// checksum. Readers allocate a block before they read a byte: a small column in blocks of 4 MiB
/// would cost them thousands of page faults.
const BLOCKS: [(usize, [u8; 2]); 4] = [
    (64 << 10, [0x40, 0x82]),
    (256 << 10, [0x50, 0xfb]),
    (1 << 20, [0x60, 0x51]),
    (4 << 20, [0x70, 0x73]),
];

/// Flag in a block's size: the block is stored uncompressed.
const STORED: u32 = 1 << 31;

/// Bytes of the shortest match.
const SHORTEST: usize = 4;

/// No match starts among the last 12 bytes of a block, …
const NO_START: usize = 12;

/// … and no match extends into the last 5.
const NO_MATCH: usize = 5;

/// Appends a frame that holds `column`, values of `width` bytes.
pub(crate) fn frame(column: &[u8], width: usize, out: &mut Vec<u8>) {
    let fits = |(block, _): &&(usize, [u8; 2])| *block >= column.len();
    let (block_size, descriptor) = *BLOCKS.iter().find(fits).unwrap_or(&BLOCKS[3]);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&descriptor);
    for part in column.chunks(block_size) {
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        block(part, width, out);
        let mut size = (out.len() - size_at - 4) as u32;
        if size as usize >= part.len() {
            out.truncate(size_at + 4);
            out.extend_from_slice(part);
            size = part.len() as u32 | STORED;
        }
        out[size_at..size_at + 4].copy_from_slice(&size.to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
}

fn block(data: &[u8], width: usize, out: &mut Vec<u8>) {
    let mut written = 0;
    let mut at = width;
    while at + NO_START <= data.len() {
        let word = word(data, at);
        let alike = |back: usize| match at.checked_sub(back) {
            Some(before) => (word ^ self::word(data, before)).trailing_zeros() as usize / 8,
            None => 0,
        };
        let (one, two) = (alike(width), alike(2 * width));
        if one.max(two) < SHORTEST {
            at += one.min(two) + 1;
            continue;
        }
        let back = if two > one { 2 * width } else { width };
        let length = repeated(data, at, back);
        sequence(data, written..at, Some((back, length)), out);
        at += length;
        written = at;
    }
    sequence(data, written..data.len(), None, out);
}

/// The eight bytes from `at` on.
fn word(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*data[at..].first_chunk().expect("a match starts 12 bytes before the end"))
}

/// Length of the match between the bytes from `at` on and those `back` bytes before.
fn repeated(data: &[u8], at: usize, back: usize) -> usize {
    let end = data.len() - NO_MATCH;
    let mut to = at;
    while to + 8 <= end {
        let differing = word(data, to) ^ word(data, to - back);
        if differing != 0 {
            return to - at + differing.trailing_zeros() as usize / 8;
        }
        to += 8;
    }
    while to < end && data[to] == data[to - back] {
        to += 1;
    }
    to - at
}

/// Appends a sequence: literals, then a match (distance and length).
fn sequence(
    data: &[u8],
    literals: std::ops::Range<usize>,
    copy: Option<(usize, usize)>,
    out: &mut Vec<u8>,
) {
    let more = copy.map_or(0, |(_, length)| length - SHORTEST);
    out.push((literals.len().min(15) << 4 | more.min(15)) as u8);
    rest_of_length(literals.len(), out);
    match data[literals.start..].first_chunk::<8>() {
        // Mostly short literals: copying eight bytes at once is faster than copying the exact
        // count.
        Some(eight) if literals.len() <= 8 => {
            out.extend_from_slice(eight);
            out.truncate(out.len() - 8 + literals.len());
        }
        _ => out.extend_from_slice(&data[literals]),
    }
    if let Some((back, _)) = copy {
        out.extend_from_slice(&(back as u16).to_le_bytes());
        rest_of_length(more, out);
    }
}

/// Appends the part of a length that exceeds its four-bit field.
fn rest_of_length(length: usize, out: &mut Vec<u8>) {
    if let Some(rest) = length.checked_sub(15) {
        out.resize(out.len() + rest / 255, 255);
        out.push((rest % 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decompresses a frame byte by byte, following the format's specification.
    fn read(frame: &[u8]) -> Vec<u8> {
        assert_eq!(frame[..5], MAGIC);
        let (most, _) = BLOCKS.into_iter().find(|(_, bytes)| frame[5..7] == *bytes).unwrap();
        let mut at = 7;
        let mut data = Vec::new();
        loop {
            let size = u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
            let bytes = (size & !STORED) as usize;
            let body = &frame[at + 4..at + 4 + bytes];
            at += 4 + bytes;
            match size {
                0 => break,
                _ if size & STORED != 0 => data.extend_from_slice(body),
                _ => data.extend(checked(read_block(body), most)),
            }
        }
        assert_eq!(at, frame.len());
        data
    }

    fn checked(block: Vec<u8>, most: usize) -> Vec<u8> {
        assert!(block.len() <= most, "larger than the descriptor says");
        block
    }

    fn read_block(block: &[u8]) -> Vec<u8> {
        let mut data: Vec<u8> = Vec::new();
        let mut bytes = block.iter().copied();
        let mut last_match = 0;
        while let Some(token) = bytes.next() {
            let literals = read_length(token >> 4, &mut bytes);
            data.extend(bytes.by_ref().take(literals));
            let Some(low) = bytes.next() else { break };
            let back = usize::from(u16::from_le_bytes([low, bytes.next().unwrap()]));
            last_match = data.len();
            for _ in 0..SHORTEST + read_length(token & 15, &mut bytes) {
                data.push(data[data.len() - back]);
            }
            assert_ne!(bytes.len(), 0, "a block ends with literals");
        }
        assert!(last_match == 0 || last_match + NO_START <= data.len());
        data
    }

    fn read_length(nibble: u8, bytes: &mut impl Iterator<Item = u8>) -> usize {
        let mut length = usize::from(nibble);
        let mut more = nibble == 15;
        while more {
            let byte = bytes.next().unwrap();
            length += usize::from(byte);
            more = byte == 255;
        }
        length
    }

    fn framed(column: &[u8], width: usize) -> Vec<u8> {
        let mut out = Vec::new();
        frame(column, width, &mut out);
        out
    }

    // 8 literals, one match of 8000 - 8 - 5 bytes (31 times 255 and the rest), 5 literals.
    #[test]
    fn a_constant_is_one_match() {
        let column = 77u64.to_le_bytes().repeat(1000);
        let found = framed(&column, 8);
        assert_eq!(read(&found), column);
        assert_eq!(found.len(), 7 + 4 + (1 + 8 + 2 + 32) + (1 + 5) + 4);
    }

    // Two alternating values: two of them as literals, then one match.
    #[test]
    fn turns_are_one_match() {
        let column = [0f32, 5.0].map(f32::to_le_bytes).concat().repeat(500);
        let found = framed(&column, 4);
        assert_eq!(read(&found), column);
        assert!(found.len() < 60, "{}", found.len());
    }

    #[test]
    fn noise_is_stored_as_it_is() {
        let noise: Vec<u8> =
            (0..4096u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        let found = framed(&noise, 8);
        assert_eq!((read(&found), found.len()), (noise.clone(), noise.len() + 15));
    }

    #[test]
    fn large_columns_take_several_blocks() {
        let column = vec![7; (8 << 20) + 5];
        assert_eq!(read(&framed(&column, 1)), column);
    }

    #[test]
    fn blocks_are_no_larger_than_the_column_needs() {
        for (bytes, descriptor) in [(1, 0x40), (64 << 10, 0x40), (65_537, 0x50), (1 << 21, 0x70)] {
            assert_eq!(framed(&vec![7; bytes], 1)[5], descriptor, "{bytes} bytes");
        }
    }

    // The descriptor's checksum is the second byte of XXH32 of flags and descriptor, by the frame
    // format.
    #[test]
    fn descriptors_carry_their_checksum() {
        for (_, [block, checksum]) in BLOCKS {
            assert_eq!((xxh32(&[MAGIC[4], block]) >> 8) as u8, checksum);
        }
    }

    /// XXH32 with seed 0 of fewer than four bytes: `doc/xxhash_spec.md` of the xxHash project.
    fn xxh32(bytes: &[u8]) -> u32 {
        const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
        let mut hash = PRIMES[4].wrapping_add(bytes.len() as u32);
        for byte in bytes {
            hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4]));
            hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
        }
        hash = (hash ^ hash >> 15).wrapping_mul(PRIMES[1]);
        hash = (hash ^ hash >> 13).wrapping_mul(PRIMES[2]);
        hash ^ hash >> 16
    }

    proptest! {
        // Few different values, so that matches begin and end everywhere.
        #[test]
        fn every_column_comes_back(
            values in prop::collection::vec(prop_oneof![Just(0u64), 0u64..4, Just(0x20_0000), any::<u64>()], 0..200),
            repeats in prop::collection::vec(1usize..40, 200),
            width in prop::sample::select(vec![1usize, 4, 8]),
            cut in 0usize..8,
        ) {
            let bytes = |(value, times): (&u64, &usize)| value.to_le_bytes()[..width].repeat(*times);
            let mut column: Vec<u8> = values.iter().zip(&repeats).flat_map(bytes).collect();
            column.truncate(column.len().saturating_sub(cut));
            prop_assert_eq!(read(&framed(&column, width)), column);
        }
    }
}
