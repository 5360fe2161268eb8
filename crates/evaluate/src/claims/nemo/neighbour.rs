//! The noisy neighbour (section 5.3): a store, and a neighbour that streams cache-bypassing stores,
//! on the exact machine. Policy and drive loop of `tierscope qos` ([`BandwidthCap`], [`cap`]) limit
//! the neighbour's bandwidth, on notifications from a simulated counting controller, or by polling.
//! Its CPU time is limited in the manner of `cpu.max`.
//!
//! The processor's bandwidth monitoring is taken to have the controller's counts: NEMO's section
//! 5.3.1 finds the two equal within 0.1 %. The cost of capping is counted: wake-ups, limits
//! written, polls and register accesses, each at the experiment's cost.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::drive::{Course, cap};
use tierscope_core::units::{self, about_size};
use tierscope_core::{
    BusRecord, Clock, Compare, Counters, Error, ErrorKind, Filter, Frames, Key, Operand, Operator,
    ReadEffect, RequestKind, Result, Rule, RuleId, SpaceId, Target, TenantUse, Tenants, Time,
    Trigger, Wake,
};
use tierscope_nemo::{Driver, Functional};
use tierscope_policies::bandwidth_cap::{BandwidthCap, Held, Settings};
use tierscope_sim::exact::Machine;
use tierscope_sim::experiment::{Experiment, File, read};

use super::super::chapter;
use super::super::form::{self, Claim, CommonClaim};
use super::super::row::Section;
use super::super::verdict::Verdict;
use super::Case;
use crate::catalogue::without_claims;
use crate::devices::controllers;
use crate::runner::Runner;

/// Upper bound on interrupt latency: the machine runs for this time between two checks.
const STEP: Duration = Duration::from_micros(100);
/// log2 of the page size by which the neighbour's memory is identified: it has huge pages.
const HUGE: u8 = 21;
/// Period that a quota refers to: the kernel's default of `cpu.max`.
const PERIOD: Duration = Duration::from_millis(100);
/// The least quota that the kernel accepts (kernel/sched/core.c, `min_cfs_quota_period`).
const LEAST: Duration = Duration::from_millis(1);

/// CPU time of `cpus` CPUs in a period, as it is written to `cpu.max`: in whole microseconds.
fn quota_of(cpus: f64) -> Duration {
    Duration::from_micros((cpus * PERIOD.as_micros() as f64) as u64).max(LEAST)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    experiment: File,
    hold: HoldText,
    case: Vec<Case>,
    claim: Vec<Claim<Figure>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct HoldText {
    cap: String,
    epoch: String,
    polls: Vec<String>,
    wake_us: f64,
    limit_us: f64,
    poll_us: f64,
    source: String,
}

/// Parameters of the cap, and the costs of enforcing it.
#[derive(Clone, Debug)]
struct Hold {
    /// Cap in bytes per second.
    cap: u64,
    /// Interval between two readings of the counters, with notifications.
    epoch: Duration,
    /// Polling intervals to try.
    polls: Vec<Duration>,
    wake: Duration,
    limit: Duration,
    poll: Duration,
    source: String,
}

impl Hold {
    fn settings(&self) -> Settings {
        Settings::new(self.cap as f64)
    }
}

impl HoldText {
    fn check(self) -> Result<Hold, String> {
        let micros = |micros: f64| Duration::try_from_secs_f64(micros / 1e6);
        let micros = |of: f64| micros(of).map_err(|error| format!("{of} µs: {error}"));
        let polls = self.polls.iter().map(|poll| units::time(poll));
        Ok(Hold {
            cap: units::address(&self.cap)?,
            epoch: units::time(&self.epoch)?,
            polls: polls.collect::<Result<_, _>>()?,
            wake: micros(self.wake_us)?,
            limit: micros(self.limit_us)?,
            poll: micros(self.poll_us)?,
            source: self.source,
        })
    }
}

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// 99th percentile of the store's request latency relative to that of `to`.
    P99Over,
    /// CPU time of enforcing the cap, in per cent of a CPU.
    CpuPercent,
    /// CPU time of enforcing the cap, relative to that of `to`.
    CpuOver,
    /// Difference between the controller's count and the actual number of stores, in per cent.
    CountOffPercent,
}

impl form::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::P99Over => "p99 over",
            Figure::CpuPercent => "% of a CPU",
            Figure::CpuOver => "CPU time over",
            Figure::CountOffPercent => "counts off the stores, %",
        }
    }

    fn is_ratio(self) -> bool {
        matches!(self, Figure::P99Over | Figure::CpuOver)
    }
}

