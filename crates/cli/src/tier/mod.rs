//! `tierscope tier`: a policy places the memory of live processes.

mod account;
pub mod args;
pub mod config;
pub(crate) mod plan;
mod shown;

use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use tierscope_core::drive::{Course, Ended, Sink, Window, tier};
use tierscope_core::{Budget, Node, Ports, Result, SpaceId};
use tierscope_linux::heap;
use tierscope_linux::module::Module;
use tierscope_linux::perf::{self, Source};
use tierscope_linux::proc::Proc;
use tierscope_linux::tiering::{Account, LiveMover, MoverHandle};
use tierscope_linux::{LiveMachine, Scans, telemetry, tiering};

use self::args::TierArgs;
use self::plan::TierPlan;
use self::shown::Shown;
use crate::output::Output;
use crate::record::{COMMANDS, Recorded, check_complete, meta};

/// Runs on this host.
///
/// # Errors
/// Whatever is wrong with flags, configuration, target, module, tiers or output. The target is left as it is
/// then, and what was recorded is kept.
pub fn run(args: TierArgs, line: String) -> Result<()> {
    let (check, as_json) = (args.check, args.json);
    let plan = TierPlan::new(args, line)?;
    let proc = Proc::default();
    if plan.has_target {
        plan.watch.selection.check(&proc)?;
    }
    let nodes = tiering::check(&plan.tiers)?;
    let module = || Module::open();
    if plan.wants_bits() {
        module()?;
    }
    if check {
        let tiers: Vec<String> = nodes.iter().map(|tier| show_nodes(tier)).collect();
        eprintln!("tierscope: {} will do; tiers: {}", plan.policy, tiers.join(" over "));
        return Ok(());
    }
    heap::return_large_buffers();
    let counters =
        plan.wants_counters().then(|| telemetry::controllers(Path::new("/sys"), COMMANDS));
    let counters = counters.transpose()?;
    let machine = LiveMachine::open(&plan.watch.selection, module())?;
    let (mut machine, mover) = machine.with_tiers(&plan.tiers, plan.limits.clone())?;
    if let Some(counters) = counters {
        machine.set_counters(Box::new(counters));
    }
    if plan.wants_samples() {
        open_samples(&mut machine)?;
    }
    hear_hangups(&mut machine, &plan, mover.handle());
    work(machine, mover, &plan, as_json)
}

/// Lets the policy of a plan work until it is over, and tells what became of it.
///
/// # Errors
/// As [`run`].
pub(crate) fn work(
    mut machine: LiveMachine,
    mover: LiveMover,
    plan: &TierPlan,
    as_json: bool,
) -> Result<()> {
    let done = place(&mut machine, plan, mover, &Proc::default().kernel_release()?)?;
    done.report(plan);
    if as_json {
        done.print(plan)?;
    }
    check_complete(&plan.watch, &done.recorded)
}

fn show_nodes(nodes: &[Node]) -> String {
    let numbers: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    format!("node {}", numbers.join(", "))
}

/// Opens a source of samples: the processor's, else that of an instrumented virtual machine. Without one, who
/// asks is told why.
fn open_samples(machine: &mut LiveMachine) -> Result<()> {
    let missing = match Source::of_hardware(Path::new("/sys")) {
        Ok(source) => return machine.sample(source, perf::FREQUENCY),
        Err(missing) => missing,
    };
    let root = |(space, pid): (SpaceId, u32)| Ok((telemetry::root_of(pid)?, space));
    let roots: Result<Vec<(u64, SpaceId)>> = machine.pids().into_iter().map(root).collect();
    match roots.and_then(|roots| telemetry::TlbMisses::open(Path::new("/sys"), roots)) {
        Ok(misses) => machine.set_samples(Ok(Box::new(misses))),
        // A machine without PMU is the rule, one without telemetry device too: the first is the cause.
        Err(_) => return Err(missing.into()),
    }
    Ok(())
}

/// SIGHUP: limits are read anew.
fn hear_hangups(machine: &mut LiveMachine, plan: &TierPlan, mover: MoverHandle) {
    let Some((path, before)) = plan.config.clone() else {
        machine.on_hangup(Box::new(|| eprintln!("tierscope: there is no configuration to read")));
        return;
    };
    let dry_run = plan.limits.dry_run;
    machine.on_hangup(Box::new(move || {
        let again = plan::read_again(&path, &before, dry_run);
        let told = again.and_then(|(limits, restart)| mover.set_limits(limits).map(|()| restart));
        match told {
            Ok(false) => eprintln!("tierscope: {} read again", path.display()),
            Ok(true) => eprintln!(
                "tierscope: {} read again: limits hold from now on, the rest after a restart",
                path.display()
            ),
            Err(error) => eprintln!("tierscope: everything stays as it was: {error}"),
        }
    }));
}

