//! Checks of hardware that samples memory accesses.

use super::{Check, Finding, Scene};

const GROUP: &str = "samples";

pub(super) fn checks() -> [Check<()>; 5] {
    let group = GROUP;
    [
        Check { id: "pmu", group, title: "performance counters", look: pmu },
        Check { id: "precise-samples", group, title: "sampled addresses", look: precise },
        Check { id: "perf-access", group, title: "use of perf events", look: access },
        Check { id: "telemetry-device", group, title: "telemetry device", look: telemetry },
        Check { id: "tlb-misses", group, title: "records of TLB misses", look: tlb_misses },
    ]
}

const DEVICES: &str = "/sys/bus/event_source/devices";

fn has_pmu(scene: &Scene) -> bool {
    ["cpu", "cpu_core"].iter().any(|name| scene.exists(&format!("{DEVICES}/{name}")))
}

fn pmu(scene: &Scene, (): &()) -> Finding {
    if !scene.exists(DEVICES) {
        let kernel = "use a kernel with CONFIG_PERF_EVENTS";
        return Finding::missing("the kernel has no perf events", kernel);
    }
    if has_pmu(scene) {
        return Finding::present("the processor's counters are there");
    }
    let hypervisor = "let the hypervisor give the guest a PMU (QEMU/KVM: -cpu host,pmu=on)";
    Finding::missing("no processor counters: software events only, as in most guests", hypervisor)
}

/// Checks for sampled addresses: PEBS reports its precision in `caps/max_precise`; IBS is a
/// separate device.
fn precise(scene: &Scene, (): &()) -> Finding {
    let precise = |cpu: &str| {
        let text = scene.text(&format!("{DEVICES}/{cpu}/caps/max_precise"))?;
        text.parse::<u32>().ok()
    };
    if scene.exists(&format!("{DEVICES}/ibs_op")) {
        return Finding::present("AMD IBS (ibs_op)");
    }
    match precise("cpu").or_else(|| precise("cpu_core")) {
        Some(level @ 1..) => Finding::present(format!("Intel PEBS, precise level {level}")),
        _ => Finding::missing(
            "neither PEBS nor IBS",
            "run on bare metal, or on a hypervisor that passes PEBS through",
        ),
    }
}

fn access(scene: &Scene, (): &()) -> Finding {
    let Some(level) = scene.text("/proc/sys/kernel/perf_event_paranoid") else {
        return Finding::missing(
            "the kernel has no perf events",
            "use a kernel with CONFIG_PERF_EVENTS",
        );
    };
    let capable = super::control::has(scene, super::control::CAP_PERFMON)
        || super::control::has(scene, super::control::CAP_SYS_ADMIN);
    match level.parse::<i32>() {
        _ if capable => Finding::present(format!("of all processes (paranoid level {level})")),
        Ok(..=0) => Finding::present(format!("of all processes (paranoid level {level})")),
        Ok(1..=2) => Finding::limited(
            format!("of one's own processes (paranoid level {level})"),
            "run with CAP_PERFMON, or set kernel.perf_event_paranoid to 0",
        ),
        _ => Finding::forbidden(
            format!("paranoid level {level}"),
            "run with CAP_PERFMON, or lower kernel.perf_event_paranoid",
        ),
    }
}

const INSTRUMENTED: &str = "run in the lab's instrumented virtual machine (lab/README.md)";

fn telemetry(scene: &Scene, (): &()) -> Finding {
    let Some(function) = crate::memory_controller::find_device(&scene.path("/sys")) else {
        return Finding::missing(
            "no memory controller of this machine can be programmed",
            INSTRUMENTED,
        );
    };
    let name = function.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !super::control::has(scene, super::control::CAP_SYS_ADMIN) {
        return Finding::forbidden(format!("PCI function {name}"), "run as root");
    }
    match scene.exists("/dev/tierscope_device") {
        true => Finding::present(format!("PCI function {name}, with interrupts")),
        false => Finding::limited(
            format!("PCI function {name}, without interrupts"),
            "load the lab's module: insmod tierscope_device.ko",
        ),
    }
}

fn tlb_misses(scene: &Scene, (): &()) -> Finding {
    match crate::memory_controller::find_device(&scene.path("/sys")) {
        Some(_) if scene.exists("/dev/tierscope_device") => {
            Finding::present("by the instrumented virtual machine, if its part `tlb` is on")
        }
        Some(_) => Finding::limited(
            "without the module that identifies their process",
            "load the lab's module: insmod tierscope_device.ko",
        ),
        None => Finding::missing("no processor reports them", INSTRUMENTED),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Forbidden, Limited, Missing, Present};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
        const ROOT: (&str, &str) = ("/proc/self/status", "CapEff:\t000001ffffffffff\n");
        const VENDOR: (&str, &str) = ("/sys/bus/pci/devices/0000:00:03.0/vendor", "0x1af4\n");
        const DEVICE: (&str, &str) = ("/sys/bus/pci/devices/0000:00:03.0/device", "0x1110\n");
        const DRIVER: (&str, &str) = ("/dev/tierscope_device", "");
        const CPU: &str = "/sys/bus/event_source/devices/cpu/caps/max_precise";
        judge(
            &[
                ("pmu", &[(CPU, "3")], Present, "counters"),
                ("pmu", &[("/sys/bus/event_source/devices/software/type", "1")], Missing, "pmu=on"),
                ("pmu", &[], Missing, "CONFIG_PERF_EVENTS"),
                ("precise-samples", &[(CPU, "3\n")], Present, "PEBS, precise level 3"),
                ("precise-samples", &[(CPU, "0\n")], Missing, "neither"),
                (
                    "precise-samples",
                    &[("/sys/bus/event_source/devices/ibs_op/type", "9")],
                    Present,
                    "IBS",
                ),
                ("perf-access", &[(PARANOID, "3\n"), ROOT], Present, "all processes"),
                ("perf-access", &[(PARANOID, "-1\n")], Present, "all processes"),
                ("perf-access", &[(PARANOID, "2\n")], Limited, "one's own"),
                ("perf-access", &[(PARANOID, "3\n")], Forbidden, "CAP_PERFMON"),
                ("perf-access", &[], Missing, "CONFIG_PERF_EVENTS"),
                ("telemetry-device", &[], Missing, "lab/README.md"),
                ("telemetry-device", &[VENDOR, DEVICE], Forbidden, "0000:00:03.0"),
                ("telemetry-device", &[VENDOR, DEVICE, ROOT], Limited, "without interrupts"),
                ("telemetry-device", &[VENDOR, DEVICE, ROOT, DRIVER], Present, "with interrupts"),
                ("tlb-misses", &[], Missing, "no processor"),
                ("tlb-misses", &[VENDOR, DEVICE], Limited, "identifies their process"),
                ("tlb-misses", &[VENDOR, DEVICE, DRIVER], Present, "part `tlb`"),
            ],
            Tree::machine,
        );
    }
}