impl Figure {
    fn of(self, result: &RegimeResult) -> Option<f64> {
        match self {
            Figure::P99Over => Some(result.p99 as f64),
            Figure::CpuPercent | Figure::CpuOver => result.cpu.map(|share| share * 100.0),
            Figure::CountOffPercent => result.off.map(|share| share * 100.0),
        }
    }
}

/// Treatment of the neighbour in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Regime {
    /// The neighbour does not run.
    Alone,
    /// The neighbour runs without a cap.
    Free,
    /// The cap is enforced on notifications.
    Notified,
    /// The cap is enforced by polling at this interval.
    Polled(Duration),
}

impl Regime {
    /// Name in claims and tables.
    fn name(self) -> String {
        match self {
            Regime::Alone => "alone".into(),
            Regime::Free => "free".into(),
            Regime::Notified => "nemo".into(),
            Regime::Polled(every) => format!("mbm {every:?}"),
        }
    }
}

/// Results of a run under one regime.
#[derive(Clone, Debug)]
struct RegimeResult {
    regime: Regime,
    /// Requests of the store per second.
    requests: f64,
    /// Latency of a request in nanoseconds: percentiles.
    p50: u64,
    p99: u64,
    p999: u64,
    /// Bytes per second that the neighbour stores.
    stores: Option<f64>,
    /// Relative difference between the count and the actual stores.
    off: Option<f64>,
    /// CPU time of enforcing the cap, as a share of a CPU.
    cpu: Option<f64>,
    /// Number of epochs in which the allowance was exceeded, and the smallest quota in CPUs.
    held: Option<(u64, f64)>,
}

/// CPU time spent on enforcing the cap.
#[derive(Default)]
struct Spent(Duration);

/// The machine with both programs; the neighbour is its only tenant.
struct Stage<'a> {
    machine: Machine<Driver<Functional>>,
    hold: &'a Hold,
    regime: Regime,
    neighbour: SpaceId,
    /// Threads of the neighbour: CPUs that it uses without a limit.
    threads: f64,
    rule: RuleId,
    limit: Option<Duration>,
    spent: Spent,
    /// Lines counted up to the last reading.
    counted: u64,
    /// A notification arrived, and was not rearmed.
    notified: bool,
    /// Time that the machine has reached, for the progress display.
    reached: &'a AtomicU64,
}

/// Rule that counts all requests to the neighbour's pages, and notifies when they reach an epoch's
/// allowance (listing 3).
fn rule(end: u64, allowance: u64) -> Rule {
    let value = (allowance / BusRecord::BYTES).max(1);
    Rule {
        filter: Filter { kind: RequestKind::All, start: 0, end },
        key: Key { mask: Key::ALL_MEMORY, shift: HUGE },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: Some(Trigger { compare: Compare::AtLeast, value }),
        on_read: ReadEffect::Reset(0),
    }
}

impl<'a> Stage<'a> {
    fn new(
        experiment: &Experiment,
        hold: &'a Hold,
        regime: Regime,
        stop: &Arc<AtomicBool>,
        reached: &'a AtomicU64,
    ) -> Result<Self> {
        let physical = experiment.setup.physical();
        let machine = Machine::observed(&experiment.setup, controllers(&physical)?)?;
        let mut machine = machine.with_stop(Arc::clone(stop));
        let present = if regime == Regime::Alone { 1 } else { experiment.processes.len() };
        let mut spaces = Vec::new();
        for process in &experiment.processes[..present] {
            spaces.push(machine.start(process)?);
        }
        let neighbour = spaces[present - 1];
        let threads = f64::from(experiment.processes[present - 1].threads);
        let end = physical.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let rule = rule(end, Held::new(hold.settings()).allowance(hold.epoch));
        let rule = machine.observer().register_states(&rule, 1)?;
        let mut stage = Self {
            machine,
            hold,
            regime,
            neighbour,
            threads,
            rule,
            limit: None,
            spent: Spent::default(),
            counted: 0,
            notified: false,
            reached,
        };
        if regime != Regime::Alone {
            stage.translate()?;
        }
        Ok(stage)
    }

