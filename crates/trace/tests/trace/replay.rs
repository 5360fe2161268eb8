//! Replaying a trace as a program.

use std::path::Path;

use tierscope_core::Time;
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Kind, Replay};
use tierscope_workloads::{App, Lane, Next, Touch};

fn access(thread: u32, time: u64, address: u64, kind: Kind) -> Access {
    Access { address, time: Time(time), thread, bytes: 8, kind }
}

fn replay(dir: &Path, accesses: &[Access]) -> Replay {
    let path = dir.join("t.trace");
    let mut writer = Writer::new("t", std::fs::File::create(&path).unwrap()).unwrap();
    for thread in 0..2 {
        let name = "".into();
        writer.event(&Event::Thread { number: thread, pid: 7, tid: thread.into(), name }).unwrap();
    }
    let name = "[heap]".into();
    let backing = tierscope_core::Backing::Heap;
    let (time, start, bytes) = (Time(0), 0x1000_0000, 1 << 21);
    let heap = Event::Map { time, pid: 7, start, bytes, backing, writable: true, name };
    writer.event(&heap).unwrap();
    accesses.iter().for_each(|access| writer.access(access).unwrap());
    writer.finish(true).unwrap();
    Replay::open(&path).unwrap()
}

/// All touches of a lane, and the times that it waited for.
fn play(lane: &mut dyn Lane) -> (Vec<Touch>, Vec<u64>) {
    let (mut touches, mut waits) = (Vec::new(), Vec::new());
    let mut out = [Touch::default(); 8];
    loop {
        match lane.next(&mut out) {
            Next::Touches(count) => touches.extend_from_slice(&out[..count]),
            Next::Until(since) => {
                waits.push(since.as_nanos() as u64);
                lane.now(since);
            }
            Next::Ends => return (touches, waits),
            other => panic!("{other:?}"),
        }
    }
}

const MIB: u64 = 1 << 20;

// Two places: 0x10000000 (two blocks of 2 MiB) and 0x7f0000000000. The machine maps the first at 5
// MiB, which is no multiple of 2 MiB: it is aligned to 6 MiB.
#[test]
fn a_recorded_trace_is_replayed_at_other_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let heap = 0x1000_0000;
    let stack = 0x7f00_0000_0000;
    let replay = replay(
        dir.path(),
        &[
            access(0, 0, 0x40_0000, Kind::Fetch),
            access(0, 0, heap + 0x1234, Kind::Load),
            access(0, 0, heap + 2 * MIB + 60, Kind::Store),
            access(0, 500, stack, Kind::Modify),
            access(1, 200, heap, Kind::Load),
        ],
    );
    let areas: Vec<_> = replay.areas().iter().map(|area| (&*area.name, area.bytes / MIB)).collect();
    assert_eq!(areas, [("[heap] 0x10000000", 6), ("0x7f0000000000", 4)]);
    let mut lanes = replay.start(&[5 * MIB, 64 * MIB], 1, 1);
    let (touches, waits) = play(&mut *lanes[0]);
    let expected = [
        Touch::read(6 * MIB + 0x1234),
        // Bytes 60 to 68 span two lines.
        Touch::write(8 * MIB + 60),
        Touch::write(8 * MIB + 67),
        Touch::read(6 * MIB),
        Touch::read(64 * MIB),
        Touch::write(64 * MIB),
    ];
    assert_eq!((touches.as_slice(), waits), (&expected[..], vec![200, 500]));
    assert_eq!((lanes[0].operations(), replay.failed()), (4, None));
}

#[test]
fn threads_are_lanes_as_far_as_they_reach() {
    let dir = tempfile::tempdir().unwrap();
    let accesses: Vec<_> =
        (0..100).map(|at| access((at % 2) as u32, 0, 0x1000_0000 + 64 * at, Kind::Load)).collect();
    let replay = replay(dir.path(), &accesses);
    let counts = |lanes: u32| -> Vec<usize> {
        let mut lanes = replay.start(&[0], 1, lanes);
        lanes.iter_mut().map(|lane| play(&mut **lane).0.len()).collect()
    };
    assert_eq!((counts(1), counts(2), counts(3)), (vec![100], vec![50, 50], vec![50, 50, 0]));
}

#[test]
fn only_whole_traces_are_replayed() {
    let dir = tempfile::tempdir().unwrap();
    drop(replay(dir.path(), &[access(0, 0, 0x1000, Kind::Load)]));
    let path = dir.path().join("t.trace");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let error = Replay::open(&path).unwrap_err().to_string();
    assert!(error.contains("cut short") && error.contains("tierscope trace convert"), "{error}");
    let mut flipped = bytes.clone();
    // An offset in a block of accesses, past its header.
    let at = bytes.windows(5).rposition(|w| w == b"\xb1TSB\x01").unwrap() + 50;
    flipped[at] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    assert!(Replay::open(&path).unwrap_err().to_string().contains("checksum"));
    let mut writer = Writer::new("t", std::fs::File::create(&path).unwrap()).unwrap();
    writer.access(&access(0, 0, 0x1000, Kind::Fetch)).unwrap();
    writer.finish(true).unwrap();
    assert!(Replay::open(&path).unwrap_err().to_string().contains("no access to data"));
}
