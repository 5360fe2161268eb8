//! Hint faults as NUMA balancing arms them: memory is armed part by part, and the next access to an
//! armed page raises a fault.
//!
//! Source: Linux kernel/sched/fair.c, `task_numa_work`: every scan period the next 256 MiB
//! (`sysctl_numa_balancing_scan_size`) of an address space are armed, after a delay of a second, at
//! periods from 1 to 60 s. The period adapts there to the share of faults that were remote; here it
//! is fixed, by default at the kernel's minimum.

use std::time::Duration;

use tierscope_core::{Addr, Mappings, Orders, Range, Time};

use crate::settings::{Bytes, Visit};

/// Rate at which memory is armed for hint faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes armed at a time.
    pub size: Bytes,
    /// Time between two armings.
    pub period: Duration,
    /// Time before the first arming.
    pub delay: Duration,
}

/// The kernel's defaults of `numa_balancing_scan_size_mb`, `_period_min_ms` and `_delay_ms`.
impl Default for Config {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self { size: Bytes(256 << 20), period: second, delay: second }
    }
}

impl Config {
    pub(crate) fn visit(&mut self, each: &mut dyn Visit) {
        each.value("scan-size", "bytes armed at a time", &mut self.size);
        each.value("scan-period", "time from one to the next", &mut self.period);
        each.value("scan-delay", "time before the first", &mut self.delay);
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let sound = self.size.0 >= tierscope_core::PAGE_SIZE && !self.period.is_zero();
        if sound {
            Ok(())
        } else {
            Err("`scan-size` must be a page at least, `scan-period` above 0".into())
        }
    }
}

/// Arms the mapped ranges in turn: current ranges and position of the hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arming {
    config: Config,
    mapped: Vec<Range>,
    hand: Addr,
    next: Option<Time>,
}

impl Arming {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    pub(crate) fn map(&mut self, mappings: &Mappings) {
        self.mapped = mappings.mappings.iter().map(|mapping| mapping.range).collect();
        self.mapped.retain(|range| !range.is_empty());
        self.mapped.sort_unstable();
    }

    /// Arms the next part if it is due, and no address twice in one call. Returns the ranges armed,
    /// and when the next part is due.
    pub(crate) fn go(&mut self, now: Time, orders: &mut Orders) -> (Vec<Range>, Time) {
        let due = *self.next.get_or_insert(now + self.config.delay);
        if now < due {
            return (Vec::new(), due);
        }
        let next = now + self.config.period;
        self.next = Some(next);
        let parts = self.parts();
        orders.arm.extend_from_slice(&parts);
        (parts, next)
    }

    fn parts(&mut self) -> Vec<Range> {
        let all: u64 = self.mapped.iter().map(Range::bytes).sum();
        let mut left = self.config.size.0.min(all);
        let mut parts = Vec::new();
        while left > 0 {
            let hand = (self.hand.space, self.hand.at);
            let next = self.mapped.partition_point(|range| (range.space, range.end) <= hand);
            let range = self.mapped.get(next).unwrap_or(&self.mapped[0]);
            let start = if range.contains(self.hand) { self.hand.at } else { range.start };
            let end = range.end.min(start.saturating_add(left));
            parts.push(Range::new(range.space, start, end));
            self.hand = Addr { space: range.space, at: end };
            left -= end - start;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    // Mappings of 3 and 2 MiB, 2 MiB a second from 1 s on: 0..2, then 2..3 and 10..11, then 11..12
    // and 0..1.
    #[test]
    fn the_hand_goes_round() {
        let mib = |start: u64, end: u64| Range::new(SpaceId(0), start << 20, end << 20);
        let config = Config { size: Bytes(2 << 20), ..Config::default() };
        let mut arming = Arming::new(config);
        arming.mapped = vec![mib(0, 3), mib(10, 12)];
        let second = |n: u64| Time(n * 1_000_000_000);
        let mut orders = Orders::default();
        assert_eq!(arming.go(second(0), &mut orders), (vec![], second(1)));
        assert_eq!(arming.go(second(1), &mut orders), (vec![mib(0, 2)], second(2)));
        assert_eq!(arming.go(second(1), &mut orders).0, []);
        assert_eq!(arming.go(second(2), &mut orders).0, [mib(2, 3), mib(10, 11)]);
        assert_eq!(arming.go(second(3), &mut orders).0, [mib(11, 12), mib(0, 1)]);
        assert_eq!(orders.arm.len(), 5);
    }
}
