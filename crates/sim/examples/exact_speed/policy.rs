//! Cost of an instrument and a policy, relative to the time of the simulation.
//!
//! The instrument is `rates`. The policy is the simplest that moves pages: memory that was hot in
//! the last window goes to the fastest tier, within a budget for each window.

use std::time::Duration;

use tierscope_core::drive::{Course, tier};
use tierscope_core::metrics::{HOT_FREQUENCY, hot};
use tierscope_core::{
    Action, ActionId, ActionKind, Budget, Clock, Evidence, Orders, PlacementView, Policy, Range,
    RangeSet, Result, Setting, Tier, Time,
};
use tierscope_instruments::registry::{Common, make};
use tierscope_sim::exact::{Machine, Placement, Process};
use tierscope_workloads::Workload;

use crate::measure::{Layer, cpu_time, setup};

/// Simulated time of the comparison, and of its steps, after which the machines alternate.
const SPAN: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(200);
/// The size of the fast tier, and the bytes that may be moved in a window.
const FAST_MIB: u64 = 32 << 10;
const BUDGET: Budget = Budget { bytes: 256 << 20 };

/// Moves hot memory to the fastest tier, each page once.
#[derive(Default)]
struct Promote {
    hot: RangeSet,
    ordered: RangeSet,
    issued: u64,
}

impl Policy for Promote {
    fn name(&self) -> &'static str {
        "promote"
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn observe(&mut self, evidence: Evidence<'_>, _: &mut Orders) {
        if let Evidence::Regions(snapshot) = evidence {
            self.hot = hot(snapshot, HOT_FREQUENCY);
        }
    }

    fn tick(&mut self, now: Time, _: &dyn PlacementView, orders: &mut Orders) -> Time {
        let mut left = BUDGET.bytes;
        for range in self.hot.minus(&self.ordered).as_slice() {
            let end = range.end.min(range.start + left);
            let range = Range { end, ..*range };
            left -= range.bytes();
            if !range.is_empty() {
                let (id, kind) = (ActionId(self.issued), ActionKind::Move(Tier(0)));
                orders.actions.push(Action { id, after: None, range, kind });
                self.issued += 1;
            }
        }
        let ordered = orders.actions.iter().map(|action| action.range);
        self.ordered = self.ordered.as_slice().iter().copied().chain(ordered).collect();
        now + STEP
    }
}

/// A machine with the workload in its slow tier.
fn machine(workload: &Workload, bytes: u64) -> Result<Machine> {
    let mut setup = setup(bytes, Layer::Whole)?;
    setup.hardware.tiers[1].mib = setup.hardware.tiers[0].mib;
    setup.hardware.tiers[0].mib = FAST_MIB;
    let mut machine = Machine::new(&setup)?;
    let placement = Placement::Bind(Tier(1));
    let process = Process { populate: true, placement, ..Process::new(workload.clone()) };
    machine.start(&process)?;
    Ok(machine)
}

/// Additional host CPU time for an access due to telemetry and policy, in percent.
pub(crate) fn overhead(workload: &Workload, bytes: u64) -> Result<f64> {
    let (mut plain, mut tiered) = (machine(workload, bytes)?, machine(workload, bytes)?);
    let mut rates = make("rates", None, &Common::default())?;
    let (mut policy, mut mover) = (Promote::default(), tiered.mover());
    let mut spent = [Duration::ZERO; 2];
    let mut until = Time(0);
    while until < Time(0) + SPAN {
        until += STEP;
        let began = cpu_time();
        while plain.now() < until {
            plain.wait(until);
        }
        let between = cpu_time();
        let course = Course::until(until);
        tier(&mut tiered, &mut *rates, &mut policy, &mut mover, BUDGET, &course, &mut ())?;
        spent[0] += between - began;
        spent[1] += cpu_time() - between;
    }
    let each = |machine: &Machine, time: Duration| {
        time.as_secs_f64() / machine.account().counts.accesses as f64
    };
    Ok((each(&tiered, spent[1]) / each(&plain, spent[0]) - 1.0) * 100.0)
}
