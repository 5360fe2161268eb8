//! Checks of the kernel's DAMON and of idle page tracking.

use super::{Check, Finding, Scene};
use crate::bit_consumers::DAMON_MODULES;

const GROUP: &str = "recording";

pub(super) fn checks() -> [Check<()>; 5] {
    let group = GROUP;
    [
        Check { id: "damon-sysfs", group, title: "kernel DAMON", look: sysfs },
        Check { id: "damon-vaddr", group, title: "DAMON of processes", look: vaddr },
        Check { id: "damon-paddr", group, title: "DAMON of physical memory", look: paddr },
        Check { id: "damon-tracepoint", group, title: "DAMON's tracepoint", look: tracepoint },
        Check { id: "idle-pages", group, title: "idle page tracking", look: idle_pages },
    ]
}

const ADMIN: &str = "/sys/kernel/mm/damon/admin";
const OTHER_KERNEL: &str = "boot a kernel with it (Debian 12: linux-image-6.12-amd64 of backports)";

fn sysfs(scene: &Scene, (): &()) -> Finding {
    if !scene.exists(ADMIN) {
        return Finding::missing(scene.lack("CONFIG_DAMON_SYSFS"), OTHER_KERNEL);
    }
    let read = |path: &str| scene.text(path);
    if let Some(module) = DAMON_MODULES.iter().find(|module| module.runs(&read) == Some(true)) {
        return Finding::missing(
            format!("{} runs, and excludes other kdamonds", module.name),
            format!("echo N >{}", module.switch),
        );
    }
    match scene.text(&format!("{ADMIN}/kdamonds/nr_kdamonds")).as_deref() {
        Some("0") if scene.is_read_only(&format!("{ADMIN}/kdamonds/nr_kdamonds")) => {
            Finding::forbidden(
                "sysfs is read-only here",
                "give the service a drop-in with ProtectKernelTunables=no",
            )
        }
        Some("0") => Finding::present("free to use"),
        Some(count) => Finding::limited(
            format!("in use: {count} kdamonds are set up"),
            "end the tool that set them up, such as damo: one at a time can use DAMON's sysfs; what a \
             killed tierscope left goes with the next start of kernel-damon",
        ),
        None if scene.is_closed(ADMIN) => {
            Finding::forbidden("it may not be read by this user", "run as root")
        }
        None => Finding::missing("its directory is not complete", OTHER_KERNEL),
    }
}

/// Checks for a set of DAMON operations: sysfs lists them only for contexts that are set up;
/// otherwise the kernel's configuration shows them.
fn operations(scene: &Scene, symbol: &str, name: &str) -> Finding {
    if !scene.exists(ADMIN) {
        return Finding::missing(scene.lack("CONFIG_DAMON_SYSFS"), OTHER_KERNEL);
    }
    let of_context = format!("{ADMIN}/kdamonds/0/contexts/0/avail_operations");
    if let Some(operations) = scene.text(&of_context) {
        return match operations.lines().any(|line| line.trim() == name) {
            true => Finding::present(format!("operations {name}")),
            false => Finding::missing(format!("DAMON has no operations {name} here"), OTHER_KERNEL),
        };
    }
    match scene.configured(symbol) {
        Some(true) => Finding::present(format!("built in ({symbol})")),
        Some(false) => Finding::missing(scene.lack(symbol), OTHER_KERNEL),
        None => Finding::unknown("to be seen once a kdamond is set up: there is no /boot/config"),
    }
}

fn vaddr(scene: &Scene, (): &()) -> Finding {
    operations(scene, "CONFIG_DAMON_VADDR", "vaddr")
}

fn paddr(scene: &Scene, (): &()) -> Finding {
    operations(scene, "CONFIG_DAMON_PADDR", "paddr")
}

fn tracepoint(scene: &Scene, (): &()) -> Finding {
    const EVENT: &str = "events/damon/damon_aggregated/format";
    const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    if ROOTS.iter().any(|root| scene.exists(&format!("{root}/{EVENT}"))) {
        return Finding::present("damon:damon_aggregated reports every window");
    }
    if ROOTS.iter().any(|root| scene.is_closed(&format!("{root}/{EVENT}"))) {
        return Finding::forbidden("tracefs may not be read by this user", "run as root");
    }
    if !scene.exists(&format!("{}/events", ROOTS[0])) {
        let mount = "mount it: mount -t tracefs tracefs /sys/kernel/tracing";
        return Finding::missing("tracefs is not mounted", mount);
    }
    Finding::missing("the kernel has no event damon:damon_aggregated", OTHER_KERNEL)
}

fn idle_pages(scene: &Scene, (): &()) -> Finding {
    if scene.exists("/sys/kernel/mm/page_idle/bitmap") {
        return Finding::present("/sys/kernel/mm/page_idle/bitmap");
    }
    let remedy = "none needed: the module gives more evidence; otherwise a kernel with CONFIG_IDLE_PAGE_TRACKING";
    Finding::missing(scene.lack("CONFIG_IDLE_PAGE_TRACKING"), remedy)
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Limited, Missing, Present, Unknown};
    use crate::doctor::scene::tests::{Tree, judge};

    const FREE: (&str, &str) = ("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
    const STAT: (&str, &str) = ("/sys/module/damon_stat/parameters/enabled", "Y\n");
    const RELEASE: (&str, &str) = ("/proc/sys/kernel/osrelease", "6.12\n");
    const OPERATIONS: &str = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/avail_operations";

    #[test]
    fn every_verdict_is_given() {
        judge(
            &[
                ("damon-sysfs", &[FREE], Present, "free"),
                ("damon-sysfs", &[(FREE.0, "1\n")], Limited, "1 kdamonds"),
                ("damon-sysfs", &[FREE, STAT], Missing, "damon-stat runs"),
                ("damon-sysfs", &[], Missing, "does not have it"),
                ("damon-sysfs", &[("/sys/kernel/mm/damon/admin/x", "")], Missing, "not complete"),
                ("damon-vaddr", &[FREE, (OPERATIONS, "vaddr\nfvaddr\n")], Present, "vaddr"),
                (
                    "damon-paddr",
                    &[FREE, (OPERATIONS, "vaddr\nfvaddr\n")],
                    Missing,
                    "no operations paddr",
                ),
                ("damon-vaddr", &[FREE], Unknown, "/boot/config"),
                (
                    "damon-paddr",
                    &[FREE, RELEASE, ("/boot/config-6.12", "CONFIG_DAMON_PADDR=y\n")],
                    Present,
                    "built in",
                ),
                (
                    "damon-vaddr",
                    &[FREE, RELEASE, ("/boot/config-6.12", "")],
                    Missing,
                    "without CONFIG_DAMON_VADDR",
                ),
                (
                    "damon-tracepoint",
                    &[("/sys/kernel/tracing/events/damon/damon_aggregated/format", "x")],
                    Present,
                    "every window",
                ),
                ("damon-tracepoint", &[], Missing, "mount -t tracefs"),
                ("damon-tracepoint", &[("/sys/kernel/tracing/events/x", "")], Missing, "no event"),
                ("idle-pages", &[("/sys/kernel/mm/page_idle/bitmap", "")], Present, "bitmap"),
                ("idle-pages", &[], Missing, "CONFIG_IDLE_PAGE_TRACKING"),
            ],
            Tree::machine,
        );
    }
}
