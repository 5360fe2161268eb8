//! Checks of NUMA nodes, memory tiers and page migration.

use super::{Check, Finding, Scene};

const GROUP: &str = "placement";

pub(super) fn checks() -> [Check<()>; 8] {
    let group = GROUP;
    [
        Check { id: "numa", group, title: "NUMA nodes", look: numa },
        Check { id: "tiers", group, title: "memory tiers", look: tiers },
        Check { id: "numa-maps", group, title: "pages by node", look: numa_maps },
        Check { id: "demotion", group, title: "demotion by the kernel", look: demotion },
        Check { id: "numa-balancing", group, title: "NUMA balancing", look: balancing },
        Check { id: "move-pages", group, title: "move_pages", look: move_pages },
        Check { id: "process-madvise", group, title: "process_madvise", look: madvise },
        Check { id: "userfaultfd", group, title: "userfaultfd", look: userfaultfd },
    ]
}

/// Number of nodes in a list like `0-2,4`, without checking their plausibility.
fn count(list: &str) -> u64 {
    let nodes = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(nodes).fold(0, u64::saturating_add)
}

fn numa(scene: &Scene, (): &()) -> Finding {
    const NODES: &str = "/sys/devices/system/node";
    let online = scene.text(&format!("{NODES}/online")).unwrap_or_default();
    let with_memory = scene.text(&format!("{NODES}/has_memory")).unwrap_or_else(|| online.clone());
    let with_cpu = scene.text(&format!("{NODES}/has_cpu")).unwrap_or_default();
    match count(&with_memory) {
        0 => Finding::missing("the kernel has no NUMA", "use a kernel with CONFIG_NUMA"),
        1 => Finding::limited(
            "one node: there is nowhere to move memory to",
            "add a node, or CXL memory",
        ),
        nodes => Finding::present(format!(
            "{nodes} with memory ({with_memory}), {} with CPUs",
            count(&with_cpu)
        )),
    }
}

fn tiers(scene: &Scene, (): &()) -> Finding {
    const TIERS: &str = "/sys/devices/virtual/memory_tiering";
    let names = scene.names(TIERS).into_iter().filter(|name| name.starts_with("memory_tier"));
    let shown: Vec<String> = names
        .filter_map(|name| {
            let nodes = scene.text(&format!("{TIERS}/{name}/nodelist"))?;
            Some(format!("{name}: {nodes}")).filter(|_| !nodes.is_empty())
        })
        .collect();
    match shown.len() {
        0 => Finding::missing(
            "the kernel knows no memory tiers",
            "use Linux 6.1 or newer with CONFIG_NUMA",
        ),
        1 => Finding::limited(
            format!("one tier ({})", shown[0]),
            "all memory is alike to the kernel: tiers come from HMAT, CXL or dax kmem",
        ),
        _ => Finding::present(shown.join(", ")),
    }
}

fn numa_maps(scene: &Scene, (): &()) -> Finding {
    match scene.exists("/proc/self/numa_maps") {
        true => Finding::present("recordings hold how much of each process is on which node"),
        false => Finding::missing(
            scene.lack("CONFIG_NUMA"),
            "none needed for recording: totals per tier are left out",
        ),
    }
}

fn demotion(scene: &Scene, (): &()) -> Finding {
    let path = "/sys/kernel/mm/numa/demotion_enabled";
    match scene.text(path).as_deref() {
        Some("true" | "1") => Finding::present("on: reclaim moves pages to a slower tier"),
        Some(_) => Finding::limited("off", format!("echo true > {path}")),
        None => Finding::missing(
            "the kernel cannot demote",
            "use Linux 5.15 or newer with CONFIG_MIGRATION",
        ),
    }
}

fn balancing(scene: &Scene, (): &()) -> Finding {
    let arms = "it takes ACCESSED evidence by hint faults while it is on";
    match scene.text("/proc/sys/kernel/numa_balancing").as_deref() {
        Some("0") => Finding::present("off: nothing else looks at the same evidence"),
        Some("2") => Finding::limited(format!("on, tiering mode: {arms}"), "say so in comparisons"),
        Some(_) => Finding::limited(format!("on: {arms}"), "say so in comparisons"),
        None => Finding::missing(scene.lack("CONFIG_NUMA_BALANCING"), "none needed for recording"),
    }
}

fn call(scene: &Scene, number: i64, use_of: &str, since: &str) -> Finding {
    match scene.system.system_call(number) {
        Ok(()) => Finding::present(use_of),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
            Finding::forbidden(format!("{use_of}: {e}"), "run as root, outside of a sandbox")
        }
        Err(_) => Finding::missing("the kernel does not know the system call", since),
    }
}

fn move_pages(scene: &Scene, (): &()) -> Finding {
    call(
        scene,
        libc::SYS_move_pages,
        "moves pages of other processes",
        "use a kernel with CONFIG_NUMA",
    )
}

fn madvise(scene: &Scene, (): &()) -> Finding {
    let since = "use Linux 5.10 or newer";
    call(scene, libc::SYS_process_madvise, "reclaims and cools memory of other processes", since)
}

fn userfaultfd(scene: &Scene, (): &()) -> Finding {
    let kernel = "use a kernel with CONFIG_USERFAULTFD";
    call(scene, libc::SYS_userfaultfd, "catches faults in user space", kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict::{Limited, Missing, Present};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn lists_of_nodes_are_counted() {
        assert_eq!((count(""), count("0"), count("0-2,4"), count("3-1,x")), (0, 1, 4, 0));
        assert_eq!(count("0-18446744073709551615"), 0);
    }

    #[test]
    fn every_verdict_is_given() {
        const ONLINE: &str = "/sys/devices/system/node/online";
        const MEMORY: &str = "/sys/devices/system/node/has_memory";
        const TIER: &str = "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist";
        const SLOW: &str = "/sys/devices/virtual/memory_tiering/memory_tier22/nodelist";
        const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
        const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
        judge(
            &[
                ("numa", &[(ONLINE, "0-1\n"), (MEMORY, "0-1\n")], Present, "2 with memory"),
                ("numa", &[(ONLINE, "0\n")], Limited, "one node"),
                ("numa", &[], Missing, "CONFIG_NUMA"),
                ("tiers", &[(TIER, "0\n"), (SLOW, "1\n")], Present, "memory_tier22: 1"),
                ("tiers", &[(TIER, "0-1\n"), (SLOW, "\n")], Limited, "one tier"),
                ("tiers", &[], Missing, "6.1"),
                ("numa-maps", &[("/proc/self/numa_maps", "")], Present, "which node"),
                ("numa-maps", &[], Missing, "left out"),
                ("demotion", &[(DEMOTION, "true\n")], Present, "on"),
                ("demotion", &[(DEMOTION, "false\n")], Limited, "echo true"),
                ("demotion", &[], Missing, "demote"),
                ("numa-balancing", &[(BALANCING, "0\n")], Present, "off"),
                ("numa-balancing", &[(BALANCING, "1\n")], Limited, "hint faults"),
                ("numa-balancing", &[(BALANCING, "2\n")], Limited, "tiering"),
                ("numa-balancing", &[], Missing, "none needed"),
                ("move-pages", &[], Missing, "CONFIG_NUMA"),
                ("process-madvise", &[], Missing, "5.10"),
                ("userfaultfd", &[], Missing, "CONFIG_USERFAULTFD"),
            ],
            Tree::machine,
        );
        let mut tree = Tree::new(&[]);
        tree.system.calls = true;
        assert_eq!(tree.machine("move-pages").0, Present);
    }
}
