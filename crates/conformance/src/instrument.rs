//! Requirements on every instrument, on any machine.

use std::time::Duration;

use tierscope_core::drive::{Course, Ended, Sink, Window, profile};
use tierscope_core::{
    ErrorKind, Instrument, Mappings, Ports, Range, RangeSet, Result, Snapshot, SpaceId, Time,
    Unknown, metrics,
};

use crate::toy::{Event, Toy, Workload, idle, random_touches};

const MIB: u64 = 1 << 20;

/// A sink that keeps every window and its mappings.
#[derive(Debug, Default)]
pub struct Kept {
    /// The snapshots, in order.
    pub snapshots: Vec<Snapshot>,
    /// The mappings committed with each snapshot, where they had changed.
    pub mappings: Vec<Option<Mappings>>,
}

impl Sink for Kept {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        self.snapshots.push(window.snapshot.clone());
        self.mappings.push(window.mappings.cloned());
        Ok(())
    }
}

/// Runs `instrument` on a machine for `seconds` of virtual time and returns its windows.
///
/// # Panics
/// If the instrument fails.
pub fn run(ports: &mut dyn Ports, instrument: &mut dyn Instrument, seconds: f64) -> (Ended, Kept) {
    let mut kept = Kept::default();
    let course = Course::until(Time(0) + Duration::from_secs_f64(seconds));
    let ended = profile(ports, instrument, &course, &mut kept).expect("the instrument runs");
    (ended, kept)
}

/// Builds the machines that the suite runs an instrument on.
pub trait Stage {
    /// A machine at time zero that maps `layout`, all present and old; `workload` touches its
    /// memory, and `events` happen at their times.
    fn build(
        &self,
        layout: &[Range],
        workload: Workload,
        events: Vec<(Time, Event)>,
    ) -> Box<dyn Ports>;
}

/// The toy machine.
#[derive(Clone, Copy, Debug)]
pub struct Toys;

impl Stage for Toys {
    fn build(
        &self,
        layout: &[Range],
        workload: Workload,
        events: Vec<(Time, Event)>,
    ) -> Box<dyn Ports> {
        let toy = Toy::new(layout, workload);
        Box::new(events.into_iter().fold(toy, |toy, (at, event)| toy.with_event(at, event)))
    }
}

/// Properties in which techniques legitimately differ.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Delay after which a change of mappings must show, give or take a few windows.
    pub layout_age: Duration,
}

/// One second, as for all of tierscope's own instruments.
impl Default for Traits {
    fn default() -> Self {
        Self { layout_age: Duration::from_secs(1) }
    }
}

/// Runs the whole suite. `make` builds a new instrument, with its default settings and the same
/// seed each time.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn conforms(make: &dyn Fn() -> Box<dyn Instrument>) {
    conforms_as(make, &Traits::default());
}

/// Runs [`conforms`] for a technique with other [`Traits`].
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn conforms_as(make: &dyn Fn() -> Box<dyn Instrument>, traits: &Traits) {
    conforms_on(&Toys, make, traits);
}

/// Runs [`conforms_as`] on other machines than the toy: tests an instrument and a machine together.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn conforms_on(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>, traits: &Traits) {
    snapshots_are_well_formed(stage, make);
    same_seed_same_snapshots(stage, make);
    an_idle_target_is_cold(stage, make);
    a_busy_target_is_hot_where_it_is_busy(stage, make);
    follows_the_layout(stage, make, traits.layout_age);
    survives_a_vanishing_space(stage, make);
    survives_windows_without_memory(stage, make, traits.layout_age);
    says_what_it_misses(stage, make);
    stops_when_asked(stage, make);
}

