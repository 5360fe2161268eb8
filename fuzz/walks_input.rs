//! Body of the fuzz target `walks`; crates/tlb replays the corpus with it.

use tierscope_core::Result;
use tierscope_tlb::ptat::{BoardReader, Capture, DumpReader, WalkFile, WalkWriter, each_walk};
use tierscope_wire::TlbMiss;

/// Makes a capture from the walks of two CPUs: a 4-byte length, the first CPU's file of that
/// length, and the second CPU's file. Returns the number of walks if nothing is damaged.
pub(crate) fn read(data: &[u8]) -> Option<u64> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (first, second) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (mut walks, mut entries) = (0u64, (u64::MAX, 0));
    each([first, second], |miss, _| {
        walks += 1;
        entries = (entries.0.min(miss.entry), entries.1.max(miss.entry));
        Ok(())
    })
    .ok()?;
    assert!(walks <= data.len() as u64 / 40);
    // The parser's memory is bounded by the span of the entries, up to a gigabyte.
    if walks == 0 || entries.1 - entries.0 > 16 << 20 {
        return None;
    }
    let open = |_| Ok((String::new(), Vec::new()));
    let mut writer = WalkWriter::new(entries, 6, open).expect("a small region");
    each([first, second], |miss, entry| writer.walk(miss, entry)).expect("it was read before");
    let (board, dump, outside) = writer.finish().expect("memory");
    let board = BoardReader::new("board", &board[..]).expect("ours");
    let dump = DumpReader::new("dump", &dump[..]).expect("ours");
    let mut capture = Capture::of(vec![board], dump).expect("one machine");
    while capture.step(&mut ()) {}
    let (misses, damage) = capture.finish();
    assert_eq!((damage.count, outside), (0, 0), "{:?}", damage.first);
    assert_eq!(misses.total(), walks);
    Some(walks)
}

fn each(files: [&[u8]; 2], take: impl FnMut(&TlbMiss, u64) -> Result<()>) -> Result<()> {
    let files = files.into_iter().map(|bytes| WalkFile::new("cpu", bytes));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    each_walk(&mut files, take)
}
