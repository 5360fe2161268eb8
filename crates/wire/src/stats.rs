//! Counters of the instrumented virtual machine in shared memory, one block per vCPU: readable
//! while the machine runs, and after it has exited.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! counts {
    ($($(#[$about:meta])* $variant:ident = $name:literal),* $(,)?) => {
        /// A counter of a vCPU.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Count {
            $($(#[$about])* $variant,)*
        }

        impl Count {
            /// All counters, in the order of their words in a block.
            pub const ALL: &'static [Count] = &[$(Count::$variant),*];

            /// The counter's name in result files.
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
    /// Accesses observed by the plugin.
    Accesses = "accesses",
    /// Accesses outside the RAM of all nodes: devices, ROM.
    Elsewhere = "elsewhere",
    /// Cache misses, in lines.
    CacheMisses = "cache_misses",
    /// Dirty lines evicted from the cache.
    Writebacks = "writebacks",
    /// Non-temporal stores by the guest.
    NonTemporal = "non_temporal",
    /// Cache misses served by node 0.
    Node0 = "node0_misses",
    /// Cache misses served by other nodes.
    OtherNodes = "other_nodes_misses",
    /// Nanoseconds spun to emulate latency and bandwidth.
    SpunNs = "spun_ns",
    /// TLB misses, each with a page walk.
    TlbMisses = "tlb_misses",
    /// Stale TLB entries: the guest had changed the mapping, as the physical page of the access
    /// showed.
    TlbStale = "tlb_stale",
    /// Walks that ended at another physical page than the access: the page tables changed in
    /// between.
    WalkMismatches = "walk_mismatches",
    /// Walks that found no mapping: the page tables changed in between.
    WalkFaults = "walk_faults",
    /// Records written to the rings.
    Records = "records",
    /// Records lost because a ring was full.
    Lost = "records_lost",
    /// Nanoseconds spent waiting for the reader of a full ring.
    WaitedNs = "waited_ns",
    /// Memory requests counted by the telemetry device.
    Counted = "counted",
    /// Doorbells of the telemetry device that were answered.
    Doorbells = "doorbells",
    /// Interrupts raised by the telemetry device.
    Interrupts = "interrupts",
    /// Flushes of the emulated TLBs.
    Flushes = "flushes",
    /// 1 once the plugin has verified CR3 and the addresses of RAM.
    Proven = "proven",
}

/// Words of a block: 256 bytes, so that no two vCPUs write to the same cache line.
pub const BLOCK_WORDS: usize = 32;

/// Bytes of the shared memory: a block for each of `cpus` vCPUs, and the block of switches after
/// them.
#[must_use]
pub fn bytes_for(cpus: u32) -> u64 {
    u64::from(cpus + 1) * BLOCK_WORDS as u64 * 8
}

/// Parts of the plugin that can be switched off and on while the machine runs. Each is a bit of the
/// first word of the last block, 1 while the part is off, so that several can change at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switch {
    /// Records of memory accesses.
    Raw,
    /// The TLB model and the records of its misses. Switching it on empties it.
    Tlb,
    /// The table of touched pages.
    Touched,
    /// Flushes of the emulated TLBs.
    Flush,
}

impl Switch {
    /// All switches.
    pub const ALL: [Switch; 4] = [Switch::Raw, Switch::Tlb, Switch::Touched, Switch::Flush];

    /// The part's name in the plugin's options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Switch::Raw => "raw",
            Switch::Tlb => "tlb",
            Switch::Touched => "touched",
            Switch::Flush => "flush",
        }
    }

    /// The switch with that name; `None` for parts that cannot be switched.
    #[must_use]
    pub fn named(name: &str) -> Option<Switch> {
        Switch::ALL.into_iter().find(|switch| switch.name() == name)
    }

    /// The switch's bit in the word of switches.
    #[inline(always)]
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u64
    }

    /// Whether the part is on, given the bits from [`switched_off`].
    #[inline(always)]
    #[must_use]
    pub const fn is_on(self, off: u64) -> bool {
        off & self.bit() == 0
    }
}

/// The word of switches; `None` if the memory has no last block.
#[must_use]
pub fn switches(region: &[AtomicU64]) -> Option<&AtomicU64> {
    region.get(region.len().checked_sub(BLOCK_WORDS)?)
}

/// Bits of the parts that are off at the moment.
#[inline(always)]
#[must_use]
pub fn switched_off(region: &[AtomicU64]) -> u64 {
    switches(region).map_or(0, |word| word.load(Relaxed))
}

/// Handshake that starts the plugin: the lab writes [`WAKE`] once the guest has booted, and the
/// plugin answers with [`AWAKE`] once it observes accesses. `None` if the memory has no last block.
#[must_use]
pub fn wakefulness(region: &[AtomicU64]) -> Option<&AtomicU64> {
    region.get(region.len().checked_sub(BLOCK_WORDS)? + 1)
}

/// Request: the plugin shall start to observe.
pub const WAKE: u64 = 1;
/// Answer: the plugin observes.
pub const AWAKE: u64 = 2;

/// The counters of one vCPU, as its own thread sees them.
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

    /// Adds to a counter that only this thread changes.
    #[inline(always)]
    pub fn add(&self, count: Count, more: u64) {
        let word = &self.words[count as usize];
        word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// Adds to a counter that several threads change.
    pub fn share(&self, count: Count, more: u64) {
        self.words[count as usize].fetch_add(more, Relaxed);
    }

    /// The value of a counter.
    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.words[count as usize].load(Relaxed)
    }
}

/// Sum of a counter over all vCPUs.
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
