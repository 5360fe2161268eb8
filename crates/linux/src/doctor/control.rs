//! Checks of capabilities, control groups and pressure information.

use super::{Check, Finding, Scene};

const GROUP: &str = "control";

pub(super) fn checks() -> [Check<()>; 4] {
    let group = GROUP;
    [
        Check { id: "capabilities", group, title: "capabilities", look: capabilities },
        Check { id: "cgroup", group, title: "cgroup v2", look: cgroup },
        Check { id: "pressure", group, title: "pressure (PSI)", look: pressure },
        Check { id: "resctrl", group, title: "bandwidth (resctrl)", look: resctrl },
    ]
}

/// Numbers of capabilities (include/uapi/linux/capability.h).
pub(super) const CAP_SYS_PTRACE: u32 = 19;
pub(super) const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;
pub(super) const CAP_PERFMON: u32 = 38;

const NAMES: [(&str, u32); 4] = [
    ("CAP_SYS_PTRACE", CAP_SYS_PTRACE),
    ("CAP_SYS_ADMIN", CAP_SYS_ADMIN),
    ("CAP_SYS_NICE", CAP_SYS_NICE),
    ("CAP_PERFMON", CAP_PERFMON),
];

fn effective(scene: &Scene) -> Option<u64> {
    u64::from_str_radix(&scene.field("/proc/self/status", "CapEff")?, 16).ok()
}

/// Whether this process has a capability.
pub(super) fn has(scene: &Scene, capability: u32) -> bool {
    effective(scene).is_some_and(|set| set >> capability & 1 == 1)
}

fn capabilities(scene: &Scene, (): &()) -> Finding {
    if effective(scene).is_none() {
        return Finding::unknown("no CapEff in /proc/self/status");
    }
    let missing = |names: &[(&str, u32)]| {
        let missing = names.iter().filter(|(_, number)| !has(scene, *number));
        missing.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let (to_record, to_move) = (missing(&NAMES[..2]), missing(&NAMES[2..]));
    match (to_record.is_empty(), to_move.is_empty()) {
        (false, _) => {
            Finding::forbidden(format!("{to_record} missing: recording needs both"), "run as root")
        }
        (true, false) => {
            Finding::limited(format!("enough to record; {to_move} missing"), "run as root")
        }
        (true, true) => Finding::present(NAMES.map(|(name, _)| name).join(", ")),
    }
}

const CGROUP: &str = "/sys/fs/cgroup";

fn cgroup(scene: &Scene, (): &()) -> Finding {
    let Some(controllers) = scene.text(&format!("{CGROUP}/cgroup.controllers")) else {
        return Finding::missing(
            format!("no cgroup v2 hierarchy at {CGROUP}"),
            "mount it: mount -t cgroup2 none /sys/fs/cgroup; or boot with systemd.unified_cgroup_hierarchy=1",
        );
    };
    let has = |name: &str| controllers.split(' ').any(|controller| controller == name);
    let missing: Vec<&str> =
        ["memory", "cpuset", "cpu"].into_iter().filter(|name| !has(name)).collect();
    match missing.as_slice() {
        [] => Finding::present(format!("controllers {controllers}")),
        _ => Finding::limited(
            format!("without the controllers {}", missing.join(", ")),
            "recording by --cgroup works; enable them on the kernel command line (cgroup_enable=memory)",
        ),
    }
}

fn pressure(scene: &Scene, (): &()) -> Finding {
    match scene.text("/proc/pressure/memory") {
        Some(text) if !text.is_empty() => Finding::present("/proc/pressure/memory"),
        // With psi=0 the files exist, but reading them fails.
        _ if scene.exists("/proc/pressure/memory") => {
            Finding::limited("built in, off", "boot with psi=1")
        }
        _ => Finding::missing(
            scene.lack("CONFIG_PSI"),
            "boot with psi=1, on a kernel with CONFIG_PSI",
        ),
    }
}

fn resctrl(scene: &Scene, (): &()) -> Finding {
    let features = scene.text("/sys/fs/resctrl/info/L3_MON/mon_features");
    match features {
        Some(text) if text.lines().any(|line| line == "mbm_total_bytes") => {
            Finding::present("memory bandwidth by group (MBM)")
        }
        Some(_) => Finding::limited(
            "mounted, without bandwidth monitoring",
            "none: the processor lacks MBM",
        ),
        None if scene.exists("/sys/fs/resctrl") => {
            Finding::limited("not mounted", "mount -t resctrl resctrl /sys/fs/resctrl")
        }
        None => Finding::missing(
            "neither processor nor kernel offers it",
            "none: MBM comes with server processors",
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Forbidden, Limited, Missing, Present, Unknown};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const STATUS: &str = "/proc/self/status";
        const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.controllers";
        const MBM: &str = "/sys/fs/resctrl/info/L3_MON/mon_features";
        judge(
            &[
                (
                    "capabilities",
                    &[(STATUS, "CapEff:\t000001ffffffffff\n")],
                    Present,
                    "CAP_PERFMON",
                ),
                (
                    "capabilities",
                    &[(STATUS, "CapEff:\t0000000000280000\n")],
                    Limited,
                    "CAP_SYS_NICE",
                ),
                (
                    "capabilities",
                    &[(STATUS, "CapEff:\t0000000000080000\n")],
                    Forbidden,
                    "CAP_SYS_ADMIN missing",
                ),
                ("capabilities", &[], Unknown, "no CapEff"),
                ("cgroup", &[(CONTROLLERS, "cpuset cpu io memory pids\n")], Present, "memory"),
                ("cgroup", &[(CONTROLLERS, "cpuset cpu\n")], Limited, "controllers memory"),
                ("cgroup", &[], Missing, "mount -t cgroup2"),
                (
                    "pressure",
                    &[("/proc/pressure/memory", "some avg10=0.00\n")],
                    Present,
                    "pressure",
                ),
                ("pressure", &[("/proc/pressure/memory", "")], Limited, "psi=1"),
                ("pressure", &[], Missing, "CONFIG_PSI"),
                ("resctrl", &[(MBM, "llc_occupancy\nmbm_total_bytes\n")], Present, "MBM"),
                ("resctrl", &[(MBM, "llc_occupancy\n")], Limited, "lacks MBM"),
                ("resctrl", &[("/sys/fs/resctrl/x", "")], Limited, "mount -t resctrl"),
                ("resctrl", &[], Missing, "server processors"),
            ],
            Tree::machine,
        );
    }
}
