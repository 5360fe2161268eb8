//! Generated windows, and recordings of them in memory.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use tierscope_core::drive::Sink;
use tierscope_core::{
    Action, ActionId, ActionKind, Addr, Backing, CpuTime, Failure, Level, Mapping, Mappings,
    Object, Outcome, Range, Rate, Region, SharedView, Snapshot, Space, SpaceId, Tier, Time,
    Unknown,
};
use tierscope_record::{Frame, Memory, Meta, Recorder, Recording};

pub(crate) fn meta() -> Meta {
    Meta {
        instrument: "telescope".into(),
        target: "redis-server[4711]".into(),
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        ..Meta::default()
    }
}

/// Records `frames`; ends the recording cleanly if `finish`.
pub(crate) fn record(frames: &[Frame], finish: bool) -> Memory {
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    for frame in frames {
        recorder.window(&frame.as_window()).expect("memory takes all");
    }
    if finish {
        recorder.finish().expect("memory takes all");
    }
    memory
}

pub(crate) fn open(memory: &Memory) -> tierscope_core::Result<Recording> {
    Recording::from_source(Box::new(memory.clone()))
}

pub(crate) fn read_all(recording: &Recording) -> tierscope_core::Result<Vec<Frame>> {
    recording.windows(0..recording.commits().len()).collect()
}

/// Sorted, disjoint ranges of up to three spaces, anywhere in 64 bits.
fn ranges(most: usize) -> impl Strategy<Value = Vec<Range>> {
    let space = prop::collection::btree_set(0u64..=u64::MAX, 0..=most * 2).prop_map(|points| {
        let points: Vec<u64> = points.into_iter().collect();
        points.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
    });
    prop::collection::vec(space, 0..3).prop_map(|spaces| {
        let of = |(id, ranges): (usize, Vec<(u64, u64)>)| {
            let space = SpaceId(id as u32 * 7);
            ranges.into_iter().map(move |(start, end)| Range::new(space, start, end))
        };
        spaces.into_iter().enumerate().flat_map(of).collect()
    })
}

fn region(range: Range) -> impl Strategy<Value = Region> {
    let level = prop::option::of(1u8..=5).prop_map(|n| n.and_then(Level::new));
    let rate = prop::option::of((0f32..1e6, 0f32..1e6, 0f32..1e6));
    let rate = rate.prop_map(|rate| rate.map(|(low, mean, high)| Rate { low, mean, high }));
    let seen = (0f32..50.0, 0u32..60, any::<u32>(), level, 0f32..=1.0);
    let unknown = prop::option::of(prop::sample::select(Unknown::ALL.to_vec()));
    let resident = prop::option::of(0..=range.bytes());
    (seen, rate, unknown, resident).prop_map(move |(seen, rate, unknown, resident)| {
        let (hits, samples, age, level, confidence) = seen;
        Region { range, hits, samples, age, level, confidence, rate, unknown, resident }
    })
}

fn mapping(range: Range) -> impl Strategy<Value = Mapping> {
    let backing = prop::sample::select(vec![
        Backing::Anonymous,
        Backing::Heap,
        Backing::Stack,
        Backing::File,
        Backing::Kernel,
    ]);
    let object = prop::option::of((any::<u64>(), any::<u64>(), any::<u64>()));
    (backing, "[a-z/ü]{0,12}", any::<bool>(), object).prop_map(
        move |(backing, name, writable, object)| Mapping {
            range,
            backing,
            name: name.into(),
            writable,
            object: object.map(|(device, inode, offset)| Object { device, inode, offset }),
        },
    )
}

/// Space 99 is the shared space.
fn view(range: Range) -> impl Strategy<Value = SharedView> {
    (prop::sample::select(vec![7, 99]), any::<u64>(), "[a-z/ü]{0,12}").prop_map(
        move |(space, at, name)| SharedView {
            range,
            memory: Addr { space: SpaceId(space), at },
            name: name.into(),
        },
    )
}

fn mappings() -> impl Strategy<Value = Mappings> {
    let each = |ranges: Vec<Range>| ranges.into_iter().map(mapping).collect::<Vec<_>>();
    let spaces = prop::collection::btree_map(0u32..20, "[a-z]{0,8}", 0..3);
    let views = ranges(3).prop_flat_map(|ranges| ranges.into_iter().map(view).collect::<Vec<_>>());
    let all = (any::<u64>(), spaces, ranges(3).prop_flat_map(each), views);
    all.prop_map(|(taken, spaces, mappings, views)| {
        let shared = views.iter().map(|view| view.memory.space).find(|space| space.0 == 99);
        let space = |(id, name): (u32, String)| Space { id: SpaceId(id), name: name.into() };
        Mappings {
            taken: Time(taken),
            spaces: spaces.into_iter().map(space).collect(),
            mappings,
            shared,
            views,
        }
    })
}

fn action() -> impl Strategy<Value = Action> {
    let kind = prop_oneof![
        any::<u8>().prop_map(|tier| ActionKind::Move(Tier(tier))),
        Just(ActionKind::Split),
        Just(ActionKind::Collapse),
        Just(ActionKind::Reclaim),
    ];
    (any::<u64>(), prop::option::of(any::<u64>()), any::<u32>(), any::<(u64, u64)>(), kind)
        .prop_map(|(id, after, space, (a, b), kind)| Action {
            id: ActionId(id),
            after: after.map(ActionId),
            range: Range::new(SpaceId(space), a.min(b), a.max(b)),
            kind,
        })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let why = prop::option::of(prop::sample::select(vec![
        Failure::NoRoom,
        Failure::Busy,
        Failure::Shared,
        Failure::Unmapped,
        Failure::Gone,
        Failure::Permission,
        Failure::Unsupported,
    ]));
    (any::<[u64; 4]>(), why).prop_map(|([id, time, done, failed], why)| Outcome {
        id: ActionId(id),
        time: Time(time),
        done,
        failed,
        why,
    })
}

/// A window and its length, 0 to 200 ms.
fn frame() -> impl Strategy<Value = (u64, Frame)> {
    let regions =
        ranges(6).prop_flat_map(|ranges| ranges.into_iter().map(region).collect::<Vec<_>>());
    let done = (prop::collection::vec(action(), 0..3), prop::collection::vec(outcome(), 0..3));
    let cpu = any::<(u32, u32)>();
    (0u64..200_000_000, regions, prop::option::weighted(0.3, mappings()), done, cpu, 0u32..50)
        .prop_map(|(length, regions, mappings, (actions, outcomes), cpu, samples)| {
            let snapshot = Snapshot { samples, regions, ..Snapshot::default() };
            let cpu = CpuTime {
                profiler: Duration::from_nanos(cpu.0.into()),
                target: Duration::from_nanos(cpu.1.into()),
            };
            (length, Frame { snapshot, mappings: mappings.map(Arc::new), actions, outcomes, cpu })
        })
}

/// Up to `most` consecutive windows.
pub(crate) fn frames(most: usize) -> impl Strategy<Value = Vec<Frame>> {
    prop::collection::vec(frame(), 0..=most).prop_map(|frames| {
        let mut now = Time(1_000);
        let place = |(length, mut frame): (u64, Frame)| {
            frame.snapshot.start = now;
            now += Duration::from_nanos(length);
            frame.snapshot.end = now;
            frame
        };
        frames.into_iter().map(place).collect()
    })
}