    /// Maps the neighbour's pages to the rule's counter.
    fn translate(&mut self) -> Result<()> {
        let mappings = self.machine.mappings(Duration::ZERO)?;
        let own = mappings.mappings.iter().filter(|map| map.range.space == self.neighbour);
        let mut frames = Vec::new();
        for mapping in own {
            self.machine.locate(&mapping.range, &mut frames)?;
        }
        for piece in frames {
            for key in piece.frame >> HUGE..(piece.frame + piece.range.bytes()) >> HUGE {
                self.machine.observer().translate(self.rule, key, Some(0))?;
            }
        }
        Ok(())
    }

    /// Reads and resets the counter: bytes since the last reading.
    fn read(&mut self) -> Result<u64> {
        let mut lines = [0];
        let (driver, rule) = (self.machine.observer(), self.rule);
        driver.read(rule, &mut lines)?;
        driver.notifications(&mut Vec::new());
        self.counted += lines[0];
        Ok(lines[0] * BusRecord::BYTES)
    }

    fn tenant(&self, bytes: u64) -> TenantUse {
        TenantUse { bytes, entitled: self.threads }
    }

    /// Takes a pending notification.
    fn take_notification(&mut self) -> bool {
        let mut notices = Vec::new();
        self.machine.observer().notifications(&mut notices);
        !notices.is_empty()
    }

    /// Runs until `end`, and returns the neighbour's state under the cap, if there is a cap.
    fn run(&mut self, end: Time) -> Result<Option<Held>> {
        let epoch = match self.regime {
            Regime::Alone | Regime::Free => {
                self.wait(end);
                return Ok(None);
            }
            Regime::Notified => self.hold.epoch,
            Regime::Polled(every) => every,
        };
        let mut policy = BandwidthCap::new(epoch, [self.hold.settings()]);
        let course = Course { until: end, mappings_age: Duration::MAX };
        cap(self, &mut policy, &course, &mut |_| Ok(ControlFlow::Continue(())))?;
        Ok(policy.held().first().cloned())
    }

    fn measure(&mut self, held: Option<&Held>) -> Result<RegimeResult> {
        let regime = self.regime;
        self.read()?;
        let account = self.machine.account();
        let seconds = self.machine.now().seconds();
        let of = |process: usize| account.done.get(process);
        let latency = of(0).and_then(|done| done.latency).ok_or_else(|| {
            Error::new(ErrorKind::Data, "the store completed no request")
                .remedy("choose a longer time")
        })?;
        let stores = of(1).map(|done| done.operations as f64);
        let held = held.and_then(|held| Some((held.notices, held.least?)));
        // The machine accounts for register accesses of the controller; there are none for the
        // processor's own counters.
        let registers = match regime {
            Regime::Notified => account.spent.telemetry,
            _ => Duration::ZERO,
        };
        Ok(RegimeResult {
            regime,
            requests: latency.operations as f64 / seconds,
            p50: latency.p50,
            p99: latency.p99,
            p999: latency.p999,
            stores: stores.map(|stores| stores * BusRecord::BYTES as f64 / seconds),
            off: stores.map(|stores| (self.counted as f64 / stores - 1.0).abs()),
            cpu: held.map(|_| (self.spent.0 + registers).as_secs_f64() / seconds),
            held,
        })
    }
}

/// Interrupts are checked after each [`STEP`] but the last one.
impl Clock for Stage<'_> {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        while self.now() < until {
            let wake = self.machine.wait(self.now() + STEP);
            self.reached.store(self.now().0, Ordering::Relaxed);
            if wake == Wake::Stop {
                return wake;
            }
            if self.regime == Regime::Notified && self.now() < until && !self.notified {
                self.notified = self.take_notification();
                if self.notified {
                    return Wake::Event;
                }
            }
        }
        Wake::Deadline
    }
}

/// Each call is charged as the experiment says.
impl Tenants for Stage<'_> {
    fn count(&self) -> usize {
        1
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn take(&mut self, out: &mut [TenantUse]) -> Result<()> {
        let bytes = self.read()?;
        out[0] = self.tenant(bytes);
        self.notified = false;
        self.spent.0 += self.hold.wake;
        if matches!(self.regime, Regime::Polled(_)) {
            self.spent.0 += self.hold.poll;
        }
        Ok(())
    }

    fn peek(&mut self, out: &mut [TenantUse]) -> Result<bool> {
        self.spent.0 += self.hold.wake;
        let mut lines = [0];
        self.machine.observer().peek(self.rule, 0, &mut lines)?;
        out[0] = self.tenant(lines[0] * BusRecord::BYTES);
        Ok(true)
    }

    fn listen(&mut self) -> Result<()> {
        self.notified = false;
        Ok(())
    }

    fn limit(&mut self, cpus: &[Option<f64>]) -> Result<()> {
        if cpus[0].is_none() && self.limit.is_none() {
            return Ok(());
        }
        let quota = quota_of(cpus[0].unwrap_or(self.threads));
        if self.limit.replace(quota) != Some(quota) {
            self.spent.0 += self.hold.limit;
            self.machine.limit(self.neighbour, quota, PERIOD);
        }
        Ok(())
    }
}

