//! From a spool to windows: snapshots of several targets that belong to one window are merged, and
//! values that a file lacks are derived.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    CpuTime, Error, ErrorKind, Mappings, Range, Region, Result, Snapshot, Space, SpaceId, Time,
};

use crate::spool::{Age, ForeignRegion, Hits, SnapshotHead, Spool, Stream};
use crate::tables::Tick;

/// DAMON's default aggregation interval in ns, for a single snapshot without a start.
const ONE_WINDOW: f64 = 100e6;

/// Writes the windows of `spool` in order of time; returns their number. What a target's snapshot
/// says otherwise than the window that it becomes a part of is counted as dropped.
///
/// # Errors
/// Those of `sink`; [`ErrorKind::Io`] if the scratch file cannot be read back.
pub(crate) fn merge(
    spool: &mut Spool,
    sampling: Duration,
    sink: &mut dyn Sink,
    tick: Tick<'_>,
) -> Result<u64> {
    let spaces = spaces(spool);
    let mut heads: Vec<Head> = spool.streams.iter_mut().map(|s| Head::of(s, sampling)).collect();
    let all: u64 = spool.streams.iter().map(|stream| stream.snapshots.len() as u64).sum();
    let (mut windows, mut done) = (0, 0);
    let mut regions = Vec::new();
    let mut decoded = Vec::new();
    while let Some(group) = next_group(&spool.streams, &heads) {
        let mut frame = Frame::default();
        regions.clear();
        let times = group.iter().map(|index| {
            let (snapshot, ..) = &spool.streams[*index].snapshots[heads[*index].next];
            (snapshot.start, snapshot.end)
        });
        let times: Vec<_> = times.collect();
        for index in group {
            let head = &mut heads[index];
            let (snapshot, at, count) = spool.streams[index].snapshots[head.next].clone();
            spool.regions(at, count, &mut decoded).map_err(|e| scratch(&e))?;
            frame.add(head, &snapshot);
            let samples = head.samples(&snapshot);
            let is_rounded = |region: &&ForeignRegion| head.age(region.age).fract() != 0.0;
            spool.drop_fields("age", decoded.iter().filter(is_rounded).count());
            regions.extend(
                decoded.iter().map(|decoded| head.region(decoded, spaces[index].id, samples)),
            );
            head.next += 1;
            head.last_end = Some(snapshot.end);
            done += 1;
        }
        regions.sort_unstable_by_key(|region: &Region| region.range);
        let snapshot = frame.snapshot(std::mem::take(&mut regions));
        let (start, end) = (snapshot.start.0, snapshot.end.0);
        let starts = times.iter().filter(|(from, _)| from.is_some_and(|from| from != start));
        spool.drop_fields("start_time", starts.count());
        spool.drop_fields("end_time", times.iter().filter(|(_, to)| *to != end).count());
        let mappings = (windows == 0).then(|| layout(&spaces, snapshot.start));
        sink.window(&Window {
            mappings: mappings.as_ref(),
            cpu: frame.cpu,
            ..Window::of(&snapshot)
        })?;
        regions = snapshot.regions;
        windows += 1;
        tick(done, all)?;
    }
    Ok(windows)
}

fn scratch(cause: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot read the scratch file").cause(cause).remedy("check the disk")
}

/// The space of each stream. An id from a tierscope recording is kept, unless two streams claim it.
pub(crate) fn spaces(spool: &Spool) -> Vec<Space> {
    let claimed = |stream: &Stream| stream.origin.as_ref().and_then(|origin| origin.space);
    let mut taken = BTreeSet::new();
    let kept: Vec<Option<u32>> =
        spool.streams.iter().map(|s| claimed(s).filter(|id| taken.insert(*id))).collect();
    let mut free = (0..).filter(|id| !taken.contains(id));
    let space = |(stream, kept): (&Stream, Option<u32>)| Space {
        id: SpaceId(kept.or_else(|| free.next()).unwrap_or(u32::MAX)),
        name: name(stream).into(),
    };
    spool.streams.iter().zip(kept).map(space).collect()
}

fn name(stream: &Stream) -> String {
    let Some(origin) = &stream.origin else { return "target".into() };
    match &origin.name {
        Some(name) => name.clone(),
        // One of each, as most files have it.
        None if origin.context.iter().all(|index| index.is_none_or(|index| index == 0)) => {
            format!("target {}", origin.target)
        }
        None => {
            let [kdamond, context, scheme] = origin.context.map(Option::unwrap_or_default);
            format!("target {} of {kdamond}/{context}/{scheme}", origin.target)
        }
    }
}

