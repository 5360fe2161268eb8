//! The paging-structure cache of a level: sets of entries with least-recently-used eviction.
//!
//! The kernel's timer tick walks to its own memory and leaves its entries in the cache
//! ([`crate::config::Tick`]). It flushes nothing: an entry of the target is evicted when the ways
//! of its set are needed. Where the kernel's entries alone fill a set, each tick empties it.

use std::time::Duration;

use tierscope_core::Level;

use super::config::Config;
use super::lru::Lru;
use super::residency::{Group, alike, characteristic_time};
use super::sums::Sums;

/// One set of a paging-structure cache.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// Seconds for which the set holds an entry after its last use.
    pub(super) held: f64,
    /// Miss rates of the set's entries.
    pub(super) lru: Lru,
    /// Whether the entries of a kernel tick fill all ways of the set.
    pub(super) emptied: bool,
}

/// The cache of a level, the same on each core.
#[derive(Clone, Debug, Default)]
pub(super) struct Upper {
    /// Empty if there is no cache.
    sets: Vec<Set>,
}

impl Upper {
    /// The cache of `level` under the look-ups a second of `uses`, over all cores.
    pub(super) fn new(config: &Config, level: Level, uses: &Sums) -> Self {
        let number = usize::from(level.number());
        let [entries, ways] = [config.upper_entries, config.upper_ways].map(|of| of[number]);
        if entries == 0 {
            return Self::default();
        }
        let ways = if ways == 0 { entries } else { ways.min(entries) };
        let count = u64::from((entries / ways).max(1));
        let used = uses.entries(level);
        let kernel = kernel_entries(config, level);
        let seconds = |every: Option<Duration>| every.map_or(f64::INFINITY, |t| t.as_secs_f64());
        let times = (seconds(config.tick), seconds(config.flush));
        let set = |set: u64| {
            let own = kernel.iter().filter(|entry| *entry % count == set).count();
            let cores = f64::from(config.cores);
            let targets = used.iter().map(|(first, entries, rate)| {
                let before = |entry: u64| (entry + count - 1 - set) / count;
                let here = before(first + entries) - before(*first);
                Group { count: here as f64, rate: rate / cores }
            });
            let targets = alike(targets);
            let ticks = Group { count: own as f64, rate: 1.0 / times.0 };
            let groups = alike(targets.iter().copied().chain([ticks]));
            Set {
                held: characteristic_time(&groups, f64::from(ways)),
                lru: Lru::new(&targets, ways, own, times),
                emptied: own >= ways as usize,
            }
        };
        Self { sets: (0..count).map(set).collect() }
    }

    /// The set of the entry that holds an address.
    pub(super) fn set(&self, at: u64, level: Level) -> Option<&Set> {
        let sets = self.sets.len() as u64;
        (sets > 0).then(|| &self.sets[((at >> level.shift()) % sets) as usize])
    }

    /// Number of the cache's sets.
    pub(super) fn sets(&self) -> u64 {
        self.sets.len() as u64
    }

    /// Seconds for which the longest-holding set holds an unused entry.
    pub(super) fn longest(&self) -> f64 {
        self.sets.iter().map(|set| set.held).fold(0.0, f64::max)
    }
}

/// Numbers of the entries of a level that a kernel tick leaves in its cache, each once.
fn kernel_entries(config: &Config, level: Level) -> Vec<u64> {
    if config.tick.is_none() {
        return Vec::new();
    }
    let five = config.radix.levels == 5;
    let regions = config.costs.tick.regions.iter();
    let above = regions.filter(|region| region.pages.level() < level);
    let number = |at: u64| (at & ((1 << 57) - 1)) >> level.shift();
    let mut numbers: Vec<u64> =
        above.map(|region| number(if five { region.five.0 } else { region.four.0 })).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Costs;
    use tierscope_hw::Machine as Hardware;

    // Four levels: direct map, stacks, CPU entry area and text are below four entries of level 4,
    // as many as it has ways; of level 3 the last three have one each, of level 2 stacks and entry
    // area.
    #[test]
    fn a_tick_fills_the_top_and_leaves_room_below() {
        let hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        let config = Config::of(&hardware, Costs::ready_made("linux").unwrap());
        let counts = [2, 3, 4].map(|n| kernel_entries(&config, Level::new(n).unwrap()).len());
        assert_eq!(counts, [2, 3, 4]);
        let none = Sums::of(&[], |_| 0.0);
        let top = Upper::new(&config, Level::P4D, &none);
        // At a thousand uses a second one in four is the first after a tick: 1 - exp(-4) of 250.
        let missed = top.set(0, Level::P4D).unwrap().lru.missed(1000.0, false);
        assert!((missed - 0.245).abs() < 0.01, "{missed}");
        let third = Upper::new(&config, Level::PUD, &none);
        assert_eq!(third.sets.len(), 2);
        assert!(third.sets.iter().all(|set| set.lru.missed(1000.0, false) < 1e-9));
        let without = Config { tick: None, ..config };
        assert!(kernel_entries(&without, Level::P4D).is_empty());
    }
}
