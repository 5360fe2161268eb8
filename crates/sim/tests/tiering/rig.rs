//! A machine of either mode, and a policy driven on it.

use std::time::Duration;

use tierscope_core::drive::{Course, tier};
use tierscope_core::metrics::moves::Moved;
use tierscope_core::{
    Action, ActionKind, Budget, Instrument, Outcome, PlacementView, Ports, Range, Result, Tier,
    Time,
};
use tierscope_hw::Machine as Hardware;
use tierscope_hw::config::Medium;
use tierscope_instruments::metronome::Metronome;
use tierscope_instruments::registry::{self, Common};
use tierscope_nemo::{Driver, Functional, Memory, Zone};
use tierscope_policies::registry::Need;
use tierscope_policies::{by_name, make};
use tierscope_sim::config::{Costs, Period, Sampling};
use tierscope_sim::density::{self, Config};
use tierscope_sim::exact::{self, Account, Map, Mover, Placement, Process, Setup};
use tierscope_workloads::Workload;
use tierscope_workloads::generate::from_spec;

const MIB: u64 = 1 << 20;

/// Mode of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    Density,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Bytes hot, at the end of 64 MiB.
    pub(crate) hot: u64,
    /// Accesses a second; 0 for as many as possible.
    pub(crate) rate: u64,
    /// MiB of each tier.
    pub(crate) tiers: Vec<u64>,
    pub(crate) seconds: f64,
    pub(crate) placement: Placement,
    /// No memory is accessed.
    pub(crate) idle: bool,
    /// There is no last-level cache.
    pub(crate) uncached: bool,
    /// MiB a second that each tier reads or writes, next to a small last-level cache.
    pub(crate) mib_s: Option<u64>,
    pub(crate) sampled: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            hot: 4 * MIB,
            rate: 100_000,
            tiers: vec![32, 128],
            seconds: 7.0,
            placement: Placement::Bind(Tier(1)),
            idle: false,
            uncached: false,
            mib_s: None,
            sampled: true,
        }
    }
}

impl Case {
    fn workload(&self) -> Workload {
        let at = 64 * MIB - self.hot;
        let rate = if self.rate > 0 { format!(",rate={}", self.rate) } else { String::new() };
        from_spec(&format!("contiguous:space=64MiB,hot={}B,at={at}B{rate}", self.hot))
            .expect("it is one")
    }

    fn hardware(&self) -> Hardware {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").expect("it is there");
        let slow = hardware.tiers[1].clone();
        hardware.tiers.resize(self.tiers.len(), slow);
        hardware.tiers.iter_mut().zip(&self.tiers).for_each(|(tier, mib)| tier.mib = *mib);
        for (tier, mib_s) in hardware.tiers.iter_mut().zip(self.mib_s.into_iter().cycle()) {
            (tier.read_mib_s, tier.write_mib_s) = (mib_s, mib_s);
            // As slow as a line alone of such a tier.
            (tier.read_ns, tier.write_ns) = (6 * tier.read_ns, 6 * tier.read_ns);
            tier.medium = Medium { channels: 1, ..Medium::plain() };
            tier.ranges.clear();
        }
        if let (Some(llc), Some(_)) = (&mut hardware.llc, self.mib_s) {
            llc.slices = 1;
        }
        if self.uncached {
            hardware.llc = None;
        }
        hardware
    }

    fn sampling(&self) -> Option<Sampling> {
        self.sampled.then(|| Sampling::loads_and_stores(Period::Every(199)))
    }
}

pub(crate) enum Machine {
    Exact(Box<exact::Machine<Driver<Functional>>>),
    Density(Box<density::Machine>),
}

/// A flush every 5 ms, since the hot set fits the TLB.
const FLUSH: Option<Duration> = Some(Duration::from_millis(5));

/// Eight pipelines in front of each range of physical memory.
fn controllers(memory: &[(u64, u64)]) -> Driver<Functional> {
    let zone = |(first, (start, end)): (usize, &(u64, u64))| Zone {
        start: *start,
        end: *end,
        first,
        controllers: 1,
        granule: 4096,
    };
    let memory = Memory::new(memory.iter().enumerate().map(zone).collect(), 2).expect("it is one");
    Driver::new(Functional::new(memory, 8, 64).expect("they are possible"))
}

