//! The drive loops: the only places where time passes.
//!
//! [`profile`] steps an instrument and pushes its windows into a [`Sink`]. [`tier`] also feeds a
//! policy and relays its orders to the ports and the mover. [`cap`] lets a policy limit tenants.

mod cap;

use std::sync::Arc;
use std::time::Duration;

pub use cap::{Epoch, cap};

use crate::{
    AccessedSet, Action, Budget, Clock, CpuTime, Error, ErrorKind, Evidence, Instrument, Mappings,
    Mover, Orders, Outcome, Policy, Ports, Reads, Residence, Result, RuleId, RuleOrder, ScanOrder,
    Snapshot, Time, Wake, footprint,
};

/// Everything that belongs to one window, committed as a whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Regions of the window.
    pub snapshot: &'a Snapshot,
    /// Spaces and mappings, if they changed since the last window.
    pub mappings: Option<&'a Mappings>,
    /// Actions issued during the window.
    pub actions: &'a [Action],
    /// Actions ended during the window.
    pub outcomes: &'a [Outcome],
    /// CPU time at the end of the window, since the machine was opened.
    pub cpu: CpuTime,
    /// Resident memory of the target, where the machine reports it.
    pub residence: Option<&'a Residence>,
    /// ACCESSED bits that other sessions cleared so far ([`AccessBits::cleared_by_others`]).
    ///
    /// [`AccessBits::cleared_by_others`]: crate::AccessBits::cleared_by_others
    pub cleared_by_others: u64,
    /// Other readers of ACCESSED bits that have run so far ([`AccessBits::other_readers`]).
    ///
    /// [`AccessBits::other_readers`]: crate::AccessBits::other_readers
    pub other_readers: &'a [&'static str],
    /// How often a hot list was found to have lost entries so far ([`HotLists::overflows`]).
    ///
    /// [`HotLists::overflows`]: crate::HotLists::overflows
    pub hot_list_overflows: u64,
}

impl<'a> Window<'a> {
    /// A window of regions and nothing else.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let (mappings, residence, cpu) = (None, None, CpuTime::default());
        let (actions, outcomes) = (&[][..], &[][..]);
        let (cleared_by_others, other_readers) = (0, &[][..]);
        Self {
            snapshot,
            mappings,
            actions,
            outcomes,
            cpu,
            residence,
            cleared_by_others,
            other_readers,
            hot_list_overflows: 0,
        }
    }
}

/// Consumer of windows: a recording, a live view, a test.
pub trait Sink {
    /// Takes a window.
    ///
    /// # Errors
    /// If the window cannot be stored; the drive loop then ends with this error.
    fn window(&mut self, window: &Window<'_>) -> Result<()>;
}

/// Discards all windows.
impl Sink for () {
    fn window(&mut self, _: &Window<'_>) -> Result<()> {
        Ok(())
    }
}

/// Why a drive loop ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The requested time is over.
    Deadline,
    /// The user requested a stop.
    Stopped,
    /// The target is gone.
    TargetGone,
}

impl Ended {
    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Ended::Deadline => "deadline",
            Ended::Stopped => "stopped",
            Ended::TargetGone => "target-gone",
        }
    }
}

/// Duration of a drive loop, and the age limit of its mappings.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// When to end; [`Time::NEVER`] to run until stopped or until the target is gone.
    pub until: Time,
    /// Age at which mappings are read again.
    pub mappings_age: Duration,
}

impl Course {
    /// Runs until `until`, with mappings at most a second old.
    #[must_use]
    pub fn until(until: Time) -> Self {
        Self { until, mappings_age: Duration::from_secs(1) }
    }
}

/// Steps `instrument` on the machine behind `ports` and pushes each window into `sink`.
///
/// # Errors
/// The first error of the instrument or the sink. Windows committed earlier stay committed.
pub fn profile(
    ports: &mut dyn Ports,
    instrument: &mut dyn Instrument,
    course: &Course,
    sink: &mut dyn Sink,
) -> Result<Ended> {
    let mut watch = MappingWatch::new(course.mappings_age);
    loop {
        let mut step = instrument.step(ports)?;
        let measured = fit(ports, course, &mut step.snapshot)?;
        if let Some(snapshot) = &step.snapshot {
            commit(ports, &mut watch, (snapshot, measured), (&[], &[]), sink)?;
        }
        if let Some(ended) = pass_time(ports, step.wake, course.until) {
            return Ok(ended);
        }
    }
}

