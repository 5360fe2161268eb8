//! The memory that a recording takes at most when it is read, with the worst ones that can be made:
//! windows that unpack to as much as LZ4 allows, and files that are sparse.

use std::fs::{self, OpenOptions};
use std::path::Path;

use tierscope_conformance::peak::{self, Peak};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{ErrorKind, Range, Region, Snapshot, SpaceId, Time};
use tierscope_record::{Meta, Recorder, Recording};

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// The ceiling of all readers of foreign files.
const CEILING: usize = 256 << 20;

/// Records one window of `regions` pages, or returns the error.
fn record(dir: &Path, regions: u64) -> tierscope_core::Result<()> {
    let region =
        |page: u64| Region::sampled(Range::new(SpaceId(0), page << 12, (page + 1) << 12), 0.0, 8);
    let regions = (0..regions).map(region).collect();
    let snapshot = Snapshot { start: Time(0), end: Time(200), samples: 8, regions };
    let mut recorder = Recorder::create(dir, &Meta::default())?;
    recorder.window(&Window::of(&snapshot))?;
    recorder.finish()
}

fn regions(dir: &Path) -> tierscope_core::Result<usize> {
    Ok(Recording::open(dir)?.snapshot(0)?.regions.len())
}

// One test: the allocator counts all threads.
#[test]
fn no_recording_takes_more_than_the_ceiling() {
    let dir = tempfile::tempdir().unwrap();
    // A million regions are read.
    let many = dir.path().join("many");
    record(&many, 1 << 20).unwrap();
    let (read, bytes) = peak::of(|| regions(&many).unwrap());
    eprintln!("2^20 regions: {} MiB of memory", bytes >> 20);
    assert_eq!(read, 1 << 20);
    assert!(bytes <= CEILING, "{bytes} bytes");
    // More than a reader takes are not recorded.
    let error = record(&dir.path().join("more"), (1 << 21) + 1).unwrap_err();
    assert!(error.to_string().contains("2097153 regions"), "{error}");
    // A file that is longer than its windows takes nothing.
    let sparse = OpenOptions::new().write(true).open(many.join("regions.arrows")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let (read, bytes) = peak::of(|| regions(&many).unwrap());
    assert_eq!(read, 1 << 20);
    assert!(bytes <= CEILING, "{bytes} bytes");
    // So do commit rows that are zeros: the recording ends.
    let rows = OpenOptions::new().write(true).open(many.join("windows.arrows")).unwrap();
    rows.set_len(1 << 40).unwrap();
    let (read, bytes) = peak::of(|| regions(&many));
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == ErrorKind::Data));
    assert!(bytes <= CEILING, "{bytes} bytes");
    fs::remove_dir_all(&many).unwrap();
}
