//! Checks of the kernel, the processor and the hypervisor.

use super::{Check, Finding, Scene};

const GROUP: &str = "machine";

pub(super) fn checks() -> [Check<()>; 4] {
    let group = GROUP;
    [
        Check { id: "kernel", group, title: "kernel", look: kernel },
        Check { id: "paging", group, title: "page table", look: paging },
        Check { id: "hypervisor", group, title: "hypervisor", look: hypervisor },
        Check { id: "nested-paging", group, title: "memory of guests", look: nested },
    ]
}

/// Kernel series on which `make test-kernels` passed, oldest first (SUPPORT.md, docs/kernels.json).
pub const TESTED: [(u32, u32); 10] =
    [(6, 1), (6, 12), (6, 16), (6, 17), (6, 18), (6, 19), (7, 0), (7, 1), (7, 2), (7, 3)];

/// The first kernel series whose DAMON tunes its intervals.
const TUNES: (u32, u32) = (6, 15);

/// Whether the DAMON of this kernel tunes its intervals.
pub(super) fn damon_tunes(scene: &Scene) -> bool {
    let release = scene.text("/proc/sys/kernel/osrelease");
    release.and_then(|release| series(&release)).is_some_and(|series| series >= TUNES)
}

/// Major and minor number of a kernel release.
fn series(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn kernel(scene: &Scene, (): &()) -> Finding {
    let Some(release) = scene.text("/proc/sys/kernel/osrelease") else {
        return Finding::missing("/proc says no kernel release", "mount /proc");
    };
    let arch = scene.text("/proc/sys/kernel/arch").unwrap_or_else(|| std::env::consts::ARCH.into());
    if arch != "x86_64" {
        let found = format!("Linux {release} on {arch}: the module is for x86-64");
        return Finding::limited(found, "use the kernel's DAMON");
    }
    let (oldest, newest) = (TESTED[0], TESTED[TESTED.len() - 1]);
    let named = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    match series(&release) {
        Some(series) if TESTED.contains(&series) => {
            Finding::present(format!("Linux {release}, of a series that is tested"))
        }
        Some(series) if series < oldest => Finding::limited(
            format!("Linux {release}: the module does not build before {}", named(oldest)),
            format!("use the kernel's DAMON, or boot Linux {} or later", named(oldest)),
        ),
        Some(series) if series > newest => Finding::limited(
            format!(
                "Linux {release} is newer than what is tested (up to {}): DKMS leaves the module out",
                named(newest)
            ),
            "use the kernel's DAMON, or update tierscope",
        ),
        _ => Finding::limited(
            format!("Linux {release}, which is not tested; the module should build"),
            "try the module's self-test; tested kernels are in SUPPORT.md",
        ),
    }
}

/// Whether /proc/cpuinfo lists a CPU feature.
fn has_flag(scene: &Scene, flag: &str) -> bool {
    let flags = scene.field("/proc/cpuinfo", "flags").unwrap_or_default();
    flags.split(' ').any(|word| word == flag)
}

fn paging(scene: &Scene, (): &()) -> Finding {
    if !scene.exists("/proc/cpuinfo") {
        return Finding::unknown("there is no /proc/cpuinfo");
    }
    let sizes = match (has_flag(scene, "pse"), has_flag(scene, "pdpe1gb")) {
        (_, true) => "4 KiB, 2 MiB, 1 GiB",
        (true, false) => "4 KiB, 2 MiB",
        (false, false) => "4 KiB",
    };
    if has_flag(scene, "la57") {
        return Finding::limited(
            format!("5 levels if the kernel uses them; pages of {sizes}"),
            "none needed: level 5 carries no information about one process and is not used",
        );
    }
    Finding::present(format!("4 levels; pages of {sizes}"))
}

fn hypervisor(scene: &Scene, (): &()) -> Finding {
    let kind = scene.text("/sys/hypervisor/type");
    if kind.as_deref() == Some("xen")
        && scene.text("/sys/hypervisor/guest_type").as_deref() == Some("PV")
    {
        return Finding::missing(
            "a Xen PV guest: its page tables are not its own, and the module refuses",
            "run it as HVM or PVH guest",
        );
    }
    if kind.is_some() || has_flag(scene, "hypervisor") {
        let found = "a guest: page tables are its own, PMU and NUMA are what the host gives";
        return Finding::present(found);
    }
    Finding::present("none: bare metal")
}

fn nested(scene: &Scene, (): &()) -> Finding {
    let on = |path: &str| scene.text(path).is_some_and(|value| value == "Y" || value == "1");
    let ept = on("/sys/module/kvm_intel/parameters/ept");
    if ept || on("/sys/module/kvm_amd/parameters/npt") {
        return Finding::limited(
            "KVM is loaded with nested paging: accesses of guests are in its tables, not in the host's",
            "profile inside of the guest, or use the kernel's DAMON of physical memory on the host",
        );
    }
    Finding::present("no guests with nested paging run here")
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Limited, Missing, Present, Unknown};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const RELEASE: &str = "/proc/sys/kernel/osrelease";
        const ARCH: (&str, &str) = ("/proc/sys/kernel/arch", "x86_64\n");
        const CPU: &str = "/proc/cpuinfo";
        const XEN: (&str, &str) = ("/sys/hypervisor/type", "xen\n");
        judge(
            &[
                ("kernel", &[(RELEASE, "6.12.117+deb12-amd64\n"), ARCH], Present, "tested"),
                ("kernel", &[(RELEASE, "6.1.0-56-amd64\n"), ARCH], Present, "tested"),
                ("kernel", &[(RELEASE, "6.5.0-1-amd64\n"), ARCH], Limited, "should build"),
                ("kernel", &[(RELEASE, "5.10.0-1-amd64\n"), ARCH], Limited, "before 6.1"),
                ("kernel", &[(RELEASE, "99.1\n"), ARCH], Limited, "newer than what is tested"),
                ("kernel", &[(RELEASE, "strange\n"), ARCH], Limited, "should build"),
                ("kernel", &[(RELEASE, "6.12.1\n"), (ARCH.0, "aarch64\n")], Limited, "aarch64"),
                ("kernel", &[], Missing, "mount /proc"),
                (
                    "paging",
                    &[(CPU, "flags\t\t: fpu pse pdpe1gb\n")],
                    Present,
                    "4 levels; pages of 4 KiB, 2 MiB, 1",
                ),
                ("paging", &[(CPU, "flags\t\t: fpu pse la57\n")], Limited, "5 levels"),
                ("paging", &[], Unknown, "cpuinfo"),
                ("hypervisor", &[(CPU, "flags : pse hypervisor\n")], Present, "a guest"),
                ("hypervisor", &[(CPU, "flags : pse\n")], Present, "bare metal"),
                ("hypervisor", &[XEN, ("/sys/hypervisor/guest_type", "PV\n")], Missing, "HVM"),
                ("hypervisor", &[XEN, ("/sys/hypervisor/guest_type", "HVM\n")], Present, "a guest"),
                (
                    "nested-paging",
                    &[("/sys/module/kvm_intel/parameters/ept", "Y\n")],
                    Limited,
                    "inside",
                ),
                (
                    "nested-paging",
                    &[("/sys/module/kvm_amd/parameters/npt", "1\n")],
                    Limited,
                    "inside",
                ),
                (
                    "nested-paging",
                    &[("/sys/module/kvm_amd/parameters/npt", "0\n")],
                    Present,
                    "no guests",
                ),
            ],
            Tree::machine,
        );
    }
}
