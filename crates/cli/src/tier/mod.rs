//! `tierscope tier`: a policy places memory of live processes on fast and slow nodes.

mod account;
pub mod args;
pub mod config;
pub(crate) mod plan;
mod progress;

use serde_json::json;
use tierscope_core::drive::{Course, Ended};
use tierscope_core::session::{Placing, Session};
use tierscope_core::{Budget, Clock, Instrument, Need, Node, Ports, Result, Setting};
use tierscope_linux::heap;
use tierscope_linux::module::Module;
use tierscope_linux::proc::Proc;
use tierscope_linux::tiering::{Account, LiveMover, MoverHandle};
use tierscope_linux::{LiveMachine, Scans, tiering};

use self::args::TierArgs;
use self::plan::TierPlan;
use self::progress::TierProgress;
use crate::output::Output;
use crate::print::{note, print_below};
use crate::record::{Recorded, check_complete, meta, warn_of_left_out};

/// Runs on this host.
///
/// # Errors
/// Any error of flags, configuration, target, kernel module, tiers or output. The target keeps its
/// placement, and committed windows are kept.
pub fn run(args: TierArgs, line: String) -> Result<()> {
    let (check, as_json) = (args.check, args.json);
    let mut plan = TierPlan::new(args, line)?;
    let proc = Proc::default();
    if plan.has_target {
        plan.watch.selection.check(&proc)?;
    }
    let nodes = tiering::check(&plan.tiers)?;
    plan.settle()?;
    let needs = plan.needs();
    if check {
        tiering::brakes::check(&plan.limits)?;
        if needs.contains(&Need::AccessBits) {
            Module::open()?;
        }
        let tiers: Vec<String> = nodes.iter().map(|tier| show_nodes(tier)).collect();
        note!("configuration OK: {}; tiers: {}", plan.policy, tiers.join(" > "));
        return Ok(());
    }
    heap::return_large_buffers();
    let machine = plan.machine()?;
    let (mut machine, mover) = machine.with_tiers(&plan.tiers, plan.limits.clone())?;
    hear_hangups(&mut machine, &plan, mover.handle());
    work(machine, mover, &plan, as_json)
}

/// Runs the policy of a plan to the end, and prints the account.
///
/// # Errors
/// As [`run`].
pub(crate) fn work(
    mut machine: LiveMachine,
    mover: LiveMover,
    plan: &TierPlan,
    as_json: bool,
) -> Result<()> {
    let before = warn_of_left_out(&machine, None);
    let done = place(&mut machine, plan, mover, &Proc::default().kernel_release()?)?;
    warn_of_left_out(&machine, before);
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

/// Reloads the limits on SIGHUP.
fn hear_hangups(machine: &mut LiveMachine, plan: &TierPlan, mover: MoverHandle) {
    let Some((path, before)) = plan.config.clone() else {
        machine.on_hangup(Box::new(|| note!("no configuration file to reload")));
        return;
    };
    let dry_run = plan.limits.dry_run;
    machine.on_hangup(Box::new(move || {
        let again = plan::read_again(&path, &before, dry_run);
        let reloaded =
            again.and_then(|(limits, restart)| mover.set_limits(limits).map(|()| restart));
        match reloaded {
            Ok(false) => note!("{} reloaded", path.display()),
            Ok(true) => note!(
                "{} reloaded: limits are in force; other changes need a restart",
                path.display()
            ),
            Err(error) => note!("nothing changed: {error}"),
        }
    }));
}

/// A finished run.
struct Done {
    recorded: Recorded,
    account: Account,
    scans: Scans,
}

/// Runs the policy to the end; the mover has stopped when this returns.
fn place(
    machine: &mut LiveMachine,
    plan: &TierPlan,
    mut mover: LiveMover,
    kernel: &str,
) -> Result<Done> {
    let mut instrument = plan.make_instrument()?;
    let mut policy = plan.make_policy()?;
    let of_policy = policy.settings();
    let open = |ports: &mut dyn Ports, instrument: &dyn Instrument| match &plan.output {
        None => Ok(None),
        Some(_) => create_output(ports, instrument, of_policy, plan, kernel).map(Some),
    };
    let mut progress = TierProgress::new(mover.handle(), plan.watch.duration, plan.entry.reclaims);
    let until = plan::until(plan, machine.now());
    let session = Session {
        ports: machine,
        instrument: instrument.as_mut(),
        placing: Some(Placing {
            policy: policy.as_mut(),
            mover: &mut mover,
            budget: Budget { bytes: u64::MAX },
        }),
        course: Course { mappings_age: plan.watch.update, ..Course::until(until) },
    };
    let session = session.open(open)?;
    let ended = session.run(&mut progress);
    let tally = progress.finish();
    let (account, _) = mover.finish();
    let recorded = ended.map(|ended| Recorded { ended, tally });
    if recorded.is_err() {
        // Completed moves stay in effect: the account is printed before the error.
        note!("until it failed:");
        print_below(&account::text(&account));
    }
    Ok(Done { recorded: recorded?, account, scans: machine.scans() })
}

/// Begins the recording of a placement, with the policy's settings as annotations.
fn create_output(
    ports: &mut dyn Ports,
    instrument: &dyn Instrument,
    of_policy: Vec<Setting>,
    plan: &TierPlan,
    kernel: &str,
) -> Result<Output> {
    let mut meta = meta(ports, &plan.watch, kernel)?.with_settings(&instrument.settings());
    meta.instrument = instrument.name().into();
    let named = |setting: Setting| (format!("policy.{}", setting.name), setting.value);
    meta.annotations.extend(of_policy.into_iter().map(named));
    Output::create(&plan.watch, &meta)
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
        note!(
            "{} {why} {:.1} s{what}; it took {:.2} s of CPU ({:.1} %)",
            plan.policy,
            tally.covered().as_secs_f64(),
            tally.cpu.profiler.as_secs_f64(),
            100.0 * tally.profiler_share(),
        );
        let mut text = account::text(&self.account);
        if self.scans.scans > 0 {
            text += &format!(
                "  scanned {} entries in {} ranges, {:.3} s of CPU\n",
                self.scans.visited,
                self.scans.scans,
                self.scans.cpu.as_secs_f64()
            );
        }
        print_below(&text);
    }

    fn print(&self, plan: &TierPlan) -> Result<()> {
        let Recorded { ended, tally } = &self.recorded;
        let ended = ended.name();
        let recording = plan.output.as_ref().map(|path| path.display().to_string());
        let text = json!({
            "policy": plan.policy,
            "instrument": if plan.wants_regions() { plan.watch.instrument.name } else { "none" },
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
        crate::print::print(&format!("{text:#}\n"))
    }
}
