//! The linear scan on the toy machine: the conformance suite, and the claims of its documentation.

use std::time::Duration;

use tierscope_conformance::instrument::{conforms, run};
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Instrument, Range, RangeSet, Region, Snapshot, SpaceId, Unknown};
use tierscope_instruments::scan::{Config, Scan};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn r(start: u64, end: u64) -> Range {
    Range::new(SpaceId(0), start, end)
}

fn scan(config: Config) -> Scan {
    Scan::new(config).unwrap()
}

fn pruned() -> Config {
    Config { prune: true, ..Default::default() }
}

#[test]
fn plain_conforms() {
    conforms(&|| -> Box<dyn Instrument> { Box::new(scan(Config::default())) });
}

#[test]
fn pruned_conforms() {
    conforms(&|| -> Box<dyn Instrument> { Box::new(scan(pruned())) });
}

fn accuracy(snapshot: &Snapshot, truth: &[Range]) -> Accuracy {
    let truth: RangeSet = truth.iter().copied().collect();
    Accuracy::of(&hot(snapshot, HOT_FREQUENCY), &truth)
}

// 2 GiB at 32,768 entries per step: 16 steps of 5 ms per pass, 80 ms; two or three passes per
// window. A block of 2 MiB gets 1 M/s x 80 ms / 32 = 2,500 touches per pass: complete and exact.
#[test]
fn a_target_of_many_steps_is_covered() {
    let hot = [r(700 * MIB, 732 * MIB), r(1500 * MIB, 1532 * MIB)];
    for prune in [false, true] {
        let config = Config { entries: 1 << 15, prune, ..Default::default() };
        let mut toy = Toy::new(&[r(0, 2 * GIB)], random_touches(&hot, 1_000_000, 3));
        let (_, kept) = run(&mut toy, &mut scan(config), 2.0);
        let told = accuracy(kept.snapshots.last().unwrap(), &hot);
        assert_eq!((told.precision(), told.recall()), (Some(1.0), Some(1.0)), "prune: {prune}");
    }
}

// 1 GiB at 2,048 entries per step: 128 steps, 640 ms per pass; in three of four windows no pass
// reaches a block. From the end of the second pass on all blocks are known.
#[test]
fn a_pass_of_many_windows_keeps_its_verdicts() {
    let hot = [r(100 * MIB, 164 * MIB)];
    let config = Config { entries: 2048, ..Default::default() };
    let mut toy = Toy::new(&[r(0, GIB)], random_touches(&hot, 1_000_000, 3));
    let (_, kept) = run(&mut toy, &mut scan(config), 4.0);
    let recalls: Vec<f64> =
        kept.snapshots.iter().map(|s| accuracy(s, &hot).recall().unwrap()).collect();
    println!("recall by window: {recalls:.2?}");
    assert_eq!(recalls[2], 0.0, "the first pass only clears");
    assert!(recalls[8..].iter().all(|recall| *recall == 1.0));
    let last = kept.snapshots.last().unwrap();
    assert!(last.regions.iter().all(|region| region.samples == 1));
    assert_eq!(accuracy(last, &hot).precision(), Some(1.0));
}

// Huge pages are judged by their PMD entry. A pruned pass finds them on its way down, when it has
// already cleared them.
#[test]
fn huge_pages_are_seen_at_their_own_level() {
    let hot = [r(64 * MIB, 80 * MIB)];
    for prune in [false, true] {
        let mut toy = Toy::new(&[r(0, 256 * MIB)], random_touches(&hot, 1_000_000, 3))
            .with_huge_pages(&[r(32 * MIB, 72 * MIB)]);
        let config = Config { prune, ..Default::default() };
        let (_, kept) = run(&mut toy, &mut scan(config), 1.0);
        let told = accuracy(kept.snapshots.last().unwrap(), &hot);
        assert_eq!((told.precision(), told.recall()), (Some(1.0), Some(1.0)), "prune: {prune}");
    }
}

// Smaller blocks resolve smaller hot sets: one page of 64 MiB.
#[test]
fn blocks_may_be_single_pages() {
    let hot = [r(30 * MIB, 30 * MIB + 4096)];
    let config = Config { block: 4096, ..Default::default() };
    let mut toy = Toy::new(&[r(0, 64 * MIB)], random_touches(&hot, 10_000, 3));
    let (_, kept) = run(&mut toy, &mut scan(config), 1.0);
    let told = accuracy(kept.snapshots.last().unwrap(), &hot);
    assert_eq!((told.precision(), told.recall()), (Some(1.0), Some(1.0)));
}

// A terabyte of which 64 MiB are accessed: a plain pass takes 4,096 steps, over 20 s. A pruned pass
// judges two P4D, 512 PUD, 512 PMD and 16,384 PTEs: within a step.
#[test]
fn pruning_passes_a_terabyte_within_a_window() {
    let hot = [r(300 * GIB, 300 * GIB + 64 * MIB)];
    let mut toy = Toy::new(&[r(0, 1 << 40)], random_touches(&hot, 1_000_000, 3));
    let (_, kept) = run(&mut toy, &mut scan(pruned()), 1.0);
    let last = kept.snapshots.last().unwrap();
    let told = accuracy(last, &hot);
    assert_eq!((told.precision(), told.recall()), (Some(1.0), Some(1.0)));
    assert!(last.regions.iter().all(|region| region.samples == 40));
}

#[test]
fn windows_have_their_length() {
    let mut toy = Toy::new(&[r(0, 64 * MIB)], random_touches(&[r(0, MIB)], 1000, 3));
    let (_, kept) = run(&mut toy, &mut scan(Config::default()), 1.1);
    for snapshot in &kept.snapshots {
        assert_eq!(snapshot.end - snapshot.start, Duration::from_millis(200));
        assert_eq!(snapshot.samples, 40);
    }
}

// One page of each 256 KiB is hot: 2 MiB of 512 are not. The block is hot by eight pages of 512,
// and says so.
#[test]
fn a_few_hot_pages_make_no_block_hot() {
    let hot: Vec<Range> =
        (0..256).map(|at| r((at * 256) << 10, ((at * 256) << 10) + 4096)).collect();
    for prune in [false, true] {
        let mut toy = Toy::new(&[r(0, 64 * MIB)], random_touches(&hot, 1_000_000, 3));
        let config = Config { prune, ..Default::default() };
        let (_, kept) = run(&mut toy, &mut scan(config), 2.0);
        for snapshot in &kept.snapshots {
            let bytes: u64 = snapshot
                .regions
                .iter()
                .filter(|r| r.is_hot(HOT_FREQUENCY))
                .map(Region::bytes)
                .sum();
            assert_eq!(bytes, 0, "prune: {prune}, at {:?}", snapshot.end);
        }
        let last = &kept.snapshots.last().unwrap().regions;
        assert!(last.iter().all(|r| r.unknown == Some(Unknown::Evidence)), "prune: {prune}");
    }
}
