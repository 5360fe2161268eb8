//! After any damage to the files, the windows committed before it are readable and nothing is
//! invented.

use std::io;
use std::sync::Arc;

use crate::common::{frames, meta, open, read_all, record};
use proptest::prelude::*;
use tierscope_core::drive::Sink;
use tierscope_core::{
    Backing, ErrorKind, Level, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time,
};
use tierscope_record::{Frame, Memory, Recorder, Recording, Source, Store, Table};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..Default::default() }
}

/// Ten windows of one region; mappings with the first.
pub(crate) fn ten() -> Vec<Frame> {
    let range = Range::new(SpaceId(0), 0x1000, 0x9000);
    let name: Arc<str> = "redis".into();
    let mapping =
        Mapping { range, backing: Backing::Heap, name: name.clone(), writable: true, object: None };
    let spaces = vec![Space { id: SpaceId(0), name }];
    let mappings = Arc::new(Mappings {
        taken: Time(1),
        spaces,
        mappings: vec![mapping],
        ..Mappings::default()
    });
    let frame = |window: u64| {
        let region =
            Region { level: Some(Level::PTE), ..Region::sampled(range, window as f32, 40) };
        Frame {
            snapshot: Snapshot {
                start: Time(window * 200),
                end: Time(window * 200 + 200),
                samples: 40,
                regions: vec![region],
            },
            mappings: (window == 0).then(|| Arc::clone(&mappings)),
            actions: Vec::new(),
            outcomes: Vec::new(),
            cpu: Default::default(),
        }
    };
    (0..10).map(frame).collect()
}

/// Compares `damaged` with the recording `whole` of `frames`: it must hold a prefix of the windows.
/// A window whose bytes are all there must be readable and equal, others are refused. Returns the
/// length of the prefix.
///
/// Damage from `at` on in the file of commit rows must not cost windows whose rows end before; in
/// another stream, it may cost the windows at the end that it touches, and none before.
fn read_prefix(
    damaged: &Memory,
    whole: &Memory,
    frames: &[Frame],
    (table, at): (Table, usize),
) -> Result<usize, String> {
    let extents = Extents::of(whole);
    let least = extents.before(table, at);
    let recording = match open(damaged) {
        Ok(recording) => recording,
        Err(e) if e.kind() == ErrorKind::Data && at < extents.head(table) => return Ok(0),
        Err(e) => return Err(format!("{e}")),
    };
    let count = recording.commits().len();
    if count < least || count > frames.len() {
        return Err(format!("{count} windows of {}, at least {least}", frames.len()));
    }
    for (index, frame) in frames.iter().enumerate() {
        let same = extents.is_same(damaged, whole, index);
        if index >= count {
            // All that follow the first lost window may be lost with it.
            let first = count == index && same && table != Table::Windows;
            if first && (index..frames.len()).all(|index| extents.is_same(damaged, whole, index)) {
                return Err(format!(
                    "window {index} and all after it are whole, but are not there"
                ));
            }
            continue;
        }
        match recording.window(index) {
            Ok(read) if read != *frame => {
                return Err(format!("window {index} is {read:?}, not {frame:?}"));
            }
            Ok(_) if !extents.is_same_frame(damaged, whole, index) => {
                return Err(format!("window {index} is damaged, and not refused"));
            }
            Err(e) if same || e.kind() != ErrorKind::Data => return Err(format!("{e}")),
            Ok(_) | Err(_) => {}
        }
        let metrics = recording.metrics(index);
        if same && metrics.as_ref().ok() != open(whole).unwrap().metrics(index).ok().as_ref() {
            return Err(format!("the metrics of window {index} are {metrics:?}"));
        }
    }
    recording.heat(0..count, 20, |_| Ok(())).err();
    Ok(count)
}

/// The extents of windows in the streams of a recording.
struct Extents {
    heads: Vec<usize>,
    /// By window and table; those in the file of commit rows, too.
    ends: Vec<Vec<usize>>,
}