pub(crate) fn machine(mode: Mode, case: &Case) -> Machine {
    let costs = Costs::ready_made("linux").expect("they are there");
    let workload = case.workload();
    match mode {
        Mode::Exact => {
            let setup = Setup {
                flush: FLUSH,
                sampling: case.sampling(),
                ..Setup::new(case.hardware(), costs)
            };
            let mut machine = exact::Machine::observed(&setup, controllers(&setup.physical()))
                .expect("it fits together");
            if case.idle {
                let space = machine.spawn("idle", false).expect("there is room");
                let placement = case.placement.clone();
                let map = Map { placement, ..Map::anonymous(workload.areas[0].bytes) };
                let range = machine.map(space, &map).expect("there is room");
                machine.populate(range).expect("there is memory");
            } else {
                let placement = case.placement.clone();
                let process = Process { populate: true, placement, ..Process::new(workload) };
                machine.start(&process).expect("it fits");
            }
            Machine::Exact(Box::new(machine))
        }
        Mode::Density => {
            let config = Config {
                flush: FLUSH,
                sampling: case.sampling(),
                placement: case.placement.clone(),
                ..Config::of(&case.hardware(), costs)
            };
            let mut workload = workload;
            if case.idle {
                workload.phases.iter_mut().for_each(|phase| phase.rate = None);
            }
            let rate = case.idle.then_some(1e-20);
            let config = Config { rate, ..config };
            let machine = density::Machine::new(config, &workload).expect("it fits");
            let driver = controllers(&machine.physical());
            let machine = machine.with_telemetry(Box::new(driver)).expect("it counts");
            Machine::Density(Box::new(machine))
        }
    }
}

impl Machine {
    pub(crate) fn ports(&mut self) -> &mut dyn Ports {
        match self {
            Machine::Exact(machine) => &mut **machine,
            Machine::Density(machine) => &mut **machine,
        }
    }

    fn mover(&self) -> Mover {
        match self {
            Machine::Exact(machine) => machine.mover(),
            Machine::Density(machine) => machine.mover(),
        }
    }

    fn account(&mut self) -> Account {
        match self {
            Machine::Exact(machine) => machine.account(),
            Machine::Density(machine) => machine.account(),
        }
    }
}

/// Results of a policy's run.
pub(crate) struct Ran {
    machine: Machine,
    pub(crate) actions: Vec<Action>,
    outcomes: Vec<Outcome>,
    pub(crate) account: Account,
    hot: u64,
}

impl Ran {
    pub(crate) fn mapped(&mut self) -> Range {
        let mappings = self.machine.ports().mappings(Duration::ZERO).expect("they are known");
        mappings.mappings[0].range
    }

    pub(crate) fn hot(&mut self) -> Range {
        let mapped = self.mapped();
        Range { start: mapped.end - self.hot, ..mapped }
    }

    pub(crate) fn placement(&mut self) -> &dyn PlacementView {
        self.machine.ports().placement().expect("it is simulated")
    }

    pub(crate) fn moved(&self) -> Moved {
        match &self.machine {
            Machine::Exact(machine) => machine.moved(),
            Machine::Density(machine) => machine.moved(),
        }
    }

    /// Bytes moved, according to the mover's outcomes.
    pub(crate) fn done(&self) -> u64 {
        let moved = |outcome: &&Outcome| {
            let action = self.actions.iter().find(|action| action.id == outcome.id);
            action.is_some_and(|action| matches!(action.kind, ActionKind::Move(_)))
        };
        self.outcomes.iter().filter(moved).map(|outcome| outcome.done).sum()
    }
}

/// Logs the actions submitted to a mover, and their outcomes.
struct Logged {
    inner: Mover,
    actions: Vec<Action>,
    outcomes: Vec<Outcome>,
}

impl tierscope_core::Mover for Logged {
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()> {
        self.actions.extend_from_slice(actions);
        self.inner.submit(actions, budget)
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        let before = out.len();
        self.inner.poll(out)?;
        self.outcomes.extend_from_slice(&out[before..]);
        Ok(())
    }
}

/// The instrument that feeds a policy: a plain clock unless the policy needs regions.
fn instrument(line: &str) -> Box<dyn Instrument> {
    let name = line.split_once(':').map_or(line, |(name, _)| name);
    let entry = by_name(name).expect("it is registered");
    if entry.needs.contains(&Need::Regions) {
        return registry::make("rates", None, &Common::default()).expect("it is");
    }
    Box::new(Metronome::new(Duration::from_millis(200)))
}

/// Runs a policy for the case's simulated seconds.
pub(crate) fn run(line: &str, mode: Mode, case: &Case) -> Ran {
    // Cache hits reach no controller, and the last-level cache would hold the whole hot set.
    let uncached = case.uncached || line.contains("-nemo");
    let case = &Case { uncached, ..case.clone() };
    let mut machine = machine(mode, case);
    let mut mover = Logged { inner: machine.mover(), actions: Vec::new(), outcomes: Vec::new() };
    let mut policy = make(line).expect("it can be made");
    let course = Course::until(Time(0) + Duration::from_secs_f64(case.seconds));
    let budget = Budget { bytes: u64::MAX };
    let (ports, mut instrument) = (machine.ports(), instrument(line));
    tier(ports, &mut *instrument, &mut *policy, &mut mover, budget, &course, &mut ())
        .unwrap_or_else(|error| panic!("{line}, {mode:?}: {error}"));
    // Actions in progress end.
    machine.ports().wait(course.until + Duration::from_secs(1));
    tierscope_core::Mover::poll(&mut mover, &mut Vec::new()).expect("it is simulated");
    let account = machine.account();
    let Logged { actions, outcomes, .. } = mover;
    Ran { machine, actions, outcomes, account, hot: case.hot }
}
