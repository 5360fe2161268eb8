//! The end block: the trace's summary. FORMAT.md has the layout.

use std::cell::Cell;
use std::sync::Arc;

use tierscope_core::Time;

use super::varint::{put, put_text, take, take_text};
use crate::access::MAX_THREADS;
use crate::pages::BLOCK_BYTES;
use crate::summary::{Footprint, Summary, Thread};

/// Most blocks of footprints that are kept, 8 TiB with a page in each 2 MiB; of more, none are: the
/// footprints can be recomputed from the accesses.
const MOST_BLOCKS: usize = 1 << 22;

/// Appends a summary.
pub(super) fn encode(summary: &Summary, out: &mut Vec<u8>) {
    put(summary.whole.into(), out);
    put(summary.last.0, out);
    summary.bytes.iter().for_each(|bytes| put(*bytes, out));
    put(summary.threads.len() as u64, out);
    for thread in &summary.threads {
        put(thread.pid, out);
        put(thread.tid, out);
        thread.accesses.iter().for_each(|count| put(*count, out));
        put_text(&thread.name, out);
    }
    put(summary.footprints.len() as u64, out);
    for footprint in &summary.footprints {
        put(footprint.pid, out);
        encode_blocks(&footprint.data, out);
        encode_blocks(&footprint.code, out);
    }
}

/// Encodes the number of blocks, then for each its distance from the end of the previous one, and
/// its touched pages.
fn encode_blocks(blocks: &[(u64, u64)], out: &mut Vec<u8>) {
    put(blocks.len() as u64, out);
    let mut next = 0;
    for (block, pages) in blocks {
        put(block - next, out);
        put(*pages, out);
        next = block + 1;
    }
}

/// Decodes a summary; `None` if the payload is invalid.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Summary> {
    let bytes = &mut bytes;
    let whole = match take(bytes)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let last = Time(take(bytes)?);
    let sums = four(bytes)?;
    let threads = list(bytes, MAX_THREADS.into(), |bytes| {
        let (pid, tid, accesses) = (take(bytes)?, take(bytes)?, four(bytes)?);
        Some(Thread { pid, tid, accesses, name: Arc::from(take_text(bytes)?) })
    })?;
    let room = Cell::new(MOST_BLOCKS);
    let mut footprints = list(bytes, MAX_THREADS.into(), |bytes| {
        let pid = take(bytes)?;
        let (data, code) = (decode_blocks(bytes, &room)?, decode_blocks(bytes, &room)?);
        Some(Footprint { pid, data, code })
    })?;
    if room.get() == 0 {
        footprints.clear();
    }
    // Totals must not overflow.
    let counts = threads.iter().flat_map(|thread| &thread.accesses);
    counts.into_iter().try_fold(0u64, |sum, count| sum.checked_add(*count))?;
    bytes.is_empty().then_some(Summary { threads, bytes: sums, last, footprints, whole })
}

fn four(bytes: &mut &[u8]) -> Option<[u64; 4]> {
    Some([take(bytes)?, take(bytes)?, take(bytes)?, take(bytes)?])
}

fn list<T>(bytes: &mut &[u8], most: u64, item: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = take(bytes).filter(|count| *count <= most)?;
    (0..count).map(|_| item(bytes)).collect()
}

/// Decodes blocks, and keeps them while there is `room`.
fn decode_blocks(bytes: &mut &[u8], room: &Cell<usize>) -> Option<Vec<(u64, u64)>> {
    let count = take(bytes)?;
    let (mut next, mut blocks) = (0u64, Vec::new());
    for _ in 0..count {
        let block = next.checked_add(take(bytes)?)?;
        let pages = take(bytes)?;
        next = block.checked_add(1)?;
        if block > u64::MAX / BLOCK_BYTES || !(1..=512).contains(&pages) {
            return None;
        }
        if room.get() > 0 {
            room.set(room.get() - 1);
            blocks.push((block, pages));
        }
    }
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary() -> Summary {
        let thread = Thread { pid: 1, tid: 300, name: "a".into(), accesses: [1, 2, 3, 4] };
        let footprint = Footprint { pid: 1, data: vec![(5, 512), (6, 1)], code: vec![(2, 9)] };
        Summary {
            threads: vec![thread],
            bytes: [9, 8, 7, 6],
            last: Time(5),
            footprints: vec![footprint],
            whole: true,
        }
    }

    #[test]
    fn a_summary_has_the_documented_layout() {
        let mut out = Vec::new();
        encode(&summary(), &mut out);
        let head = [1, 5, 9, 8, 7, 6];
        let threads = [1, 1, 0xac, 2, 1, 2, 3, 4, 1, b'a'];
        let footprints = [1, 1, 2, 5, 0x80, 4, 0, 1, 1, 2, 9];
        assert_eq!(out, [&head[..], &threads, &footprints].concat());
        assert_eq!(decode(&out), Some(summary()));
        out.push(0);
        assert_eq!(decode(&out), None, "something is left");
    }

    #[test]
    fn footprints_beyond_the_limit_are_left_out() {
        let of = |blocks: u64| {
            let data = (0..blocks).map(|block| (block, 1)).collect();
            let mut long = summary();
            long.footprints = vec![Footprint { pid: 1, data, code: Vec::new() }];
            let mut out = Vec::new();
            encode(&long, &mut out);
            decode(&out).unwrap().footprints.len()
        };
        assert_eq!((of(MOST_BLOCKS as u64 - 1), of(MOST_BLOCKS as u64)), (1, 0));
    }

    #[test]
    fn long_lists_take_no_memory_in_advance() {
        let mut out = vec![1, 5, 9, 8, 7, 6];
        put(u64::MAX, &mut out);
        assert_eq!(decode(&out), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
