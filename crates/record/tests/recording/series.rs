//! Series: consecutive recordings, and their retention.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, ErrorKind, Mapping, Mappings, Range, Region, Snapshot, SpaceId, Time,
};
use tierscope_record::series::{Retention, SeriesRecorder, is_series, members, newest};
use tierscope_record::{Access, Recorder, Recording};

use crate::common::meta;

/// Wall time in seconds, advanced by the test.
#[derive(Clone)]
pub(crate) struct Wall(Arc<AtomicU64>);

impl Wall {
    pub(crate) fn at(seconds: u64) -> Self {
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

pub(crate) fn keep(seconds: u64) -> Retention {
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

/// Records `windows` and ends the series; the files are as old as the wall clock says.
pub(crate) fn run(dir: &Path, wall: &Wall, keep: Retention, windows: std::ops::Range<u64>) {
    let before: Vec<PathBuf> = members(dir).map(paths).unwrap_or_default();
    let mut series = SeriesRecorder::create(dir, &meta(), keep, wall.clock()).unwrap();
    record(&mut series, wall, windows);
    series.finish().unwrap();
    let now = wall.0.load(Ordering::Relaxed);
    for path in paths(members(dir).unwrap()).iter().filter(|path| !before.contains(path)) {
        set_written(path, now);
    }
}

/// Sets the time of the last write of the recording at `path`, in seconds.
pub(crate) fn set_written(path: &Path, seconds: u64) {
    let rows = File::options().append(true).open(path.join("windows.arrows")).unwrap();
    rows.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

fn paths(members: Vec<tierscope_record::series::Member>) -> Vec<PathBuf> {
    members.into_iter().map(|member| member.path).collect()
}

/// Ages of all regions of a series, in order.
fn kept(dir: &Path) -> Vec<u32> {
    windows(dir).concat()
}

const YEAR: u64 = 365 * 86_400;

// Kept for 48 s, in recordings of 2 s. The clock jumps ahead by a year at once, or back.
#[test]
fn a_clock_that_jumps_while_recording_changes_nothing() {
    for jump in [YEAR as i64, -(30 * YEAR as i64)] {
        let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
        let mut series =
            SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
        record(&mut series, &wall, 0..20);
        wall.0.store(wall.0.load(Ordering::Relaxed).wrapping_add_signed(jump), Ordering::Relaxed);
        record(&mut series, &wall, 20..45);
        series.finish().unwrap();
        assert_eq!(kept(dir.path()), (0..45).collect::<Vec<_>>(), "nothing is older than 48 s");
    }
}

// The same for 100 windows: what is older than 48 s by the machine's clock goes.
#[test]
fn a_clock_that_jumped_keeps_nothing_for_ever() {
    for jump in [YEAR as i64, -(30 * YEAR as i64)] {
        let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
        let mut series =
            SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
        record(&mut series, &wall, 0..20);
        wall.0.store(wall.0.load(Ordering::Relaxed).wrapping_add_signed(jump), Ordering::Relaxed);
        record(&mut series, &wall, 20..100);
        series.finish().unwrap();
        assert_eq!(kept(dir.path()), (50..100).collect::<Vec<_>>());
    }
}

// A recorder starts a year ahead (a clock that is not set yet), records two windows, and another
// one starts in time again.
#[test]
fn a_wrong_clock_at_a_start_removes_nothing() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
    run(dir.path(), &wall, keep(48), 0..20);
    wall.0.fetch_add(YEAR, Ordering::Relaxed);
    run(dir.path(), &wall, keep(48), 20..22);
    wall.0.fetch_sub(YEAR, Ordering::Relaxed);
    run(dir.path(), &wall, keep(48), 22..24);
    assert_eq!(kept(dir.path()), (0..24).collect::<Vec<_>>());
}

// The clock stays a year ahead, so that all of twenty windows, in ten recordings, look old. Each
// recording of the next run removes two of them, from the second on: the first comparison of
// clocks needs two.
#[test]
fn a_clock_that_stays_wrong_removes_two_recordings_for_each_new_one() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
    run(dir.path(), &wall, keep(48), 0..20);
    wall.0.fetch_add(YEAR, Ordering::Relaxed);
    run(dir.path(), &wall, keep(48), 20..26);
    assert_eq!(kept(dir.path()), (4..26).collect::<Vec<_>>());
    // Nothing was recorded for a minute in which the clock was right: the ages count at the start.
    let newest = newest(dir.path()).unwrap().unwrap();
    run(dir.path(), &wall, keep(48), 26..28);
    assert_eq!(kept(dir.path()), (8..28).collect::<Vec<_>>());
    assert!(newest.exists());
}

// All of an earlier run is older than this run, and goes once the run is as long as the maximum
// age, though the earlier files are from the future.
#[test]
fn recordings_of_the_future_expire_with_the_run() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
    run(dir.path(), &wall, keep(48), 0..20);
    for path in paths(members(dir.path()).unwrap()) {
        set_written(&path, 31 * YEAR + 40);
    }
    run(dir.path(), &wall, keep(48), 20..60);
    assert_eq!(kept(dir.path())[0], 0, "not yet");
    run(dir.path(), &wall, keep(48), 60..120);
    assert!(kept(dir.path())[0] >= 60);
}

// Left by older versions on a full disk, with `Restart=always`: directories with empty files, or
// with heads only.
#[test]
fn recordings_without_a_window_are_dropped_at_the_start() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
    run(dir.path(), &wall, keep(48), 0..1);
    for index in 0..100 {
        let path = dir.path().join(format!("20020101T000000.{index:03}Z"));
        fs::create_dir(&path).unwrap();
        if index % 2 == 0 {
            fs::write(path.join("windows.arrows"), vec![0; index * 50]).unwrap();
        }
    }
    drop(Recorder::create(dir.path().join("20020102T000000.000Z"), &meta()).unwrap());
    // One with damage, and one of a later version, may have windows.
    let foreign = dir.path().join("20020103T000000.000Z");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("windows.arrows"), "something else").unwrap();
    assert_eq!(members(dir.path()).unwrap().len(), 103);
    let newest_one = newest(dir.path()).unwrap().unwrap();
    assert_eq!(Recording::open(newest_one).unwrap().commits().len(), 1, "with a window");
    let series = SeriesRecorder::create(dir.path(), &meta(), keep(48), wall.clock()).unwrap();
    assert_eq!(members(dir.path()).unwrap().len(), 3);
    series.finish().unwrap();
    assert_eq!(members(dir.path()).unwrap().len(), 2, "nor does it leave one behind");
}

