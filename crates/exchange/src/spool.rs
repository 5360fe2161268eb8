//! Snapshots on their way from a foreign file into a recording, kept on disk.
//!
//! A foreign file may hold one target after another, or state the unit of its counts only at its
//! end; a recording is written window by window, all spaces together. The spool is the buffer in
//! between: the regions are in a scratch file, a few words per snapshot in memory.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use tierscope_core::{CpuTime, Error, ErrorKind, Level, Rate, Unknown};
use tierscope_record::Meta;

use crate::place::{Place, malformed, unreadable};

/// Backing storage of a spool: a file, or memory.
pub trait Scratch: Read + Write + Seek {}

impl<T: Read + Write + Seek> Scratch for T {}

/// Source of a stream of snapshots: the keys by which the file distinguishes its targets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Indices of kdamond, context and scheme, where the file has them.
    pub(crate) context: [Option<i64>; 3],
    /// The target's id.
    pub(crate) target: u64,
    /// The target's name, if the file has one.
    pub(crate) name: Option<String>,
    /// The space id in the tierscope recording that was exported to the file.
    pub(crate) space: Option<u32>,
}

/// Annotation of an imported recording: the interval in µs at which its source looked for changes
/// of mappings.
pub(crate) const UPDATE: &str = "source-update-us";

/// Annotations of an imported recording begin with it, a space's number follows: `source.0` is the
/// target's id, then the indices of kdamond, context and scheme, or `-`.
pub(crate) const SOURCE: &str = "source.";

impl Origin {
    /// The keys as an annotation.
    pub(crate) fn text(&self) -> String {
        let index = |index: Option<i64>| index.map_or("-".to_owned(), |index| index.to_string());
        let [kdamond, context, scheme] = self.context.map(index);
        format!("{} {kdamond} {context} {scheme}", self.target)
    }

    /// The keys from an annotation.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (target, rest) = text.split_once(' ')?;
        let index = |word| if word == "-" { Some(None) } else { str::parse(word).ok().map(Some) };
        let context: Vec<Option<i64>> = rest.split(' ').map(index).collect::<Option<_>>()?;
        let context = context.try_into().ok()?;
        Some(Self { context, ..Self::target(target.parse().ok()?) })
    }

    pub(crate) fn target(target: u64) -> Self {
        Self { context: [None; 3], target, name: None, space: None }
    }
}

/// How accesses are counted in a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hits {
    /// Sampling intervals with an access.
    Samples(f32),
    /// Percentage of the sampling intervals.
    Percent(f32),
}

/// How long the count of accesses has been about the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Age {
    /// The file does not say.
    Absent,
    /// In aggregation intervals.
    Windows(u32),
    /// In microseconds.
    Micros(u64),
}

/// A region as decoded from a foreign file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ForeignRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) hits: Hits,
    pub(crate) age: Age,
    /// Sampling intervals in which it was probed; `None` for all of the window.
    pub(crate) samples: Option<u32>,
    pub(crate) level: Option<Level>,
    pub(crate) confidence: f32,
    pub(crate) rate: Option<Rate>,
    pub(crate) unknown: Option<Unknown>,
    pub(crate) resident: Option<u64>,
}

impl ForeignRegion {
    /// A region with DAMON's fields only.
    pub(crate) fn new(start: u64, end: u64, hits: f32, age: u32) -> Self {
        Self {
            start,
            end,
            hits: Hits::Samples(hits),
            age: Age::Windows(age),
            samples: None,
            level: None,
            confidence: 1.0,
            rate: None,
            unknown: None,
            resident: None,
        }
    }

    const BYTES: usize = 59;

    fn push(&self, out: &mut Vec<u8>) {
        let (hits, is_percent) = match self.hits {
            Hits::Samples(hits) => (hits, 0),
            Hits::Percent(hits) => (hits, 1),
        };
        let (age, age_kind) = match self.age {
            Age::Windows(age) => (u64::from(age), 0),
            Age::Micros(age) => (age, 2),
            Age::Absent => (0, 32),
        };
        let (samples, has_samples) = (self.samples.unwrap_or(0), self.samples.map_or(0, |_| 4));
        out.extend(self.start.to_le_bytes());
        out.extend(self.end.to_le_bytes());
        out.extend(age.to_le_bytes());
        out.extend(hits.to_le_bytes());
        out.extend(self.confidence.to_le_bytes());
        out.extend(samples.to_le_bytes());
        let has_rate = if self.rate.is_some() { 8 } else { 0 };
        let has_resident = if self.resident.is_some() { 16 } else { 0 };
        out.push(is_percent | age_kind | has_samples | has_rate | has_resident);
        out.push(self.level.map_or(0, Level::number));
        let rate = self.rate.map_or([0.0; 3], |rate| [rate.low, rate.mean, rate.high]);
        rate.iter().for_each(|bound| out.extend(bound.to_le_bytes()));
        out.push(self.unknown.map_or(0, |reason| reason as u8 + 1));
        out.extend(self.resident.unwrap_or(0).to_le_bytes());
    }

    fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (hits, age, flags) = (f32::from_bits(half(24)), word(16), bytes[36]);
        Self {
            start: word(0),
            end: word(8),
            hits: if flags & 1 == 0 { Hits::Samples(hits) } else { Hits::Percent(hits) },
            age: match flags & 34 {
                0 => Age::Windows(u32::try_from(age).unwrap_or(u32::MAX)),
                2 => Age::Micros(age),
                _ => Age::Absent,
            },
            samples: (flags & 4 != 0).then(|| half(32)),
            level: Level::new(bytes[37]),
            confidence: f32::from_bits(half(28)),
            rate: (flags & 8 != 0).then(|| {
                let [low, mean, high] = [38, 42, 46].map(|at| f32::from_bits(half(at)));
                Rate { low, mean, high }
            }),
            unknown: bytes[50]
                .checked_sub(1)
                .and_then(|i| Unknown::ALL.get(usize::from(i)).copied()),
            resident: (flags & 16 != 0).then(|| word(51)),
        }
    }
}

/// A snapshot without its regions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SnapshotHead {
    /// Start of its window, if the file has it.
    pub(crate) start: Option<u64>,
    /// End of its window.
    pub(crate) end: u64,
    /// Sampling interval in ns, if it differs from the stream's.
    pub(crate) sampling: Option<f64>,
    /// The fields of a tierscope recording, if the snapshot originates in one.
    pub(crate) ours: Option<Ours>,
}

/// Fields of a window that a tierscope recording has and damo lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Number of the window.
    pub(crate) window: u64,
    /// Its number of sampling intervals.
    pub(crate) samples: u32,
    /// CPU time at the end of the window.
    pub(crate) cpu: CpuTime,
}

/// Snapshots of one target, in file order.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Source of the snapshots; `None` until it has been read from the file.
    pub(crate) origin: Option<Origin>,
    /// Sampling interval in ns, if the file has it.
    pub(crate) sampling: Option<f64>,
    /// Aggregation interval in ns, if the file has it.
    pub(crate) window: Option<f64>,
    /// Interval in ns of looking for changes of the mappings, if the file has it.
    pub(crate) update: Option<f64>,
    pub(crate) snapshots: Vec<(SnapshotHead, u64, u64)>,
}

/// Index of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(pub(crate) usize);

/// Snapshots of any number of targets.
pub(crate) struct Spool {
    scratch: Box<dyn Scratch>,
    length: u64,
    pub(crate) streams: Vec<Stream>,
    by_origin: HashMap<Origin, StreamId>,
    buffer: Vec<u8>,
    /// Number of snapshots that were dropped as incomplete.
    pub(crate) incomplete: u64,
    /// Number of samples that were dropped: no address, or one in kernel memory.
    pub(crate) unused_samples: u64,
    /// Metadata of the tierscope recording, if one was imported.
    pub(crate) meta: Option<Meta>,
    /// Whether the first flaw refuses the import.
    strict: bool,
    pub(crate) flaws: Flaws,
    /// Number of regions with an age.
    pub(crate) ages: u64,
    /// Fields of the files that a recording cannot hold: how many of them held something.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
}

/// Parts of the files that make no sense, and were left out.
#[derive(Clone, Debug, Default)]
pub struct Flaws {
    /// Number of regions, snapshots, lines and ends of files.
    pub count: u64,
    /// The first of them.
    pub first: Option<Error>,
}