/// A run that is over.
struct Done {
    recorded: Recorded,
    account: Account,
    scans: Scans,
}

/// Nothing is written.
struct Nowhere;

impl Sink for Nowhere {
    fn window(&mut self, _: &Window<'_>) -> Result<()> {
        Ok(())
    }
}

/// Lets the policy place until it is over; the mover has stopped when this returns.
fn place(
    machine: &mut LiveMachine,
    plan: &TierPlan,
    mut mover: LiveMover,
    kernel: &str,
) -> Result<Done> {
    let mut instrument = plan.make_instrument()?;
    let mut policy = plan.make_policy()?;
    let mut output = match &plan.output {
        None => None,
        Some(_) => {
            let meta = meta(machine, &plan.watch, kernel)?.with_settings(&instrument.settings());
            let policys = policy.settings().into_iter();
            let mut meta = tierscope_record::Meta { started: SystemTime::now(), ..meta };
            meta.instrument = instrument.name().into();
            for setting in policys {
                meta.annotations.insert(format!("policy.{}", setting.name), setting.value);
            }
            Some(Output::create(&plan.watch, &meta)?)
        }
    };
    let mut nowhere = Nowhere;
    let sink: &mut dyn Sink = match &mut output {
        Some(output) => output,
        None => &mut nowhere,
    };
    let mut shown = Shown::new(sink, mover.handle(), plan.watch.duration, plan.entry.reclaims);
    let course = Course {
        mappings_age: plan.watch.update,
        ..Course::until(plan::until(plan, tierscope_core::Clock::now(machine)))
    };
    let budget = Budget { bytes: u64::MAX };
    let ports: &mut dyn Ports = machine;
    let ended =
        tier(ports, instrument.as_mut(), policy.as_mut(), &mut mover, budget, &course, &mut shown);
    let tally = shown.finish();
    let (account, _) = mover.finish();
    let closed = output.map_or(Ok(()), Output::finish);
    let recorded = ended.map(|ended| Recorded { ended, tally });
    if recorded.is_err() {
        // What was moved was moved: it is told before the error.
        eprint!("tierscope: until it failed:\n{}", account::text(&account));
    }
    let recorded = recorded?;
    closed?;
    Ok(Done { recorded, account, scans: machine.scans() })
}

impl Done {
    fn report(&self, plan: &TierPlan) {
        let tally = &self.recorded.tally;
        let why = match self.recorded.ended {
            Ended::Stopped => "stopped after",
            Ended::TargetGone => "the target was gone after",
            Ended::Deadline => "over after",
        };
        let what = if plan.limits.dry_run { ", nothing was moved (dry run)" } else { "" };
        eprint!(
            "tierscope: {} {why} {:.1} s{what}; it took {:.2} s of CPU ({:.1} %)\n{}",
            plan.policy,
            tally.covered().as_secs_f64(),
            tally.cpu.profiler.as_secs_f64(),
            100.0 * tally.profiler_share(),
            account::text(&self.account),
        );
        if self.scans.scans > 0 {
            eprintln!(
                "  scanned {} entries in {} ranges, {:.3} s of CPU",
                self.scans.visited,
                self.scans.scans,
                self.scans.cpu.as_secs_f64()
            );
        }
    }

    fn print(&self, plan: &TierPlan) -> Result<()> {
        let Recorded { ended, tally } = &self.recorded;
        let ended = match ended {
            Ended::Deadline => "deadline",
            Ended::Stopped => "stopped",
            Ended::TargetGone => "target-gone",
        };
        let recording = plan.output.as_ref().map(|path| path.display().to_string());
        let text = json!({
            "policy": plan.policy,
            "instrument": if plan.wants_regions() { &plan.watch.instrument } else { "none" },
            "dry_run": plan.limits.dry_run,
            "ended": ended,
            "seconds": tally.covered().as_secs_f64(),
            "windows": tally.windows,
            "recording": recording,
            "profiler_cpu_seconds": tally.cpu.profiler.as_secs_f64(),
            "profiler_cpu_share": tally.profiler_share(),
            "scans": {
                "ranges": self.scans.scans,
                "entries": self.scans.visited,
                "young": self.scans.young,
                "cpu_seconds": self.scans.cpu.as_secs_f64(),
            },
            "account": account::json(&self.account),
        });
        crate::report::print(&format!("{text:#}\n"))
    }
}
