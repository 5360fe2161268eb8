//! HeMem, fed by counters in the memory controller (HeMem-NEMO).
//!
//! Source: Li et al., "Finding NEMO", section 5.1: HeMem's policy as it is, with the count of every request
//! to a block in the place of its samples. Each pass begins with a reading of all counters, whose counts are
//! added to the pages' as loads: the rule counts reads and writes together (listing 2).
//!
//! Two ways to see:
//! - *slow*, the prototype's: controllers stand in front of the slow tiers only; the fast one is sampled,
//!   and counts are scaled by the sampling rate, one in 5003 (0.02 %).
//! - *all*: in front of every tier, and nothing is sampled. Counts are scaled alike, for the thresholds are
//!   HeMem's.
//!
//! Where this goes beyond the source: HeMem's clock ticks when a page has got too much, so that what is hot
//! is told against the hottest. A reading does not tell in which order its requests came: they are taken to
//! have come evenly, in rounds so short that the hottest page makes the clock tick in every other one at
//! most ([`HeMem`]). If all came at once, and the clock ticked for each page, the first ones would be halved
//! as often as hot pages come after them; if it ticked once, all that is read at full speed would be hot.

use std::time::Duration;

use tierscope_core::{Evidence, Orders, PlacementView, Policy, Sample, Setting, Tier, Time};

use crate::counted::Counted;
use crate::hemem::{self, HeMem};
use crate::settings::{Settings, Visit, recorded};

/// From the counters' reading to the pass that works on it.
const READING: Duration = Duration::from_millis(1);

/// Which tiers controllers stand in front of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// All but the fastest.
    Slow,
    /// Every one.
    All,
}

/// Settings of the policy: HeMem's, and how counts are scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Of so many requests one counts: the sampling period.
    pub every: u64,
    /// HeMem's own.
    pub hemem: hemem::Config,
}

/// One in 5003, and the revision of HeMem that belongs to it.
impl Default for Config {
    fn default() -> Self {
        Self { every: 5003, hemem: hemem::Config::first() }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("every", "of so many counted requests one counts", &mut self.every);
        self.hemem.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.every == 0 {
            return Err("`every` must be above zero".into());
        }
        self.hemem.check()
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct HeMemNemo {
    sees: Sees,
    config: Config,
    hemem: HeMem,
    counted: Counted,
    next_reading: Time,
    next_pass: Time,
}

impl HeMemNemo {
    /// The policy with these settings.
    #[must_use]
    pub fn new(sees: Sees, config: Config) -> Self {
        let name = match sees {
            Sees::Slow => "hemem-nemo",
            Sees::All => "hemem-nemo-all",
        };
        Self {
            sees,
            hemem: HeMem::new(name, config.hemem.clone()),
            counted: Counted::new(config.every),
            config,
            next_reading: Time(0),
            next_pass: Time(0),
        }
    }

    fn sees(&self, tier: Tier) -> bool {
        self.sees == Sees::All || tier.0 > 0
    }

    /// Watches blocks that are where the controllers see them, and no others.
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
                // The whole array is looked through, and the pages found there.
                self.config.hemem.costs.charge(orders, counts.len() as u64);
                self.hemem.add(&counts);
            }
            Evidence::Samples(samples) => {
                let sampled = |sample: &&Sample| {
                    self.hemem.tier_at(sample.at).is_some_and(|tier| !self.sees(tier))
                };
                let rest: Vec<Sample> = samples.iter().filter(sampled).copied().collect();
                // Whoever reads a buffer reads all of it.
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

    /// Blocks of 2 MiB, of which the second one on lie in the slow tier; of ten requests one counts.
    fn trace(sees: Sees, blocks: u32) -> Trace<HeMemNemo> {
        let hemem = hemem::Config { least: Bytes(0), ..hemem::Config::first() };
        let sizes = [2, 8].map(|blocks| Size::without_marks(blocks * u64::from(PAGES)));
        let policy = HeMemNemo::new(sees, Config { every: 10, hemem });
        let mut trace = Trace::with(policy, &sizes, blocks * PAGES, false);
        trace.machine.place(&range(PAGES, (blocks - 1) * PAGES), Tier(1));
        trace
    }

    /// So many requests of a block.
    fn requests(block: u32, count: u32) -> Vec<u32> {
        (0..count).map(|touch| block * PAGES + touch % PAGES).collect()
    }

    // 80 requests of block 1 are eight samples, 79 of block 2 are seven and a rest.
    #[test]
    fn golden_every_request_counts_a_tenth() {
        let mut trace = trace(Sees::Slow, 3);
        trace.seconds(3, |second| match second {
            1 => [requests(1, 80), requests(2, 79)].concat(),
            _ => vec![],
        });
        assert_eq!(trace.ordered(), ["512→0"]);
        trace.seconds(2, |second| if second == 3 { requests(2, 1) } else { vec![] });
        // The fast tier holds two, and block 0 is cold: it makes room.
        assert_eq!(trace.ordered(), ["512→0", "0→1", "1024→0"]);
    }

    // Block 0 lies in the fast tier: only who sees all of it counts its requests, and keeps it there.
    #[test]
    fn golden_who_sees_all_counts_fast_memory_too() {
        let script = |second| match second {
            1 => [requests(0, 90), requests(1, 90), requests(2, 90)].concat(),
            _ => vec![],
        };
        let mut slow = trace(Sees::Slow, 3);
        slow.seconds(3, script);
        // 2.7 samples of it, of 270 touches.
        assert_eq!(slow.ordered(), ["512→0", "0→1", "1024→0"]);
        let mut all = trace(Sees::All, 3);
        all.seconds(3, script);
        assert_eq!(all.ordered(), ["512→0"], "nobody is cold who could make room");
    }

    // Three pages with 24 samples each, in three rounds of eight: all are above the threshold after the last,
    // and the clock ticks once.
    #[test]
    fn pages_that_get_too_much_together_are_one_tick() {
        let mut trace = trace(Sees::All, 3);
        trace.seconds(3, |second| match second {
            1 => (0..3).flat_map(|block| requests(block, 240)).collect(),
            _ => vec![],
        });
        assert_eq!(trace.policy.hemem.ticks(), 1);
        assert_eq!(trace.ordered(), ["512→0"]);
    }
}
