//! Checks of what else clears ACCESSED bits on this machine, each with the command that ends it.

use std::path::Path;

use super::{Check, Finding, Scene};
use crate::bit_consumers::{
    DAMON_MODULES, DamonModule, IDLE_PAGES, LRU_GEN, kdamonds, mglru_walks, switch_of_kdamond,
};

const DEVICE: &str = "/dev/tierscope";

const GROUP: &str = "other readers of ACCESSED bits";

pub(super) fn checks() -> [Check<()>; 7] {
    let group = GROUP;
    [
        Check { id: "damon-stat", group, title: "DAMON_STAT", look: damon_stat },
        Check { id: "damon-reclaim", group, title: "DAMON_RECLAIM", look: damon_reclaim },
        Check { id: "damon-lru-sort", group, title: "DAMON_LRU_SORT", look: damon_lru_sort },
        Check { id: "kdamonds", group, title: "kdamonds of sysfs", look: others },
        Check { id: "mglru-aging", group, title: "MGLRU aging", look: aging },
        Check { id: "idle-tracking", group, title: "users of idle page tracking", look: idle },
        Check { id: "sessions", group, title: "sessions of tierscope", look: sessions },
    ]
}

const TAKES: &str = "what it takes of a target's bits reads as no access";

fn damon_stat(scene: &Scene, (): &()) -> Finding {
    module(scene, &DAMON_MODULES[0])
}

fn damon_reclaim(scene: &Scene, (): &()) -> Finding {
    module(scene, &DAMON_MODULES[1])
}

fn damon_lru_sort(scene: &Scene, (): &()) -> Finding {
    module(scene, &DAMON_MODULES[2])
}

fn module(scene: &Scene, module: &DamonModule) -> Finding {
    match module.runs(&|path| scene.text(path)) {
        Some(true) => Finding::limited(
            format!("runs over all memory: {TAKES}, and the kernel's DAMON cannot be used besides"),
            format!("echo N >{}", module.switch),
        ),
        Some(false) => Finding::present("off"),
        None => Finding::present("not in this kernel"),
    }
}

fn others(scene: &Scene, (): &()) -> Finding {
    let running = kdamonds(&|path| scene.text(path));
    let Some(first) = running.first() else { return Finding::present("none runs") };
    Finding::limited(
        format!("{} run: {TAKES}", running.len()),
        format!("end the tool that uses them, or echo off >{}", switch_of_kdamond(*first)),
    )
}

fn aging(scene: &Scene, (): &()) -> Finding {
    if !mglru_walks(&|path| scene.text(path)) {
        return Finding::present("does not walk page tables");
    }
    Finding::limited(
        format!("walks page tables when memory is short: {TAKES}"),
        format!("none needed while memory is free; echo 1 >{LRU_GEN} keeps MGLRU without walks"),
    )
}

fn idle(scene: &Scene, (): &()) -> Finding {
    users(scene, IDLE_PAGES, "uses it")
}

fn sessions(scene: &Scene, (): &()) -> Finding {
    users(scene, DEVICE, "watches targets: a second session on one of them is refused")
}

/// A finding on the processes that have a file open.
fn users(scene: &Scene, file: &str, what: &str) -> Finding {
    if !scene.exists(file) {
        return Finding::present("none: it is not there");
    }
    let own = std::process::id().to_string();
    let numeric = |name: &String| name.bytes().all(|b| b.is_ascii_digit()) && *name != own;
    let pids: Vec<String> = scene.names("/proc").into_iter().filter(numeric).collect();
    let opens = |pid: &&String| {
        let dir = format!("/proc/{pid}/fd");
        let link = |fd: &String| scene.link(&format!("{dir}/{fd}"));
        scene.names(&dir).iter().filter_map(link).any(|target| target == Path::new(file))
    };
    let Some(pid) = pids.iter().find(opens) else { return Finding::present("none") };
    let name = scene.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
    Finding::limited(format!("{name}[{pid}] {what}; {TAKES}"), format!("kill -INT {pid}"))
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Limited, Present};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn each_consumer_is_named_with_the_command_that_ends_it() {
        const STAT: &str = "/sys/module/damon_stat/parameters/enabled";
        const RECLAIM: &str = "/sys/module/damon_reclaim/parameters/enabled";
        const SORT: &str = "/sys/module/damon_lru_sort/parameters/enabled";
        const COUNT: (&str, &str) = ("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
        const STATE: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/state";
        const DEVICE: (&str, &str) = (super::DEVICE, "");
        const TO_BITMAP: &str = "-> /sys/kernel/mm/page_idle/bitmap";
        const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";
        judge(
            &[
                ("damon-stat", &[(STAT, "Y\n")], Limited, "runs over all memory"),
                ("damon-stat", &[(STAT, "N\n")], Present, "off"),
                ("damon-stat", &[], Present, "not in this kernel"),
                ("damon-reclaim", &[(RECLAIM, "Y\n")], Limited, "runs"),
                ("damon-lru-sort", &[(SORT, "Y\n")], Limited, "runs"),
                ("kdamonds", &[COUNT, (STATE, "on\n")], Limited, "1 run"),
                ("kdamonds", &[COUNT, (STATE, "off\n")], Present, "none"),
                ("mglru-aging", &[(LRU_GEN, "0x0007\n")], Limited, "when memory is short"),
                ("mglru-aging", &[(LRU_GEN, "0x0001\n")], Present, "does not walk"),
                ("mglru-aging", &[], Present, "does not walk"),
                ("idle-tracking", &[], Present, "not there"),
                ("sessions", &[DEVICE, ("/proc/7/fd/3", "-> /dev/null")], Present, "none"),
                (
                    "sessions",
                    &[DEVICE, ("/proc/7/fd/3", "-> /dev/tierscope"), ("/proc/7/comm", "record\n")],
                    Limited,
                    "record[7] watches targets",
                ),
                (
                    "idle-tracking",
                    &[(super::IDLE_PAGES, ""), ("/proc/7/fd/3", TO_BITMAP)],
                    Limited,
                    "kill -INT 7",
                ),
            ],
            Tree::machine,
        );
    }
}