/// The experiment in all its cases, with the claims about it.
pub(super) struct Planned {
    name: &'static str,
    cases: Vec<(String, Experiment)>,
    hold: Hold,
    claims: Vec<Claim<Figure>>,
}

impl Planned {
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Self> {
        let Text { case, claim, experiment, hold } = read(name, text)?;
        drop(experiment);
        let bad =
            |what: String| Error::new(ErrorKind::Data, format!("experiment {name}")).cause(what);
        let hold = hold.check().map_err(bad)?;
        let alone = without_claims(text)?;
        let of = |case: Case| {
            let experiment = case.experiment(name, &alone)?;
            if experiment.processes.len() != 2 {
                return Err(bad("there are a store and a neighbour, in this order".into()));
            }
            Ok((case.name, experiment))
        };
        let cases = case.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        let planned = Self { name, cases, hold, claims: claim };
        let known: Vec<String> = planned.regimes().map(Regime::name).collect();
        for claim in &planned.claims {
            claim
                .common()
                .check_names(|named| known.iter().any(|name| name == named))
                .map_err(bad)?;
        }
        Ok(planned)
    }

    /// Number of claims.
    #[cfg(test)]
    pub(super) fn claims(&self) -> usize {
        self.claims.len()
    }

    fn regimes(&self) -> impl Iterator<Item = Regime> + '_ {
        let polled = self.hold.polls.iter().map(|every| Regime::Polled(*every));
        [Regime::Alone, Regime::Free, Regime::Notified].into_iter().chain(polled)
    }

    fn written(&self, results: &[RegimeResult]) -> Section {
        let experiment = &self.cases[0].1;
        let mut text = format!(
            "{about}. Simulated {how}, {mapped} mapped, {time:?}, seed {seed}.\nSource: {source}. Costs: {costs}.\n\
             Command: `tierscope reproduce {name}`\n\n",
            name = self.name,
            about = experiment.about,
            how = experiment.mode.how(),
            mapped = about_size(experiment.bytes()),
            time = experiment.time,
            seed = experiment.seed,
            source = experiment.source,
            costs = self.hold.source,
        );
        let each = results.len() / self.cases.len();
        for ((name, _), results) in self.cases.iter().zip(results.chunks(each)) {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{name}:\n");
            table(&mut text, results);
        }
        let mut rows = Vec::new();
        for ((name, _), results) in self.cases.iter().zip(results.chunks(each)) {
            for claim in &self.claims {
                let common = CommonClaim { case: Some(name), ..claim.common() };
                let of = |named: &str| {
                    let found = results.iter().find(|result| result.regime.name() == named)?;
                    claim.figure.of(found)
                };
                let to = claim.to.as_deref().map(of);
                rows.push(common.row(common.judge(Verdict::NotReproduced, of(&claim.policy), to)));
            }
        }
        Section { name: self.name.to_owned(), before: text, rows, ..Section::default() }
    }
}

impl chapter::Planned for Planned {
    fn section(&self, runner: &Runner<'_>) -> Result<Option<Section>> {
        let jobs: Vec<(&Experiment, Regime)> = (self.cases.iter())
            .flat_map(|(_, experiment)| self.regimes().map(move |regime| (experiment, regime)))
            .collect();
        let nanos: Vec<u64> = jobs.iter().map(|(e, _)| e.time.as_nanos() as u64).collect();
        let results = runner.side_by_side(&nanos, |index, reached| {
            let (experiment, regime) = jobs[index];
            let mut stage = Stage::new(experiment, &self.hold, regime, runner.stop(), reached)?;
            let held = stage.run(Time(0) + experiment.time)?;
            stage.measure(held.as_ref())
        })?;
        let results: Vec<RegimeResult> = results.into_iter().flatten().collect();
        if runner.is_stopped() || results.len() < jobs.len() {
            return Ok(None);
        }
        Ok(Some(self.written(&results)))
    }
}