impl Spool {
    /// Refuses the first flaw, from now on.
    pub(crate) fn strictly(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Notes that a part of a file was left out.
    ///
    /// # Errors
    /// `error` itself, if the import is strict, or if it is none of the file's content.
    pub(crate) fn leave_out(&mut self, error: Error) -> Result<(), Error> {
        if self.strict || error.kind() != ErrorKind::Data {
            return Err(error);
        }
        self.flaws.count += 1;
        self.flaws.first.get_or_insert(error);
        Ok(())
    }

    pub(crate) fn new(scratch: Box<dyn Scratch>) -> Self {
        Self {
            scratch,
            length: 0,
            streams: Vec::new(),
            by_origin: HashMap::new(),
            buffer: Vec::new(),
            incomplete: 0,
            unused_samples: 0,
            meta: None,
            strict: false,
            flaws: Flaws::default(),
            ages: 0,
            dropped: BTreeMap::new(),
        }
    }

    /// Counts a field that a recording cannot hold, if it held something.
    pub(crate) fn drop_field(&mut self, name: &'static str, holds: bool) {
        self.drop_fields(name, usize::from(holds));
    }

    /// Counts `count` of them.
    pub(crate) fn drop_fields(&mut self, name: &'static str, count: usize) {
        if count > 0 {
            *self.dropped.entry(name).or_default() += count as u64;
        }
    }

    /// Drops the snapshots of a stream, and counts it as a `field` that is not kept.
    pub(crate) fn discard(&mut self, stream: StreamId, field: &'static str) {
        self.streams[stream.0].snapshots.clear();
        self.drop_field(field, true);
    }

    /// The stream of `origin`, which is created if needed.
    pub(crate) fn stream(&mut self, origin: &Origin) -> StreamId {
        if let Some(id) = self.by_origin.get(origin) {
            return *id;
        }
        let id = self.open();
        self.streams[id.0].origin = Some(origin.clone());
        self.by_origin.insert(origin.clone(), id);
        id
    }

    /// Creates a stream whose origin is set later, by [`Spool::adopt`].
    pub(crate) fn open(&mut self) -> StreamId {
        self.streams.push(Stream::default());
        StreamId(self.streams.len() - 1)
    }

    /// Sets the origin of the stream opened last; if a stream of this origin exists, the new one is
    /// appended to it.
    pub(crate) fn adopt(&mut self, origin: Origin) {
        let Some(newest) = self.streams.pop() else { return };
        match self.by_origin.get(&origin) {
            Some(known) => self.streams[known.0].snapshots.extend(newest.snapshots),
            None => {
                self.by_origin.insert(origin.clone(), StreamId(self.streams.len()));
                self.streams.push(Stream { origin: Some(origin), ..newest });
            }
        }
    }

    /// Sorts the regions of a snapshot, and appends it to a stream, without the regions that are
    /// empty or overlap the one before. `place` in `file` is for errors.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] for inconsistent data, if the import is strict; [`ErrorKind::Io`] if the
    /// scratch file cannot be written.
    pub(crate) fn push(
        &mut self,
        stream: StreamId,
        snapshot: SnapshotHead,
        regions: &mut Vec<ForeignRegion>,
        (file, place): (&str, Place),
    ) -> Result<(), Error> {
        if snapshot.start.is_some_and(|start| start > snapshot.end) {
            let cause = "a snapshot ends before it begins";
            return self.leave_out(malformed(file, place, cause));
        }
        regions.sort_unstable_by_key(|region| (region.start, region.end));
        if let Some((cause, regions)) = weed(regions) {
            self.leave_out(malformed(file, place, cause))?;
            self.flaws.count += regions - 1;
        }
        self.ages += regions.iter().filter(|region| region.age != Age::Absent).count() as u64;
        self.buffer.clear();
        regions.iter().for_each(|region| region.push(&mut self.buffer));
        let written = self.scratch.write_all(&self.buffer);
        written.map_err(|cause| unreadable("the scratch file", &cause))?;
        self.streams[stream.0].snapshots.push((snapshot, self.length, regions.len() as u64));
        self.length += self.buffer.len() as u64;
        Ok(())
    }

    /// Reads the regions of a snapshot back from the scratch file.
    pub(crate) fn regions(
        &mut self,
        at: u64,
        count: u64,
        out: &mut Vec<ForeignRegion>,
    ) -> io::Result<()> {
        self.scratch.seek(SeekFrom::Start(at))?;
        self.buffer.resize(count as usize * ForeignRegion::BYTES, 0);
        self.scratch.read_exact(&mut self.buffer)?;
        out.clear();
        let (whole, _) = self.buffer.as_chunks();
        out.extend(whole.iter().map(ForeignRegion::read));
        Ok(())
    }
}

/// Removes regions that are empty, or overlap the one before. Returns what is wrong with the first
/// of them, and their number.
fn weed(regions: &mut Vec<ForeignRegion>) -> Option<(String, u64)> {
    let (mut end, mut first, all) = (0, None, regions.len());
    regions.retain(|region| {
        let flaw = flaw(region, end);
        let is_sound = flaw.is_none();
        end = if is_sound { region.end } else { end };
        first = first.take().or(flaw);
        is_sound
    });
    first.map(|cause| (cause, (all - regions.len()) as u64))
}

/// What is wrong with a region; the one before it ends at `end`.
fn flaw(region: &ForeignRegion, end: u64) -> Option<String> {
    let shown = format_args!("region {:#x}-{:#x}", region.start, region.end).to_string();
    match region {
        _ if region.start >= region.end => Some(format!("{shown} ends before it begins")),
        _ if region.start < end => Some(format!("{shown} overlaps the one before it")),
        _ => None,
    }
}

/// Nanoseconds from seconds and nanoseconds; `None` beyond 64 bits.
pub(crate) fn nanos_of(seconds: u64, nanos: u64) -> Option<u64> {
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// A `Duration` of `nanos`, clamped to 64 bits.
pub(crate) fn span(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.clamp(0.0, u64::MAX as f64) as u64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Cursor;
    use tierscope_core::drive::Sink as _;
    use tierscope_core::{Range, Region, Snapshot, SpaceId, Time};
    use tierscope_record::{Frame, Memory, Recorder, Recording};

    pub(crate) fn region(space: u32, start: u64, end: u64, hits: f32) -> Region {
        let range = Range::new(SpaceId(space), start, end);
        Region::sampled(range, hits, 40)
    }

    /// A window from `start` to `end`, in ms.
    pub(crate) fn window(start: u64, end: u64, regions: Vec<Region>) -> Frame {
        let time = |ms: u64| Time(ms * 1_000_000);
        let snapshot = Snapshot { start: time(start), end: time(end), samples: 40, regions };
        Frame {
            snapshot,
            mappings: None,
            actions: Vec::new(),
            outcomes: Vec::new(),
            cpu: CpuTime::default(),
        }
    }

    pub(crate) fn recorded(frames: &[Frame]) -> Recording {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        frames.iter().for_each(|frame| recorder.window(&frame.as_window()).unwrap());
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    pub(crate) fn in_memory() -> Spool {
        Spool::new(Box::new(Cursor::new(Vec::new())))
    }

    /// Where the regions of tests are.
    pub(crate) const X: (&str, Place) = ("x", Place::Whole);

    pub(crate) fn snapshot(end: u64) -> SnapshotHead {
        SnapshotHead { start: None, end, sampling: None, ours: None }
    }

    #[test]
    fn pushed_regions_are_read_back() {
        let mut spool = in_memory();
        let stream = spool.stream(&Origin::target(7));
        let mut decoded =
            vec![ForeignRegion::new(4096, 8192, 3.5, 2), ForeignRegion::new(0, 4096, 0.0, 9)];
        decoded[0].samples = Some(0);
        decoded[0].level = Some(Level::PMD);
        decoded[0].confidence = 0.25;
        decoded[0].unknown = Some(Unknown::Refused);
        decoded[0].resident = Some(4096);
        decoded[0].rate = Some(Rate { low: 0.5, mean: 1.0, high: 1e6 });
        decoded[1].hits = Hits::Percent(50.0);
        decoded[1].age = Age::Micros(u64::MAX);
        decoded.push(ForeignRegion { age: Age::Absent, ..ForeignRegion::new(8192, 8193, 0.0, 0) });
        let expected = [decoded[1], decoded[0], decoded[2]];
        spool.push(stream, snapshot(5), &mut vec![ForeignRegion::new(1, 2, 1.0, 1)], X).unwrap();
        spool.push(stream, snapshot(6), &mut decoded, X).unwrap();
        let (_, at, count) = spool.streams[0].snapshots[1].clone();
        let mut out = Vec::new();
        spool.regions(at, count, &mut out).unwrap();
        assert_eq!(out, expected);
        assert_eq!(spool.stream(&Origin::target(7)), stream);
        assert_ne!(spool.stream(&Origin::target(8)), stream);
    }

    // Of five regions one overlaps the one before, and one is empty; a snapshot ends before it
    // begins. A strict import names the first one.
    #[test]
    fn nonsense_is_left_out_or_refused_by_name() {
        let regions = || -> Vec<ForeignRegion> {
            let ranges = [(0, 20), (10, 30), (30, 30), (20, 30), (40, 50)];
            ranges.map(|(start, end)| ForeignRegion::new(start, end, 0.0, 0)).into()
        };
        let backwards = SnapshotHead { start: Some(2), ..snapshot(1) };
        let mut spool = in_memory();
        let stream = spool.open();
        spool.push(stream, snapshot(1), &mut regions(), X).unwrap();
        spool.push(stream, backwards.clone(), &mut Vec::new(), X).unwrap();
        assert_eq!((spool.flaws.count, spool.streams[0].snapshots.len()), (3, 1));
        let first = spool.flaws.first.unwrap().to_string();
        assert!(first.contains("region 0xa-0x1e overlaps the one before"), "{first}");
        assert_eq!(spool.streams[0].snapshots[0].2, 3, "0 to 20, 20 to 30, 40 to 50");
        let mut spool = in_memory().strictly();
        let stream = spool.open();
        let refused = spool.push(stream, snapshot(1), &mut regions(), X).unwrap_err();
        assert_eq!(refused.to_string(), first);
        let refused = spool.push(stream, backwards, &mut Vec::new(), X).unwrap_err();
        assert!(refused.to_string().contains("before it begins"), "{refused}");
    }
}
