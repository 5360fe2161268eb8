//! HeMem fed by counters in the memory controller (HeMem-NEMO).
//!
//! Source: Li et al., "Finding NEMO", section 5.1: HeMem's policy unchanged, with counts of all
//! requests to a block replacing its samples. Each pass begins with a read of all counters, whose
//! counts are added to the pages' counts as loads: the rule counts reads and writes together
//! (listing 2).
//!
//! Two placements of the controllers:
//! - *slow*, the prototype's: only the slow tiers have telemetry controllers; the fast tier is
//!   sampled, and counts are divided by the sampling period, 5003 (0.02 %).
//! - *all*: every tier has controllers, and nothing is sampled. Counts are divided by the same
//!   period, because the thresholds are HeMem's.
//!
//! Beyond the source: HeMem's clock ticks when one page's count exceeds the threshold, so that
//! hotness is relative to the hottest page. A counter read does not reveal the order of its
//! requests: they are assumed to be spread evenly, and added in rounds so short that the hottest
//! page advances the clock in every other round at most ([`HeMem`]). If counts were added at once,
//! with a tick for every page above the threshold, the first pages would be halved once for each
//! hot page after them; with a single tick, every page accessed at full speed would be hot.

use std::time::Duration;

use tierscope_core::{Evidence, Need, Orders, PlacementView, Policy, Sample, Setting, Tier, Time};

use crate::block_counters::BlockCounters;
use crate::hemem::{self, HeMem};
use crate::registry::{BY_COUNTERS, BY_COUNTERS_AND_SAMPLES, Entry, Sampling, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// Time between the counter read and the pass that uses its counts.
const READING: Duration = Duration::from_millis(1);

/// Which tiers have telemetry controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Controllers on all tiers but the fastest.
    Slow,
    /// Controllers on all tiers.
    All,
}

/// The policy `hemem-nemo` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "hemem-nemo",
    about: "HeMem's first revision; requests to slow memory are counted in its controllers",
    source: "Li et al., Finding NEMO, section 5.1",
    tracks: BY_COUNTERS_AND_SAMPLES,
    granularity: "2 MiB, mappings from 1 GB on",
    promotes: "frequency: 8 in 5003 requests each",
    demotes: "cold for longest, for room",
    cost: "all counters read every second, every 5003rd load and store sampled",
    page_bytes: None,
    needs: &[Need::Counters, Need::Samples],
    uses: &[Need::Pressure],
    sampling: Some(Sampling::Every(5_003)),
    reclaims: false,
    make: made!("hemem-nemo", Config::default(), |config| {
        HeMemNemo::new(Coverage::Slow, config)
    }),
    keys: || keys_of(&mut Config::default()),
};