// A file and a link with names of recordings: neither recordings, nor removed.
#[test]
fn only_directories_are_recordings() {
    let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(31 * YEAR));
    run(dir.path(), &wall, keep(48), 0..1);
    let outside = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("19990101T000000.000Z"), "precious").unwrap();
    symlink(outside.path(), dir.path().join("19990102T000000.000Z")).unwrap();
    // An older version renamed such a file, and could not remove it.
    fs::write(dir.path().join(".removing-19980101T000000.000Z"), "").unwrap();
    run(dir.path(), &wall, keep(48), 1..100);
    assert!(outside.path().exists() && dir.path().join("19990102T000000.000Z").exists());
    assert_eq!(fs::read(dir.path().join("19990101T000000.000Z")).unwrap(), b"precious");
    assert!(!dir.path().join(".removing-19980101T000000.000Z").exists());
    assert!(!dir.path().join(".removing-19990101T000000.000Z").exists());
}

// The clock goes back by 500 s between two recorders.
#[test]
fn a_clock_that_goes_back_does_not_change_the_order() {
    let dir = tempfile::tempdir().unwrap();
    for (second, windows) in [(1000, 0..1), (500, 1..2)] {
        run(dir.path(), &Wall::at(second), keep(48_000), windows);
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

// `/var/lib/dpkg`, a git directory and others have a file `lock`.
#[test]
fn the_lock_of_another_program_is_neither_taken_nor_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("lock");
    fs::write(dir.path().join("status"), "installed").unwrap();
    for content in ["", "4711\n", "\0\0\0"] {
        fs::write(&lock, content).unwrap();
        assert!(!is_series(dir.path()), "{content:?}");
        assert!(refusal(dir.path()).contains("something other"));
        assert_eq!(fs::read_to_string(&lock).unwrap(), content);
    }
    fs::remove_file(dir.path().join("status")).unwrap();
    fs::write(&lock, "4711\n").unwrap();
    assert!(refusal(dir.path()).contains("something other"), "a pid is not our mark");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "4711\n");
}