fn layout(spaces: &[Space], taken: Time) -> Mappings {
    let by_id: BTreeMap<SpaceId, Space> = spaces.iter().map(|s| (s.id, s.clone())).collect();
    Mappings { taken, spaces: by_id.into_values().collect(), ..Mappings::default() }
}

/// Read position in a stream, and the intervals that its counts refer to.
struct Head {
    next: usize,
    last_end: Option<u64>,
    /// Time between two snapshots in ns.
    window: f64,
    /// Sampling interval in ns.
    sampling: f64,
    /// Sampling intervals per window by the file's settings; `None` if it has none.
    nominal: Option<f64>,
}

impl Head {
    fn of(stream: &mut Stream, sampling: Duration) -> Self {
        // damo, too, sorts when it merges records; the sort is stable, so ordered input stays as it
        // is.
        stream
            .snapshots
            .sort_by_key(|(snapshot, ..)| (snapshot.end, snapshot.ours.map(|ours| ours.window)));
        let window = stream.window.unwrap_or_else(|| mean_window(stream));
        let both = stream.sampling.zip(stream.window);
        Self {
            next: 0,
            last_end: None,
            window,
            sampling: stream.sampling.unwrap_or(sampling.as_nanos() as f64),
            nominal: both.map(|(sampling, window)| window / sampling),
        }
    }

    fn start(&self, snapshot: &SnapshotHead) -> u64 {
        let guess = || snapshot.end.saturating_sub(self.window as u64);
        snapshot.start.or(self.last_end).unwrap_or_else(guess)
    }

    /// Sampling intervals in the window of `snapshot`.
    fn samples(&self, snapshot: &SnapshotHead) -> u32 {
        if let Some(ours) = snapshot.ours {
            return ours.samples;
        }
        let length = (snapshot.end - self.start(snapshot)) as f64;
        let looks = match (snapshot.sampling, self.nominal) {
            (Some(sampling), _) => length / sampling,
            (None, Some(nominal)) => nominal,
            (None, None) => length / self.sampling,
        };
        (looks.round() as u32).max(1)
    }

    /// An age in windows.
    fn age(&self, age: Age) -> f64 {
        match age {
            Age::Windows(age) => age.into(),
            Age::Absent => 0.0,
            Age::Micros(age) => age as f64 * 1e3 / self.window.max(1.0),
        }
    }

    fn region(&self, decoded: &ForeignRegion, space: SpaceId, window_samples: u32) -> Region {
        let samples = decoded.samples.unwrap_or(window_samples);
        Region {
            range: Range::new(space, decoded.start, decoded.end),
            hits: match decoded.hits {
                Hits::Samples(hits) => hits,
                Hits::Percent(percent) => percent / 100.0 * samples as f32,
            },
            samples,
            age: self.age(decoded.age).round() as u32,
            level: decoded.level,
            confidence: decoded.confidence,
            rate: decoded.rate,
            unknown: decoded.unknown,
            resident: decoded.resident,
        }
    }
}

/// Mean time between two snapshots, in any order: damo, too, takes it for the length of the first.
pub(crate) fn mean_window(stream: &Stream) -> f64 {
    let ends = || stream.snapshots.iter().map(|(snapshot, ..)| snapshot.end);
    match (stream.snapshots.first(), ends().min().zip(ends().max()), stream.snapshots.len()) {
        (_, Some((first, last)), count @ 2..) => (last - first) as f64 / (count - 1) as f64,
        (Some((only, ..)), ..) => only.start.map_or(ONE_WINDOW, |s| (only.end - s) as f64),
        _ => ONE_WINDOW,
    }
}

/// The streams whose next snapshots form the next window.
///
/// Snapshots of a tierscope recording have a window number. Others belong together if their ends
/// lie within half a window: the kernel emits one target after another.
fn next_group(streams: &[Stream], heads: &[Head]) -> Option<Vec<usize>> {
    let waiting = || {
        let next =
            |(index, head): (usize, &Head)| Some((index, streams[index].snapshots.get(head.next)?));
        heads.iter().enumerate().filter_map(next).map(|(index, (snapshot, ..))| (index, snapshot))
    };
    let order = |snapshot: &SnapshotHead| (snapshot.end, snapshot.ours.map(|ours| ours.window));
    let (first, earliest) = waiting().min_by_key(|(_, snapshot)| order(snapshot))?;
    let slack = earliest.end.saturating_add((heads[first].window / 2.0) as u64);
    let together = |(index, snapshot): &(usize, &SnapshotHead)| match (earliest.ours, snapshot.ours)
    {
        (Some(ours), Some(theirs)) => ours.window == theirs.window,
        (None, None) => *index == first || snapshot.end <= slack,
        _ => false,
    };
    Some(waiting().filter(together).map(|(index, _)| index).collect())
}

