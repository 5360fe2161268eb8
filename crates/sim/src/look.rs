//! Price of a look at a page-table entry: the module's own work, and the reads of its walk.
//!
//! A probe reads an entry of each level from the top down to its own, one after another. The next
//! probe does not overlap with it: the module executes 312 to 389 instructions for each (`lab run
//! look-cost`), more than most reorder buffers hold. Probes at random addresses find a level's
//! entries in a cache as far as it holds all of them:
//!
//! ```text
//! table      8 B of an entry for each entry_bytes of the target
//! read       private · min(1, P/table) + llc · rest · min(1, C/table) + memory · rest
//! look       probe_ns + sum over the levels of read
//! ```
//!
//! with `P` and `C` the sizes of the private and of the last-level cache. A read beyond the private
//! caches needs one more read there: the kernel reaches tables through pages of 1 GiB, of which its
//! TLB holds 16 (Documentation/arch/x86/x86_64/mm.rst; Intel optimization reference manual), and
//! their 8 KiB of entries for each TiB are cached.
//!
//! `cargo run --release -p tierscope-sim --example look` compares the reads with those of this
//! host. Left out: that a large reorder buffer hides a part of a look's last read; the target's own
//! use of the last-level cache, entries that other looks left in it, and nested paging.

use tierscope_core::{Level, Probe};
use tierscope_hw::Machine as Hardware;
use tierscope_hw::entry::ENTRY_BYTES;

use crate::config::Costs;

/// What reads of entries cost, in nanoseconds, and the sizes of the caches.
#[derive(Clone, Copy, Debug)]
pub struct LookPrice {
    own: f64,
    /// Whether reads are charged.
    reads: bool,
    levels: u8,
    private: f64,
    llc: f64,
    memory: f64,
    private_bytes: f64,
    llc_bytes: f64,
}

impl LookPrice {
    /// Prices on a machine.
    #[must_use]
    pub fn new(hardware: &Hardware, costs: &Costs) -> Self {
        let timing = &hardware.timing;
        Self {
            own: costs.access_bits.probe_ns as f64,
            reads: costs.access_bits.reads,
            levels: hardware.translation.levels,
            private: hardware.nanoseconds(timing.private_cycles),
            llc: hardware.nanoseconds(timing.llc_cycles),
            memory: f64::from(hardware.tiers[0].read_ns),
            private_bytes: f64::from(timing.private_kib) * 1024.0,
            llc_bytes: hardware.llc.as_ref().map_or(0.0, |llc| llc.bytes() as f64),
        }
    }

    /// Nanoseconds of probes, in a machine with `bytes` bytes of memory in use.
    pub(crate) fn all(&self, probes: &[Probe], bytes: u64) -> u64 {
        let mut by_level = [0u64; 6];
        probes.iter().for_each(|probe| by_level[usize::from(probe.level.number())] += 1);
        let looks = (1..=5)
            .filter_map(Level::new)
            .map(|level| by_level[usize::from(level.number())] as f64 * self.look(level, bytes));
        looks.sum::<f64>().round() as u64
    }

    /// Nanoseconds of a probe of an entry of `level` in a space with `bytes` bytes of memory.
    #[must_use]
    pub fn look(&self, level: Level, bytes: u64) -> f64 {
        if !self.reads {
            return self.own;
        }
        let levels = (level.number()..=self.levels).filter_map(Level::new);
        self.own + levels.map(|level| self.read(level, bytes)).sum::<f64>()
    }

    /// Nanoseconds of the read of an entry of `level`, after those above it.
    fn read(&self, level: Level, bytes: u64) -> f64 {
        let entry = ENTRY_BYTES as f64;
        let table = (bytes as f64 / level.entry_bytes() as f64 * entry).max(entry);
        let held = |cache: f64| (cache / table).min(1.0);
        let (near, far) = (held(self.private_bytes), 1.0 - held(self.private_bytes));
        let last = held(self.llc_bytes);
        self.private * near + far * (self.private + self.llc * last + self.memory * (1.0 - last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cycle a nanosecond: 10 ns, 70 ns and 100 ns; 1 MiB and 32 MiB.
    fn price() -> LookPrice {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        (hardware.processor.mhz, hardware.tiers[0].read_ns) = (1000, 100);
        (hardware.timing.private_cycles, hardware.timing.private_kib) = (10, 1024);
        let llc = hardware.llc.as_mut().unwrap();
        (llc.slices, llc.sets, llc.ways) = (1, 32_768, 16);
        let mut costs = Costs::ready_made("linux").unwrap();
        costs.access_bits.probe_ns = 50;
        LookPrice::new(&hardware, &costs)
    }

    // 128 MiB: 256 KiB of leaf entries, all in the private caches.
    #[test]
    fn small_targets_are_cached() {
        let looks = [1, 2, 3, 4].map(|level| price().look(Level::new(level).unwrap(), 128 << 20));
        assert_eq!(looks, [90.0, 80.0, 70.0, 60.0]);
    }

    // 4 TiB: 16 MiB of entries of level 2, a sixteenth of them private: 10/16 + 80 · 15/16 = 75.6;
    // 8 GiB of level 1, 1/256 in the last-level cache: 10 + 99.9.
    #[test]
    fn a_large_targets_entries_come_from_memory() {
        let looks = [1, 2, 3].map(|level| price().look(Level::new(level).unwrap(), 4 << 40));
        assert_eq!(looks[2], 70.0);
        assert!((looks[1] - 145.6).abs() < 0.1, "{looks:?}");
        assert!((looks[0] - looks[1] - 109.9).abs() < 0.1, "{looks:?}");
    }
}
