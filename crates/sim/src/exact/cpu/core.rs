//! A core: its MMU, its clock, its counters.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{Level, Result};
use tierscope_hw::{Asid, Mmu};

use super::in_flight::InFlight;
use super::misses::Misses;
use super::pmu::Pmu;
use super::private_caches::PrivateCaches;
use super::trap::Trapped;
use super::walks::Walks;
use crate::account::Counts;
use crate::exact::Setup;
use crate::exact::units::NS;
use crate::window::{Core as Limits, Window};

/// A core.
pub(in crate::exact) struct Cpu {
    pub(in crate::exact) mmu: Mmu,
    /// The core's clock, in ps.
    pub(in crate::exact) time: u64,
    /// The core's runnable threads, the running one first.
    pub(in crate::exact) threads: VecDeque<usize>,
    /// End of the running thread's time slice.
    pub(super) turn_ends: u64,
    /// Time of the next timer tick, and the period.
    tick_at: u64,
    tick: u64,
    /// Entries that a tick loads into the paging-structure caches: addresses, and the lowest level.
    touched: Vec<(u64, Level)>,
    /// Time of the next TLB flush, and the period.
    flush_at: u64,
    flush: u64,
    /// Contents of the core's private caches.
    pub(super) private: PrivateCaches,
    pub(in crate::exact) counts: Counts,
    pub(in crate::exact) pmu: Option<Pmu>,
    pub(super) in_flight: InFlight,
    pub(in crate::exact) window: Window,
    /// Time without a runnable thread.
    pub(in crate::exact) idle: u64,
    /// Time that telemetry took from the core.
    pub(in crate::exact) stolen: u64,
    /// Number of walks at the last decision whether the host should prefetch.
    pub(super) walks_seen: u64,
    /// Addresses of promoted pages that this core was the first to access.
    pub(super) reached: Vec<u64>,
    /// Walk counts by page, with [`Setup::watch_tables`] only.
    pub(super) walks: Option<Box<Walks>>,
    /// Accesses that memory served by page, with [`Setup::count_misses`] only.
    pub(super) misses: Option<Box<Misses>>,
    /// Counts of trapped walks (BadgerTrap).
    pub(super) trapped: Trapped,
}

impl Cpu {
    pub(in crate::exact) fn new(setup: &Setup) -> Result<Self> {
        let pmu = setup.sampling.as_ref().map(|sampling| Pmu::new(sampling, &setup.costs.samples));
        let ps = |time: Option<Duration>| time.map_or(u64::MAX, |t| t.as_nanos() as u64 * NS);
        let (tick, flush) = (ps(setup.tick), ps(setup.flush));
        Ok(Self {
            tick_at: tick,
            tick,
            touched: touched(setup),
            flush_at: setup.flush.map_or(u64::MAX, |_| flush / 2),
            flush,
            mmu: Mmu::new(&setup.hardware.translation)?,
            time: 0,
            threads: VecDeque::new(),
            turn_ends: 0,
            private: PrivateCaches::new(&setup.hardware),
            counts: Counts::default(),
            pmu,
            in_flight: InFlight::new(),
            window: Window::of(Limits::of(&setup.hardware.timing)),
            idle: 0,
            stolen: 0,
            walks_seen: 0,
            reached: Vec::new(),
            walks: setup.watch_tables.then(Box::default),
            misses: setup.count_misses.then(Box::default),
            trapped: Trapped::default(),
        })
    }

    /// Time of the next timer tick or flush.
    pub(super) fn interrupted_at(&self) -> u64 {
        self.tick_at.min(self.flush_at)
    }

    /// The first timer tick from a time on; that time without ticks.
    pub(super) fn next_tick(&self, time: u64) -> u64 {
        if self.tick == u64::MAX { time } else { time.next_multiple_of(self.tick) }
    }

    /// Executes the timer ticks and flushes that are due.
    pub(super) fn interrupts(&mut self) {
        if self.time >= self.tick_at {
            for (linear, lowest) in &self.touched {
                self.mmu.occupy(*linear, Asid::ZERO, *lowest);
            }
            self.tick_at = (self.time / self.tick + 1) * self.tick;
        }
        if self.time >= self.flush_at {
            self.mmu.flush_all();
            self.flush_at += ((self.time - self.flush_at) / self.flush + 1) * self.flush;
        }
    }

    /// Waits until all accesses have their data.
    pub(super) fn drain(&mut self) {
        self.time = self.window.drain(self.time);
    }

    /// Idles until `until`.
    pub(super) fn idle_until(&mut self, until: u64) {
        if until > self.time {
            self.idle += until - self.time;
            self.time = until;
        }
    }

    /// Telemetry or the kernel takes time from the running thread.
    pub(super) fn steal(&mut self, time: u64) {
        self.time += time;
        self.stolen += time;
    }
}

/// Entries that the kernel's tick handler uses, under an ASID that no process has. Entries below a
/// leaf are not cached.
fn touched(setup: &Setup) -> Vec<(u64, Level)> {
    let five = setup.hardware.translation.levels == 5;
    let regions = setup.costs.tick.regions.iter();
    let entry = |region: &crate::config::KernelRegion| {
        let at = if five { region.five } else { region.four };
        Some((at.0, Level::new(region.pages.level().number() + 1)?))
    };
    regions.filter_map(entry).collect()
}
