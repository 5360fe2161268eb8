//! `tierscope reclaim`: a policy reclaims cold memory of live processes, to swap or zswap.

pub mod args;
mod kernel;

use std::fs;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result, names};
use tierscope_linux::heap;
use tierscope_linux::proc::Proc;
use tierscope_linux::reclaim::{Reclaimable, Room, Swap};
use tierscope_linux::tiering::Limits;
use tierscope_policies::registry::by_name;

use self::args::ReclaimArgs;
use crate::tier::{self, plan::TierPlan};

/// Name of the pseudo-policy that leaves the choice of pages to the kernel.
const KERNEL: &str = "kernel";

/// Runs on this host.
///
/// # Errors
/// Any error of flags, target, kernel module, swap or output, before any memory is reclaimed.
pub fn run(args: ReclaimArgs, line: String) -> Result<()> {
    if args.policy == KERNEL {
        return kernel::run(&args);
    }
    let (as_json, into, share) = (args.json, args.into, args.share);
    let cgroups = args.target.cgroup.clone();
    let mut plan = plan(args, line)?;
    let proc = Proc::default();
    plan.watch.selection.check(&proc)?;
    let room = Swap::default().check(into.into())?;
    cgroups.iter().try_for_each(|path| check_cgroup(&directory(path)))?;
    heap::return_large_buffers();
    plan.settle()?;
    let machine = plan.machine()?;
    if let Some(share) = share {
        let pids: Vec<u32> = machine.pids().into_iter().map(|(_, pid)| pid).collect();
        check_target(share, &pids, &room)?;
    }
    let (machine, mover) = machine.with_reclaim(plan.limits.clone())?;
    tier::work(machine, mover, &plan, as_json)
}

/// Directory of a cgroup, which may be given relative to the hierarchy's mount, or as a directory.
fn directory(path: &Path) -> std::path::PathBuf {
    let below = Path::new("/sys/fs/cgroup").join(path.strip_prefix("/").unwrap_or(path));
    if path.starts_with("/sys/fs/cgroup") || !below.is_dir() { path.to_owned() } else { below }
}

/// Fails early if the cgroup limits swap and cannot be opened; a cgroup without the memory
/// controller limits nothing.
fn check_cgroup(dir: &Path) -> Result<()> {
    match Reclaimable::open(dir) {
        Err(error) if dir.join("memory.swap.max").exists() => Err(error),
        _ => Ok(()),
    }
}

/// Checks that the target's share of memory fits into free swap.
fn check_target(share: f64, pids: &[u32], room: &Room) -> Result<()> {
    let anonymous = |pid: &u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let resident: u64 = pids.iter().filter_map(anonymous).sum();
    room.check((resident as f64 * share) as u64)
}

/// Checks the flags and makes a plan of the run.
fn plan(args: ReclaimArgs, line: String) -> Result<TierPlan> {
    let name = args.policy.split(':').next().unwrap_or_default();
    let refuse = |what: String, cause: &str| {
        let names = policies().join(", ");
        Err(Error::new(ErrorKind::Usage, what)
            .cause(cause)
            .remedy(format!("choose from {names}; or {KERNEL}, with --cgroup")))
    };
    if let Some(entry) = by_name(name)
        && !entry.reclaims
    {
        return refuse(
            format!("policy {name} does not reclaim memory"),
            "it moves memory between tiers: that is `tierscope tier`",
        );
    }
    if args.guided && !names::same(name, "mglru-telescope") {
        return refuse(
            "--guided has no effect with this policy".into(),
            "only mglru-telescope has it; cold-regions is always guided by regions",
        );
    }
    let goals = [
        ("share", args.share.map(|share| share.to_string())),
        ("pressure", args.until_psi.map(|share| share.to_string())),
        ("rate", args.rate.map(|rate| rate.to_string())),
        ("refaults", Some(args.refaults.to_string())),
    ];
    let given: Vec<String> =
        goals.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?))).collect();
    let colon = if args.policy.contains(':') { "," } else { ":" };
    let policy = format!("{}{colon}{}", args.policy, given.join(","));
    let defaults = Limits::default();
    let limits = Limits {
        bytes_per_second: args.rate.unwrap_or(defaults.bytes_per_second),
        stalled: args.until_psi.map_or(defaults.stalled, |share| share.max(1e-4)),
        refaults: args.refaults,
        kill_switch: args.hold.clone(),
        dry_run: args.dry_run,
        ..defaults
    };
    limits.check()?;
    let watching = (args.how, args.output, args.duration);
    TierPlan::without_tiers(policy, limits, args.target, watching, line)
        .map(|plan| TierPlan { guided: args.guided, ..plan })
}

/// Names of the policies that reclaim memory.
fn policies() -> Vec<&'static str> {
    let all = tierscope_policies::all().iter();
    all.filter(|entry| entry.reclaims).map(|entry| entry.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    fn made(flags: &str) -> Result<TierPlan> {
        let line = format!("tierscope reclaim {flags}");
        let cli = parse(line.split_whitespace().map(Into::into)).unwrap();
        let Command::Reclaim(args) = cli.command else { unreachable!("it says reclaim") };
        plan(*args, line)
    }

    #[test]
    fn goals_are_the_policy_s_and_the_mover_s() {
        let plan = made("-p 1 --target 30% --until-psi 10% --rate 64MiB/s --dry-run").unwrap();
        assert_eq!(
            plan.policy,
            "mglru-telescope:share=0.3,pressure=0.1,rate=67108864,refaults=0.05"
        );
        assert_eq!((plan.limits.bytes_per_second, plan.limits.stalled), (64 << 20, 0.1));
        assert!(plan.limits.dry_run && plan.needs().contains(&tierscope_core::Need::AccessBits));
        assert!(!plan.wants_regions());
        let guided = made("-p 1 --guided").unwrap();
        assert!(guided.wants_regions() && guided.make_instrument().unwrap().name() == "rates");
        assert!(made("-p 1 --policy cold-regions:cold=5s").unwrap().wants_regions());
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for (flags, cause) in [
            ("-p 1 --policy hot-region", "does not reclaim memory"),
            ("-p 1 --policy poem", "poem"),
            ("-p 1 --policy mglru --guided", "--guided has no effect"),
            ("-p 1 --policy mglru:share=0.1 --target 20%", "given twice"),
            ("-p 1 --rate 4096", "2MiB a second at least"),
            ("-p 1 --duration 1ms", "not one window"),
        ] {
            let error = made(flags).unwrap_err();
            let text = error.to_string();
            assert!(
                error.kind() == ErrorKind::Usage && text.contains(cause) && text.contains("; "),
                "{flags}: {text}"
            );
        }
    }

    #[test]
    fn a_target_above_the_room_is_refused() {
        let room = Room { total: 1 << 20, free: 4096, zswap: true };
        let own = [std::process::id()];
        let error = check_target(1.0, &own, &room).unwrap_err().to_string();
        assert!(error.contains("MiB of swap are free; set a smaller --target"), "{error}");
        assert!(check_target(0.0, &own, &room).is_ok());
    }
}
