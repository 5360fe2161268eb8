//! Latency and bandwidth of nodes: a miss on a slow node spins for the additional latency, and
//! waits if the node's bandwidth is exhausted.
//!
//! All vCPUs share the bandwidth: lines occupy the node's channel one after the other, so that a
//! noisy neighbour has an effect. A real processor computes while lines are in flight; an emulated
//! one does not, and its host stops it for milliseconds. Therefore a channel may catch up on idle
//! time within `BEHIND_NS`, but not on more: over longer times the bandwidth is as configured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Clock;
use crate::options;

/// Bytes transferred by a miss or a write-back.
const LINE_BYTES: u64 = 64;

/// Maximum time in nanoseconds by which a channel's work may lag behind the clock: a host's
/// scheduler stops a thread for about that long (`sysctl_sched_base_slice` of the kernel, 3 ms on
/// machines of eight CPUs or more).
const BEHIND_NS: u64 = 4_000_000;

/// Femtoseconds per nanosecond: at many GiB/s a line takes less than a nanosecond.
const FINE: u64 = 1_000_000;

/// State of one node.
#[derive(Debug, Default)]
struct Node {
    /// Nanoseconds added to each miss.
    spin: AtomicU64,
    /// Femtoseconds for which a line occupies the channel; 0: no limit.
    line: AtomicU64,
    /// Time at which the channel becomes free, in femtoseconds of the clock. It wraps after five
    /// hours; differences are computed modulo 2^64.
    free: AtomicU64,
    mib_s: AtomicU64,
}

/// Latency and bandwidth of all nodes.
#[derive(Debug)]
pub struct Tiers {
    nodes: Vec<Node>,
}

impl Tiers {
    /// `count` nodes, the first of them configured by `configs`.
    #[must_use]
    pub fn new(configs: &[options::Node], count: usize) -> Self {
        let tiers = Self { nodes: (0..count).map(|_| Node::default()).collect() };
        for (node, config) in configs.iter().enumerate() {
            tiers.set_latency(node, config.spin_ns.into());
            tiers.set_bandwidth(node, config.mib_s.into());
        }
        tiers
    }

    /// Sets the nanoseconds added to misses on a node, and returns the old value; `None` if there
    /// is no such node.
    pub fn set_latency(&self, node: usize, nanos: u64) -> Option<u64> {
        Some(self.nodes.get(node)?.spin.swap(nanos, Relaxed))
    }

    /// Sets the bandwidth of a node in MiB/s, 0 for no limit, and returns the old value; `None` if
    /// there is no such node.
    pub fn set_bandwidth(&self, node: usize, mib_s: u64) -> Option<u64> {
        let node = self.nodes.get(node)?;
        let line = (LINE_BYTES * 1_000_000_000 * FINE).checked_div(mib_s << 20).unwrap_or(0);
        node.line.store(line, Relaxed);
        Some(node.mib_s.swap(mib_s, Relaxed))
    }

    /// The node, if it has a latency or a bandwidth limit.
    #[inline(always)]
    fn is_slow(&self, node: usize) -> Option<&Node> {
        let node = self.nodes.get(node)?;
        (node.spin.load(Relaxed) | node.line.load(Relaxed) != 0).then_some(node)
    }

    /// Spins for the duration of a miss. Returns the nanoseconds.
    #[inline(always)]
    pub fn serve(&self, node: u8, clock: &Clock) -> u64 {
        match self.is_slow(node.into()) {
            Some(node) => serve(node, clock),
            None => 0,
        }
    }

    /// Accounts for a write-back, which occupies the channel without a wait.
    #[inline(always)]
    pub fn write_back(&self, node: u8, clock: &Clock) {
        if let Some(node) = self.is_slow(node.into()) {
            book(node, clock.now());
        }
    }
}

#[inline(never)]
fn serve(node: &Node, clock: &Clock) -> u64 {
    let now = clock.now();
    let turn = now + book(node, now);
    let end = turn + node.spin.load(Relaxed);
    clock.spin_until(end);
    end - now
}

