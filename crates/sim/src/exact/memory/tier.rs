//! A tier's memory: latency of an access, and the bandwidth that it takes from others.
//!
//! Memory time is booked in slots of a few microseconds: a read takes the time that its bytes need
//! at the read bandwidth, a write at the write bandwidth, so that reads alone, writes alone and any
//! mix reach exactly the configured bandwidth. A request is booked in the first slot with room from
//! its time on, so that cores with slightly different clocks may issue requests in any order. The
//! wait until that slot begins is added to the latency. An idle tier answers in exactly its
//! latency.
//!
//! Below saturation requests still collide: the mean wait of a queue with random arrivals and fixed
//! service (M/D/1; Pollaczek and Khinchine) is added, at the load of the previous slot.

use std::collections::VecDeque;

use tierscope_hw::config::MemoryTier;

use crate::exact::units::{NS, SECOND};

/// Length of a slot.
const SLOT: u64 = 4_000 * NS;
/// Load steps of the M/D/1 wait; beyond the last one the slots themselves delay requests.
const STEPS: usize = 64;

/// Whether memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) enum Direction {
    Read,
    Write,
}

/// Clock of a tier's memory.
pub(in crate::exact) struct TierClock {
    latency: [u64; 2],
    /// Memory time for 64 bytes in picoseconds, times [`FINE`].
    service: [u64; 2],
    /// Booked time of the slots from `first` on, times [`FINE`].
    slots: VecDeque<u64>,
    first: u64,
    /// A slot, and the mean wait computed for it.
    waiting: (u64, u64),
}

/// Fractions of a picosecond in which booked time is counted.
const FINE: u64 = 256;
/// Slots kept behind the latest request; clocks never drift that far apart.
const KEPT: usize = 4096;

impl TierClock {
    pub(super) fn new(config: &MemoryTier) -> Self {
        let service = |mib_s: u64| 64 * FINE * SECOND / (mib_s << 20);
        Self {
            latency: [config.read_ns, config.write_ns].map(|ns| u64::from(ns) * NS),
            service: [service(config.read_mib_s), service(config.write_mib_s)],
            slots: VecDeque::new(),
            first: 0,
            waiting: (u64::MAX, 0),
        }
    }

    /// Latency of an access to idle memory, in ps.
    #[inline(always)]
    pub(super) fn latency(&self, direction: Direction) -> u64 {
        self.latency[direction as usize]
    }

    /// Books a line at `now`; returns its queueing delay, in ps.
    #[inline]
    pub(super) fn book(&mut self, now: u64, direction: Direction) -> u64 {
        self.book_lines(now, direction, 1)
    }

    /// Books `lines` lines in a row at `now`; returns the delay of the last one, in ps.
    #[inline]
    pub(in crate::exact) fn book_lines(
        &mut self,
        now: u64,
        direction: Direction,
        lines: u64,
    ) -> u64 {
        let wanted = self.service[direction as usize] * lines;
        let slot = now / SLOT;
        let place = slot.wrapping_sub(self.first) as usize;
        if let Some(booked) = self.slots.get_mut(place)
            && *booked + wanted <= SLOT * FINE
        {
            *booked += wanted;
            return self.wait(slot, direction);
        }
        self.book_far(now, wanted)
    }

    /// Fills the room left in slot after slot until all is booked.
    #[cold]
    fn book_far(&mut self, now: u64, mut wanted: u64) -> u64 {
        let Some(place) = (now / SLOT).checked_sub(self.first) else { return 0 };
        let place = self.forget(place as usize);
        for at in place.. {
            if self.slots.len() <= at {
                self.slots.resize(at + 1, 0);
            }
            let taken = (SLOT * FINE - self.slots[at]).min(wanted);
            self.slots[at] += taken;
            wanted -= taken;
            if wanted == 0 {
                return ((self.first + at as u64) * SLOT).saturating_sub(now);
            }
        }
        unreachable!("there is always another slot")
    }

    /// Drops slots far behind the one at `place`; returns its new place.
    fn forget(&mut self, place: usize) -> usize {
        let gone = place.saturating_sub(KEPT);
        if gone < KEPT {
            return place;
        }
        self.slots.drain(..gone.min(self.slots.len()));
        self.first += gone as u64;
        place - gone
    }

    /// The mean wait at the load of the previous slot.
    #[inline(always)]
    fn wait(&mut self, slot: u64, direction: Direction) -> u64 {
        if self.waiting.0 != slot {
            self.waiting = (slot, self.wait_at(slot, direction));
        }
        self.waiting.1
    }

    #[cold]
    fn wait_at(&self, slot: u64, direction: Direction) -> u64 {
        let before = slot.checked_sub(self.first + 1).and_then(|at| self.slots.get(at as usize));
        let booked = before.copied().unwrap_or(0);
        let step = (booked * STEPS as u64 / (SLOT * FINE)).min(STEPS as u64 - 1);
        let load = step as f64 / STEPS as f64;
        let service = self.service[direction as usize] as f64 / FINE as f64;
        (service * load / (2.0 * (1.0 - load))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ns; 64 lines a microsecond for reads, half of that for writes.
    fn tier() -> TierClock {
        TierClock::new(&MemoryTier {
            name: "toy".into(),
            mib: 1,
            read_ns: 100,
            write_ns: 200,
            read_mib_s: 3906,
            write_mib_s: 1953,
            source: "toy".into(),
            assumed: vec![],
            ranges: Default::default(),
        })
    }

    #[test]
    fn an_idle_tier_answers_in_its_latency() {
        let mut tier = tier();
        assert_eq!(
            [Direction::Read, Direction::Write].map(|direction| tier.latency(direction)),
            [100_000, 200_000]
        );
        let waits = (0..1000).map(|n| tier.book(n * 10 * SLOT, Direction::Read)).sum::<u64>();
        assert_eq!(waits, 0);
    }

    /// Books without pause from four clocks that are apart; returns MiB a second.
    fn saturated(direction: impl Fn(u64) -> Direction) -> f64 {
        let mut tier = tier();
        let lines = 1_000_000;
        let mut clocks = [0u64, 5000, 11_000, 23_000];
        for line in 0..lines {
            // Four cores, each waiting for sixteen lines at a time.
            let clock = &mut clocks[line as usize % 4];
            *clock += (tier.latency(direction(line)) + tier.book(*clock, direction(line))) / 16;
        }
        let end = clocks.into_iter().max().expect("four");
        lines as f64 * 64.0 / 1048576.0 / (end as f64 / SECOND as f64)
    }

    // Half reads, half writes: 2 / (1/3906 + 1/1953) = 2604 MiB/s.
    #[test]
    fn a_full_tier_reaches_the_configured_bandwidth() {
        let near = |rate: f64, wanted: f64| assert!((rate / wanted - 1.0).abs() < 0.01, "{rate}");
        near(saturated(|_| Direction::Read), 3906.0);
        near(saturated(|_| Direction::Write), 1953.0);
        near(
            saturated(|line| if line % 2 == 0 { Direction::Read } else { Direction::Write }),
            2604.0,
        );
    }

    #[test]
    fn a_late_clock_books_free_room_of_earlier_slots() {
        let mut tier = tier();
        tier.book(100 * SLOT, Direction::Read);
        assert_eq!(tier.book(3 * SLOT, Direction::Read), 0);
    }
}
