//! Exact machines for tests, and one that executes the accesses of the conformance suites.

use std::sync::Arc;
use std::time::Duration;

use tierscope_chmu::{Capabilities, Monitors};
use tierscope_conformance::access_bits::Touchable;
use tierscope_conformance::instrument::Stage;
use tierscope_conformance::toy::{Event, Workload};
use tierscope_core::{
    AccessBits, Addr, BusObserver, Clock, Counters, CpuTime, Frames, HotLists, Mappings, Missing,
    Ports, Range, RangeSet, Result, Target, Time, Wake,
};
use tierscope_hw::Machine as Hardware;
use tierscope_nemo::{Driver, Functional, Memory};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Machine, Map, Setup};

/// A Xeon with two tiers of these MiB.
pub(crate) fn setup(mib: [u64; 2]) -> Setup {
    let mut hardware = Hardware::ready_made("xeon-gold-6238m").expect("it is there");
    hardware.tiers.truncate(2);
    hardware.tiers.iter_mut().zip(mib).for_each(|(tier, mib)| tier.mib = mib);
    Setup::new(hardware, Costs::ready_made("linux").expect("they are there"))
}

/// An exact machine whose accesses are given by a function, one by one.
pub(crate) struct Driven<B = ()> {
    machine: Machine<B>,
    workload: Workload,
    events: Vec<(Time, Event)>,
    mapped: RangeSet,
    worked: Time,
}

impl Driven {
    pub(crate) fn new(levels: u8, layout: &[Range], workload: Workload) -> Self {
        Self::observed(levels, layout, workload, ())
    }
}

/// Bytes of either tier.
const TIER: u64 = 1 << 30;

impl<B: BusObserver> Driven<B> {
    /// A machine with a bus observer.
    fn observed(levels: u8, layout: &[Range], workload: Workload, observer: B) -> Self {
        let mut setup = setup([TIER >> 20; 2]);
        setup.hardware.translation.levels = levels;
        if size_of::<B>() > 0 {
            // Cache hits reach no controller, and the cache would hold most of the suites' memory.
            setup.hardware.llc = None;
        }
        let mut driven = Self {
            machine: Machine::observed(&setup, observer).expect("it is possible"),
            workload,
            events: vec![],
            mapped: RangeSet::default(),
            worked: Time(0),
        };
        driven.remap(layout);
        driven
    }

    /// Maps exactly `layout` from now on.
    fn remap(&mut self, layout: &[Range]) {
        let wanted: RangeSet = layout.iter().copied().collect();
        for gone in self.mapped.minus(&wanted).as_slice() {
            self.machine.unmap(*gone).expect("it was mapped");
        }
        for range in wanted.minus(&self.mapped).as_slice() {
            let known = self.machine.mappings(Duration::ZERO).expect("they are known");
            if !known.has_space(range.space) {
                let made = self.machine.spawn("toy", false).expect("there is room");
                assert_eq!(made, range.space, "spaces are made in order");
            }
            let map = Map { at: Some(range.start), ..Map::anonymous(range.bytes()) };
            self.machine.map(range.space, &map).expect("there is room");
            self.machine.populate(*range).expect("there is memory");
        }
        let alive = self.machine.mappings(Duration::ZERO).expect("they are known");
        for space in &alive.spaces {
            if !layout.iter().any(|range| range.space == space.id) {
                self.machine.exit(space.id).expect("it is alive");
            }
        }
        self.mapped = wanted;
    }

    /// Executes the workload until `until`, a millisecond at a time; the core's cached translations
    /// are flushed in between, so that the TLB hides little.
    fn work(&mut self, until: Time) -> Wake {
        while self.worked < until {
            let next = until.min(self.worked + Duration::from_millis(1));
            let alive = self.machine.mappings(Duration::ZERO).expect("they are known");
            alive.spaces.iter().for_each(|space| self.machine.flush(0, space.id));
            let machine = &mut self.machine;
            (self.workload)(self.worked, next, &mut |addr| {
                machine.access(0, addr, false).expect("it is mapped");
            });
            self.worked = next;
        }
        self.machine.wait(until)
    }
}

impl<B: BusObserver + 'static> Driven<B> {
    /// The machine as a suite gets it: the initial layout is not reported as a change.
    fn ready(mut self, events: Vec<(Time, Event)>) -> Box<dyn Ports> {
        self.machine.wait(Time(0));
        self.events = events;
        Box::new(self)
    }
}

impl<B: BusObserver> Clock for Driven<B> {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        let due = self.events.iter().position(|(at, _)| *at <= until);
        let Some(due) = due else {
            return self.work(until);
        };
        let (at, event) = self.events.remove(due);
        self.work(at);
        match event {
            Event::Stop => Wake::Stop,
            Event::Layout(layout) => {
                self.remap(&layout);
                let now = self.now();
                let returns =
                    self.events.iter().any(|(_, event)| matches!(event, Event::Layout(_)));
                match self.machine.wait(now) {
                    Wake::Gone if returns => Wake::TargetChanged,
                    wake => wake,
                }
            }
        }
    }
}

impl<B: BusObserver> Target for Driven<B> {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.machine.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.machine.cpu_time()
    }
}

impl<B: BusObserver> Ports for Driven<B> {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.machine.access_bits()
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        self.machine.counters()
    }

    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        self.machine.hot_lists()
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        self.machine.frames()
    }
}

impl Touchable for Driven {
    fn touch(&mut self, addr: Addr) {
        self.machine.flush(0, addr.space);
        self.machine.access(0, addr, false).expect("it is mapped");
    }
}

/// Exact machines of four levels.
pub(crate) struct Exact;

impl Stage for Exact {
    fn build(
        &self,
        layout: &[Range],
        workload: Workload,
        events: Vec<(Time, Event)>,
    ) -> Box<dyn Ports> {
        Driven::new(4, layout, workload).ready(events)
    }
}

/// Exact machines with eight pipelines in front of all memory.
pub(crate) struct Counted;

impl Stage for Counted {
    fn build(
        &self,
        layout: &[Range],
        workload: Workload,
        events: Vec<(Time, Event)>,
    ) -> Box<dyn Ports> {
        let memory = Memory::single(2 * TIER, 2).expect("it is possible");
        let engine = Functional::new(memory, 8, 64).expect("it is possible");
        Driven::observed(4, layout, workload, Driver::new(engine)).ready(events)
    }
}

/// Exact machines with a monitoring unit in front of all memory.
pub(crate) struct Monitored;

impl Stage for Monitored {
    fn build(
        &self,
        layout: &[Range],
        workload: Workload,
        events: Vec<(Time, Event)>,
    ) -> Box<dyn Ports> {
        let unit = Monitors::new(&Capabilities::default(), &[(0, 2 * TIER)]);
        Driven::observed(4, layout, workload, unit.expect("it is possible")).ready(events)
    }
}
