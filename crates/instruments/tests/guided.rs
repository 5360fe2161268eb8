//! Guided Telescope on the toy machine: the conformance suite, and what reviewers asked of Telescope.

use std::time::Duration;

use tierscope_conformance::instrument::{Kept, conforms, run};
use tierscope_conformance::toy::{Event, Toy, random_touches};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, detection_time, hot};
use tierscope_core::{Instrument, LevelSet, Radix, Range, RangeSet, Rng, SpaceId, Time};
use tierscope_instruments::guided::{Config, Guided};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn guided() -> Guided {
    Guided::new(Config::default()).unwrap()
}

fn r(start: u64, end: u64) -> Range {
    Range::new(SpaceId(0), start, end)
}

#[test]
fn conforms_to_the_suite() {
    conforms(&|| Box::new(guided()) as Box<dyn Instrument>);
}

/// Prints the windows and returns when both precision and recall reach `bar` for four windows.
fn detected(kept: &Kept, truth: &RangeSet, from: Time, bar: f64) -> Option<Duration> {
    let mut held = Vec::new();
    for snapshot in &kept.snapshots {
        let a = Accuracy::of(&hot(snapshot, HOT_FREQUENCY), truth);
        let (p, r) = (a.precision().unwrap_or(0.0), a.recall().unwrap_or(0.0));
        println!(
            "{}: precision {p:.3} recall {r:.3} regions {}",
            snapshot.end,
            snapshot.regions.len()
        );
        held.push((snapshot.end, p >= bar && r >= bar));
    }
    detection_time(from, &held)
}

/// Runs for `seconds` on `space` with random touches of `hot`, 1.5 M a second, half of the benches.
fn detects(space: Range, hot: &[Range], seconds: f64, bar: f64) -> Option<Duration> {
    let mut toy = Toy::new(&[space], random_touches(hot, 1_500_000, 5));
    let (_, kept) = run(&mut toy, &mut guided(), seconds);
    detected(&kept, &hot.iter().copied().collect(), Time(0), bar)
}

const SECOND: Duration = Duration::from_secs(1);

// Neither end on an entry of any level above the leaf.
#[test]
fn finds_ten_gigabytes_in_five_terabytes_within_a_second() {
    let start = 1234 * GIB + 567 * MIB + 8 * 4096;
    let found = detects(r(0, 5 * TIB), &[r(start, start + 10 * GIB)], 2.0, 0.95);
    assert!(found.is_some_and(|time| time <= SECOND), "{found:?}");
}

#[test]
fn finds_a_needle_of_five_megabytes_in_a_terabyte_within_two_seconds() {
    let start = 777 * GIB + 3 * MIB + 5 * 4096;
    let found = detects(r(0, TIB), &[r(start, start + 5 * MIB)], 3.0, 0.90);
    assert!(found.is_some_and(|time| time <= 2 * SECOND), "{found:?}");
}

#[test]
fn finds_a_needle_of_one_page() {
    let start = 777 * GIB + 3 * MIB + 5 * 4096;
    let found = detects(r(0, TIB), &[r(start, start + 4096)], 3.0, 0.90);
    assert!(found.is_some_and(|time| time <= 2 * SECOND), "{found:?}");
}

// A sixteenth of the bench: 625 ranges of 2 MiB in 64 GiB, with a sixteenth of the budget.
#[test]
fn finds_scattered_ranges_within_ten_seconds() {
    let mut rng = Rng::seeded(11);
    let spots: Vec<Range> = (0..625)
        .map(|_| rng.below(64 * 512) * 2 * MIB)
        .map(|start| r(start, start + 2 * MIB))
        .collect();
    let truth: RangeSet = spots.iter().copied().collect();
    let touches = random_touches(truth.as_slice(), 3_000_000 / 16, 5);
    let mut toy = Toy::new(&[r(0, 64 * GIB)], touches);
    let config = Config { budget: Config::default().budget / 16, ..Default::default() };
    let (_, kept) = run(&mut toy, &mut Guided::new(config).unwrap(), 11.0);
    let found = detected(&kept, &truth, Time(0), 0.90);
    assert!(found.is_some_and(|time| time <= 10 * SECOND), "{found:?}");
}

// The hot range jumps every two seconds: what it left in earlier steps must not pass for a target
// that sleeps.
#[test]
fn follows_every_phase_change_within_a_second() {
    const STEP: u64 = 2_000_000_000;
    let place = |step: u64| r((3 + 150 * step) * GIB, (13 + 150 * step) * GIB);
    let mut steps: Vec<_> =
        (0..5).map(|step| random_touches(&[place(step)], 3_000_000, step)).collect();
    let workload = Box::new(move |from: Time, to: Time, touch: &mut dyn FnMut(_)| {
        steps[(from.0 / STEP).min(4) as usize](from, to, touch);
    });
    let mut toy = Toy::new(&[r(0, TIB)], workload);
    let (_, mut kept) = run(&mut toy, &mut guided(), 10.0);
    let mut all = std::mem::take(&mut kept.snapshots);
    for step in 0..5 {
        let later = all.partition_point(|snapshot| snapshot.end.0 <= (step + 1) * STEP);
        kept.snapshots = all.drain(..later).collect();
        let truth = [place(step)].into_iter().collect();
        let found = detected(&kept, &truth, Time(step * STEP), 0.95);
        assert!(found.is_some_and(|time| time <= SECOND), "step {step}: {found:?}");
    }
}

// Everything is hot: 8 GiB at a budget that pays for a table or two. Work stays within the budget.
#[test]
fn keeps_to_its_budget_when_everything_is_hot() {
    let space = r(0, 8 * GIB);
    let mut toy = Toy::new(&[space], random_touches(&[space], 1_000_000, 5));
    let config = Config { budget: Config::default().budget / 16, ..Default::default() };
    let (_, kept) = run(&mut toy, &mut Guided::new(config).unwrap(), 3.0);
    let most = kept.snapshots.iter().map(|s| s.samples).max().unwrap();
    assert!(most <= 10, "{most} samples in a window");
    let seen = kept.snapshots.last().unwrap();
    let warm: u64 = seen.regions.iter().filter(|g| g.hits > 0.0).map(|g| g.range.bytes()).sum();
    assert!(warm >= 7 * GIB, "tables take turns until all were seen: {} GiB", warm >> 30);
}

#[test]
fn a_huge_page_counts_as_confirmed() {
    let hot = r(512 * MIB, 576 * MIB);
    let touches = random_touches(&[hot], 1_000_000, 5);
    let mut toy = Toy::new(&[r(0, 4 * GIB)], touches).with_huge_pages(&[r(0, 4 * GIB)]);
    let (_, kept) = run(&mut toy, &mut guided(), 2.0);
    let found = detected(&kept, &[hot].into_iter().collect(), Time(0), 0.95);
    assert!(found.is_some_and(|time| time <= SECOND), "{found:?}");
}

#[test]
fn refuses_a_machine_whose_upper_levels_say_nothing() {
    let leaves = Radix { levels: 4, proven: LevelSet::from_bits(1) };
    let mut toy = Toy::new(&[r(0, GIB)], random_touches(&[r(0, GIB)], 1000, 5))
        .with_radix(leaves)
        .with_event(Time(1), Event::Stop);
    let error = guided().step(&mut toy).unwrap_err();
    assert_eq!(error.kind(), tierscope_core::ErrorKind::Missing);
}