/// Like [`profile`]; also feeds every snapshot to `policy`, relays its orders to the ports and to
/// `mover`, and records actions and outcomes.
///
/// # Errors
/// Same as [`profile`], or the first error of the mover or of a port that the policy's orders use.
pub fn tier(
    ports: &mut dyn Ports,
    instrument: &mut dyn Instrument,
    policy: &mut dyn Policy,
    mover: &mut dyn Mover,
    budget: Budget,
    course: &Course,
    sink: &mut dyn Sink,
) -> Result<Ended> {
    let mut watch = MappingWatch::new(course.mappings_age);
    let mut relay = Relay::new(budget, course.mappings_age);
    let mut next_tick = ports.now();
    loop {
        let mut step = instrument.step(ports)?;
        let measured = fit(ports, course, &mut step.snapshot)?;
        if let Some(snapshot) = &step.snapshot {
            policy.observe(Evidence::Regions(snapshot), &mut relay.orders);
        }
        relay.gather(ports, instrument.reads(), policy, mover)?;
        if ports.now() >= next_tick {
            let now = ports.now();
            next_tick = policy.tick(now, ports.placement()?, &mut relay.orders);
        }
        relay.carry_out(ports, policy, mover)?;
        if let Some(snapshot) = &step.snapshot {
            let answers = (&*relay.issued, &*relay.ended);
            commit(ports, &mut watch, (snapshot, measured), answers, sink)?;
            relay.issued.clear();
            relay.ended.clear();
        }
        if let Some(ended) = pass_time(ports, step.wake.min(next_tick), course.until) {
            return Ok(ended);
        }
    }
}

/// Waits for `wake`, at most until `until`; returns the reason if the loop has to end.
fn pass_time(clock: &mut dyn Clock, wake: Time, until: Time) -> Option<Ended> {
    if clock.now() >= until {
        return Some(Ended::Deadline);
    }
    match clock.wait(wake.min(until)) {
        Wake::Stop => Some(Ended::Stopped),
        Wake::Gone => Some(Ended::TargetGone),
        Wake::Deadline if wake > until => Some(Ended::Deadline),
        Wake::Deadline | Wake::Event | Wake::TargetChanged => None,
    }
}

/// Narrows a new window's regions to resident memory, before policies and recordings see them, if
/// the machine knows it; returns the measurement used.
fn fit(
    ports: &mut dyn Ports,
    course: &Course,
    snapshot: &mut Option<Snapshot>,
) -> Result<Option<Arc<Residence>>> {
    let Some(snapshot) = snapshot else { return Ok(None) };
    // First the mappings: the residence is that of the latest ones.
    let mappings = ports.mappings(course.mappings_age)?;
    let Ok(residence) = ports.residence() else { return Ok(None) };
    if residence.spaces.iter().all(|of| of.extents.is_none()) {
        return Ok(None);
    }
    footprint::fit(snapshot, &mappings, &residence);
    Ok(Some(residence))
}

fn commit(
    ports: &mut dyn Ports,
    watch: &mut MappingWatch,
    (snapshot, measured): (&Snapshot, Option<Arc<Residence>>),
    (actions, outcomes): (&[Action], &[Outcome]),
    sink: &mut dyn Sink,
) -> Result<()> {
    let changed = watch.changed(ports)?;
    let cpu = ports.cpu_time();
    // Residence is optional: a machine without that port is recorded without it.
    let residence = measured.or_else(|| ports.residence().ok());
    let (mappings, residence) = (changed.as_deref(), residence.as_deref());
    let hot_list_overflows = ports.hot_lists().map_or(0, |lists| lists.overflows());
    let (cleared_by_others, other_readers) = match ports.access_bits() {
        Ok(bits) => (bits.cleared_by_others(), bits.other_readers()),
        Err(_) => (0, &[][..]),
    };
    let of =
        Window { cleared_by_others, other_readers, hot_list_overflows, ..Window::of(snapshot) };
    sink.window(&Window { mappings, actions, outcomes, cpu, residence, ..of })
}

