//! Writes the corpus of the fuzz target `ptat`:
//! `cargo run -p tierscope-tlb --example ptat_corpus fuzz/corpus/ptat`.

use std::fs;
use std::path::Path;

use tierscope_core::Level;
use tierscope_tlb::ptat::{
    BoardWriter, BusHeader, Change, DumpHeader, DumpWriter, KernelEvent, Stage, What, Window,
};

const REGION: Window = Window { start: 1 << 30, bytes: 64 << 10 };
const TAGS: Window = Window { start: 1 << 29, bytes: 4096 };

/// A board's stream and a dump: a few pages are mapped, walked and unmapped.
fn capture(grain: u8, record: u8, level: Level) -> (Vec<u8>, Vec<u8>) {
    let header = BusHeader { board: 0, boards: 1, grain, tick_ps: 1250, start: 0 };
    let mut board = BoardWriter::new("board", Vec::new(), header).expect("memory");
    let header = DumpHeader { record, region: REGION, tags: TAGS };
    let mut dump = DumpWriter::new("dump", Vec::new(), header).expect("memory");
    let (pid, stage) = (9, Stage::Announced);
    dump.record(&KernelEvent::Process { pid, stage }).expect("memory");
    let pages = 1 << (9 * (level.number() - 1));
    let mut ticks = 0;
    for group in 0..6 {
        let what = if group < 4 { What::Map } else { What::Unmap };
        let (at, entry) = (group % 4, REGION.start + group % 4 * 8);
        let (page, frame) = (at * pages, 77 + at * pages);
        let change = Change { what, pid, level, writable: true, page, frame, entry, reads: 1 };
        board.request(ticks, entry, false).expect("memory");
        dump.record(&KernelEvent::Change(change)).expect("memory");
        dump.record(&KernelEvent::Tag(group)).expect("memory");
        board.request(ticks, TAGS.start + (group << 6), false).expect("memory");
        for walk in 0..5 {
            ticks += 3000 * walk;
            board.request(ticks, entry, walk == 0).expect("memory");
            board.request(ticks, 4096 * walk, false).expect("memory");
        }
    }
    (dump.finish().expect("memory"), board.finish().expect("memory"))
}

/// A capture in which a page's data lie in the monitored region; the page belongs to a process in a
/// virtual machine.
fn chosen() -> (Vec<u8>, Vec<u8>) {
    let header = BusHeader { board: 0, boards: 1, grain: 6, tick_ps: 1250, start: 0 };
    let mut board = BoardWriter::new("board", Vec::new(), header).expect("memory");
    let header = DumpHeader { record: 13, region: REGION, tags: TAGS };
    let mut dump = DumpWriter::new("dump", Vec::new(), header).expect("memory");
    for (pid, stage) in [(1, Stage::Machine), (2, Stage::Within(1))] {
        dump.record(&KernelEvent::Process { pid, stage }).expect("memory");
    }
    let entry = REGION.start + 64;
    let change = |what, frame| {
        let (pid, level, page) = (2, Level::PTE, 8);
        KernelEvent::Change(Change {
            what,
            pid,
            level,
            writable: true,
            page,
            frame,
            entry,
            reads: 0,
        })
    };
    let groups = [[(What::Map, 5), (What::Place, 5)], [(What::Leave, 5), (What::Unmap, 5)]];
    for (group, changes) in (0u64..).zip(groups) {
        changes
            .iter()
            .for_each(|(what, frame)| dump.record(&change(*what, *frame)).expect("memory"));
        dump.record(&KernelEvent::Tag(group)).expect("memory");
        board.request(100 * group, TAGS.start + (group << 6), false).expect("memory");
        for at in 0..9 {
            let ticks = 100 * group + 5 + at;
            board.request(ticks, REGION.start + (5 << 12) + at * 64, at % 2 == 0).expect("memory");
        }
    }
    (dump.finish().expect("memory"), board.finish().expect("memory"))
}

fn main() {
    let directory = std::env::args().nth(1).expect("the corpus's directory");
    let write = |name: &str, dump: &[u8], board: &[u8]| {
        let length = (dump.len() as u32).to_le_bytes();
        let bytes = [&length[..], dump, board].concat();
        fs::write(Path::new(&directory).join(name), bytes).expect("it can be written");
    };
    fs::create_dir_all(&directory).expect("it can be made");
    let (dump, board) = capture(6, 13, Level::PTE);
    write("good-small", &dump, &board);
    let (long, fine) = capture(5, 14, Level::PMD);
    write("good-huge", &long, &fine);
    let (data, accesses) = chosen();
    write("good-chosen", &data, &accesses);
    write("bad-chosen-cut", &data[..data.len() - 30], &accesses);
    write("bad-nothing", &[], &[]);
    write("bad-board-cut", &dump, &board[..board.len() - 20]);
    write("bad-dump-cut", &dump[..dump.len() - 13], &board);
    let mut flipped = board.clone();
    flipped[60] ^= 4;
    write("bad-board-flipped", &dump, &flipped);
    let mut flipped = dump.clone();
    flipped[100] ^= 4;
    write("bad-dump-flipped", &flipped, &board);
    write("bad-record-dropped", &dump, &[&board[..48], &board[56..]].concat());
    let swapped = [&board[..48], &board[56..64], &board[48..56], &board[64..]].concat();
    write("bad-records-swapped", &dump, &swapped);
    write("bad-group-dropped", &[&dump[..116], &dump[155..]].concat(), &board);
}
