//! The memory hierarchy below translation: last-level cache, prefetcher, tiers and bus.

use std::time::Duration;

use tierscope_core::{BusObserver, Error, ErrorKind, Result, Tier};
use tierscope_hw::cache::Request;
use tierscope_hw::{Cache, Machine as Hardware, Prefetcher};

use super::bus::Bus;
use super::line_place::LinePlace;
use super::memory_mode::{MAX_RATIO, NearMemory};
use super::tier::{Direction, TierClock};
use super::units::Moved;
use crate::account::TIERS;
use crate::exact::units::{LINE, duration};
use crate::window::Window;

/// Time at which a core dispatches an access, for the bus, and at which it needs the line, in ps.
pub(in crate::exact) type When = (u64, u64);

/// Cost of a read of one line from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) struct Served {
    /// Latency of idle memory, in ps.
    pub(super) latency: u64,
    /// Queueing delay on top of the latency, in ps.
    pub(super) wait: u64,
    /// The tier that served the read.
    pub(in crate::exact) tier: u8,
}

impl Served {
    /// Time until the line arrives, in ps. A core that waits for several lines at a time divides it
    /// among them (Little's law).
    #[inline(always)]
    pub(in crate::exact) fn time(&self) -> u64 {
        self.latency + self.wait
    }
}

/// Result of an access to the cache: a hit, or a miss with its cost in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) enum CacheResult {
    Hit,
    Miss(Served),
}

pub(in crate::exact) struct Memory<B> {
    pub(in crate::exact) llc: Option<Cache>,
    prefetcher: Option<Prefetcher>,
    pub(in crate::exact) tiers: Vec<TierClock>,
    /// First bytes of the tiers after the first.
    firsts: Vec<u64>,
    /// First physical address of the page tables.
    tables: u64,
    near: Option<NearMemory>,
    pub(in crate::exact) bus: Bus<B>,
    /// Lines read from and written to each tier.
    pub(in crate::exact) lines: [[u64; TIERS]; 2],
    /// Lines read from and written to each tier by the mover.
    pub(in crate::exact) copied: [[u64; TIERS]; 2],
    /// Summed queueing delay of all lines except the mover's, in ps.
    pub(super) waits: [[u64; TIERS]; 2],
}

impl<B: BusObserver> Memory<B> {
    pub(in crate::exact) fn new(
        hardware: &Hardware,
        firsts: &[u64],
        memory_mode: bool,
        observer: B,
    ) -> Result<Self> {
        let bits = hardware.processor.physical_bits;
        let llc = hardware.llc.as_ref().map(|llc| Cache::new(llc, bits)).transpose()?;
        if hardware.tiers.len() > TIERS {
            return Err(Error::new(ErrorKind::Usage, format!("{} tiers", hardware.tiers.len()))
                .cause(format!("exact mode has counters for {TIERS}"))
                .remedy("configure fewer tiers"));
        }
        Ok(Self {
            prefetcher: hardware.prefetcher.as_ref().filter(|_| llc.is_some()).map(Prefetcher::new),
            llc,
            tiers: hardware.tiers.iter().map(TierClock::new).collect(),
            firsts: firsts[1..].iter().map(|frame| frame << 12).collect(),
            tables: 1 << (bits - 1),
            near: if memory_mode { Some(near_memory(hardware)?) } else { None },
            bus: Bus::new(observer),
            lines: [[0; TIERS]; 2],
            copied: [[0; TIERS]; 2],
            waits: [[0; TIERS]; 2],
        })
    }

    /// Mean queueing delay of a line.
    pub(in crate::exact) fn mean_waits(&self) -> [[Duration; TIERS]; 2] {
        let mean = |way: usize, tier: usize| {
            let lines = self.lines[way][tier] - self.copied[way][tier];
            duration(self.waits[way][tier].checked_div(lines).unwrap_or(0))
        };
        [0, 1].map(|way| std::array::from_fn(|tier| mean(way, tier)))
    }

    /// Latency of a read of an idle tier.
    pub(in crate::exact) fn idle(&self, tier: Tier) -> Duration {
        let moved = Moved::line(Direction::Read);
        duration(self.tiers[usize::from(tier.0)].latency(Direction::Read, moved))
    }

    #[inline(always)]
    fn tier_of(&self, address: u64) -> usize {
        if address >= self.tables {
            return 0;
        }
        self.firsts.iter().map(|first| usize::from(address >= *first)).sum()
    }

    /// Accesses a line through the cache for a core. Victims are written back, and the prefetcher's
    /// lines read, on the way.
    #[inline(always)]
    pub(in crate::exact) fn access<const CLOCK: bool>(
        &mut self,
        when: When,
        line: LinePlace,
        store: bool,
        cpu: usize,
    ) -> CacheResult {
        let LinePlace { address, place } = line;
        let request = if store { Request::Write } else { Request::Read };
        let Some(llc) = &mut self.llc else {
            return CacheResult::Miss(self.read::<CLOCK>(when, address, cpu));
        };
        let reply = llc.access_at(place, request);
        if let Some(victim) = reply.writeback {
            self.write::<CLOCK>(when, victim, cpu);
        }
        if reply.hit {
            CacheResult::Hit
        } else {
            CacheResult::Miss(self.read::<CLOCK>(when, address, cpu))
        }
    }

