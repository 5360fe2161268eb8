//! What else on this machine clears ACCESSED bits: parts of the kernel that sample or age memory.
//! A bit that they take is an access which an instrument does not see.
//!
//! Sources: mm/damon/modules-common.h and mm/damon/{stat,reclaim,lru_sort}.c (`enabled` of each
//! module), Documentation/admin-guide/mm/damon/usage.rst (`kdamonds/N/state`),
//! Documentation/admin-guide/mm/multigen_lru.rst (`enabled`), mm/page_idle.c.

/// Contents of a file by its path; `None` if it cannot be read.
type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A module of the kernel that runs a kdamond of its own.
pub(crate) struct DamonModule {
    /// Name of the consumer.
    pub(crate) name: &'static str,
    /// Its switch.
    pub(crate) switch: &'static str,
}

pub(crate) const DAMON_MODULES: [DamonModule; 3] = [
    DamonModule { name: "damon-stat", switch: "/sys/module/damon_stat/parameters/enabled" },
    DamonModule { name: "damon-reclaim", switch: "/sys/module/damon_reclaim/parameters/enabled" },
    DamonModule { name: "damon-lru-sort", switch: "/sys/module/damon_lru_sort/parameters/enabled" },
];

impl DamonModule {
    /// Whether it runs; `None` if this kernel does not have it.
    pub(crate) fn runs(&self, read: Read<'_>) -> Option<bool> {
        read(self.switch).map(|text| text.trim() == "Y")
    }
}

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Numbers of the kdamonds that DAMON's sysfs runs.
pub(crate) fn kdamonds(read: Read<'_>) -> Vec<u32> {
    let count = read(&format!("{KDAMONDS}/nr_kdamonds")).and_then(|text| text.trim().parse().ok());
    let runs = |number: &u32| {
        let state = read(&format!("{KDAMONDS}/{number}/state"));
        state.is_some_and(|state| state.trim() == "on")
    };
    (0..count.unwrap_or(0)).filter(runs).collect()
}

/// The file that switches a kdamond.
pub(crate) fn switch_of_kdamond(number: u32) -> String {
    format!("{KDAMONDS}/{number}/state")
}

/// The switch of the multi-generational LRU.
pub(crate) const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";

/// Whether reclaim ages memory by walks of page tables, which clear the bits of leaf entries
/// (0x0002) and of others (0x0004).
pub(crate) fn mglru_walks(read: Read<'_>) -> bool {
    let bits = read(LRU_GEN)
        .and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
    bits.unwrap_or(0) & 0x0006 != 0
}

/// Pages that reclaim looked at since boot: with each, it takes the bits of the page's entries.
fn pages_scanned(read: Read<'_>) -> Option<u64> {
    let text = read("/proc/vmstat")?;
    let count = |line: &str| -> Option<u64> {
        let (name, value) = line.split_once(' ')?;
        let of_reclaim =
            ["pgscan_kswapd", "pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"];
        of_reclaim.contains(&name).then(|| value.trim().parse().ok())?
    };
    Some(text.lines().filter_map(count).sum())
}

/// The file through which idle page tracking is used.
pub(crate) const IDLE_PAGES: &str = "/sys/kernel/mm/page_idle/bitmap";

/// Consumers that were seen while a target is watched.
#[derive(Debug, Default)]
pub(crate) struct BitConsumers {
    seen: Vec<&'static str>,
    calls: u32,
    scanned_at_first: Option<u64>,
}

/// Calls between two looks: the text of /proc/vmstat costs some 50 us.
const CALLS: u32 = 16;

impl BitConsumers {
    /// All consumers that ran since the first call, in order of their first time. Looks at the
    /// first call and at each sixteenth.
    pub(crate) fn seen(&mut self, read: Read<'_>) -> &[&'static str] {
        if self.calls.is_multiple_of(CALLS) {
            self.look(read);
        }
        self.calls = self.calls.wrapping_add(1);
        &self.seen
    }

    fn look(&mut self, read: Read<'_>) {
        for module in &DAMON_MODULES {
            self.note(module.runs(read) == Some(true), module.name);
        }
        self.note(!kdamonds(read).is_empty(), "kdamond");
        let scanned = pages_scanned(read);
        let first = *self.scanned_at_first.get_or_insert(scanned.unwrap_or(0));
        let reclaim = if mglru_walks(read) { "mglru-aging" } else { "reclaim" };
        self.note(scanned.is_some_and(|scanned| scanned > first), reclaim);
    }

    fn note(&mut self, runs: bool, name: &'static str) {
        if runs && !self.seen.contains(&name) {
            self.seen.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn seen(consumers: &mut BitConsumers, files: &BTreeMap<&str, &str>) -> Vec<&'static str> {
        // As many calls as make one look.
        for _ in 1..CALLS {
            consumers.seen(&|path| files.get(path).map(|text| (*text).to_owned()));
        }
        consumers.seen(&|path| files.get(path).map(|text| (*text).to_owned())).to_vec()
    }

    #[test]
    fn what_runs_is_seen_and_stays_seen() {
        let mut consumers = BitConsumers::default();
        let mut files = BTreeMap::from([("/proc/vmstat", "pgscan_kswapd 7\npgfault 9\n")]);
        assert!(seen(&mut consumers, &files).is_empty());
        files.insert("/sys/module/damon_stat/parameters/enabled", "Y\n");
        files.insert("/sys/module/damon_reclaim/parameters/enabled", "N\n");
        assert_eq!(seen(&mut consumers, &files), ["damon-stat"]);
        files.insert("/sys/module/damon_stat/parameters/enabled", "N\n");
        files.insert("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "2\n");
        files.insert("/sys/kernel/mm/damon/admin/kdamonds/0/state", "off\n");
        files.insert("/sys/kernel/mm/damon/admin/kdamonds/1/state", "on\n");
        assert_eq!(seen(&mut consumers, &files), ["damon-stat", "kdamond"]);
    }

    #[test]
    fn reclaim_counts_once_it_scans() {
        let mut consumers = BitConsumers::default();
        let mut files =
            BTreeMap::from([("/proc/vmstat", "pgscan_direct 7\n"), (LRU_GEN, "0x0007\n")]);
        assert!(seen(&mut consumers, &files).is_empty());
        files.insert("/proc/vmstat", "pgscan_direct 8\n");
        assert_eq!(seen(&mut consumers, &files), ["mglru-aging"]);
        files.insert(LRU_GEN, "0x0001\n");
        assert_eq!(seen(&mut consumers, &files), ["mglru-aging", "reclaim"]);
    }
}
