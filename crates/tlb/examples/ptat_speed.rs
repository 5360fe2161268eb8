//! CPU time of parsing a bus monitor's records (schedstat, so that other load on the machine does
//! not count): `cargo run -p tierscope-tlb --example ptat_speed`.

use tierscope_core::{Level, Rng};
use tierscope_tlb::ptat::{
    BoardReader, BoardWriter, BusHeader, Capture, Change, DumpHeader, DumpReader, DumpWriter,
    KernelEvent, What, Window,
};

const REQUESTS: u64 = 16 << 20;
const PAGES: u64 = 128 << 10;

/// Nanoseconds that this thread spent on a CPU.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn main() {
    let region = Window { start: 1 << 45, bytes: 256 << 20 };
    let header = DumpHeader { record: 13, region, tags: Window { start: 1 << 44, bytes: 1 << 20 } };
    let mut dump = DumpWriter::new("dump", Vec::new(), header).expect("memory");
    for page in 0..PAGES {
        let (what, level, entry) = (What::Map, Level::PTE, (1 << 45) + page * 8);
        let change =
            Change { what, pid: 1, level, writable: true, page, frame: page, entry, reads: 0 };
        dump.record(&KernelEvent::Change(change)).expect("memory");
    }
    dump.record(&KernelEvent::Tag(0)).expect("memory");
    let dump = dump.finish().expect("memory");
    for boards in [1u8, 2, 4] {
        let mut rng = Rng::seeded(3);
        let board = |board| {
            let header = BusHeader { board, boards, grain: 6, tick_ps: 1250, start: 0 };
            BoardWriter::new("board", Vec::new(), header).expect("memory")
        };
        let mut writers: Vec<_> = (0..boards).map(board).collect();
        writers[0].request(0, 1 << 44, false).expect("memory");
        for ticks in 0..REQUESTS {
            let anywhere = rng.below(2) == 0;
            let address =
                if anywhere { rng.below(16 << 30) } else { (1 << 45) + rng.below(PAGES) * 8 };
            let writer = &mut writers[(address >> 6) as usize % usize::from(boards)];
            writer.request(10 + 8 * ticks, address, rng.below(4) == 0).expect("memory");
        }
        let streams: Vec<Vec<u8>> =
            writers.into_iter().map(|writer| writer.finish().expect("memory")).collect();
        let begun = on_cpu();
        let readers =
            streams.iter().map(|bytes| BoardReader::new("board", &bytes[..]).expect("ours"));
        let dump = DumpReader::new("dump", &dump[..]).expect("ours");
        let mut capture = Capture::of(readers.collect(), dump).expect("one machine");
        while capture.step(&mut ()) {}
        let (misses, damage) = capture.finish();
        assert_eq!(damage.count, 0);
        let nanos = on_cpu() - begun;
        let rate = REQUESTS as f64 * 1e3 / nanos.max(1) as f64;
        println!("{boards} boards: {rate:.1} M records a CPU second, {} misses", misses.total());
    }
}