/// Reserves the channel for a line; returns the nanoseconds until the transfer is complete, 0 if it
/// can be treated as complete by now.
fn book(node: &Node, now: u64) -> u64 {
    let line = node.line.load(Relaxed);
    if line == 0 {
        return 0;
    }
    let now = now.wrapping_mul(FINE);
    let earliest = now.wrapping_sub(BEHIND_NS * FINE);
    let begin = |free: u64| if (free.wrapping_sub(earliest) as i64) < 0 { earliest } else { free };
    let before = node
        .free
        .fetch_update(Relaxed, Relaxed, |free| Some(begin(free).wrapping_add(line)))
        .unwrap_or(now);
    let left = begin(before).wrapping_add(line).wrapping_sub(now) as i64;
    left.max(0) as u64 / FINE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(mib_s: u32) -> Tiers {
        Tiers::new(&[options::Node::default(), options::Node { spin_ns: 0, mib_s }], 2)
    }

    /// Uses up the time that the channel may catch up on.
    fn use_up(node: &Node, now: u64) {
        while book(node, now) == 0 {}
    }

    #[test]
    fn a_channel_serves_one_line_after_the_other() {
        // At 64 MiB/s a line takes 953.67 ns.
        let tiers = tiers(64);
        let node = &tiers.nodes[1];
        use_up(node, BEHIND_NS);
        let first = book(node, BEHIND_NS);
        let waits: Vec<u64> = (0..3).map(|_| book(node, BEHIND_NS) - first).collect();
        assert!(
            waits.iter().zip([953, 1907, 2861]).all(|(wait, at)| wait.abs_diff(at) <= 1),
            "{waits:?}"
        );
        assert!(book(node, BEHIND_NS + 1000).abs_diff(first + 2814) <= 1, "953.67 x 4 - 1000");
    }

    // A thread that needs 500 ns of its own per line is limited to one line per 953.67 ns
    // nevertheless.
    #[test]
    fn work_between_lines_overlaps_with_the_channel() {
        let tiers = tiers(64);
        let node = &tiers.nodes[1];
        use_up(node, BEHIND_NS);
        let end = (0..1000).fold(BEHIND_NS, |now, _| now + 500 + book(node, now + 500));
        assert!(end.abs_diff(BEHIND_NS + 953_674) < 3_000, "{end}");
    }

    #[test]
    fn an_idle_channel_makes_up_for_milliseconds_and_no_more() {
        let tiers = tiers(64);
        for now in [BEHIND_NS, 1_000 * BEHIND_NS] {
            let free = (0..).take_while(|_| book(&tiers.nodes[1], now) == 0).count() as u64;
            assert_eq!(free, BEHIND_NS * FINE / 953_674_316);
        }
    }

    #[test]
    fn two_vcpus_share_a_node() {
        let tiers = tiers(1024);
        let ends = std::thread::scope(|scope| {
            let run = || (0..100_000).map(|_| book(&tiers.nodes[1], 0)).max().unwrap();
            let (one, other) = (scope.spawn(run), scope.spawn(run));
            one.join().unwrap().max(other.join().unwrap())
        });
        // 200,000 lines of 64 B at 1 GiB/s, starting at time 0.
        assert_eq!(ends, 200_000 * 64 * 1_000_000_000 / (1 << 30));
    }

    #[test]
    fn settings_come_back_and_unknown_nodes_do_not() {
        let tiers = tiers(0);
        assert_eq!(tiers.set_latency(1, 700), Some(0));
        assert_eq!(tiers.set_latency(1, 0), Some(700));
        assert_eq!(tiers.set_bandwidth(0, 5), Some(0));
        assert_eq!(tiers.set_bandwidth(0, 6), Some(5));
        assert_eq!(tiers.set_latency(2, 1), None);
        let clock = Clock::start();
        assert_eq!(tiers.serve(1, &clock), 0, "as fast as can be");
        tiers.set_latency(1, 2_000);
        assert_eq!(tiers.serve(1, &clock), 2_000);
    }
}
