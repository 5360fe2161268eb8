//! Memory use of a recorder: a burst of many regions does not increase it permanently.

use std::io;

use tierscope_conformance::peak::{Peak, live};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Range, Region, Snapshot, SpaceId, Time};
use tierscope_record::{BINS, FANOUT, Meta, Recorder, Store, Table};

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// A store that discards everything.
struct Nowhere;

impl Store for Nowhere {
    fn append(&mut self, _: Table, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "nowhere".into()
    }
}

/// Adjacent regions of 32 pages, alternately hot and cold; all of them shift by a page in every
/// window.
fn snapshot(window: u64, regions: u64) -> Snapshot {
    let region = |index: u64| {
        let start = (index * 32 + window % FANOUT) << 12;
        let range = Range::new(SpaceId(0), start, start + (32 << 12));
        let hits = (index % 2 * 8) as f32;
        Region::sampled(range, hits, 8)
    };
    let (start, end) = (Time(window * 200), Time(window * 200 + 200));
    Snapshot { start, end, samples: 8, regions: (0..regions).map(region).collect() }
}

// After a burst only its bins in incomplete tiles remain, and message buffers of the size of its
// largest window.
#[test]
fn memory_of_a_burst_of_regions_is_released() {
    let mut recorder = Recorder::create_in(Nowhere, &Meta::default()).unwrap();
    let mut window = 0;
    let mut pass = |windows: u64, regions: u64| {
        for _ in 0..windows {
            recorder.window(&Window::of(&snapshot(window, regions))).unwrap();
            window += 1;
        }
        live()
    };
    let before = pass(512, 300);
    let burst = pass(31, 4000);
    let after = pass(512 - 31, 300);
    eprintln!("heap: {before} bytes before, {burst} in, {after} after the burst");
    assert!(burst > before + 40 * BINS * size_of::<u64>(), "the burst is none");
    assert!(after - before < (burst - before) / 8, "{} bytes stay", after - before);
}
