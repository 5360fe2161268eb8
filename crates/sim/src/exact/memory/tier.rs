//! A tier's memory: latency of an access, and the bandwidth that it takes from others.
//!
//! The time of the tier's bus is booked in slots of a few microseconds: a read takes the time that
//! its bytes need at the read bandwidth, a write at the write bandwidth, plus its part of a turn of
//! the bus; behind a link, each direction has its own time, and both share that of the device. So
//! reads alone and writes alone reach exactly the configured bandwidths. A request is booked in the
//! first slot with room from its time on, so that cores with slightly different clocks may issue
//! requests in any order. The wait until that slot begins is added to the latency. An idle tier
//! answers in exactly its latency.
//!
//! Below saturation requests wait for each other as well: the mean waits of reads and of writes
//! (`tierscope_hw::loaded`, with equations and sources) are added, at the load of the slots before
//! (`meter.rs`).
//!
//! A medium that is accessed in units larger than a line fetches a whole unit for each line that
//! is not buffered, and writes one back, after a read if not all of its lines were written.

use std::collections::VecDeque;

use tierscope_hw::config::MemoryTier;
use tierscope_hw::loaded::{Load, Loaded};

use super::hierarchy::When;
use super::meter::Meter;
use super::units::{Moved, Units};
use crate::exact::units::NS;

/// Length of a slot.
const SLOT: u64 = 4_000 * NS;

/// Whether memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) enum Direction {
    Read,
    Write,
}

/// Clock of a tier's memory.
pub(in crate::exact) struct TierClock {
    latency: [u64; 2],
    model: Loaded,
    /// What is booked of the slots from `first` on.
    slots: VecDeque<Booked>,
    first: u64,
    meter: Meter,
    /// Costs and waits at the present load.
    rates: Rates,
    /// Buffered units of the medium, and the latency of a read from there.
    units: Option<(Units, u64)>,
}

/// Bus time booked of a slot, times [`FINE`]: reads, writes.
type Booked = [u64; 2];

/// Bus time of a line, times [`FINE`], and its mean wait, in ps: read, written.
#[derive(Clone, Copy, Default)]
struct Rates {
    cost: [u64; 2],
    waits: [u64; 2],
    /// Time on what both directions of a link share, for each time on their own, in 1/4096.
    shared: Option<[u64; 2]>,
}

/// Fractions of a picosecond in which booked time is counted.
const FINE: u64 = 256;
const FULL: u64 = SLOT * FINE;
/// Slots kept behind the latest request; clocks never drift that far apart.
const KEPT: usize = 4096;

impl TierClock {
    pub(super) fn new(config: &MemoryTier) -> Self {
        let unit = config.medium.unit;
        let mut clock = Self {
            latency: [config.read_ns, config.write_ns].map(|ns| u64::from(ns) * NS),
            model: Loaded::new(config),
            slots: VecDeque::new(),
            first: 0,
            meter: Meter::default(),
            rates: Rates::default(),
            units: unit.map(|unit| (Units::new(unit), u64::from(unit.hit_ns) * NS)),
        };
        clock.rates = clock.rates_at([0.0; 2]);
        clock
    }

    /// Latency of a line in idle memory, in ps; the medium moves whole units if `moved`.
    #[inline(always)]
    pub(super) fn latency(&self, direction: Direction, moved: Moved) -> u64 {
        match &self.units {
            Some((_, hit)) if direction == Direction::Read && moved.is_hit => *hit,
            _ => self.latency[direction as usize],
        }
    }

    /// Lines that the medium moves for an access to one line.
    #[inline(always)]
    pub(super) fn touch(&mut self, address: u64, direction: Direction) -> Moved {
        match &mut self.units {
            None => Moved::line(direction),
            Some((units, _)) => units.touch(address, direction),
        }
    }

    /// Books what an access moves; returns its queueing delay, in ps: none if its unit was
    /// buffered.
    #[inline]
    pub(super) fn book(&mut self, when: When, direction: Direction, moved: Moved) -> u64 {
        let [read, written] = moved.lines;
        if self.units.is_none() {
            return self.book_lines(when, direction, 1);
        }
        let mut delay = 0;
        if written > 0 {
            delay = self.book_lines(when, Direction::Write, written);
        }
        if read > 0 {
            delay = self.book_lines(when, Direction::Read, read);
        }
        delay
    }

    /// Books `lines` lines in a row; returns the delay of the last one, in ps.
    #[inline]
    pub(in crate::exact) fn book_lines(
        &mut self,
        (dispatched, now): When,
        direction: Direction,
        lines: u64,
    ) -> u64 {
        let slot = now / SLOT;
        if let Some(load) = self.meter.count(dispatched / SLOT, direction as usize, lines) {
            self.rates = self.rates_at(load.map(|lines| lines * NS as f64 / SLOT as f64));
        }
        let way = direction as usize;
        let wanted = self.rates.cost[way] * lines;
        let place = slot.wrapping_sub(self.first) as usize;
        if let Some(booked) = self.slots.get_mut(place) {
            let mut with = *booked;
            with[way] += wanted;
            if self.rates.fills(with) <= FULL {
                *booked = with;
                return self.rates.waits[way];
            }
        }
        self.book_far(now, way, wanted)
    }