/// Detects mappings that changed since they were last committed.
struct MappingWatch {
    max_age: Duration,
    last: Option<Arc<Mappings>>,
}

impl MappingWatch {
    fn new(max_age: Duration) -> Self {
        Self { max_age, last: None }
    }

    fn changed(&mut self, ports: &mut dyn Ports) -> Result<Option<Arc<Mappings>>> {
        let now = ports.mappings(self.max_age)?;
        let same = |last: &Arc<Mappings>| Arc::ptr_eq(last, &now) || last.same_layout(&now);
        let same = self.last.as_ref().is_some_and(same);
        if same {
            return Ok(None);
        }
        self.last = Some(Arc::clone(&now));
        Ok(Some(now))
    }
}

/// Relays orders to the ports and the mover, and their answers to the policy.
struct Relay {
    budget: Budget,
    mappings: MappingWatch,
    orders: Orders,
    spare: Orders,
    /// Answer to the last scan, kept to reuse its buffers.
    scanned: AccessedSet,
    issued: Vec<Action>,
    ended: Vec<Outcome>,
}

/// Rounds of orders and answers per step. A policy that answers every answer with new orders would
/// otherwise keep time from passing; the rest waits for the next step.
const ROUNDS: usize = 8;

impl Relay {
    fn new(budget: Budget, mappings_age: Duration) -> Self {
        Self {
            budget,
            mappings: MappingWatch::new(mappings_age),
            orders: Orders::default(),
            spare: Orders::default(),
            scanned: AccessedSet::default(),
            issued: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Feeds the policy evidence from the optional ports and the mover, except from ports that the
    /// instrument drains itself (`reads`).
    fn gather(
        &mut self,
        ports: &mut dyn Ports,
        reads: Reads,
        policy: &mut dyn Policy,
        mover: &mut dyn Mover,
    ) -> Result<()> {
        let orders = &mut self.orders;
        if let Some(mappings) = self.mappings.changed(ports)? {
            policy.observe(Evidence::Mappings(&mappings), orders);
        }
        // Pressure first: a policy that promotes on the following evidence needs to know the free
        // memory.
        if let Ok(pressure) = ports.pressure() {
            policy.observe(Evidence::Pressure(&pressure), orders);
        }
        if !reads.samples
            && let Ok(port) = ports.samples()
        {
            let mut samples = Vec::new();
            port.drain(&mut samples);
            observe_some(policy, Evidence::Samples(&samples), samples.len(), orders);
        }
        if !reads.faults
            && let Ok(port) = ports.hint_faults()
        {
            let mut faults = Vec::new();
            port.drain(&mut faults);
            observe_some(policy, Evidence::Faults(&faults), faults.len(), orders);
        }
        if let Ok(port) = ports.page_events() {
            let mut events = Vec::new();
            port.drain(&mut events);
            observe_some(policy, Evidence::PageEvents(&events), events.len(), orders);
        }
        let seen = self.ended.len();
        mover.poll(&mut self.ended)?;
        let ended = &self.ended[seen..];
        observe_some(policy, Evidence::Outcomes(ended), ended.len(), orders);
        Ok(())
    }

    /// Relays orders until the policy issues no more, for at most [`ROUNDS`] rounds.
    fn carry_out(
        &mut self,
        ports: &mut dyn Ports,
        policy: &mut dyn Policy,
        mover: &mut dyn Mover,
    ) -> Result<()> {
        for _ in 0..ROUNDS {
            if self.orders == Orders::default() {
                break;
            }
            std::mem::swap(&mut self.orders, &mut self.spare);
            self.orders.clear();
            self.relay_once(ports, policy, mover)?;
        }
        Ok(())
    }

    fn relay_once(
        &mut self,
        ports: &mut dyn Ports,
        policy: &mut dyn Policy,
        mover: &mut dyn Mover,
    ) -> Result<()> {
        let given = &mut self.spare;
        ports.charge(given.work);
        if !given.arm.is_empty() {
            ports.hint_faults()?.arm(&given.arm)?;
        }
        for rule in &given.rules {
            relay_rule(ports, policy, rule, &mut self.orders)?;
        }
        if !given.probes.is_empty() {
            ports.access_bits()?.probe(&mut given.probes)?;
            policy.observe(Evidence::Bits(&given.probes), &mut self.orders);
        }
        for part in given.scans.iter().flat_map(|scan| scan.parts()) {
            relay_scan(ports, policy, &part, &mut self.scanned, &mut self.orders)?;
        }
        if !given.actions.is_empty() {
            mover.submit(&given.actions, self.budget)?;
            self.issued.extend_from_slice(&given.actions);
        }
        Ok(())
    }
}

fn observe_some(
    policy: &mut dyn Policy,
    evidence: Evidence<'_>,
    count: usize,
    orders: &mut Orders,
) {
    if count > 0 {
        policy.observe(evidence, orders);
    }
}

fn relay_scan(
    ports: &mut dyn Ports,
    policy: &mut dyn Policy,
    order: &ScanOrder,
    set: &mut AccessedSet,
    orders: &mut Orders,
) -> Result<()> {
    let stats = ports.access_bits()?.scan(&order.range, order.level, order.mode, set)?;
    policy.observe(Evidence::Scanned(set, &stats), orders);
    Ok(())
}

fn relay_rule(
    ports: &mut dyn Ports,
    policy: &mut dyn Policy,
    order: &RuleOrder,
    orders: &mut Orders,
) -> Result<()> {
    let counters = ports.counters()?;
    match *order {
        RuleOrder::Register(rule, states) => {
            let id = match states {
                Some(states) => counters.register_states(&rule, states)?,
                None => counters.register(&rule)?,
            };
            policy.observe(Evidence::Counters(id, &[]), orders);
        }
        RuleOrder::Translate(id, key, index) => counters.translate(id, key, index)?,
        RuleOrder::Read(id, count) => {
            let states = read_states(counters, id, count)?;
            policy.observe(Evidence::Counters(id, &states), orders);
        }
    }
    Ok(())
}

fn read_states(counters: &mut dyn crate::Counters, id: RuleId, count: u32) -> Result<Vec<u64>> {
    let count = usize::try_from(count).map_err(|_| {
        Error::new(ErrorKind::Usage, format!("cannot read {count} telemetry states at once"))
    })?;
    let mut states = vec![0; count];
    counters.read(id, &mut states)?;
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AccessBits, AccessedSet, ActionId, ActionKind, Addr, Backing, Extent, Level, Lost, Mapping,
        Missing, PAGE_SIZE, PageId, PlacementView, Probe, Radix, Range, Sample, Samples, ScanMode,
        ScanStats, Setting, SpaceId, SpaceResidence, State, Step, Target, Tier, TierUse,
    };

    /// A machine whose entries are all young and whose target exits at a set time.
    #[derive(Default)]
    struct Toy {
        now: Time,
        dies: Option<Time>,
        drained: u32,
        mappings: Arc<Mappings>,
        residence: Option<Arc<Residence>>,
    }

    impl Clock for Toy {
        fn now(&self) -> Time {
            self.now
        }

        fn wait(&mut self, until: Time) -> Wake {
            self.now = self.now.max(until);
            match self.dies {
                Some(dies) if self.now >= dies => Wake::Gone,
                _ => Wake::Deadline,
            }
        }
    }

    impl Target for Toy {
        fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
            Ok(Arc::clone(&self.mappings))
        }

        fn cpu_time(&self) -> CpuTime {
            CpuTime::default()
        }
    }