impl Extents {
    fn of(whole: &Memory) -> Self {
        let empty = record(&[], false);
        let heads: Vec<usize> = Table::ALL.iter().map(|table| empty.streams[table].len()).collect();
        let rows = open(whole).unwrap();
        let count = rows.commits().len();
        // Commit rows are all of one length; a mark of eight bytes may follow.
        let all = whole.streams[&Table::Windows].len() - heads[Table::Windows as usize];
        let row = all / count.max(1);
        let ends = rows.commits().iter().enumerate().map(|(index, commit)| {
            let ends = commit.ends.iter().map(|end| *end as usize);
            ends.chain([heads[Table::Windows as usize] + (index + 1) * row]).collect()
        });
        let ends = ends.collect();
        Self { heads, ends }
    }

    fn head(&self, table: Table) -> usize {
        self.heads[table as usize]
    }

    fn begin(&self, table: Table, index: usize) -> usize {
        index.checked_sub(1).map_or(self.head(table), |i| self.ends[i][table as usize])
    }

    /// Number of windows that end before `at` in `table`.
    fn before(&self, table: Table, at: usize) -> usize {
        self.ends.iter().take_while(|ends| ends[table as usize] <= at).count()
    }

    /// Whether the window has the same bytes in both.
    fn is_same(&self, a: &Memory, b: &Memory, index: usize) -> bool {
        self.are_same(&Table::PAYLOAD, a, b, index)
    }

    /// Whether the parts that make a [`Frame`] have.
    fn is_same_frame(&self, a: &Memory, b: &Memory, index: usize) -> bool {
        let (metrics, tiles) = (Table::Metrics as usize, Table::Tiles as usize);
        let tables = &Table::PAYLOAD[..metrics.min(tiles)];
        self.are_same(tables, a, b, index)
    }

    fn are_same(&self, tables: &[Table], a: &Memory, b: &Memory, index: usize) -> bool {
        tables.iter().all(|table| {
            let table = *table;
            let part = self.begin(table, index)..self.ends[index][table as usize];
            a.streams[&table].get(part.clone()) == b.streams[&table].get(part)
        })
    }
}

/// Length of a table's stream when each window was committed.
fn ends(memory: &Memory, table: Table) -> Vec<u64> {
    let recording = open(memory).unwrap();
    recording.commits().iter().map(|row| row.ends[table as usize]).collect()
}

// A byte of each window in each stream, one after the other: the nine others stay readable. The
// last window is given up.
#[test]
fn a_changed_byte_costs_one_window() {
    let frames = ten();
    let whole = record(&frames, true);
    let extents = Extents::of(&whole);
    let mut changed = 0;
    for table in Table::PAYLOAD {
        for index in 0..frames.len() {
            let end = extents.ends[index][table as usize];
            if end == extents.begin(table, index) {
                continue;
            }
            changed += 1;
            let mut damaged = whole.clone();
            damaged.streams.get_mut(&table).unwrap()[end - 1] ^= 1;
            let recording = open(&damaged).unwrap();
            let is_last = (index..frames.len() - 1).all(|index| {
                extents.ends[index][table as usize] == extents.ends[9][table as usize]
            });
            let kept = if is_last { index } else { frames.len() };
            assert_eq!(recording.commits().len(), kept, "{} of window {index}", table.name());
            for (other, frame) in frames[..kept].iter().enumerate() {
                let read = recording.window(other);
                let metrics_only = [Table::Metrics, Table::Tiles].contains(&table);
                if other == index && !metrics_only {
                    assert_eq!(read.unwrap_err().kind(), ErrorKind::Data);
                } else {
                    assert_eq!(read.unwrap(), *frame);
                }
            }
        }
    }
    assert_eq!(changed, 10 + 1 + 1 + 10 + 1, "regions, mappings, spaces, metrics, a tile");
}

