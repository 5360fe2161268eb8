//! Checks of tierscope's kernel module.

use tierscope_core::{ErrorKind, Level};

use super::{Check, Finding, Scene, Verdict};
use crate::abi::{FEATURE_HANDBACK, FEATURE_LA57, FEATURE_MAPPING_LOCKS, FEATURE_PTI};
use crate::signing;

const GROUP: &str = "recording";

pub(super) fn checks() -> [Check<()>; 5] {
    let group = GROUP;
    [
        Check { id: "module", group, title: "kernel module", look: module },
        Check { id: "module-levels", group, title: "ACCESSED bits proven", look: levels },
        Check { id: "module-flush", group, title: "translations flushed", look: flush },
        Check { id: "module-handback", group, title: "young pages handed back", look: handback },
        Check { id: "module-signing", group, title: "unsigned modules", look: unsigned },
    ]
}

fn module(scene: &Scene, (): &()) -> Finding {
    match scene.system.module() {
        Ok(facts) => {
            let info = facts.info;
            let with = |bit, text| if info.features & bit != 0 { text } else { "" };
            Finding::present(format!(
                "loaded, ABI {}, {} levels{}{}{}",
                info.abi,
                info.levels,
                with(FEATURE_LA57, " (5-level paging)"),
                with(FEATURE_PTI, ", page-table isolation"),
                with(FEATURE_MAPPING_LOCKS, ", locks single mappings")
            ))
        }
        Err(error) if error.kind() == ErrorKind::Permission => {
            Finding::of(Verdict::Forbidden, &error)
        }
        Err(error) => Finding::of(Verdict::Missing, &error),
    }
}

fn levels(scene: &Scene, (): &()) -> Finding {
    let Ok(facts) = scene.system.module() else {
        return Finding::unknown("known only while the module is loaded");
    };
    let numbers: Vec<String> =
        facts.proven.highest_first().map(|level| level.number().to_string()).collect();
    if !facts.proven.contains(Level::PTE) {
        return Finding::missing(
            "the self-test saw no ACCESSED bit set at level 1",
            "this processor or hypervisor does not set them: use kernel DAMON or PMU samples",
        );
    }
    let upper = [Level::PMD, Level::PUD].iter().all(|level| facts.proven.contains(*level));
    let found = format!("at levels {}", numbers.join(" "));
    if upper {
        return Finding::present(found);
    }
    Finding::limited(
        format!("{found} only: the upper levels give no evidence here"),
        "use `--instrument scan` or `damon`; Telescope needs the upper levels",
    )
}

fn flush(scene: &Scene, (): &()) -> Finding {
    match scene.system.module() {
        Ok(facts) if facts.info.flush_interval_us > 0 => Finding::present(format!(
            "on request, at most every {} ms; `--no-flush` turns it off",
            f64::from(facts.info.flush_interval_us) / 1e3
        )),
        Ok(_) => Finding::limited(
            "the module has no means to on this machine",
            "what TLBs hold cannot be judged: pages in use may read as idle",
        ),
        Err(_) => Finding::unknown("known only while the module is loaded"),
    }
}

fn handback(scene: &Scene, (): &()) -> Finding {
    match scene.system.module() {
        Ok(facts) if facts.info.features & FEATURE_HANDBACK != 0 => {
            Finding::present("reclaim still sees the bits that profiling cleared")
        }
        Ok(_) => Finding::limited(
            "the kernel has no young flag of a page (CONFIG_PAGE_IDLE_FLAG)",
            "while a process is profiled, reclaim sees fewer of its accesses; use a kernel with DAMON",
        ),
        Err(_) => Finding::unknown("known only while the module is loaded"),
    }
}

