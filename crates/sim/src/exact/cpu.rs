//! A core: its MMU, its clock, its counters.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{Level, Result};
use tierscope_hw::{Asid, Mmu};

use super::pmu::Pmu;
use super::private::Private;
use super::setup::Setup;
use super::tier::NS;
use super::trap::Trapped;
use super::watch::Walks;
use super::window::Window;
use crate::account::Counts;

/// A core.
pub(super) struct Cpu {
    pub(super) mmu: Mmu,
    /// Its clock, in ps.
    pub(super) time: u64,
    /// Threads that it runs, the one that runs first.
    pub(super) threads: VecDeque<usize>,
    /// When the next of them has its turn.
    pub(super) turn_ends: u64,
    /// When its next timer tick comes, and from one to the next.
    tick_at: u64,
    tick: u64,
    /// What a tick leaves in the paging-structure caches: addresses, and the lowest level.
    touched: Vec<(u64, Level)>,
    /// When its TLBs are flushed next, and from one time to the next.
    flush_at: u64,
    flush: u64,
    /// What its own caches hold.
    pub(super) private: Private,
    pub(super) counts: Counts,
    pub(super) pmu: Option<Pmu>,
    pub(super) window: Window,
    /// Time that it had nothing to do.
    pub(super) idle: u64,
    /// Time that telemetry took from it.
    pub(super) stolen: u64,
    /// Walks when it was last decided whether the host should prefetch.
    pub(super) walks_seen: u64,
    /// Physical addresses that it touched and that nobody had since they were promoted.
    pub(super) reached: Vec<u64>,
    /// Walks page by page, if anybody wants to know.
    pub(super) walks: Option<Box<Walks>>,
    /// Walks that were trapped.
    pub(super) trapped: Trapped,
}

impl Cpu {
    pub(super) fn new(setup: &Setup) -> Result<Self> {
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
            private: Private::new(&setup.hardware),
            counts: Counts::default(),
            pmu,
            window: Window::new(),
            idle: 0,
            stolen: 0,
            walks_seen: 0,
            reached: Vec::new(),
            walks: setup.watch_tables.then(Box::default),
            trapped: Trapped::default(),
        })
    }

    /// When the next timer tick or flush comes.
    pub(super) fn interrupted_at(&self) -> u64 {
        self.tick_at.min(self.flush_at)
    }

    /// Takes the timer ticks and flushes that are due.
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

    /// Lets nothing happen until `until`.
    pub(super) fn idle_until(&mut self, until: u64) {
        if until > self.time {
            self.idle += until - self.time;
            self.time = until;
        }
    }

    /// Telemetry or the kernel takes time from whoever runs.
    pub(super) fn steal(&mut self, time: u64) {
        self.time += time;
        self.stolen += time;
    }
}

/// What the kernel touches at a tick: whatever lies beneath a leaf is not cached. No process has its
/// tag.
fn touched(setup: &Setup) -> Vec<(u64, Level)> {
    let five = setup.hardware.translation.levels == 5;
    let regions = setup.costs.tick.regions.iter();
    let entry = |region: &crate::config::KernelRegion| {
        let at = if five { region.five } else { region.four };
        Some((at.0, Level::new(region.pages.level().number() + 1)?))
    };
    regions.filter_map(entry).collect()
}
