//! A source's snapshots are passed on unchanged, soon, and completely.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tierscope_conformance::instrument::Kept;
use tierscope_conformance::toy::{Event, Toy, idle};
use tierscope_core::drive::{Course, Ended, profile};
use tierscope_core::{
    Clock, CpuTime, Error, ErrorKind, Instrument, Mappings, Missing, Ports, Range, Region, Result,
    Snapshot, SpaceId, Target, Time, Wake,
};
use tierscope_instruments::region_source::RegionSource;

const MS: u64 = 1_000_000;

/// A machine with a region source that plays back given windows.
struct Machine {
    toy: Toy,
    told: Script,
}

struct Script {
    now: Time,
    windows: VecDeque<Snapshot>,
    fails: bool,
}

impl tierscope_core::RegionSource for Script {
    fn next(&mut self) -> Result<Option<Snapshot>> {
        if self.fails {
            return Err(Error::new(ErrorKind::Gone, "the source has stopped"));
        }
        let ended = self.windows.front().is_some_and(|window| window.end <= self.now);
        Ok(if ended { self.windows.pop_front() } else { None })
    }
}

impl Clock for Machine {
    fn now(&self) -> Time {
        self.toy.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        let wake = self.toy.wait(until);
        self.told.now = self.toy.now();
        wake
    }
}

impl Target for Machine {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.toy.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.toy.cpu_time()
    }
}

impl Ports for Machine {
    fn region_source(&mut self) -> Result<&mut dyn tierscope_core::RegionSource, Missing> {
        Ok(&mut self.told)
    }
}

fn window(start: u64, end: u64) -> Snapshot {
    let region = |from: u64, hits: f32| Region {
        age: 1,
        ..Region::sampled(Range::new(SpaceId(0), from, from + 4096), hits, 40)
    };
    let (start, end) = (Time(start * MS), Time(end * MS));
    Snapshot { start, end, samples: 40, regions: vec![region(0, 3.0), region(4096, 0.0)] }
}

fn machine(windows: Vec<Snapshot>) -> Machine {
    let toy = Toy::new(&[Range::new(SpaceId(0), 0, 1 << 20)], idle());
    Machine { toy, told: Script { now: Time(0), windows: windows.into(), fails: false } }
}

fn instrument() -> RegionSource {
    RegionSource::new("kernel-damon", Vec::new())
}

fn run(machine: &mut Machine, seconds: u64) -> (Result<Ended>, Kept) {
    let mut kept = Kept::default();
    let course = Course::until(Time(seconds * 1000 * MS));
    (profile(machine, &mut instrument(), &course, &mut kept), kept)
}

#[test]
fn windows_come_out_as_they_are() {
    let windows = vec![window(0, 200), window(200, 400), window(900, 1100)];
    let (ended, kept) = run(&mut machine(windows.clone()), 2);
    assert_eq!((ended, kept.snapshots), (Ok(Ended::Deadline), windows));
}

#[test]
fn a_window_is_known_within_a_poll_of_its_end() {
    let mut machine = machine(vec![window(0, 210), window(210, 215)]);
    let mut instrument = instrument();
    let mut seen = Vec::new();
    while machine.now() < Time(400 * MS) {
        let step = instrument.step(&mut machine).unwrap();
        seen.extend(step.snapshot.map(|window| (machine.now().0 / MS, window.end.0 / MS)));
        machine.wait(step.wake);
    }
    assert_eq!(seen, [(250, 210), (250, 215)], "both at once, at the next multiple of 50 ms");
}

#[test]
fn a_machine_without_a_source_is_an_error() {
    let mut toy = Toy::new(&[Range::new(SpaceId(0), 0, 1 << 20)], idle());
    let error = instrument().step(&mut toy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
}

#[test]
fn a_failing_source_ends_the_run_and_keeps_earlier_windows() {
    let mut machine = machine(vec![window(0, 200)]);
    assert_eq!(run(&mut machine, 1).1.snapshots.len(), 1);
    machine.told.fails = true;
    assert_eq!(run(&mut machine, 2).0.unwrap_err().kind(), ErrorKind::Gone);
}

#[test]
fn stops_on_request() {
    let mut machine = machine(vec![window(0, 200), window(200, 400)]);
    machine.toy = machine.toy.with_event(Time(300 * MS), Event::Stop);
    let (ended, kept) = run(&mut machine, 5);
    assert_eq!((ended, kept.snapshots.len()), (Ok(Ended::Stopped), 1));
}
