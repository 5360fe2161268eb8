//! Hardware that samples accesses.

use super::{Check, Finding, Scene};

const GROUP: &str = "samples";

pub(super) fn checks() -> [Check<()>; 3] {
    let group = GROUP;
    [
        Check { id: "pmu", group, title: "performance counters", look: pmu },
        Check { id: "precise-samples", group, title: "sampled addresses", look: precise },
        Check { id: "perf-access", group, title: "use of perf events", look: access },
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

/// PEBS says how precise it can be in `caps/max_precise`; IBS is a device of its own.
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

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Forbidden, Limited, Missing, Present};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
        const ROOT: (&str, &str) = ("/proc/self/status", "CapEff:\t000001ffffffffff\n");
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
            ],
            Tree::machine,
        );
    }
}
