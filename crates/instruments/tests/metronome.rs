//! A metronome probes nothing and ends its windows on time.

use std::time::Duration;

use tierscope_conformance::instrument::{Stage, Toys, run};
use tierscope_conformance::toy::idle;
use tierscope_core::{Range, SpaceId};
use tierscope_instruments::metronome::Metronome;

// One second of 200 ms windows: five consecutive ones, all empty.
#[test]
fn windows_follow_one_another_and_hold_nothing() {
    let mut machine = Toys.build(&[Range::new(SpaceId(0), 0, 1 << 21)], idle(), vec![]);
    let mut metronome = Metronome::new(Duration::from_millis(200));
    let (_, kept) = run(&mut *machine, &mut metronome, 1.01);
    let ends: Vec<u64> = kept.snapshots.iter().map(|s| s.end.0 / 1_000_000).collect();
    assert_eq!(ends, [200, 400, 600, 800, 1000]);
    assert!(kept.snapshots.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert!(kept.snapshots.iter().all(|snapshot| snapshot.regions.is_empty()));
}