    /// Shows a demand access to the prefetcher, and fetches the lines that it requests as long as
    /// the core has one of `places` for them.
    #[inline(always)]
    pub(in crate::exact) fn prefetch<const CLOCK: bool>(
        &mut self,
        when: When,
        address: u64,
        cpu: usize,
        (window, places): (&mut Window, usize),
    ) {
        let Some(prefetcher) = &mut self.prefetcher else { return };
        for line in prefetcher.observe(address) {
            let free = if CLOCK { window.prefetch_place(when.1, places) } else { Some(0) };
            let Some(free) = free else { return };
            let place = LinePlace::new(line, self.llc.as_ref());
            let reached = self.access::<CLOCK>(when, place, false, cpu);
            if let (true, CacheResult::Miss(served)) = (CLOCK, reached) {
                window.prefetches(free, line / LINE, when.1 + served.time());
            }
        }
    }

    /// A store that bypasses the cache.
    pub(in crate::exact) fn store_bypassing<const CLOCK: bool>(
        &mut self,
        when: When,
        address: u64,
        cpu: usize,
    ) -> Served {
        let reply = self.llc.as_mut().map(|llc| llc.access(address, Request::NonTemporal));
        if let Some(victim) = reply.and_then(|reply| reply.writeback) {
            self.write::<CLOCK>(when, victim, cpu);
        }
        let (tier, wait) = self.write::<CLOCK>(when, address, cpu);
        let moved = Moved::line(Direction::Write);
        Served {
            latency: self.tiers[tier].latency(Direction::Write, moved),
            wait,
            tier: tier as u8,
        }
    }

    /// Reads a line from memory.
    #[inline]
    pub(in crate::exact) fn read<const CLOCK: bool>(
        &mut self,
        when: When,
        address: u64,
        cpu: usize,
    ) -> Served {
        self.bus.put(when.0, address, false, cpu);
        let tier = self.tier_of(address);
        if self.near.is_some() && tier == 1 {
            return self.read_far::<CLOCK>(when, address);
        }
        self.read_tier::<CLOCK>(when, address, tier)
    }

    #[inline(always)]
    fn read_tier<const CLOCK: bool>(&mut self, when: When, address: u64, tier: usize) -> Served {
        self.lines[0][tier] += 1;
        let clock = &mut self.tiers[tier];
        let moved = clock.touch(address, Direction::Read);
        let wait = if CLOCK { clock.book(when, Direction::Read, moved) } else { 0 };
        self.waits[0][tier] += wait;
        Served { latency: clock.latency(Direction::Read, moved), wait, tier: tier as u8 }
    }

    #[inline(always)]
    fn write_tier<const CLOCK: bool>(&mut self, when: When, address: u64, tier: usize) -> u64 {
        self.lines[1][tier] += 1;
        let clock = &mut self.tiers[tier];
        let moved = clock.touch(address, Direction::Write);
        if CLOCK { clock.book(when, Direction::Write, moved) } else { 0 }
    }

    /// Read in memory mode: looks the near memory up first.
    fn read_far<const CLOCK: bool>(&mut self, when: When, address: u64) -> Served {
        let hit = self.near_access::<CLOCK>(when, address, false);
        self.read_tier::<CLOCK>(when, address, usize::from(!hit))
    }

    /// Looks a line up in the near memory, and fills it on a miss.
    fn near_access<const CLOCK: bool>(&mut self, when: When, address: u64, write: bool) -> bool {
        let near = self.near.as_mut().expect("only in memory mode");
        let found = near.access(address - self.firsts[0], write);
        if found.writeback {
            self.write_tier::<CLOCK>(when, address, 1);
        }
        if !found.hit {
            self.write_tier::<CLOCK>(when, address, 0);
        }
        found.hit
    }

    /// Writes a line to memory; returns the tier, and the queueing delay.
    pub(in crate::exact) fn write<const CLOCK: bool>(
        &mut self,
        when: When,
        address: u64,
        cpu: usize,
    ) -> (usize, u64) {
        self.bus.put(when.0, address, true, cpu);
        let mut tier = self.tier_of(address);
        if self.near.is_some() && tier == 1 {
            self.near_access::<CLOCK>(when, address, true);
            tier = 0;
        }
        let wait = self.write_tier::<CLOCK>(when, address, tier);
        self.waits[1][tier] += wait;
        (tier, wait)
    }
}

fn near_memory(hardware: &Hardware) -> Result<NearMemory> {
    let [near, far] = &hardware.tiers[..] else {
        return Err(Error::new(ErrorKind::Usage, "memory mode is not possible")
            .cause(format!("the machine has {} tiers", hardware.tiers.len()))
            .remedy("use a machine of two tiers"));
    };
    if far.mib / near.mib >= MAX_RATIO {
        return Err(Error::new(ErrorKind::Usage, "memory mode is not possible")
            .cause(format!("the second tier is {} times the first", far.mib / near.mib))
            .remedy(format!("stay below {MAX_RATIO} times")));
    }
    NearMemory::new(near.mib)
}