/// For instruments on ACCESSED bits: memory whose bits tell nothing is unknown for that reason,
/// from its first window on, and all other memory is judged as if the hidden memory were absent.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn reports_hidden_memory(make: &dyn Fn() -> Box<dyn Instrument>) {
    let (refused, guest) = (r(0, 128 * MIB, 192 * MIB), r(0, 384 * MIB, 512 * MIB));
    let late = r(0, 1024 * MIB, 1088 * MIB);
    let hidden = [(refused, Unknown::Refused), (guest, Unknown::Guest), (late, Unknown::Refused)];
    let hot = r(0, 64 * MIB, 96 * MIB);
    let layout = [r(0, 0, 320 * MIB), guest];
    let busy = r(0, 128 * MIB, 160 * MIB);
    let workload = random_touches(&[hot, busy], 2_000_000, 7);
    let with_late = Event::Layout([&layout[..], &[late]].concat());
    let mut toy =
        Toy::new(&layout, workload).with_hidden(&hidden).with_event(Time(3_000_000_000), with_late);
    let (_, kept) = run(&mut toy, &mut *make(), 5.5);
    for (range, why) in &hidden {
        let of = |snapshot: &Snapshot| bytes_in(snapshot, range, |known| known == Some(*why));
        let windows =
            kept.snapshots.iter().filter(|of| of.start >= Time(4_200_000_000) || range != &late);
        for snapshot in windows {
            assert_eq!(of(snapshot), range.bytes(), "{range} is {why:?} at {}", snapshot.end);
        }
    }
    let last = kept.snapshots.last().expect("seconds give windows");
    let mapped: RangeSet = layout.into_iter().chain([late]).collect();
    well_formed(last, &mapped);
    let accuracy = metrics::Accuracy::of(
        &metrics::hot(last, metrics::HOT_FREQUENCY),
        &[hot].into_iter().collect(),
    );
    assert!(accuracy.recall() >= Some(0.9) && accuracy.precision() >= Some(0.5), "{accuracy:?}");
    let cold = r(0, 200 * MIB, 320 * MIB);
    assert!(
        2 * bytes_in(last, &cold, |known| known.is_none()) > cold.bytes(),
        "other memory is known"
    );
}

/// Bytes of `range` in regions whose reason to be unknown fits.
fn bytes_in(snapshot: &Snapshot, range: &Range, fits: impl Fn(Option<Unknown>) -> bool) -> u64 {
    let regions = snapshot.regions.iter().filter(|region| fits(region.unknown));
    regions.filter_map(|region| region.range.intersect(range)).map(|part| part.bytes()).sum()
}

fn r(space: u32, start: u64, end: u64) -> Range {
    Range::new(SpaceId(space), start, end)
}

/// A machine with 256 MiB mapped, 32 MiB of it busy.
fn busy(stage: &dyn Stage, events: Vec<(Time, Event)>) -> (Box<dyn Ports>, Range) {
    let hot = r(0, 64 * MIB, 96 * MIB);
    let workload = random_touches(&[hot], 1_000_000, 7);
    (stage.build(&[r(0, 0, 256 * MIB)], workload, events), hot)
}

fn snapshots_are_well_formed(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let (_, kept) = run(&mut *busy(stage, vec![]).0, &mut *make(), 2.0);
    assert!(kept.snapshots.len() >= 2, "two seconds give windows");
    for pair in kept.snapshots.windows(2) {
        assert!(pair[0].end <= pair[1].start, "windows do not overlap");
    }
    let mapped: RangeSet = [r(0, 0, 256 * MIB)].into_iter().collect();
    kept.snapshots.iter().for_each(|snapshot| well_formed(snapshot, &mapped));
}

/// Regions are sorted, disjoint, not empty, page-aligned, within `mapped`; hits do not exceed
/// samples.
fn well_formed(snapshot: &Snapshot, mapped: &RangeSet) {
    assert!(snapshot.start < snapshot.end, "a window takes time");
    for pair in snapshot.regions.windows(2) {
        let (a, b) = (pair[0].range, pair[1].range);
        assert!((a.space, a.end) <= (b.space, b.start), "sorted and disjoint: {a} {b}");
    }
    for region in &snapshot.regions {
        assert!(!region.range.is_empty(), "{}", region.range);
        assert!(region.range.start.is_multiple_of(4096), "{}", region.range);
        assert!(region.hits >= 0.0 && f64::from(region.hits) <= f64::from(region.samples) + 1e-3);
        assert!(region.samples <= snapshot.samples, "no more looks than the window had");
    }
    let regions: RangeSet = snapshot.regions.iter().map(|region| region.range).collect();
    assert!(regions.minus(mapped).is_empty(), "within what is mapped");
}

fn same_seed_same_snapshots(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let once = || run(&mut *busy(stage, vec![]).0, &mut *make(), 1.0).1.snapshots;
    assert_eq!(once(), once());
}

fn an_idle_target_is_cold(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let mut machine = stage.build(&[r(0, 0, 64 * MIB)], idle(), vec![]);
    let (_, kept) = run(&mut *machine, &mut *make(), 1.0);
    for snapshot in &kept.snapshots {
        assert!(metrics::hot(snapshot, metrics::HOT_FREQUENCY).is_empty());
    }
}

/// 32 MiB of 256 MiB is enough for every technique: recall and precision must both be at least a
/// half.
fn a_busy_target_is_hot_where_it_is_busy(
    stage: &dyn Stage,
    make: &dyn Fn() -> Box<dyn Instrument>,
) {
    let (mut machine, hot) = busy(stage, vec![]);
    let (_, kept) = run(&mut *machine, &mut *make(), 4.0);
    let last = kept.snapshots.last().expect("four seconds give windows");
    let truth: RangeSet = [hot].into_iter().collect();
    let accuracy = metrics::Accuracy::of(&metrics::hot(last, metrics::HOT_FREQUENCY), &truth);
    assert!(accuracy.recall() >= Some(0.5), "{accuracy:?}");
    assert!(accuracy.precision() >= Some(0.5), "{accuracy:?}");
}

