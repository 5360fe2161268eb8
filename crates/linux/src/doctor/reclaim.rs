//! Checks of the kernel's reclaim, swap, and page sizes.

use super::{Check, Finding, Scene};

const GROUP: &str = "reclaim";

pub(super) fn checks() -> [Check<()>; 5] {
    let group = GROUP;
    [
        Check { id: "mglru", group, title: "multi-generational LRU", look: mglru },
        Check { id: "swap", group, title: "swap", look: swap },
        Check { id: "zswap", group, title: "zswap", look: zswap },
        Check { id: "thp", group, title: "transparent huge pages", look: thp },
        Check { id: "hugetlb", group, title: "hugetlb", look: hugetlb },
    ]
}

/// Checks MGLRU. Bits of `enabled`: 1 the LRU itself, 2 clears leaf bits in batches, 4 clears
/// non-leaf bits (Documentation/admin-guide/mm/multigen_lru.rst).
fn mglru(scene: &Scene, (): &()) -> Finding {
    let path = "/sys/kernel/mm/lru_gen/enabled";
    let Some(text) = scene.text(path) else {
        return Finding::missing(scene.lack("CONFIG_LRU_GEN"), "none needed for recording");
    };
    let bits = u32::from_str_radix(text.trim_start_matches("0x"), 16);
    match bits {
        Ok(0) => {
            Finding::present("built in, off: nothing else clears ACCESSED bits by page tables")
        }
        Ok(bits) if bits & 4 != 0 => Finding::limited(
            format!("on ({text}): its aging clears ACCESSED bits, those of upper levels too"),
            format!("for clean figures: echo 0 > {path}, and say so"),
        ),
        Ok(_) => Finding::limited(
            format!("on ({text}): its aging clears ACCESSED bits"),
            format!("for clean figures: echo 0 > {path}, and say so"),
        ),
        Err(_) => Finding::unknown(format!("{path} says {text}")),
    }
}

fn swap(scene: &Scene, (): &()) -> Finding {
    let Some(text) = scene.text("/proc/swaps") else {
        return Finding::missing(scene.lack("CONFIG_SWAP"), "use a kernel with CONFIG_SWAP");
    };
    let sizes: Vec<u64> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().nth(2)?.parse().ok())
        .collect();
    let mib = sizes.iter().fold(0u64, |sum, kib| sum.saturating_add(*kib)) / 1024;
    match sizes.len() {
        0 => Finding::missing(
            "no swap is on: anonymous memory cannot be reclaimed",
            "swapon a device or file",
        ),
        areas => Finding::present(format!("{mib} MiB in {areas} areas")),
    }
}

fn zswap(scene: &Scene, (): &()) -> Finding {
    let path = "/sys/module/zswap/parameters/enabled";
    match scene.text(path).as_deref() {
        Some("Y" | "1") => Finding::present("on"),
        Some(_) => Finding::limited("off", format!("echo Y > {path}")),
        None => Finding::missing(scene.lack("CONFIG_ZSWAP"), "use a kernel with CONFIG_ZSWAP"),
    }
}

fn thp(scene: &Scene, (): &()) -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match scene.chosen(path).as_deref() {
        Some("never") => Finding::limited("never", format!("echo madvise > {path}")),
        Some(mode) => Finding::present(format!("{mode}; the evidence of a huge page covers 2 MiB")),
        None => {
            Finding::missing(scene.lack("CONFIG_TRANSPARENT_HUGEPAGE"), "none needed for recording")
        }
    }
}

fn hugetlb(scene: &Scene, (): &()) -> Finding {
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let pool = |name: String| {
        let size = name.strip_prefix("hugepages-")?.to_owned();
        let count: u64 = scene.text(&format!("{POOLS}/{name}/nr_hugepages"))?.parse().ok()?;
        (count > 0).then(|| format!("{count} of {size}"))
    };
    if !scene.exists(POOLS) {
        return Finding::missing(scene.lack("CONFIG_HUGETLB_PAGE"), "none needed for recording");
    }
    let pools: Vec<String> = scene.names(POOLS).into_iter().filter_map(pool).collect();
    match pools.is_empty() {
        true => Finding::present("built in, no pages reserved"),
        false => Finding::limited(
            format!("{} reserved", pools.join(", ")),
            "none needed: the evidence of their pages covers a whole page",
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Limited, Missing, Present, Unknown};
    use crate::doctor::scene::tests::{Tree, judge};

    #[test]
    fn every_verdict_is_given() {
        const MGLRU: &str = "/sys/kernel/mm/lru_gen/enabled";
        const HEAD: &str = "Filename\tType\tSize\tUsed\tPriority\n";
        const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";
        const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
        let on = format!("{HEAD}/dev/ram0\tpartition\t1048576\t0\t-2\n");
        judge(
            &[
                ("mglru", &[(MGLRU, "0x0007\n")], Limited, "upper levels"),
                ("mglru", &[(MGLRU, "0x0003\n")], Limited, "ACCESSED"),
                ("mglru", &[(MGLRU, "0x0000\n")], Present, "off"),
                ("mglru", &[(MGLRU, "maybe\n")], Unknown, "maybe"),
                ("mglru", &[], Missing, "none needed"),
                ("swap", &[("/proc/swaps", on.as_str())], Present, "1024 MiB in 1 areas"),
                ("swap", &[("/proc/swaps", HEAD)], Missing, "swapon"),
                ("swap", &[], Missing, "CONFIG_SWAP"),
                ("zswap", &[(ZSWAP, "Y\n")], Present, "on"),
                ("zswap", &[(ZSWAP, "N\n")], Limited, "echo Y"),
                ("zswap", &[], Missing, "CONFIG_ZSWAP"),
                ("thp", &[(THP, "always [madvise] never\n")], Present, "madvise"),
                ("thp", &[(THP, "always madvise [never]\n")], Limited, "never"),
                ("thp", &[], Missing, "none needed"),
                ("hugetlb", &[(POOL, "0\n")], Present, "no pages"),
                ("hugetlb", &[(POOL, "64\n")], Limited, "64 of 2048kB"),
                ("hugetlb", &[], Missing, "none needed"),
            ],
            Tree::machine,
        );
    }
}