// Cuts any payload stream at any byte: the windows that it still holds completely are readable.
#[test]
fn a_stream_cut_anywhere_keeps_the_windows_before() {
    let frames = ten();
    let whole = record(&frames, true);
    for table in Table::PAYLOAD {
        let ends = ends(&whole, table);
        for length in 0..whole.streams[&table].len() {
            let mut cut = whole.clone();
            cut.streams.get_mut(&table).unwrap().truncate(length);
            let expected = ends.iter().filter(|end| **end <= length as u64).count();
            let Ok(recording) = open(&cut) else {
                assert_eq!(expected, 0, "{} at {length}", table.name());
                continue;
            };
            assert_eq!(read_all(&recording).unwrap(), frames[..expected], "{}", table.name());
            assert_eq!(recording.damage().is_some(), expected < frames.len());
        }
    }
}

// kill -9: commit rows end anywhere. Every complete row is a window, and nothing else is.
#[test]
fn commit_rows_cut_anywhere_lose_the_last_only() {
    let frames = ten();
    let whole = record(&frames, true);
    let rows = whole.streams[&Table::Windows].len();
    let mut counts = Vec::new();
    for length in 0..=rows {
        let mut cut = whole.clone();
        cut.streams.get_mut(&Table::Windows).unwrap().truncate(length);
        let Ok(recording) = open(&cut) else {
            counts.push(0);
            continue;
        };
        let count = recording.commits().len();
        assert_eq!(read_all(&recording).unwrap(), frames[..count]);
        assert_eq!(recording.damage(), None, "an open end is no damage");
        assert_eq!(recording.is_ended(), length == rows);
        counts.push(count);
    }
    assert!(counts.is_sorted());
    counts.dedup();
    assert_eq!(counts, (0..=10).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn changed_bytes_cost_the_windows_they_belong_to(
        table in prop::sample::select(Table::ALL.to_vec()),
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
        ended in any::<bool>(),
    ) {
        let frames = ten();
        let whole = record(&frames, ended);
        let mut damaged = whole.clone();
        let stream = damaged.streams.get_mut(&table).unwrap();
        let at = at.index(stream.len());
        let end = stream.len().min(at + bytes.len());
        stream[at..end].copy_from_slice(&bytes[..end - at]);
        read_prefix(&damaged, &whole, &frames, (table, at)).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_bytes_at_the_end_of_a_stream_cost_nothing_before_them(
        table in prop::sample::select(Table::ALL.to_vec()),
        keep in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let frames = ten();
        let whole = record(&frames, false);
        let mut damaged = whole.clone();
        let stream = damaged.streams.get_mut(&table).unwrap();
        let keep = keep.index(stream.len());
        stream.truncate(keep);
        stream.extend(tail);
        read_prefix(&damaged, &whole, &frames, (table, keep)).map_err(TestCaseError::fail)?;
    }

    // The disk fills up at any byte: the recorder reports an error, committed windows stay, and
    // nothing is written after the torn message.
    #[test]
    fn a_full_disk_keeps_committed_windows(frames in frames(8), room in 0usize..40_000) {
        let mut disk = Disk { memory: Memory::default(), room };
        let mut committed = 0;
        let ended = (|| {
            let mut recorder = Recorder::create_in(&mut disk, &meta())?;
            for frame in &frames {
                recorder.window(&frame.as_window())?;
                committed += 1;
            }
            recorder.finish()
        })();
        match ended {
            Ok(()) => prop_assert_eq!(committed, frames.len()),
            Err(e) => {
                prop_assert_eq!(e.kind(), ErrorKind::Io);
                let text = e.to_string();
                prop_assert!(text.contains("No space left") && text.contains("free space"), "{}", text);
                prop_assert!(text.contains(&format!("{committed} window")), "{}", text);
            }
        }
        match open(&disk.memory) {
            Ok(recording) => prop_assert_eq!(read_all(&recording)?, &frames[..committed]),
            Err(e) => prop_assert!(committed == 0 && e.kind() == ErrorKind::Data),
        }
    }
}

/// A disk with `room` bytes left.
struct Disk {
    memory: Memory,
    room: usize,
}

impl Store for Disk {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        let fits = bytes.len().min(self.room);
        self.room -= fits;
        self.memory.append(table, &bytes[..fits])?;
        if fits < bytes.len() {
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(())
    }

    fn name(&self) -> String {
        "on a small disk".into()
    }
}

#[test]
fn a_failed_recorder_writes_nothing_more() {
    let frames = ten();
    let mut disk = Disk { memory: Memory::default(), room: 30_000 };
    let mut recorder = Recorder::create_in(&mut disk, &meta()).unwrap();
    let failed = frames.iter().cycle().find_map(|f| recorder.window(&f.as_window()).err()).unwrap();
    assert_eq!(recorder.window(&frames[0].as_window()), Err(failed.clone()));
    assert_eq!(recorder.finish(), Err(failed));
    assert_eq!(disk.room, 0);
}

fn refusal(memory: &Memory) -> String {
    let error = open(memory).err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Data);
    error.to_string()
}

#[test]
fn foreign_and_newer_files_are_refused_by_name() {
    let good = record(&ten(), true);
    let mut foreign = good.clone();
    foreign.streams.insert(Table::Tiles, b"PAR1 something else altogether".to_vec());
    assert!(refusal(&foreign).contains("tiles.arrows: no Arrow message"));

    let mut missing = good.clone();
    missing.streams.remove(&Table::Windows);
    assert!(refusal(&missing).contains("windows.arrows: there is no such file"));

    let mut swapped = good.clone();
    let mappings = swapped.streams[&Table::Mappings].clone();
    swapped.streams.insert(Table::Spaces, mappings);
    assert!(refusal(&swapped).contains("spaces.arrows: it holds table `mappings`"));

    let mut other = tierscope_record::Meta { started: std::time::UNIX_EPOCH, ..meta() };
    other.target = "another".into();
    let mut memory = Memory::default();
    Recorder::create_in(&mut memory, &other).unwrap().finish().unwrap();
    let mut mixed = good.clone();
    mixed.streams.insert(Table::Metrics, memory.streams[&Table::Metrics].clone());
    assert!(refusal(&mixed).contains("metrics.arrows: it belongs to another recording"));

    let mut newer = good;
    let stream = newer.streams.get_mut(&Table::Windows).unwrap();
    let key = b"tierscope.format\0";
    let value = stream.windows(key.len()).position(|bytes| bytes == key).unwrap();
    let digit = (0..stream.len()).filter(|i| stream[*i..].starts_with(b"\x01\0\0\x001\0"));
    let nearest = digit.min_by_key(|i| i.abs_diff(value)).unwrap();
    stream[nearest + 4] = b'9';
    let text = refusal(&newer);
    assert!(text.contains("windows.arrows: it was written by a newer tierscope"), "{text}");
    assert!(text.ends_with("update tierscope"), "{text}");
}

#[test]
fn a_directory_is_written_once_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rec");
    let frames = ten();
    let mut recorder = Recorder::create(&path, &meta()).unwrap();
    frames.iter().for_each(|frame| recorder.window(&frame.as_window()).unwrap());
    let live = Recording::open(&path).unwrap();
    assert_eq!((read_all(&live).unwrap(), live.is_ended()), (frames.clone(), false));
    recorder.finish().unwrap();
    assert_eq!(read_all(&Recording::open(&path).unwrap()).unwrap(), frames);

    let again = Recorder::create(&path, &meta()).err().expect("it is not empty");
    assert_eq!(again.kind(), ErrorKind::Usage);
    assert!(again.to_string().contains("choose a new directory"), "{again}");

    let none = Recording::open(dir.path().join("nothing")).err().expect("there is none");
    assert_eq!(none.kind(), ErrorKind::Data);
    assert!(none.to_string().contains("No such file"), "{none}");
}

#[test]
fn reading_a_source_that_shrinks_is_an_error() {
    struct Shrunk(Memory);
    impl Source for Shrunk {
        fn len(&self, table: Table) -> io::Result<Option<u64>> {
            self.0.len(table)
        }

        fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
            if table == Table::Regions && offset > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.0.read(table, offset, bytes)
        }

        fn name(&self) -> String {
            "shrunk".into()
        }
    }
    let recording = Recording::from_source(Box::new(Shrunk(record(&ten(), true)))).unwrap();
    assert_eq!(recording.window(3).unwrap_err().kind(), ErrorKind::Io);
}