/// The policy `hemem-nemo-all` in the list.
pub(crate) const ENTRY_ALL: Entry = Entry {
    name: "hemem-nemo-all",
    about: "likewise, with controllers in front of fast memory too and nothing sampled",
    source: "Li et al., Finding NEMO, section 5.1, beyond its prototype",
    tracks: BY_COUNTERS,
    granularity: "2 MiB, mappings from 1 GB on",
    promotes: "frequency: 8 in 5003 requests each",
    demotes: "cold for longest, for room",
    cost: "all counters read every second",
    page_bytes: None,
    needs: &[Need::Counters],
    uses: &[Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("hemem-nemo-all", Config::default(), |config| {
        HeMemNemo::new(Coverage::All, config)
    }),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy: HeMem's, and the divisor of counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Sampling period: one in `every` requests is counted.
    pub every: u64,
    /// Settings of the underlying HeMem policy.
    pub hemem: hemem::Config,
}

/// One in 5003, with the revision of HeMem that uses this period.
impl Default for Config {
    fn default() -> Self {
        Self { every: 5003, hemem: hemem::Config::first() }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value(
            "every",
            "sampling period: one in this many requests is counted",
            &mut self.every,
        );
        self.hemem.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.every == 0 {
            return Err("`every` must be above zero".into());
        }
        self.hemem.check()
    }
}

/// The HeMem-NEMO policy.
#[derive(Clone, Debug)]
pub struct HeMemNemo {
    sees: Coverage,
    config: Config,
    hemem: HeMem,
    counted: BlockCounters,
    next_reading: Time,
    next_pass: Time,
}

impl HeMemNemo {
    /// The policy with these settings.
    #[must_use]
    pub fn new(sees: Coverage, config: Config) -> Self {
        let name = match sees {
            Coverage::Slow => "hemem-nemo",
            Coverage::All => "hemem-nemo-all",
        };
        Self {
            sees,
            hemem: HeMem::new(name, config.hemem.clone()),
            counted: BlockCounters::new(config.every),
            config,
            next_reading: Time(0),
            next_pass: Time(0),
        }
    }

    fn sees(&self, tier: Tier) -> bool {
        self.sees == Coverage::All || tier.0 > 0
    }

    /// Watches the blocks in tiers that have controllers, and stops watching all others.
    fn follow(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        let mut changed = 0;
        for (block, tier) in self.hemem.placed() {
            let range = self.hemem.range(block).filter(|_| self.sees(tier));
            match range.and_then(|range| view.frame_of(&range)) {
                Some(frame) => {
                    changed += u64::from(self.counted.watch(block, frame, view, orders));
                }
                None if self.counted.watches(block) => {
                    self.counted.forget(block, orders);
                    changed += 1;
                }
                None => {}
            }
        }
        self.config.hemem.costs.charge(orders, changed);
    }
}

impl Policy for HeMemNemo {
    fn name(&self) -> &'static str {
        self.hemem.name()
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Counters(id, states) => {
                let counts = self.counted.take(id, states, orders);
                // The cost of scanning the counter array, charged per block with a count.
                self.config.hemem.costs.charge(orders, counts.len() as u64);
                self.hemem.add(&counts);
            }
            Evidence::Samples(samples) => {
                let sampled = |sample: &&Sample| {
                    self.hemem.tier_at(sample.at).is_some_and(|tier| !self.sees(tier))
                };
                let rest: Vec<Sample> = samples.iter().filter(sampled).copied().collect();
                // Dropped samples cost as much: the buffer is read as a whole.
                self.config.hemem.costs.charge(orders, (samples.len() - rest.len()) as u64);
                self.hemem.observe(Evidence::Samples(&rest), orders);
            }
            _ => self.hemem.observe(evidence, orders),
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        if now >= self.next_pass && self.next_reading > self.next_pass {
            self.hemem.step(view, orders);
            self.follow(view, orders);
            self.next_pass = self.next_reading + READING;
        }
        if now >= self.next_reading {
            self.counted.ask(orders);
            self.next_pass = now + READING;
            self.next_reading = now + self.config.hemem.interval;
        }
        self.next_reading.min(self.next_pass)
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::*;
    use crate::settings::Bytes;
    use crate::trace::{Trace, range};

    const PAGES: u32 = 512;

    /// Blocks of 2 MiB, all but the first of which are in the slow tier; one in ten requests is
    /// counted.
    fn trace(sees: Coverage, blocks: u32) -> Trace<HeMemNemo> {
        let hemem = hemem::Config { least: Bytes(0), ..hemem::Config::first() };
        let sizes = [2, 8].map(|blocks| Size::without_marks(blocks * u64::from(PAGES)));
        let policy = HeMemNemo::new(sees, Config { every: 10, hemem });
        let mut trace = Trace::with(policy, &sizes, blocks * PAGES, false);
        trace.machine.place(&range(PAGES, (blocks - 1) * PAGES), Tier(1));
        trace
    }

    /// Touches that make `count` requests to a block.
    fn requests(block: u32, count: u32) -> Vec<u32> {
        (0..count).map(|touch| block * PAGES + touch % PAGES).collect()
    }

    // 80 requests to block 1 are eight samples; 79 to block 2 are seven, with a remainder.
    #[test]
    fn golden_every_request_counts_a_tenth() {
        let mut trace = trace(Coverage::Slow, 3);
        trace.seconds(3, |second| match second {
            1 => [requests(1, 80), requests(2, 79)].concat(),
            _ => vec![],
        });
        assert_eq!(trace.ordered(), ["512→0"]);
        trace.seconds(2, |second| if second == 3 { requests(2, 1) } else { vec![] });
        // The fast tier holds two blocks, and block 0 is cold: it is demoted to make room.
        assert_eq!(trace.ordered(), ["512→0", "0→1", "1024→0"]);
    }

    // Block 0 is in the fast tier: its requests are counted only with controllers on all tiers,
    // which keeps it there.
    #[test]
    fn golden_full_coverage_counts_fast_memory_too() {
        let script = |second| match second {
            1 => [requests(0, 90), requests(1, 90), requests(2, 90)].concat(),
            _ => vec![],
        };
        let mut slow = trace(Coverage::Slow, 3);
        slow.seconds(3, script);
        // 270 touches of block 0 yield only 2.7 samples.
        assert_eq!(slow.ordered(), ["512→0", "0→1", "1024→0"]);
        let mut all = trace(Coverage::All, 3);
        all.seconds(3, script);
        assert_eq!(all.ordered(), ["512→0"], "no page is cold enough to make room");
    }

    // Three pages with 24 samples each, in three rounds of eight: all are above the threshold after
    // the last, and the clock ticks once.
    #[test]
    fn pages_above_the_threshold_together_are_one_tick() {
        let mut trace = trace(Coverage::All, 3);
        trace.seconds(3, |second| match second {
            1 => (0..3).flat_map(|block| requests(block, 240)).collect(),
            _ => vec![],
        });
        assert_eq!(trace.policy.hemem.ticks(), 1);
        assert_eq!(trace.ordered(), ["512→0"]);
    }
}
