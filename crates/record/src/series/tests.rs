//! Tests of a series whose janitor works at once, or hangs.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Range, Region, Snapshot, SpaceId, Time};

use super::directory::{Directory, members};
use super::janitor::{Janitor, Keeper, Work};
use super::recorder::{SeriesRecorder, Start};
use super::retention::Retention;
use crate::access::Access;
use crate::meta::Meta;
use crate::recording::Recording;

/// A series whose work is passed to `pass`.
fn series(
    dir: &std::path::Path,
    retention: Retention,
    pass: impl FnOnce(Keeper) -> Box<dyn Fn(Work) + Send + Sync>,
) -> SeriesRecorder {
    let directory = Directory::take(dir, Access::default()).unwrap();
    let janitor = |keeper| Ok(Janitor::by(Arc::from(pass(keeper))));
    let wall = Box::new(|| UNIX_EPOCH);
    let start = Start::of(&directory, &Meta::default(), retention, wall, janitor).unwrap();
    start.series(directory, &Meta::default(), retention)
}

/// Records a window of a second.
fn window(series: &mut SeriesRecorder, index: u64) {
    let at = |second: u64| Time(second * 1_000_000_000);
    let region = Region::sampled(Range::new(SpaceId(0), 0, 1 << 20), (index % 40) as f32, 40);
    let regions = vec![region; 1 + index as usize % 30];
    let snapshot = Snapshot { start: at(index), end: at(index + 1), samples: 40, regions };
    series.window(&Window::of(&snapshot)).unwrap();
}

// A piece of 768 KiB / 24 may grow beyond its size by a window, and a recording begins with about
// 10 KB of heads.
#[test]
fn a_series_stays_below_its_size_while_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let most = 768 << 10;
    let retention = Retention { age: None, bytes: Some(most) };
    let mut series = series(dir.path(), retention, |keeper| {
        let keeper = Mutex::new(keeper);
        Box::new(move |work| keeper.lock().unwrap().carry_out(work))
    });
    let (mut largest, mut recordings) = (0, 0);
    for index in 0..800 {
        window(&mut series, index);
        let members = members(dir.path()).unwrap();
        largest = largest.max(members.iter().map(|member| member.bytes).sum());
        recordings = recordings.max(members.len());
    }
    let overshoot = 8 << 10;
    assert!(largest <= most + overshoot, "{largest} bytes");
    assert!(largest >= most / 2 && recordings > 10, "{largest} bytes in {recordings}");
}

// No work is carried out while ten recordings follow each other; it waits without open files.
#[test]
fn recordings_that_wait_for_a_hanging_disk_are_all_ended() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Retention { age: Some(Duration::from_secs(48)), bytes: None };
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let (queue, mut keeper) = (Arc::clone(&waiting), None);
    let mut series = series(dir.path(), retention, |made| {
        keeper = Some(made);
        Box::new(move |work| queue.lock().unwrap().push(work))
    });
    let open_files = || {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.filter(|target| target.starts_with(dir.path())).count()
    };
    window(&mut series, 0);
    let before = open_files();
    (1..20).for_each(|index| window(&mut series, index));
    assert_eq!(open_files(), before);
    let mut keeper = keeper.unwrap();
    for work in waiting.lock().unwrap().drain(..) {
        keeper.carry_out(work);
    }
    let ended = |member: &super::Member| Recording::open(&member.path).unwrap().is_ended();
    let ended: Vec<bool> = members(dir.path()).unwrap().iter().map(ended).collect();
    assert_eq!(ended, [[true; 9].as_slice(), &[false]].concat());
}
