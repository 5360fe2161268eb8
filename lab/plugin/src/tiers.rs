//! Latency and bandwidth of nodes: a miss that falls on a node takes as much longer as the node is slow, by spinning,
//! and waits its turn if the node's bandwidth is used up.
//!
//! The bandwidth is shared by all vCPUs: each line takes its time on the node's channel, one after the other, so
//! that a noisy neighbour is felt. A processor has lines under way while it computes; an emulated one has not, and its
//! host stops it for milliseconds. So a channel makes up for what it idled within `BEHIND_NS`, and for no more: over
//! any longer time the bandwidth is what was asked for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Clock;
use crate::options;

/// Bytes that cross with a miss or a write-back.
const LINE_BYTES: u64 = 64;

/// Nanoseconds that a channel's work may lie behind its clock: a host's scheduler stops a thread for about as long
/// (`sysctl_sched_base_slice` of the kernel, 3 ms on machines of eight CPUs or more).
const BEHIND_NS: u64 = 4_000_000;

/// Femtoseconds in a nanosecond: what a line takes at many GiB/s is less than a nanosecond.
const FINE: u64 = 1_000_000;

/// One node.
#[derive(Debug, Default)]
struct Node {
    /// Nanoseconds that a miss takes longer.
    spin: AtomicU64,
    /// Femtoseconds that a line takes on the channel; 0 for none.
    line: AtomicU64,
    /// The moment from which the channel is free, in femtoseconds of the clock. Wraps after five hours, as all
    /// differences do.
    free: AtomicU64,
    mib_s: AtomicU64,
}

/// All nodes.
#[derive(Debug)]
pub struct Tiers {
    nodes: Vec<Node>,
}

impl Tiers {
    /// `count` nodes, the first of them as `configs` say.
    #[must_use]
    pub fn new(configs: &[options::Node], count: usize) -> Self {
        let tiers = Self { nodes: (0..count).map(|_| Node::default()).collect() };
        for (node, config) in configs.iter().enumerate() {
            tiers.set_latency(node, config.spin_ns.into());
            tiers.set_bandwidth(node, config.mib_s.into());
        }
        tiers
    }

    /// Sets the nanoseconds that misses on a node take longer, and returns what it was; `None` if there is no such
    /// node.
    pub fn set_latency(&self, node: usize, nanos: u64) -> Option<u64> {
        Some(self.nodes.get(node)?.spin.swap(nanos, Relaxed))
    }

    /// Sets the bandwidth of a node in MiB/s, 0 for no limit; as [`Tiers::set_latency`].
    pub fn set_bandwidth(&self, node: usize, mib_s: u64) -> Option<u64> {
        let node = self.nodes.get(node)?;
        let line = (LINE_BYTES * 1_000_000_000 * FINE).checked_div(mib_s << 20).unwrap_or(0);
        node.line.store(line, Relaxed);
        Some(node.mib_s.swap(mib_s, Relaxed))
    }

    /// Whether a line to or from the node takes any time.
    #[inline(always)]
    fn is_slow(&self, node: usize) -> Option<&Node> {
        let node = self.nodes.get(node)?;
        (node.spin.load(Relaxed) | node.line.load(Relaxed) != 0).then_some(node)
    }

    /// A miss is served: spins as long as that takes. Returns the nanoseconds.
    #[inline(always)]
    pub fn serve(&self, node: u8, clock: &Clock) -> u64 {
        match self.is_slow(node.into()) {
            Some(node) => serve(node, clock),
            None => 0,
        }
    }

    /// A line is written back: it takes its time on the channel, for which nobody waits.
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

/// Takes the next time on the channel for a line; nanoseconds until it is over, 0 if it could have been under way for
/// long enough.
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

    /// Takes the time that the channel has left over.
    fn use_up(node: &Node, now: u64) {
        while book(node, now) == 0 {}
    }

    #[test]
    fn a_channel_serves_one_line_after_the_other() {
        // 64 MiB/s: a line takes 953.67 ns
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

    // Who takes 500 ns for a line by himself is held to 953.67 ns a line all the same.
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
        // 200,000 lines of 64 B at 1 GiB/s, from the beginning of time on
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
