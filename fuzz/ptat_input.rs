//! Body of the fuzz target `ptat`; crates/tlb replays the corpus with it.

use tierscope_tlb::ptat::{BoardReader, Capture, DumpReader};

/// Parses a capture of one board: a 4-byte length, a dump of that length, and the board's stream.
/// Returns the number of misses if nothing is damaged.
pub(crate) fn read(data: &[u8]) -> Option<u64> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (dump, board) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let dump = DumpReader::new("dump", dump).ok()?;
    // The parser's memory is bounded by the region's size, which may be a gigabyte.
    if dump.header().region.bytes > 16 << 20 {
        return None;
    }
    let mut capture = Capture::of(vec![BoardReader::new("board", board).ok()?], dump).ok()?;
    // Every step consumes at least one record, or reports damage that consumed some.
    for _ in 0..data.len() + 2 {
        if !capture.step(&mut ()) {
            let state = capture.save();
            assert!(state.len() > 8);
            let (misses, damage) = capture.finish();
            assert!(misses.total() <= misses.boards[0].reads);
            let blocks: u64 = misses.blocks().values().sum();
            assert!(blocks <= misses.total());
            let seen: u64 = misses.watched.values().map(|page| page.reads + page.writes).sum();
            assert!(seen <= misses.boards[0].reads + misses.boards[0].writes);
            return (damage.count == 0).then(|| misses.total());
        }
    }
    panic!("it never ends");
}