/// A window being assembled.
#[derive(Default)]
struct Frame {
    start: Option<u64>,
    end: u64,
    samples: u32,
    cpu: CpuTime,
}

impl Frame {
    fn add(&mut self, head: &Head, snapshot: &SnapshotHead) {
        let start = head.start(snapshot);
        self.start = Some(self.start.map_or(start, |known| known.min(start)));
        self.end = self.end.max(snapshot.end);
        self.samples = self.samples.max(head.samples(snapshot));
        if let Some(ours) = snapshot.ours {
            self.cpu = ours.cpu;
        }
    }

    fn snapshot(&self, regions: Vec<Region>) -> Snapshot {
        let (start, end) = (Time(self.start.unwrap_or(self.end)), Time(self.end));
        Snapshot { start, end, samples: self.samples, regions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Origin;
    use crate::spool::tests::{X, in_memory, snapshot};

    #[derive(Default)]
    struct Kept(Vec<Snapshot>, Vec<Mappings>);

    impl Sink for Kept {
        fn window(&mut self, window: &Window<'_>) -> Result<()> {
            self.0.push(window.snapshot.clone());
            self.1.extend(window.mappings.cloned());
            Ok(())
        }
    }

    const MS: u64 = 1_000_000;

    fn merged(spool: &mut Spool) -> Kept {
        let mut kept = Kept::default();
        merge(spool, Duration::from_millis(5), &mut kept, &mut |_, _| Ok(())).unwrap();
        kept
    }

    // Snapshots of two targets end at 100 and 100.003, 200 and 200.002 ms; at 300 ms only one
    // target is left.
    #[test]
    fn targets_of_one_moment_share_a_window() {
        let mut spool = in_memory();
        let (a, b) = (spool.stream(&Origin::target(10)), spool.stream(&Origin::target(20)));
        for (stream, ends) in [(b, vec![100_003, 200_002]), (a, vec![100_000, 200_000, 300_000])] {
            for end in ends {
                let regions = &mut vec![ForeignRegion::new(0, 4096, 3.0, 1)];
                spool.push(stream, snapshot(end * 1000), regions, X).unwrap();
            }
        }
        let Kept(snapshots, layouts) = merged(&mut spool);
        let shown: Vec<_> = snapshots
            .iter()
            .map(|s| (s.start.0 / MS, s.end.0 / 1000, s.samples, s.regions.len()))
            .collect();
        assert_eq!(shown, [(0, 100_003, 20, 2), (100, 200_002, 20, 2), (200, 300_000, 20, 1)]);
        assert_eq!(layouts.len(), 1);
        assert_eq!(&*layouts[0].spaces[1].name, "target 20");
    }

    // A sampling interval of 10 ms and a window of 100 ms: 50 % are 5 of 10 hits, 250 ms are 2.5
    // windows.
    #[test]
    fn percent_and_microseconds_become_hits_and_windows() {
        let mut spool = in_memory();
        let stream = spool.open();
        spool.streams[0].sampling = Some(10e6);
        spool.streams[0].window = Some(100e6);
        let mut decoded = ForeignRegion::new(0, 4096, 0.0, 0);
        (decoded.hits, decoded.age) = (Hits::Percent(50.0), Age::Micros(250_000));
        spool.push(stream, snapshot(100 * MS), &mut vec![decoded], X).unwrap();
        let region = merged(&mut spool).0[0].regions[0];
        assert_eq!((region.hits, region.samples, region.age), (5.0, 10, 3));
    }

    #[test]
    fn numbers_of_spaces_stay_unless_two_claim_one() {
        let mut spool = in_memory();
        for (target, space) in [(1, Some(7)), (2, None), (3, Some(7)), (4, Some(0))] {
            spool.stream(&Origin { space, ..Origin::target(target) });
        }
        let ids: Vec<u32> = spaces(&spool).iter().map(|space| space.id.0).collect();
        assert_eq!(ids, [7, 1, 2, 0]);
    }
}
