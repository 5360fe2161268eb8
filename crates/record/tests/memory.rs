//! Memory use of a recorder: a burst of many regions does not increase it permanently.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Range, Region, Snapshot, SpaceId, Time};
use tierscope_record::{BINS, FANOUT, Meta, Recorder, Store, Table};

/// Allocator that counts the bytes allocated and not freed.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system's allocator; the counter does not affect them.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
        LIVE.load(Ordering::Relaxed)
    };
    let before = pass(512, 300);
    let burst = pass(31, 4000);
    let after = pass(512 - 31, 300);
    eprintln!("heap: {before} bytes before, {burst} in, {after} after the burst");
    assert!(burst > before + 40 * BINS * size_of::<u64>(), "the burst is none");
    assert!(after - before < (burst - before) / 8, "{} bytes stay", after - before);
}
