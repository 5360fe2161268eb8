//! Detects leaks of address spaces and page tables.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Amounts of kernel objects that a leaked reference to an address space keeps alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Held {
    /// KiB of page tables (PageTables and SecPageTables in /proc/meminfo).
    pub page_tables_kib: u64,
    /// Number of address spaces (mm_struct in /proc/slabinfo).
    pub mm_structs: u64,
}

/// Tolerated growth: the slab allocator counts free objects that it caches for each CPU, and
/// another shell may be running. A leak with every attach would add thousands.
const SLACK: Held = Held { page_tables_kib: 1024, mm_structs: 40 };

impl Held {
    /// The current amounts of these kernel objects.
    #[must_use]
    pub fn now() -> Held {
        // Release the free objects that are cached for each CPU, so that they are not counted
        // (mm/slub.c).
        let _ = fs::write("/sys/kernel/slab/mm_struct/shrink", "1");
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Held {
            page_tables_kib: page_tables(&read("/proc/meminfo")),
            mm_structs: mm_structs(&read("/proc/slabinfo")),
        }
    }

    /// Whether the amounts are back at `before`, within the tolerance.
    #[must_use]
    pub fn is_back_at(&self, before: &Held) -> bool {
        self.page_tables_kib <= before.page_tables_kib + SLACK.page_tables_kib
            && self.mm_structs <= before.mm_structs + SLACK.mm_structs
    }
}

/// Waits until the kernel has freed objects whose release is deferred (mmput_async, RCU), up to
/// `patience`; returns the final amounts.
#[must_use]
pub fn settle(before: &Held, patience: Duration) -> Held {
    let started = Instant::now();
    loop {
        let held = Held::now();
        if held.is_back_at(before) || started.elapsed() > patience {
            return held;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn page_tables(meminfo: &str) -> u64 {
    let fields =
        meminfo.lines().filter(|l| l.starts_with("PageTables:") || l.starts_with("SecPageTables:"));
    fields.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

fn mm_structs(slabinfo: &str) -> u64 {
    let line = slabinfo.lines().find(|l| l.split_whitespace().next() == Some("mm_struct"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_page_tables_count() {
        let meminfo = "MemTotal: 9 kB\nPageTables:  1200 kB\nSecPageTables:  30 kB\n";
        assert_eq!(page_tables(meminfo), 1230);
    }

    #[test]
    fn active_objects_count() {
        let slabinfo =
            "# name <active_objs> <num_objs>\nmm_struct_x 1 1\nmm_struct 84 110 1408 23 8\n";
        assert_eq!(mm_structs(slabinfo), 84);
    }

    #[test]
    fn a_leak_an_attach_is_no_slack() {
        let before = Held { page_tables_kib: 1000, mm_structs: 80 };
        assert!(Held { page_tables_kib: 1500, mm_structs: 85 }.is_back_at(&before));
        assert!(!Held { page_tables_kib: 1500, mm_structs: 1085 }.is_back_at(&before));
        assert!(!Held { page_tables_kib: 9000, mm_structs: 80 }.is_back_at(&before));
    }
}
