//! Counts that the instrumented virtual machine keeps in shared memory, a block for each vCPU: who looks sees them
//! while it runs, and they are there when it is gone.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counts {
    ($($(#[$about:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Count {
            $($(#[$about])* $variant,)*
        }

        impl Count {
            /// All of them, in the order of their words.
            pub const ALL: &'static [Count] = &[$(Count::$variant),*];

            /// Its name in results.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Count::$variant => $name,)*
                }
            }
        }
    };
}

counts! {
    /// Accesses seen.
    Accesses = "accesses",
    /// Accesses to no RAM of the nodes: devices, ROM.
    Elsewhere = "elsewhere",
    /// Lines that the cache did not have.
    CacheMisses = "cache_misses",
    /// Dirty lines that left it.
    Writebacks = "writebacks",
    /// Non-temporal stores.
    NonTemporal = "non_temporal",
    /// Misses that fell on node 0.
    Node0 = "node0_misses",
    /// Misses that fell on other nodes.
    OtherNodes = "other_nodes_misses",
    /// Nanoseconds spun for latency and bandwidth.
    SpunNs = "spun_ns",
    /// TLB misses, each with a walk.
    TlbMisses = "tlb_misses",
    /// TLB entries that the guest had changed meanwhile, found by the page that the access really went to.
    TlbStale = "tlb_stale",
    /// Walks that ended elsewhere than the access itself: the tables changed in between.
    WalkMismatches = "walk_mismatches",
    /// Walks that ended nowhere: likewise.
    WalkFaults = "walk_faults",
    /// Records written.
    Records = "records",
    /// Records lost.
    Lost = "records_lost",
    /// Nanoseconds waited for a reader of records.
    WaitedNs = "waited_ns",
    /// Requests that counters counted.
    Counted = "counted",
    /// Doorbells answered.
    Doorbells = "doorbells",
    /// Interrupts raised.
    Interrupts = "interrupts",
    /// Flushes of the emulated TLBs.
    Flushes = "flushes",
    /// 1 once CR3 and the addresses of RAM are proven.
    Proven = "proven",
}

/// Words of a block: two lines of a cache, so that no two vCPUs write to one.
pub const BLOCK_WORDS: usize = 32;

/// Bytes for so many vCPUs, and the block of switches that follows theirs.
#[must_use]
pub fn bytes_for(cpus: u32) -> u64 {
    u64::from(cpus + 1) * BLOCK_WORDS as u64 * 8
}

/// What can be switched off and on while the machine runs: a bit each of the first word of the last block, 1 while
/// it is off, so that several change at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// Records of accesses.
    Raw,
    /// The model of TLBs, with records of its misses. It forgets everything when it is switched on.
    Tlb,
    /// Bits of touched pages.
    Touched,
    /// Flushes.
    Flush,
}

impl Switch {
    /// All of them.
    pub const ALL: [Switch; 4] = [Switch::Raw, Switch::Tlb, Switch::Touched, Switch::Flush];

    /// Its part's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Switch::Raw => "raw",
            Switch::Tlb => "tlb",
            Switch::Touched => "touched",
            Switch::Flush => "flush",
        }
    }

    /// The part of that name; `None` if there is none that can be switched.
    #[must_use]
    pub fn named(name: &str) -> Option<Switch> {
        Switch::ALL.into_iter().find(|switch| switch.name() == name)
    }

    /// Its bit.
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u64
    }

    /// Whether it is on where [`switched_off`] says `off`.
    #[inline(always)]
    #[must_use]
    pub const fn is_on(self, off: u64) -> bool {
        off & self.bit() == 0
    }
}

/// The word of switches; `None` if there is no room for it.
#[must_use]
pub fn switches(region: &[AtomicU64]) -> Option<&AtomicU64> {
    region.get(region.len().checked_sub(BLOCK_WORDS)?)
}

/// What is off now.
#[inline(always)]
#[must_use]
pub fn switched_off(region: &[AtomicU64]) -> u64 {
    switches(region).map_or(0, |word| word.load(Relaxed))
}

/// Whether the plugin looks at all: a word that the lab sets to [`WAKE`] when the guest has booted, and the plugin to
/// [`AWAKE`] once it looks. `None` if there is no room for it.
#[must_use]
pub fn wakefulness(region: &[AtomicU64]) -> Option<&AtomicU64> {
    region.get(region.len().checked_sub(BLOCK_WORDS)? + 1)
}

/// Somebody wants the plugin to look.
pub const WAKE: u64 = 1;
/// It does.
pub const AWAKE: u64 = 2;

/// The counts of one vCPU, for the one who counts.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Block<'a> {
    /// The block of a vCPU; `None` if the memory ends before it.
    #[must_use]
    pub fn of(region: &'a [AtomicU64], cpu: u32) -> Option<Self> {
        let first = cpu as usize * BLOCK_WORDS;
        Some(Self { words: region.get(first..first + BLOCK_WORDS)? })
    }

    /// Adds to a count that only this thread changes.
    #[inline(always)]
    pub fn add(&self, count: Count, more: u64) {
        let word = &self.words[count as usize];
        word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Adds to a count that several threads change.
    pub fn share(&self, count: Count, more: u64) {
        self.words[count as usize].fetch_add(more, Relaxed);
    }

    /// A count.
    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.words[count as usize].load(Relaxed)
    }
}

/// A count over all vCPUs.
#[must_use]
pub fn sum(region: &[AtomicU64], count: Count) -> u64 {
    let cpus = &region[..region.len().saturating_sub(BLOCK_WORDS)];
    cpus.chunks_exact(BLOCK_WORDS).map(|words| words[count as usize].load(Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(cpus: u32) -> Vec<AtomicU64> {
        (0..bytes_for(cpus) / 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn all_counts_fit_a_block() {
        assert!(Count::ALL.len() <= BLOCK_WORDS);
        assert!(Count::ALL.iter().enumerate().all(|(n, count)| *count as usize == n));
    }

    #[test]
    fn counts_add_up_over_cpus() {
        let region = region(2);
        Block::of(&region, 0).unwrap().add(Count::Records, 3);
        Block::of(&region, 1).unwrap().share(Count::Records, 4);
        assert_eq!(sum(&region, Count::Records), 7);
        assert_eq!(Block::of(&region, 1).unwrap().get(Count::Records), 4);
        assert!(Block::of(&region, 3).is_none());
    }

    #[test]
    fn switches_are_no_counts() {
        let region = region(1);
        assert!(Switch::ALL.iter().all(|switch| switch.is_on(switched_off(&region))));
        switches(&region).unwrap().store(Switch::Tlb.bit() | Switch::Flush.bit(), Relaxed);
        let off = switched_off(&region);
        assert!(!Switch::Tlb.is_on(off) && !Switch::Flush.is_on(off) && Switch::Raw.is_on(off));
        assert!(Count::ALL.iter().all(|count| sum(&region, *count) == 0));
    }
}