fn follows_the_layout(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>, age: Duration) {
    let before = r(0, 0, 64 * MIB);
    let after = [r(0, 32 * MIB, 64 * MIB), r(0, 128 * MIB, 160 * MIB), r(1, 0, 8 * MIB)];
    let events = vec![(Time(1_000_000_000), Event::Layout(after.to_vec()))];
    let mut machine = stage.build(&[before], idle(), events);
    let (_, kept) = run(&mut *machine, &mut *make(), 3.0 + age.as_secs_f64());
    let last = kept.snapshots.last().expect("seconds give windows");
    let regions: RangeSet = last.regions.iter().map(|region| region.range).collect();
    let mapped: RangeSet = after.into_iter().collect();
    assert!(mapped.minus(&regions).is_empty(), "what is new is covered: {regions:?}");
    let gone: RangeSet = [r(0, 0, 32 * MIB)].into_iter().collect();
    assert!(regions.intersect(&gone).is_empty(), "what is gone is left: {regions:?}");
    let committed = kept.mappings.iter().flatten().count();
    assert_eq!(committed, 2, "mappings are committed when they change");
}

fn survives_a_vanishing_space(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let stays = r(0, 0, 64 * MIB);
    let events = vec![(Time(500_000_000), Event::Layout(vec![stays]))];
    let mut machine = stage.build(&[stays, r(1, 0, 64 * MIB)], idle(), events);
    let (ended, kept) = run(&mut *machine, &mut *make(), 3.0);
    assert_eq!(ended, Ended::Deadline);
    let last = kept.snapshots.last().expect("three seconds give windows");
    assert!(last.regions.iter().all(|region| region.range.space == SpaceId(0)));
}

/// All processes of a target end, or execute another program, and some time later there is a new
/// one.
fn survives_windows_without_memory(
    stage: &dyn Stage,
    make: &dyn Fn() -> Box<dyn Instrument>,
    age: Duration,
) {
    let new = r(1, 0, 64 * MIB);
    let (gone, back) = (Time(500_000_000), Time(3_000_000_000) + age);
    let events = vec![(gone, Event::Layout(vec![])), (back, Event::Layout(vec![new]))];
    let mut machine = stage.build(&[r(0, 0, 64 * MIB)], idle(), events);
    let (ended, kept) = run(&mut *machine, &mut *make(), 6.0 + 2.0 * age.as_secs_f64());
    assert_eq!(ended, Ended::Deadline);
    let last_before = |time| kept.snapshots.iter().rev().find(|of| of.end < time);
    let regions = |time| -> RangeSet {
        let snapshot = last_before(time).expect("seconds give windows");
        snapshot.regions.iter().map(|region| region.range).collect()
    };
    assert!(regions(back).is_empty(), "nothing is mapped: {:?}", regions(back));
    let all: RangeSet = [new].into_iter().collect();
    assert_eq!(regions(Time::NEVER), all);
}

/// A machine without optional ports: only clock and target.
struct Bare(Box<dyn Ports>);

impl tierscope_core::Clock for Bare {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn wait(&mut self, until: Time) -> tierscope_core::Wake {
        self.0.wait(until)
    }
}

impl tierscope_core::Target for Bare {
    fn mappings(&mut self, max_age: Duration) -> Result<std::sync::Arc<Mappings>> {
        self.0.mappings(max_age)
    }

    fn cpu_time(&self) -> tierscope_core::CpuTime {
        self.0.cpu_time()
    }
}

impl tierscope_core::Ports for Bare {}

fn says_what_it_misses(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let course = Course::until(Time(1_000_000_000));
    let mut bare = Bare(busy(stage, vec![]).0);
    let error = profile(&mut bare, &mut *make(), &course, &mut Kept::default())
        .expect_err("no instrument works without evidence");
    assert_eq!(error.kind(), ErrorKind::Missing);
}

fn stops_when_asked(stage: &dyn Stage, make: &dyn Fn() -> Box<dyn Instrument>) {
    let mut machine = busy(stage, vec![(Time(1_000_000_000), Event::Stop)]).0;
    let (ended, kept) = run(&mut *machine, &mut *make(), 5.0);
    assert_eq!(ended, Ended::Stopped);
    assert!(kept.snapshots.iter().all(|snapshot| snapshot.end <= Time(1_000_000_000)));
}
