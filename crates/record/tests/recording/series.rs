//! Series: consecutive recordings, and their retention.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, ErrorKind, Mapping, Mappings, Range, Region, Snapshot, SpaceId, Time,
};
use tierscope_record::Recording;
use tierscope_record::series::{Retention, SeriesRecorder, is_series, members, newest};

use crate::common::meta;

/// Wall time in seconds, advanced by the test.
#[derive(Clone)]
struct Wall(Arc<AtomicU64>);

impl Wall {
    fn at(seconds: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seconds)))
    }

    fn clock(&self) -> impl FnMut() -> SystemTime + Send + 'static {
        let seconds = Arc::clone(&self.0);
        move || UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::Relaxed))
    }
}

fn range() -> Range {
    Range::new(SpaceId(0), 0, 1 << 20)
}

/// Records windows of a second each; the first one carries the mappings.
fn record(series: &mut SeriesRecorder, wall: &Wall, windows: std::ops::Range<u64>) {
    let heap = Mapping {
        range: range(),
        backing: Backing::Heap,
        name: "".into(),
        writable: true,
        object: None,
    };
    let layout = Mappings { mappings: vec![heap], ..Mappings::default() };
    let first = windows.start;
    for index in windows {
        let region = Region { age: index as u32, ..Region::sampled(range(), 1.0, 40) };
        let at = |second: u64| Time(second * 1_000_000_000);
        let snapshot =
            Snapshot { start: at(index), end: at(index + 1), samples: 40, regions: vec![region] };
        wall.0.fetch_add(1, Ordering::Relaxed);
        let mappings = (index == first).then_some(&layout);
        series.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
    }
}

/// Ages of all regions, by recording: a region's age is the number of its window.
fn windows(dir: &Path) -> Vec<Vec<u32>> {
    let read = |path: &Path| {
        let recording = Recording::open(path).unwrap();
        assert!(recording.damage().is_none());
        let all = 0..recording.commits().len();
        all.map(|index| recording.snapshot(index).unwrap().regions[0].age).collect()
    };
    members(dir).unwrap().iter().map(|member| read(&member.path)).collect()
}

fn keep(seconds: u64) -> Retention {
    Retention { age: Some(Duration::from_secs(seconds)), bytes: None }
}

// Kept for 48 s: a recording lasts 2 s.
#[test]
fn every_window_is_in_one_recording_and_each_begins_with_the_mappings() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
    let mut series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    record(&mut series, &wall, 0..5);
    series.finish().unwrap();
    assert_eq!(windows(dir.path()), [vec![0, 1], vec![2, 3], vec![4]]);
    for member in members(dir.path()).unwrap() {
        let recording = Recording::open(&member.path).unwrap();
        assert!(recording.is_ended());
        assert_eq!(recording.layout(0).unwrap().mappings.len(), 1);
        assert_eq!(recording.meta().started, member.began);
    }
    assert!(is_series(dir.path()));
}

// 100 windows in recordings of 2 s; when the last one begins, 98 s have passed, and recordings that
// ended at least 48 s before are removed.
#[test]
fn expired_recordings_are_removed() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
    let mut series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    record(&mut series, &wall, 0..100);
    series.finish().unwrap();
    let kept: Vec<u32> = windows(dir.path()).concat();
    assert_eq!(kept, (50..100).collect::<Vec<_>>());
}

#[test]
fn a_series_stays_below_its_size() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
    let most = 1 << 20;
    let retention = Retention { age: None, bytes: Some(most) };
    let mut series = SeriesRecorder::create(dir.path(), &meta(), retention, wall.clock()).unwrap();
    record(&mut series, &wall, 0..2000);
    series.finish().unwrap();
    let members = members(dir.path()).unwrap();
    let bytes: u64 = members.iter().map(|member| member.bytes).sum();
    assert!((most / 2..=most).contains(&bytes), "{bytes} bytes");
    let kept: Vec<u32> = windows(dir.path()).concat();
    assert_eq!(kept.last(), Some(&1999));
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a gap");
}

// The first recorder ends as by kill -9: its recording is not finished, and removals are
// interrupted.
#[test]
fn a_series_continues_after_a_crash() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
    let mut series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    record(&mut series, &wall, 0..3);
    drop(series);
    let half_removed = dir.path().join(".removing-20010101T000000.000Z");
    fs::create_dir(&half_removed).unwrap();
    fs::write(half_removed.join("regions.arrows"), "half").unwrap();
    // Files whose names are not those of recordings are never removed.
    fs::write(dir.path().join("notes.txt"), "precious").unwrap();

    let mut series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    record(&mut series, &wall, 10..13);
    series.finish().unwrap();
    assert_eq!(windows(dir.path()), [vec![0, 1], vec![2], vec![10, 11], vec![12]]);
    assert!(!half_removed.exists() && dir.path().join("notes.txt").exists());
    let newest = newest(dir.path()).unwrap().unwrap();
    assert_eq!(Recording::open(newest).unwrap().commits().len(), 1);
}

// The clock goes back by 500 s between two recorders.
#[test]
fn a_clock_that_goes_back_does_not_change_the_order() {
    let dir = tempfile::tempdir().unwrap();
    for (second, windows) in [(1000, 0..1), (500, 1..2)] {
        let wall = Wall::at(second);
        let mut series =
            SeriesRecorder::create(dir.path(), &meta(), keep(48_000), wall.clock()).unwrap();
        record(&mut series, &wall, windows);
        series.finish().unwrap();
    }
    assert_eq!(windows(dir.path()), [vec![0], vec![1]]);
}

fn refusal(dir: &Path) -> String {
    let wall = Wall::at(2000);
    match SeriesRecorder::create(dir, &meta(), keep(48), wall.clock()) {
        Ok(_) => panic!("it was taken"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Usage);
            error.to_string()
        }
    }
}

#[test]
fn one_recorder_at_a_time() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
    let series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    assert!(refusal(dir.path()).contains("another tierscope"));
    drop(series);
    SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
}

#[test]
fn a_directory_with_other_files_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("precious"), "data").unwrap();
    assert!(refusal(dir.path()).contains("something other"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
