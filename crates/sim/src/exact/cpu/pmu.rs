//! Sampled accesses: counters that overflow, a hardware buffer, an interrupt, a ring.
//!
//! Modelled on PEBS under perf: a counter counts down; at zero the hardware writes a record; a full
//! buffer interrupts the core, and the kernel copies the records into the reader's ring, or loses
//! them if the ring is full. A core that samples faster than the kernel allows is throttled until
//! the next tick (kernel/events/core.c, `__perf_event_account_interrupt`).

use tierscope_core::Sample;

use crate::config::{Event, Period, SampleCosts, Sampling};
use crate::exact::log::Log;
use crate::exact::units::{NS, SECOND};

/// Number of counted events.
const EVENTS: usize = 3;

/// The sampling hardware of one core, and the kernel's state for it.
pub(in crate::exact) struct Pmu {
    counters: [Counter; EVENTS],
    period: Period,
    buffer: Vec<Sample>,
    buffer_room: usize,
    ring: Log<Sample>,
    costs: SampleCosts,
    tick: u64,
    most_a_tick: u64,
    tick_ends: u64,
    in_tick: u64,
}

#[derive(Clone, Copy)]
struct Counter {
    /// Events until the next sample; never reaches zero for a disabled event.
    left: u64,
    period: u64,
    /// Time of the last overflow.
    last: u64,
}

impl Pmu {
    pub(super) fn new(sampling: &Sampling, costs: &SampleCosts) -> Self {
        let first = match sampling.period {
            Period::Every(events) => events.max(1),
            Period::PerSecond(_) => 1,
        };
        let counter = |event: Event| {
            let on = sampling.events.contains(&event);
            Counter { left: if on { first } else { u64::MAX }, period: first, last: 0 }
        };
        let tick = u64::try_from(sampling.tick.as_nanos()).unwrap_or(u64::MAX / NS).max(1) * NS;
        let most = u128::from(sampling.max_rate) * u128::from(tick) / u128::from(SECOND);
        Self {
            counters: [Event::Loads, Event::Stores, Event::LoadMisses].map(counter),
            period: sampling.period,
            buffer: Vec::new(),
            buffer_room: sampling.hardware_buffer.max(1) as usize,
            ring: Log::with_room(sampling.ring as usize),
            costs: costs.clone(),
            tick,
            most_a_tick: (most as u64).max(1),
            tick_ends: tick,
            in_tick: 0,
        }
    }

    /// Counts an event; true if it is to be sampled.
    #[inline(always)]
    pub(super) fn count(&mut self, event: Event) -> bool {
        let left = &mut self.counters[event as usize].left;
        *left -= 1;
        *left == 0
    }

    /// Takes a sample at `now`; returns the time that it takes from the core, in ps.
    #[cold]
    pub(super) fn take(&mut self, event: Event, now: u64, sample: Sample) -> u64 {
        self.counters[event as usize].reload(self.period, now);
        if now >= self.tick_ends {
            self.tick_ends = (now / self.tick + 1) * self.tick;
            self.in_tick = 0;
        }
        self.in_tick += 1;
        if self.in_tick > self.most_a_tick {
            self.ring.lose(1);
            return 0;
        }
        self.buffer.push(sample);
        let record = self.costs.record_ns * NS;
        if self.buffer.len() < self.buffer_room { record } else { record + self.interrupt() }
    }

    /// Copies the buffer to the ring.
    fn interrupt(&mut self) -> u64 {
        let records = self.buffer.len() as u64;
        self.buffer.drain(..).for_each(|sample| self.ring.push(sample));
        (self.costs.interrupt_ns + self.costs.handle_ns * records) * NS
    }

    /// Drains the ring; returns the number of lost samples. Records in the hardware buffer stay
    /// until its interrupt.
    pub(in crate::exact) fn drain(&mut self, out: &mut Vec<Sample>) -> u64 {
        self.ring.drain(out).0
    }
}