#[test]
fn a_lock_is_not_followed_to_another_file() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = outside.path().join("precious");
    fs::write(&target, "data").unwrap();
    symlink(&target, dir.path().join("lock")).unwrap();
    fs::create_dir(dir.path().join("20020101T000000.000Z")).unwrap();
    assert!(!is_series(dir.path()));
    assert!(refusal(dir.path()).contains("something other"));
    assert_eq!(fs::read_to_string(&target).unwrap(), "data");
}

// Older versions left the file empty; a power cut may leave zeros.
#[test]
fn a_series_of_an_older_version_is_continued_and_marked() {
    for content in ["", "\0\0\0\0"] {
        let (dir, wall) = (tempfile::tempdir().unwrap(), Wall::at(1000));
        run(dir.path(), &wall, keep(48), 0..1);
        fs::write(dir.path().join("lock"), content).unwrap();
        assert!(is_series(dir.path()));
        run(dir.path(), &wall, keep(48), 1..2);
        assert_eq!(kept(dir.path()), [0, 1]);
        fs::remove_dir_all(newest(dir.path()).unwrap().unwrap()).unwrap();
        fs::write(dir.path().join("notes.txt"), "").unwrap();
        assert!(is_series(dir.path()), "by its mark");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

// The umask of tests is that of the machine, mostly 022: modes do not follow from it.
#[test]
fn recordings_are_for_their_owner_alone_or_a_group() {
    let outside = tempfile::tempdir().unwrap();
    let own_group = rustix::process::getgid().as_raw();
    let shared = Access::shared_with(own_group);
    for (access, dir_mode, file_mode) in [(Access::default(), 0o700, 0o600), (shared, 0o750, 0o640)]
    {
        let dir = outside.path().join(format!("{dir_mode:o}"));
        let (series_dir, one) = (dir.join("series"), dir.join("one"));
        let wall = Wall::at(1000);
        let mut series =
            SeriesRecorder::create_for(&series_dir, &meta(), keep(48), wall.clock(), access)
                .unwrap();
        record(&mut series, &wall, 0..3);
        series.finish().unwrap();
        Recorder::create_for(&one, &meta(), access).unwrap().finish().unwrap();
        let mut recordings = paths(members(&series_dir).unwrap());
        assert_eq!((recordings.len(), mode(&dir), mode(&series_dir)), (2, dir_mode, dir_mode));
        assert_eq!(mode(&series_dir.join("lock")), file_mode);
        recordings.push(one);
        for recording in &recordings {
            assert_eq!(mode(recording), dir_mode);
            for file in fs::read_dir(recording).unwrap() {
                assert_eq!(mode(&file.unwrap().path()), file_mode);
            }
        }
    }
}

// A directory that exists keeps its mode, unless a group is to have access.
#[test]
fn a_directory_of_the_user_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    run(dir.path(), &Wall::at(1000), keep(48), 0..1);
    assert_eq!(mode(dir.path()), 0o711);
    let group = Access::shared_with(rustix::process::getgid().as_raw());
    let wall = Wall::at(2000);
    drop(SeriesRecorder::create_for(dir.path(), &meta(), keep(48), wall.clock(), group).unwrap());
    assert_eq!((mode(dir.path()), mode(&dir.path().join("lock"))), (0o750, 0o640));
}
