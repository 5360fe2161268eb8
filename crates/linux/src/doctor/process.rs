//! Checks of one process: whether it can be watched, and which of its memory cannot be seen or
//! moved.

use tierscope_core::{ErrorKind, Mappings, SpaceId};

use super::scene::of;
use super::{Check, Finding, Scene, Verdict, control};
use crate::Selection;
use crate::guest_memory::{guest_ram, runs_guest};
use crate::proc::Names;

const GROUP: &str = "process";

pub(super) fn checks() -> [Check<u32>; 9] {
    let group = GROUP;
    [
        Check { id: "target", group, title: "can be watched", look: target },
        Check { id: "permission", group, title: "permission", look: permission },
        Check { id: "namespaces", group, title: "namespaces", look: namespaces },
        Check { id: "mappings", group, title: "mappings", look: mappings },
        Check { id: "shared-hugetlb", group, title: "hugetlb", look: hugetlb },
        Check { id: "guest-memory", group, title: "memory of a guest", look: guest },
        Check { id: "locked", group, title: "locked memory", look: locked },
        Check { id: "thp-eligible", group, title: "huge pages", look: thp },
        Check { id: "process-cgroup", group, title: "cgroup", look: cgroup },
    ]
}

fn target(scene: &Scene, pid: &u32) -> Finding {
    match (Selection::Process { pid: *pid, children: false }).check(&scene.proc()) {
        Ok(()) => {
            let name = scene.text(&of(*pid, "comm")).unwrap_or_default();
            Finding::present(format!("{name}[{pid}]"))
        }
        Err(error) if error.kind() == ErrorKind::Permission => {
            Finding::of(Verdict::Forbidden, &error)
        }
        Err(error) => Finding::of(Verdict::Missing, &error),
    }
}