    /// Fills the room left in slot after slot until all is booked.
    #[cold]
    fn book_far(&mut self, now: u64, way: usize, mut wanted: u64) -> u64 {
        let Some(place) = (now / SLOT).checked_sub(self.first) else { return 0 };
        let place = self.forget(place as usize);
        for at in place.. {
            if self.slots.len() <= at {
                self.slots.resize(at + 1, Booked::default());
            }
            let taken = self.rates.room(self.slots[at], way).min(wanted);
            self.slots[at][way] += taken;
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

    /// Costs and mean waits at a load.
    fn rates_at(&self, load: Load) -> Rates {
        let cost = self.model.cost(load);
        let whole = |ns: f64| (ns * (NS * FINE) as f64).round() as u64;
        let shared = self.model.shared();
        Rates {
            cost: cost.map(whole),
            waits: self.model.waits(load).map(|ns| (ns * NS as f64) as u64),
            shared: shared.map(|shared| cost.map(|own| (shared / own * 4096.0).round() as u64)),
        }
    }
}

impl Rates {
    /// Time of the busiest part of the bus.
    #[inline(always)]
    fn fills(&self, [read, written]: Booked) -> u64 {
        match self.shared {
            None => read + written,
            Some([of_read, of_write]) => {
                read.max(written).max((read * of_read + written * of_write) / 4096)
            }
        }
    }

    /// Time left for reads or for writes.
    fn room(&self, booked: Booked, way: usize) -> u64 {
        let Some(shared) = self.shared else {
            return FULL.saturating_sub(booked[0] + booked[1]);
        };
        let own = FULL.saturating_sub(booked[way]);
        let used = (booked[0] * shared[0] + booked[1] * shared[1]) / 4096;
        own.min(FULL.saturating_sub(used) * 4096 / shared[way].max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::units::SECOND;
    use crate::placement::toy_tiers;
    use tierscope_hw::config::Medium;

    /// 100 ns; 64 lines a microsecond for reads, half of that for writes.
    fn tier(medium: Medium) -> TierClock {
        let mut tier = toy_tiers(&[1]).remove(0);
        (tier.read_ns, tier.write_ns) = (100, 200);
        (tier.read_mib_s, tier.write_mib_s) = (3906, 1953);
        tier.medium = medium;
        TierClock::new(&tier)
    }

    fn both(now: u64) -> When {
        (now, now)
    }

    fn plain() -> TierClock {
        tier(Medium::plain())
    }

    #[test]
    fn an_idle_tier_answers_in_its_latency() {
        let mut tier = plain();
        let latency = |direction| tier.latency(direction, Moved::line(direction));
        assert_eq!([Direction::Read, Direction::Write].map(latency), [100_000, 200_000]);
        let waits = (0..1000).map(|n| tier.book_lines(both(n * 10 * SLOT), Direction::Read, 1));
        assert_eq!(waits.sum::<u64>(), 0);
    }

    /// Books without pause from four clocks that are apart; returns MiB a second.
    fn saturated(mut tier: TierClock, direction: impl Fn(u64) -> Direction) -> f64 {
        let lines = 1_000_000;
        let mut clocks = [0u64, 5000, 11_000, 23_000];
        for line in 0..lines {
            // Four cores, each waiting for sixteen lines at a time.
            let clock = &mut clocks[line as usize % 4];
            let direction = direction(line);
            let latency = tier.latency(direction, Moved::line(direction));
            *clock += (latency + tier.book_lines(both(*clock), direction, 1)) / 16;
        }
        let end = clocks.into_iter().max().expect("four");
        lines as f64 * 64.0 / 1048576.0 / (end as f64 / SECOND as f64)
    }

    fn near(rate: f64, wanted: f64) {
        assert!((rate / wanted - 1.0).abs() < 0.01, "{rate} is not {wanted}");
    }

    fn mixed(line: u64) -> Direction {
        if line % 4 < 2 { Direction::Read } else { Direction::Write }
    }

    // Half reads, half writes: 2 / (1/3906 + 1/1953) = 2604 MiB/s.
    #[test]
    fn a_full_tier_reaches_the_configured_bandwidth() {
        near(saturated(plain(), |_| Direction::Read), 3906.0);
        near(saturated(plain(), |_| Direction::Write), 1953.0);
        near(saturated(plain(), mixed), 2604.0);
    }

    // A read takes 15.6 ns, a write 31.3 and a quarter of a turn of 62.5 ns: 128 bytes in 62.5 ns.
    #[test]
    fn turns_of_the_bus_cost_bandwidth() {
        let medium = Medium { turn_ns: 63, drain: 4, ..Medium::plain() };
        near(saturated(tier(medium), mixed), 1950.0);
    }

    // Both directions at once: 3906 MiB/s together is what they share, half of it for each.
    #[test]
    fn a_link_has_two_directions() {
        let of = |both| tier(Medium { duplex_mib_s: Some(both), ..Medium::plain() });
        near(saturated(of(5859), mixed), 3906.0);
        near(saturated(of(3000), mixed), 3000.0);
        near(saturated(of(5859), |_| Direction::Read), 3906.0);
    }

    // Half of a bus of 15.6 ns a line: 15.6 x 0.5 / (2 x 0.5) = 7.8 ns, once the load is known.
    #[test]
    fn requests_of_a_loaded_tier_wait_for_each_other() {
        let mut tier = plain();
        let waits: Vec<u64> =
            (0..10_000).map(|n| tier.book_lines(both(n * 31_250), Direction::Read, 1)).collect();
        assert_eq!(waits[0], 0);
        let late = waits[9_000..].iter().sum::<u64>() as f64 / 1e3 / 1e3;
        assert!((late - 7.8).abs() < 0.2, "{late} ns");
    }

    #[test]
    fn a_late_clock_books_free_room_of_earlier_slots() {
        let mut tier = plain();
        tier.book_lines(both(100 * SLOT), Direction::Read, 1);
        assert_eq!(tier.book_lines(both(3 * SLOT), Direction::Read, 1), 0);
    }
}