fn table(text: &mut String, results: &[RegimeResult]) {
    text.push_str(
        "| neighbour | requests a second | p50, p99, p99.9 µs | p99 over alone | its stores a second | its CPUs at least | notified | held by |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let alone = results.first().map_or(1, |result| result.p99).max(1) as f64;
    let or = |text: Option<String>| text.unwrap_or("–".into());
    for result in results {
        let [p50, p99, p999] = [result.p50, result.p99, result.p999].map(|ns| ns as f64 / 1e3);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {p50:.2}, {p99:.2}, {p999:.2} | {:.3} | {} | {} | {} | {} |",
            result.regime.name(),
            result.requests,
            result.p99 as f64 / alone,
            or(result.stores.map(|bytes| about_size(bytes as u64))),
            or(result.held.map(|(_, least)| format!("{least:.3}"))),
            or(result.held.map(|(notices, _)| notices.to_string())),
            or(result.cpu.map(|share| format!("{:.4} % of a CPU", share * 100.0))),
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store of a few MiB and a neighbour, which without a cap moves more than four times as much
    /// as with it.
    const SMALL: &str = r#"
[experiment]
name = "small"
about = "a"
source = "b"
time = "300ms"
window = "100ms"
[experiment.machine]
hardware = "xeon-gold-6430-cxl"
llc-slices = 1
[[experiment.machine.tier]]
name = "cxl"
size = "256MiB"
[[experiment.process]]
workload = "flexkvs:keys=20000,key=32,value=1024"
pages = "2M"
[[experiment.process]]
workload = "neighbour:space=16MiB,off=0s"
threads = 2
pages = "2M"
[experiment.simulation]
mode = "exact"
[hold]
cap = "256MiB"
epoch = "20ms"
polls = ["5ms"]
wake-us = 1
limit-us = 2
poll-us = 4
source = "c"
[[case]]
name = "only"
set = []
[[claim]]
paper = "p"
says = "s"
policy = "nemo"
figure = "cpu-over"
to = "mbm 5ms"
most = 1.0
"#;

    fn measure(planned: &Planned, regime: Regime) -> RegimeResult {
        let stop = Arc::new(AtomicBool::new(false));
        let experiment = &planned.cases[0].1;
        let reached = AtomicU64::new(0);
        let stage = Stage::new(experiment, &planned.hold, regime, &stop, &reached);
        let mut stage = stage.expect("it fits");
        let held = stage.run(Time(0) + experiment.time).expect("it runs");
        stage.measure(held.as_ref()).expect("requests are completed")
    }

    // Two cores reach some 5 GiB/s. The quota has a period of 100 ms, so that short runs can exceed
    // the cap: over 300 ms it is met only approximately.
    #[test]
    fn the_neighbour_is_counted_to_the_line_and_held() {
        let planned = Planned::parse("small", SMALL).unwrap_or_else(|error| panic!("{error}"));
        let free = measure(&planned, Regime::Free);
        // A store that a thread is about to make is counted as made: some hundreds, out of tens of
        // millions in 300 ms.
        assert!(free.off.is_some_and(|off| off < 1e-4) && free.cpu.is_none(), "{free:?}");
        let cap = f64::from(256 << 20);
        assert!(free.stores.is_some_and(|bytes| bytes > 4.0 * cap), "{free:?}");
        let held = measure(&planned, Regime::Notified);
        assert!(held.stores.is_some_and(|bytes| bytes < 2.0 * cap), "{held:?}");
        assert!(
            held.p99 <= free.p99 && held.held.is_some_and(|(notices, _)| notices > 0),
            "{held:?}"
        );
        // At least one wake-up and one limit written, within 300 ms.
        assert!(held.cpu.is_some_and(|share| share > 3e-6 / 0.3), "{held:?}");
    }

    // 60 polls of 4 us, as many wake-ups of 1 us, and a few limits written, within 300 ms.
    #[test]
    fn polls_take_cpu_time() {
        let planned = Planned::parse("small", SMALL).unwrap_or_else(|error| panic!("{error}"));
        let every = Duration::from_millis(5);
        let result = measure(&planned, Regime::Polled(every));
        let least = 60.0 * 5e-6 / 0.3;
        assert!(
            result.cpu.is_some_and(|share| (least..least * 1.5).contains(&share)),
            "{result:?}"
        );
    }

    #[test]
    fn a_claim_about_an_unknown_regime_is_refused() {
        let text = SMALL.replace("policy = \"nemo\"", "policy = \"memo\"");
        let error = Planned::parse("small", &text).map(|_| ()).expect_err("nobody is called so");
        assert!(error.to_string().contains("`memo`"), "{error}");
    }
}