fn permission(scene: &Scene, pid: &u32) -> Finding {
    let may = control::has(scene, control::CAP_SYS_PTRACE);
    if !may {
        return Finding::forbidden(
            "CAP_SYS_PTRACE is missing: neither its mappings nor its page tables may be read",
            "run as root",
        );
    }
    if scene.is_closed(&of(*pid, "maps")) {
        let found =
            "its mappings may not be read, capabilities or not: a security policy forbids it";
        return Finding::forbidden(
            found,
            "look into AppArmor, SELinux, or the container's profile",
        );
    }
    let yama = scene.text("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_else(|| "0".into());
    Finding::present(format!("CAP_SYS_PTRACE (yama ptrace_scope is {yama}, which that passes by)"))
}

fn namespaces(scene: &Scene, pid: &u32) -> Finding {
    let differs = |kind: &&str| {
        let ours = scene.link(&format!("/proc/self/ns/{kind}"));
        let theirs = scene.link(&of(*pid, &format!("ns/{kind}")));
        matches!((ours, theirs), (Some(ours), Some(theirs)) if ours != theirs)
    };
    let other: Vec<&str> = ["pid", "user", "mnt", "cgroup"].into_iter().filter(differs).collect();
    if other.is_empty() {
        return Finding::present("the same as ours");
    }
    // NSpid lists the pid in each nested pid namespace, starting with ours.
    let inside = scene.field(&of(*pid, "status"), "NSpid").unwrap_or_default();
    let inside = inside.split_ascii_whitespace().last().unwrap_or("?").to_owned();
    Finding::limited(
        format!("in a container ({} of its own); inside it is pid {inside}", other.join(", ")),
        "none needed: give the pid as it is seen here; names of files are those of the container",
    )
}

/// A size field of `/proc/PID/status` or smaps_rollup, like `VmRSS:  12 kB`, in bytes.
fn kib(scene: &Scene, pid: u32, file: &str, key: &str) -> Option<u64> {
    let text = scene.field(&of(pid, file), key)?;
    text.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn mappings(scene: &Scene, pid: &u32) -> Finding {
    let Some(text) = scene.text(&of(*pid, "maps")) else {
        return Finding::unknown("they cannot be read");
    };
    let status = |key| kib(scene, *pid, "status", key).unwrap_or(0);
    // The kernel counts huge pages of the pool apart.
    let resident = status("VmRSS") + status("HugetlbPages");
    let (count, mapped) = (text.lines().count(), status("VmSize"));
    if count == 0 {
        return Finding::missing("it has no memory of its own", "give the pid of a user process");
    }
    let found = format!("{count}, {} mapped, {} resident", mib(mapped), mib(resident));
    if resident < 1 << 30 {
        let remedy = "none needed: for so little memory the kernel's DAMON does as well";
        return Finding::limited(found, remedy);
    }
    Finding::present(found)
}

fn hugetlb(scene: &Scene, pid: &u32) -> Finding {
    let bytes = |key| kib(scene, *pid, "smaps_rollup", key);
    match (bytes("Shared_Hugetlb"), bytes("Private_Hugetlb")) {
        (None, None) => return Finding::unknown("/proc/PID/smaps_rollup cannot be read"),
        // To read smaps takes long: only if there is something to find.
        (Some(1..), _) | (_, Some(1..)) => {}
        _ => return Finding::present("none"),
    }
    let Ok(Some(found)) = scene.proc().pool_bytes(*pid) else {
        return Finding::unknown("/proc/PID/smaps cannot be read");
    };
    let private = format!("{} private: evidence covers a whole page", mib(found.private));
    if found.shared == 0 {
        return Finding::present(private);
    }
    let shared = mib(found.shared);
    Finding::limited(
        format!(
            "{shared} in shared mappings: refused while the kernel changes their tables; {private}"
        ),
        "none needed; if reports show refused memory, use --instrument kernel-damon",
    )
}

/// A process that runs a guest has a vCPU mapped; one that has only descriptors of a machine does
/// not run it, or not yet.
fn guest(scene: &Scene, pid: &u32) -> Finding {
    let remedy =
        "run tierscope inside of the guest, or here with --instrument kernel-damon, which asks KVM";
    let maps = scene.proc().maps(*pid, SpaceId(0), &mut Names::default()).ok().flatten();
    let mappings = Mappings {
        mappings: maps.map(|maps| maps.mappings).unwrap_or_default(),
        ..Mappings::default()
    };
    if runs_guest(&mappings) {
        let ram = mib(guest_ram(&mappings).bytes());
        return Finding::limited(
            format!(
                "it runs a virtual machine: {ram} in writable mappings of 64 MiB and more are \
                 taken for the guest's RAM, whose accesses are not in its page table"
            ),
            remedy,
        );
    }
    let fd = of(*pid, "fd");
    let is_machine = |name: &String| {
        let link = scene.link(&format!("{fd}/{name}"));
        link.is_some_and(|to| to.to_string_lossy().starts_with("anon_inode:kvm-v"))
    };
    if scene.names(&fd).iter().any(is_machine) {
        return Finding::limited("it holds a virtual machine, and has no vCPU mapped", remedy);
    }
    Finding::present("none: its accesses are its own")
}

fn locked(scene: &Scene, pid: &u32) -> Finding {
    match kib(scene, *pid, "status", "VmLck") {
        None => Finding::unknown("not in /proc/PID/status"),
        Some(0) => Finding::present("none"),
        Some(bytes) => Finding::limited(
            format!("{}: seen, but never reclaimed", mib(bytes)),
            "none needed for recording",
        ),
    }
}

fn thp(scene: &Scene, pid: &u32) -> Finding {
    if scene.field(&of(*pid, "status"), "THP_enabled").as_deref() == Some("0") {
        return Finding::present("turned off by the process: evidence for each page");
    }
    match kib(scene, *pid, "smaps_rollup", "AnonHugePages") {
        None => Finding::unknown("/proc/PID/smaps_rollup cannot be read"),
        Some(0) => Finding::present("none: evidence for each page"),
        Some(bytes) => Finding::limited(
            format!("{} in huge pages: evidence covers 2 MiB", mib(bytes)),
            "none needed; for finer regions turn THP off for the process",
        ),
    }
}

fn cgroup(scene: &Scene, pid: &u32) -> Finding {
    let text = scene.text(&of(*pid, "cgroup")).unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Finding::missing("it is in no cgroup of version 2", "watch it with -p");
    };
    let path = path.trim_end_matches(" (deleted)").trim_end_matches('/');
    if scene.exists(&format!("/sys/fs/cgroup{path}/memory.current")) {
        return Finding::present(format!(
            "{path}/: memory is accounted (--cgroup /sys/fs/cgroup{path})"
        ));
    }
    Finding::limited(
        format!("{path}/: memory is not accounted there"),
        "none needed for recording; enable `memory` in cgroup.subtree_control above it",
    )
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Forbidden, Limited, Missing, Present, Unknown};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const STATUS: &str = "/proc/42/status";
        const STAT: (&str, &str) =
            ("/proc/42/stat", "42 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5\n");
        const THREAD: (&str, &str) =
            ("/proc/42/stat", "42 (k) S 1 1 1 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 5\n");
        const ROLLUP: &str = "/proc/42/smaps_rollup";
        const SMAPS: &str = "/proc/42/smaps";
        // No other process maps the page of the shared mapping.
        const SHARED: &str = "\
            a00000-c00000 rw-s 0 0:f 7 /p\nPrivate_Hugetlb: 2048 kB\nVmFlags: rd wr sh ms ht \n\
            c00000-1000000 rw-p 0 0:f 7 /p\nPrivate_Hugetlb: 4096 kB\nVmFlags: rd wr ht \n";
        const PRIVATE: &str =
            "c00000-1000000 rw-p 0 0:f 7 /p\nPrivate_Hugetlb: 4096 kB\nVmFlags: rd wr ht \n";
        const MONITOR: (&str, &str) = (
            "/proc/42/maps",
            "40000000-60000000 rw-p 0 0:0 0\n70000000-70003000 rw-s 0 0:e 9 anon_inode:kvm-vcpu:0\n",
        );
        const CGROUP: &str = "/proc/42/cgroup";
        const ROOT: (&str, &str) = ("/proc/self/status", "CapEff:\t000001ffffffffff\n");
        const NONE: (&str, &str) = ("/proc/self/status", "CapEff:\t0000000000000000\n");
        const MAPS: (&str, &str) =
            ("/proc/42/maps", "0-1000 rw-p 0 0:0 0\n1000-2000 rw-p 0 0:0 0\n");
        judge(
            &[
                (
                    "target",
                    &[STAT, (STATUS, "Tgid:\t42\n"), ("/proc/42/comm", "redis\n")],
                    Present,
                    "redis[42]",
                ),
                (
                    "target",
                    &[STAT, (STATUS, "Tgid:\t42\n"), ("/proc/42/comm", "a\u{1b}[2J\u{202e}\n")],
                    Present,
                    "a\\u{1b}[2J\\u{202e}[42]",
                ),
                ("target", &[STAT, (STATUS, "Tgid:\t7\n")], Missing, "-p 7"),
                ("target", &[THREAD, (STATUS, "Tgid:\t42\n")], Missing, "thread of the kernel"),
                ("target", &[], Missing, "no such process"),
                ("permission", &[ROOT, MAPS], Present, "CAP_SYS_PTRACE"),
                ("permission", &[NONE, MAPS], Forbidden, "run as root"),
                (
                    "namespaces",
                    &[("/proc/self/ns/pid", "-> pid:[1]"), ("/proc/42/ns/pid", "-> pid:[1]")],
                    Present,
                    "same",
                ),
                (
                    "namespaces",
                    &[
                        ("/proc/self/ns/pid", "-> pid:[1]"),
                        ("/proc/42/ns/pid", "-> pid:[2]"),
                        (STATUS, "NSpid:\t42\t7\n"),
                    ],
                    Limited,
                    "inside it is pid 7",
                ),
                (
                    "mappings",
                    &[
                        MAPS,
                        (
                            STATUS,
                            "VmSize:\t4194304 kB\nVmRSS:\t524288 kB\nHugetlbPages:\t1572864 kB\n",
                        ),
                    ],
                    Present,
                    "2, 4096 MiB",
                ),
                ("mappings", &[MAPS], Limited, "so little"),
                ("mappings", &[("/proc/42/maps", "")], Missing, "no memory"),
                ("mappings", &[], Unknown, "cannot be read"),
                (
                    "shared-hugetlb",
                    &[(ROLLUP, "Private_Hugetlb:  6144 kB\n"), (SMAPS, SHARED)],
                    Limited,
                    "2 MiB in shared mappings: refused while the kernel changes their tables; 4 MiB private",
                ),
                (
                    "shared-hugetlb",
                    &[(ROLLUP, "Private_Hugetlb: 2048 kB\n"), (SMAPS, PRIVATE)],
                    Present,
                    "4 MiB private",
                ),
                ("shared-hugetlb", &[(ROLLUP, "Private_Hugetlb: 2048 kB\n")], Unknown, "/smaps"),
                (
                    "shared-hugetlb",
                    &[(ROLLUP, "Shared_Hugetlb: 0 kB\nPrivate_Hugetlb: 0 kB\n")],
                    Present,
                    "none",
                ),
                ("shared-hugetlb", &[], Unknown, "smaps_rollup"),
                (
                    "guest-memory",
                    &[("/proc/42/fd/9", "-> anon_inode:kvm-vm")],
                    Limited,
                    "no vCPU mapped; run tierscope inside of the guest",
                ),
                ("guest-memory", &[MONITOR], Limited, "512 MiB in writable mappings"),
                ("guest-memory", &[("/proc/42/fd/9", "-> /dev/null")], Present, "none"),
                ("locked", &[(STATUS, "VmLck:\t2048 kB\n")], Limited, "2 MiB"),
                ("locked", &[(STATUS, "VmLck:\t0 kB\n")], Present, "none"),
                ("locked", &[], Unknown, "not in /proc"),
                ("thp-eligible", &[(STATUS, "THP_enabled:\t0\n")], Present, "turned off"),
                (
                    "thp-eligible",
                    &[(ROLLUP, "AnonHugePages:  4096 kB\n")],
                    Limited,
                    "4 MiB in huge pages",
                ),
                ("thp-eligible", &[(ROLLUP, "AnonHugePages:  0 kB\n")], Present, "for each page"),
                ("thp-eligible", &[], Unknown, "smaps_rollup"),
                (
                    "process-cgroup",
                    &[(CGROUP, "0::/a/b\n"), ("/sys/fs/cgroup/a/b/memory.current", "1")],
                    Present,
                    "/a/b",
                ),
                (
                    "process-cgroup",
                    &[(CGROUP, "0::/a\u{9b}b\n")],
                    Limited,
                    "/a\\u{9b}b/: memory is not",
                ),
                ("process-cgroup", &[(CGROUP, "1:cpu:/x\n0::/\n")], Limited, "not accounted"),
                ("process-cgroup", &[], Missing, "no cgroup"),
            ],
            Tree::process,
        );
    }
}
