//! What `lock-waits` reports: how long calls of a process take while the module looks at it.

use serde::{Deserialize, Serialize};

use super::holds::Holds;

/// Output of `lock-waits`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// Whether the module locks single mappings.
    pub mapping_locks: bool,
    /// A row for each kind of look.
    pub rows: Vec<Row>,
}

/// What the process waited while the module looked in one way.
#[derive(Debug, Deserialize, Serialize)]
pub struct Row {
    /// What the module did: none, scan, probe.
    pub look: String,
    /// Entries of page tables that it looked at.
    pub entries: u64,
    /// Pairs of mmap() and munmap() of a small mapping.
    pub waits: Waits,
    /// Holds of the mmap lock.
    pub mmap_lock: Holds,
    /// Holds of locks of single mappings.
    pub mapping_lock: Holds,
}

/// Durations of calls, in microseconds.
#[derive(Debug, Deserialize, Serialize)]
pub struct Waits {
    /// Number of calls.
    pub count: usize,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 99 of 100 took at most this.
    pub p99_us: f64,
    /// 999 of 1000 took at most this.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Waits {
    /// Percentiles of durations in nanoseconds; zero if there are none.
    #[must_use]
    pub fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let us = |share: f64| {
            let rank = (share * ns.len() as f64).ceil().max(1.0) as usize;
            ns.get(rank - 1).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        let (p50_us, p99_us, p999_us, max_us) = (us(0.5), us(0.99), us(0.999), us(1.0));
        Self { count: ns.len(), p50_us, p99_us, p999_us, max_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 1000 calls of 1 to 1000 us.
    #[test]
    fn percentiles_are_durations_of_calls() {
        let waits = Waits::of((1..=1000).rev().map(|us| us * 1000).collect());
        assert_eq!((waits.count, waits.p50_us, waits.p99_us), (1000, 500.0, 990.0));
        assert_eq!((waits.p999_us, waits.max_us), (999.0, 1000.0));
        assert_eq!(Waits::of(Vec::new()).max_us, 0.0);
    }
}