    impl AccessBits for Toy {
        fn radix(&self) -> Radix {
            Radix::X86_64
        }

        fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
            probes.iter_mut().for_each(|probe| probe.answer.state = State::Young);
            Ok(())
        }

        fn scan(
            &mut self,
            range: &Range,
            level: Level,
            mode: ScanMode,
            set: &mut AccessedSet,
        ) -> Result<ScanStats> {
            set.reset(range, level, mode.present);
            Ok(ScanStats::default())
        }
    }

    impl PlacementView for Toy {
        fn tiers(&self) -> &[TierUse] {
            &[]
        }

        fn tier_of(&self, _: PageId) -> Option<Tier> {
            None
        }

        fn page_at(&self, _: &Range) -> Option<PageId> {
            None
        }

        fn range_of(&self, _: PageId) -> Option<Range> {
            None
        }

        fn resident(&self, _: &Range, _: Tier) -> u64 {
            0
        }
    }

    impl Samples for Toy {
        fn drain(&mut self, _: &mut Vec<Sample>) -> Lost {
            self.drained += 1;
            Lost(0)
        }
    }

    impl Ports for Toy {
        fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
            Ok(self)
        }

        fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
            Ok(self)
        }

        fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
            Ok(self)
        }

        fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
            self.residence.clone().ok_or(Missing::on_this_machine("residence"))
        }
    }

    /// Ends a window every 10 ns.
    #[derive(Default)]
    struct Metronome {
        reads: Reads,
    }

    impl Instrument for Metronome {
        fn name(&self) -> &'static str {
            "metronome"
        }

        fn settings(&self) -> Vec<Setting> {
            Vec::new()
        }

        fn reads(&self) -> Reads {
            self.reads
        }

        fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
            let now = ports.now();
            let snapshot = Snapshot { end: now, ..Default::default() };
            Ok(Step { wake: now + Duration::from_nanos(10), snapshot: Some(snapshot) })
        }
    }

    #[derive(Default)]
    struct KeptWindows {
        ends: Vec<u64>,
        regions: Vec<Range>,
        with_mappings: usize,
        actions: Vec<ActionId>,
        outcomes: Vec<ActionId>,
    }

    impl Sink for KeptWindows {
        fn window(&mut self, window: &Window<'_>) -> Result<()> {
            self.ends.push(window.snapshot.end.0);
            self.regions.extend(window.snapshot.regions.iter().map(|region| region.range));
            self.with_mappings += usize::from(window.mappings.is_some());
            self.actions.extend(window.actions.iter().map(|a| a.id));
            self.outcomes.extend(window.outcomes.iter().map(|o| o.id));
            Ok(())
        }
    }

    #[test]
    fn profiles_until_the_deadline_and_commits_mappings_once() {
        let mut kept = KeptWindows::default();
        let course = Course::until(Time(35));
        let ended = profile(&mut Toy::default(), &mut Metronome::default(), &course, &mut kept);
        assert_eq!(ended, Ok(Ended::Deadline));
        assert_eq!(kept.ends, [0, 10, 20, 30]);
        assert_eq!(kept.with_mappings, 1);
    }

    #[test]
    fn ends_when_the_target_does() {
        let mut toy = Toy { dies: Some(Time(20)), ..Default::default() };
        let course = Course::until(Time::NEVER);
        let ended =
            profile(&mut toy, &mut Metronome::default(), &course, &mut KeptWindows::default());
        assert_eq!(ended, Ok(Ended::TargetGone));
    }

    /// Probes a page each tick; moves it once it is seen young.
    #[derive(Default)]
    struct MovesYoungPages {
        moved: u64,
        regions: Vec<Range>,
    }

    impl Policy for MovesYoungPages {
        fn name(&self) -> &'static str {
            "eager"
        }

        fn settings(&self) -> Vec<Setting> {
            Vec::new()
        }

        fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
            if let Evidence::Regions(snapshot) = evidence {
                self.regions.extend(snapshot.regions.iter().map(|region| region.range));
            }
            if let Evidence::Bits(probes) = evidence {
                for probe in probes.iter().filter(|p| p.is_young()) {
                    let range = probe.level.entry_of(probe.at);
                    let id = ActionId(self.moved);
                    let kind = ActionKind::Move(Tier(0));
                    orders.actions.push(Action { id, after: None, range, kind });
                    self.moved += 1;
                }
            }
        }

        fn tick(&mut self, now: Time, _: &dyn PlacementView, orders: &mut Orders) -> Time {
            let at = Addr { space: SpaceId(0), at: 0 };
            orders.probes.push(Probe::test_and_clear(at, Level::PTE));
            now + Duration::from_nanos(20)
        }
    }

    /// A mover that completes every action at once and reports it at the next poll.
    #[derive(Default)]
    struct InstantMover(Vec<Outcome>);

    impl Mover for InstantMover {
        fn submit(&mut self, actions: &[Action], _: Budget) -> Result<()> {
            self.0.extend(actions.iter().map(|a| Outcome {
                id: a.id,
                time: Time(0),
                done: a.range.bytes(),
                failed: 0,
                why: None,
            }));
            Ok(())
        }

        fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
            out.append(&mut self.0);
            Ok(())
        }
    }

    // Ticks at 0, 20, 40: three probes, three moves. Each outcome arrives one step after its
    // action.
    #[test]
    fn relays_orders_and_their_answers() {
        let mut kept = KeptWindows::default();
        let ended = tier(
            &mut Toy::default(),
            &mut Metronome::default(),
            &mut MovesYoungPages::default(),
            &mut InstantMover::default(),
            Budget { bytes: u64::MAX },
            &Course::until(Time(50)),
            &mut kept,
        );
        assert_eq!(ended, Ok(Ended::Deadline));
        assert_eq!(kept.actions, [ActionId(0), ActionId(1), ActionId(2)]);
        assert_eq!(kept.outcomes, kept.actions);
    }

    // 8 pages are mapped, of which 2 to 4 are resident: the metronome lists no region, so that they
    // are one that was not probed.
    #[test]
    fn policies_and_sinks_see_resident_memory() {
        let pages = |start, end| Range::new(SpaceId(0), start * PAGE_SIZE, end * PAGE_SIZE);
        let (range, resident) = (pages(2, 4), 2 * PAGE_SIZE);
        let extents = Some([Extent { range, resident, swapped: 0 }].into());
        let (space, taken) = (SpaceId(0), Time(0));
        let of = SpaceResidence { space, taken, bytes: resident, extents, placed: None };
        let residence = Residence { spaces: vec![of], ..Residence::default() };
        let mapping = Mapping {
            range: pages(0, 8),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        };
        let mappings = Mappings { mappings: vec![mapping], ..Mappings::default() };
        let (mappings, residence) = (Arc::new(mappings), Some(Arc::new(residence)));
        let mut toy = Toy { mappings, residence, ..Toy::default() };
        let (mut policy, mut kept) = (MovesYoungPages::default(), KeptWindows::default());
        let ended = tier(
            &mut toy,
            &mut Metronome::default(),
            &mut policy,
            &mut InstantMover::default(),
            Budget { bytes: u64::MAX },
            &Course::until(Time(5)),
            &mut kept,
        );
        assert_eq!(ended, Ok(Ended::Deadline));
        assert_eq!((policy.regions, kept.regions), (vec![range], vec![range]));
        let mut kept = KeptWindows::default();
        let course = Course::until(toy.now + Duration::from_nanos(5));
        profile(&mut toy, &mut Metronome::default(), &course, &mut kept).unwrap();
        assert_eq!(kept.regions, [range]);
    }

    // Reading samples consumes them: at 0, 10 .. 50 the policy gets them, unless the instrument
    // does.
    #[test]
    fn a_policy_takes_no_samples_from_its_instrument() {
        let drained = |samples: bool| {
            let mut toy = Toy::default();
            let mut metronome = Metronome { reads: Reads { samples, faults: false } };
            let ended = tier(
                &mut toy,
                &mut metronome,
                &mut MovesYoungPages::default(),
                &mut InstantMover::default(),
                Budget { bytes: u64::MAX },
                &Course::until(Time(50)),
                &mut KeptWindows::default(),
            );
            assert_eq!(ended, Ok(Ended::Deadline));
            toy.drained
        };
        assert_eq!((drained(false), drained(true)), (6, 0));
    }
}