/// Whether an unsigned or locally built module may be loaded.
fn unsigned(scene: &Scene, (): &()) -> Finding {
    if let Some(cause) = signing::refusal(|path| scene.text(path)) {
        return Finding::missing(cause, signing::REMEDY);
    }
    if scene.text("/proc/sys/kernel/modules_disabled").as_deref() == Some("1") {
        return Finding::missing("loading was turned off (kernel.modules_disabled)", "reboot");
    }
    if !scene.exists("/proc/modules") {
        return Finding::missing("this kernel has no modules", "use a kernel with CONFIG_MODULES");
    }
    let secure = if secure_boot(scene) { " (Secure Boot is on, without lockdown)" } else { "" };
    Finding::present(format!("may be loaded{secure}"))
}

/// Secure Boot state: the byte of the EFI variable after its four attribute bytes (UEFI 2.10,
/// section 3.3).
fn secure_boot(scene: &Scene) -> bool {
    const VARIABLE: &str =
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    std::fs::read(scene.path(VARIABLE)).is_ok_and(|bytes| bytes.get(4) == Some(&1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Info;
    use crate::doctor::ModuleFacts;
    use crate::doctor::scene::tests::{Tree, judge};
    use tierscope_core::LevelSet;

    fn with_module(proven: u8, features: u32) -> Tree {
        let mut tree = Tree::new(&[]);
        let info = Info { abi: 2, levels: 4, features, flush_interval_us: 5000, ..Info::default() };
        tree.system.module = Some(ModuleFacts { info, proven: LevelSet::from_bits(proven) });
        tree
    }

    #[test]
    fn facts_come_from_the_module() {
        let tree = with_module(0b1111, FEATURE_PTI | FEATURE_HANDBACK);
        let (verdict, said) = tree.machine("module");
        assert_eq!(verdict, Verdict::Present);
        assert!(said.contains("ABI 2, 4 levels, page-table isolation"), "{said}");
        assert!(tree.machine("module-levels").1.contains("levels 4 3 2 1"));
        assert_eq!(tree.machine("module-handback").0, Verdict::Present);
        let (verdict, said) = tree.machine("module-flush");
        assert!(verdict == Verdict::Present && said.contains("every 5 ms"), "{said}");
        let leaf_only = with_module(0b0001, 0);
        assert_eq!(leaf_only.machine("module-levels").0, Verdict::Limited);
        assert_eq!(leaf_only.machine("module-handback").0, Verdict::Limited);
        assert_eq!(with_module(0, 0).machine("module-levels").0, Verdict::Missing);
    }

    #[test]
    fn a_module_that_cannot_flush_is_a_limit() {
        let mut tree = with_module(0b1111, 0);
        tree.system.module.as_mut().unwrap().info.flush_interval_us = 0;
        assert_eq!(tree.machine("module-flush").0, Verdict::Limited);
    }

    #[test]
    fn without_the_module_its_error_is_shown() {
        let (verdict, said) = Tree::new(&[]).machine("module");
        assert_eq!(verdict, Verdict::Missing);
        assert!(said.contains("insmod"), "{said}");
        assert_eq!(Tree::new(&[]).machine("module-levels").0, Verdict::Unknown);
        assert_eq!(Tree::new(&[]).machine("module-flush").0, Verdict::Unknown);
    }

    #[test]
    fn the_cause_that_forbids_unsigned_modules_is_named() {
        let id = "module-signing";
        let lockdown = "/sys/kernel/security/lockdown";
        let efi = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
        judge(
            &[
                (id, &[("/proc/modules", "")], Verdict::Present, "may be loaded"),
                (id, &[], Verdict::Missing, "CONFIG_MODULES"),
                (
                    id,
                    &[(lockdown, "none [integrity] confidentiality")],
                    Verdict::Missing,
                    "integrity",
                ),
                (
                    id,
                    &[("/sys/module/module/parameters/sig_enforce", "Y\n")],
                    Verdict::Missing,
                    "sig_enforce",
                ),
                (id, &[("/proc/sys/kernel/modules_disabled", "1\n")], Verdict::Missing, "reboot"),
                (
                    id,
                    &[("/proc/modules", ""), (efi, "\x06\0\0\0\x01")],
                    Verdict::Present,
                    "Secure Boot",
                ),
            ],
            Tree::machine,
        );
    }
}
