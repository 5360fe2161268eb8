//! Colloid: a placement in which the reads of two tiers take equally long.
//!
//! Source: Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!"
//! (SOSP'24), section 3. A fast tier that is loaded may answer later than a slow one that is idle:
//! then hot pages belong in the slow one. Of the counters of both tiers, requests served and their
//! time outstanding, the mean latencies follow (Little's law), and the share `p` of the reads that
//! the fast tier serves. The share at which latencies are equal is found by bisection: `p` is a
//! lower bound while the fast tier is faster, otherwise an upper bound. When the bounds have met
//! and latencies differ all the same, the load has changed, and the bound that no longer holds is
//! dropped. No more bytes are moved than the accesses to them by which the load shifts.
//!
//! Latencies are those since the last call, that of an idle tier where it served nothing. The
//! published implementations smooth those of shorter intervals.

use tierscope_core::TierReads;

/// Latencies that differ by less are equal, relative to the fast tier's.
const EQUAL: f64 = 0.05;
/// Bounds that are closer have met.
const MET: f64 = 0.01;
/// Bytes of a read.
const LINE: f64 = 64.0;

/// Where the load is to shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shift {
    /// Latencies are not known.
    Unknown,
    /// Latencies are equal.
    None,
    /// Towards the fast tier.
    Promote(Load),
    /// Towards the slow tier.
    Demote(Load),
}

/// A share of all reads, and the bytes that may be moved for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) share: f64,
    pub(crate) bytes: u64,
}

/// Search for the share of the reads with which both tiers are equally fast.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    seen: Option<[TierReads; 2]>,
    low: f64,
    high: f64,
}

impl Balance {
    pub(crate) fn new() -> Self {
        Self { seen: None, low: 0.0, high: 1.0 }
    }

    /// The shift that the reads of the fast and of the slow tier since the last call ask for.
    pub(crate) fn step(&mut self, reads: Option<[TierReads; 2]>) -> Shift {
        let (Some(now), Some(before)) = (reads, std::mem::replace(&mut self.seen, reads)) else {
            return Shift::Unknown;
        };
        let served = [0, 1].map(|tier| now[tier].served.saturating_sub(before[tier].served) as f64);
        let [fast, slow] = [0, 1].map(|tier| now[tier].latency_ns_since(&before[tier]));
        let all = served[0] + served[1];
        if all == 0.0 || (fast - slow).abs() < EQUAL * fast {
            return Shift::None;
        }
        let share = self.bisect(served[0] / all, fast < slow);
        let load = Load { share, bytes: (share * all * LINE) as u64 };
        if fast < slow { Shift::Promote(load) } else { Shift::Demote(load) }
    }

    /// Takes the present share of the fast tier into the bounds; returns its distance from their
    /// middle.
    fn bisect(&mut self, present: f64, fast_is_faster: bool) -> f64 {
        let Self { low, high, .. } = self;
        if fast_is_faster {
            *low = present;
            *high = if *high < present + MET { 1.0 } else { *high };
        } else {
            *high = present;
            *low = if *low > present - MET { 0.0 } else { *low };
        }
        ((*low + *high) / 2.0 - present).abs()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Two tiers of which one takes 100 ns and one 200 ns for `idle` reads in an interval of a
    /// million, and 400 ns more for all of them.
    fn interval(reads: &mut [TierReads; 2], share: f64) {
        for (tier, (of, idle)) in reads.iter_mut().zip([100.0, 200.0]).enumerate() {
            let served = 1e6 * if tier == 0 { share } else { 1.0 - share };
            of.served += served as u64;
            of.outstanding += Duration::from_nanos((served * (idle + 400e-6 * served)) as u64);
        }
    }

    // 100 + 400 p = 200 + 400 (1 - p) for p = 5/8; from all in the fast tier on: 1/2, 3/4, 5/8.
    #[test]
    fn the_share_with_equal_latencies_is_found_by_bisection() {
        let (mut balance, mut reads) = (Balance::new(), [TierReads::default(); 2]);
        assert_eq!(balance.step(Some(reads)), Shift::Unknown);
        let mut share = 0.9;
        let mut shares = vec![];
        loop {
            interval(&mut reads, share);
            share += match balance.step(Some(reads)) {
                Shift::Promote(load) => load.share,
                Shift::Demote(load) => -load.share,
                _ => break,
            };
            shares.push(share);
        }
        // Half of 0.9, then of 0.45 to 0.9, and so on, until latencies differ by less than 5 %.
        for (share, wanted) in shares.iter().zip([0.45, 0.675, 0.5625, 0.61875]) {
            assert!((share - wanted).abs() < 1e-3, "{shares:?}");
        }
        assert_eq!(shares.len(), 4);
    }

    #[test]
    fn a_load_that_changed_is_followed() {
        let (mut balance, mut reads) = (Balance::new(), [TierReads::default(); 2]);
        let _ = balance.step(Some(reads));
        (balance.low, balance.high) = (0.5, 0.5);
        interval(&mut reads, 0.5);
        let Shift::Promote(Load { share, bytes }) = balance.step(Some(reads)) else { panic!() };
        assert_eq!((share, bytes), (0.25, 16_000_000), "the upper bound is dropped");
    }

    // 100 ns are less than 400: half of all reads, 32 MB in an interval of a million.
    #[test]
    fn an_idle_fast_tier_gets_half() {
        let idle = |ns| TierReads { idle: Duration::from_nanos(ns), ..TierReads::default() };
        let (mut balance, mut reads) = (Balance::new(), [idle(100), idle(300)]);
        let _ = balance.step(Some(reads));
        reads[1].served += 1_000_000;
        reads[1].outstanding += Duration::from_micros(400_000);
        let Shift::Promote(Load { share, bytes }) = balance.step(Some(reads)) else { panic!() };
        assert_eq!((share, bytes), (0.5, 32_000_000));
    }

    #[test]
    fn nothing_is_said_without_counters_or_reads() {
        let mut balance = Balance::new();
        assert_eq!(balance.step(None), Shift::Unknown);
        let reads = [TierReads { served: 10, ..TierReads::default() }; 2];
        assert_eq!(balance.step(Some(reads)), Shift::Unknown, "since when?");
        assert_eq!(balance.step(Some(reads)), Shift::None, "no reads");
    }
}