impl Counter {
    /// Begins the next period. At a fixed rate the period moves an eighth of the way towards the
    /// one that would have met the rate (kernel/events/core.c, `perf_adjust_period`).
    fn reload(&mut self, period: Period, now: u64) {
        if let Period::PerSecond(rate) = period {
            let elapsed = now.saturating_sub(self.last).max(1);
            let wanted = u128::from(self.period) * u128::from(SECOND)
                / (u128::from(elapsed) * u128::from(rate.max(1)));
            let wanted = wanted.min(1 << 40) as i64;
            let change = (wanted - self.period as i64 + 7).div_euclid(8);
            self.period = (self.period as i64 + change).max(1) as u64;
        }
        self.last = now;
        self.left = self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Costs;
    use tierscope_core::{Access, Addr, Time};

    fn sample(at: u64) -> Sample {
        let at = Addr { at, ..Addr::default() };
        Sample { time: Time(0), at, access: Access::Load, core: 0, tier: None }
    }

    fn pmu(period: Period, change: impl Fn(&mut Sampling)) -> Pmu {
        let mut sampling = Sampling::loads_and_stores(period);
        change(&mut sampling);
        Pmu::new(&sampling, &Costs::ready_made("linux").expect("it is there").samples)
    }

    /// Counts loads, one every `gap` ps; returns the sampled addresses and the time taken from the
    /// core.
    fn count(pmu: &mut Pmu, loads: u64, gap: u64) -> (Vec<u64>, u64) {
        count_from(pmu, 1, loads, gap)
    }

    fn count_from(pmu: &mut Pmu, first: u64, loads: u64, gap: u64) -> (Vec<u64>, u64) {
        let mut cost = 0;
        for load in first..first + loads {
            if pmu.count(Event::Loads) {
                cost += pmu.take(Event::Loads, load * gap, sample(load));
            }
        }
        let mut out = Vec::new();
        pmu.drain(&mut out);
        (out.iter().map(|sample| sample.at.at).collect(), cost)
    }

    // 250 ns a record, 1500 ns the interrupt, 200 ns for each record in it: two samples, one per
    // interrupt.
    #[test]
    fn every_nth_load_is_sampled() {
        let mut pmu = pmu(Period::Every(100), |_| {});
        assert_eq!(count(&mut pmu, 250, NS), (vec![100, 200], 2 * 1950 * NS));
        assert!(!(0..1000).any(|_| pmu.count(Event::LoadMisses)), "that event is off");
    }

    #[test]
    fn a_buffer_interrupts_when_it_is_full() {
        let mut pmu = pmu(Period::Every(10), |sampling| sampling.hardware_buffer = 4);
        let (sampled, cost) = count(&mut pmu, 70, NS);
        assert_eq!(sampled, [10, 20, 30, 40], "three more wait in the buffer");
        assert_eq!(cost, (7 * 250 + 1500 + 4 * 200) * NS);
    }

    #[test]
    fn a_full_ring_loses() {
        let mut pmu = pmu(Period::Every(1), |sampling| sampling.ring = 3);
        (1..=5).for_each(|load| {
            pmu.count(Event::Loads);
            pmu.take(Event::Loads, load, sample(load));
        });
        assert_eq!(pmu.drain(&mut Vec::new()), 2);
    }

    // 100,000 a second and 250 ticks: 400 a tick. A tick is 4 ms: 4000 loads, one a microsecond.
    #[test]
    fn too_many_samples_are_throttled_until_the_next_tick() {
        let mut pmu = pmu(Period::Every(1), |_| {});
        let (sampled, _) = count(&mut pmu, 8000, 1000 * NS);
        assert!(sampled.len().abs_diff(800) <= 1, "{}", sampled.len());
        assert!(sampled[400] >= 4000);
    }

    // One load every 10 ns is 10^8 a second; 5000 samples a second are one in 20,000.
    #[test]
    fn a_rate_finds_its_period() {
        let mut pmu = pmu(Period::PerSecond(5000), |_| {});
        count(&mut pmu, 40_000_000, 10 * NS);
        let (sampled, _) = count_from(&mut pmu, 40_000_001, 40_000_000, 10 * NS);
        let period = pmu.counters[0].period;
        assert!(sampled.len().abs_diff(2000) < 100, "{} samples, one of {period}", sampled.len());
    }
}
