//! Sampled accesses, drawn from the densities.

use tierscope_core::{Access, Addr, Lost, Sample, Samples, Time};

use super::Config;
use super::hash::{draw, unit};
use super::machine::Machine;
use super::profile::{AccessStream, Profile};
use super::space::SPACE;
use crate::config::{Event, Period, Sampling};

/// The sampling hardware, and its progress.
#[derive(Debug)]
pub(super) struct Sampler {
    sampling: Sampling,
    cores: u64,
    key: u64,
    /// Time up to which samples were drawn, by event.
    drawn: Vec<u64>,
    /// Number of samples drawn so far, by event.
    counts: Vec<u64>,
}

impl Sampler {
    pub(super) fn new(sampling: Sampling, config: &Config) -> Self {
        let events = sampling.events.len();
        Self {
            sampling,
            cores: u64::from(config.cores),
            key: draw(config.seed, u64::from(u32::MAX)),
            drawn: vec![0; events],
            counts: vec![0; events],
        }
    }

    /// Samples a second of an event that occurs `rate` times a second, over all cores; the kernel
    /// throttles each core.
    fn rate(&self, rate: f64) -> f64 {
        let wanted = match self.sampling.period {
            Period::Every(events) => rate / events as f64,
            Period::PerSecond(samples) => (samples * self.cores) as f64,
        };
        wanted.min(rate).min((self.sampling.max_rate * self.cores) as f64)
    }
}

/// The accesses of a profile that an event counts, for drawing.
struct Urn<'a> {
    /// Streams layer by layer.
    streams: Vec<&'a AccessStream>,
    sums: Sums,
}

/// Cumulative sums of parts, for draws in proportion to their sizes.
pub(super) struct Sums {
    /// Size of each part plus those of all parts before it.
    below: Vec<f64>,
    /// Search hints: for each of as many equal shares as there are parts, the part in which it
    /// begins.
    hints: Vec<usize>,
}

impl Sums {
    pub(super) fn new(below: Vec<f64>) -> Self {
        let each = below.last().copied().unwrap_or(0.0) / below.len().max(1) as f64;
        let hint = |number| below.partition_point(|below| *below <= number as f64 * each);
        Self { hints: (0..below.len()).map(hint).collect(), below }
    }

    pub(super) fn whole(&self) -> f64 {
        self.below.last().copied().unwrap_or(0.0)
    }

    /// The part at a share of the whole, 0..1.
    #[inline]
    pub(super) fn part(&self, share: f64) -> usize {
        let (at, last) = (share * self.whole(), self.below.len() - 1);
        let mut part = self.hints[((share * self.hints.len() as f64) as usize).min(last)].min(last);
        // Rounding may put the hint one part too far.
        while part > 0 && self.below[part - 1] > at {
            part -= 1;
        }
        while part < last && self.below[part] <= at {
            part += 1;
        }
        part
    }
}

impl<'a> Urn<'a> {
    fn new(profile: &'a Profile, event: Event) -> Self {
        let mut sum = 0.0;
        let streams: Vec<&AccessStream> = profile.layers.iter().flatten().collect();
        let below = streams.iter().map(|stream| {
            let share = match event {
                Event::Stores => stream.writes,
                Event::Loads => 1.0 - stream.writes,
                Event::LoadMisses => (1.0 - stream.writes) * stream.hits_of.misses(),
            };
            // A process that is too rare is omitted from the world (`profile.rs`).
            let comes = stream.ranges().next().is_some();
            sum += if comes { stream.rate * share } else { 0.0 };
            sum
        });
        let sums = Sums::new(below.collect());
        Self { streams, sums }
    }

    fn rate(&self) -> f64 {
        self.sums.whole()
    }

    /// A random address, and whether memory served the access.
    fn draw(&self, key: u64, event: Event) -> (u64, bool) {
        let stream = self.streams[self.sums.part(unit(draw(key, 0)))];
        let accesses = stream.ranges().next().expect("a stream has accesses");
        let slot = ((u128::from(draw(key, 1)) * u128::from(accesses.slots)) >> 64) as u64;
        let missed = event == Event::LoadMisses || unit(draw(key, 3)) < stream.hits_of.misses();
        (accesses.address(slot, draw(key, 2)), missed)
    }
}

impl Machine {
    /// Draws the samples of one event up to now; returns the number of lost ones.
    fn sample(&mut self, sampler: &mut Sampler, index: usize, out: &mut Vec<Sample>) -> u64 {
        let event = sampler.sampling.events[index];
        let room = u64::from(sampler.sampling.ring) * sampler.cores;
        let mut taken = 0;
        let mut lost = 0;
        while sampler.drawn[index] < self.now.0 {
            let from = sampler.drawn[index];
            let profile = self.world.profile_at(from);
            let to = profile.end.min(self.now.0);
            sampler.drawn[index] = to;
            let urn = Urn::new(&profile, event);
            let places = self.world.places.index();
            let rate = sampler.rate(urn.rate());
            if rate <= 0.0 {
                continue;
            }
            // On a grid of the period, so that the times of drains do not affect the samples.
            let pause = 1e9 / rate;
            let first = (from as f64 / pause).ceil() as u64;
            let end = (to as f64 / pause).ceil() as u64;
            for number in first..end {
                sampler.counts[index] += 1;
                if taken == room {
                    lost += 1;
                    continue;
                }
                taken += 1;
                let key = draw(draw(sampler.key, index as u64), number);
                let time = Time(((number as f64 * pause) as u64).clamp(from, to - 1));
                let access = if event == Event::Stores { Access::Store } else { Access::Load };
                let (at, missed) = urn.draw(key, event);
                let tier = if missed { places.tier_of(at) } else { None };
                let core = (number % sampler.cores) as u32;
                out.push(Sample { time, at: Addr { space: SPACE, at }, access, core, tier });
            }
        }
        lost
    }
}

impl Samples for Machine {
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost {
        let Some(mut sampler) = self.sampler.take() else { return Lost(0) };
        let before = out.len();
        let mut lost = 0;
        for index in 0..sampler.sampling.events.len() {
            lost += self.sample(&mut sampler, index, out);
        }
        out[before..].sort_by_key(|sample| sample.time);
        let read = (out.len() - before) as u64;
        self.ledger.samples += read + lost;
        let costs = &self.config.costs.samples;
        let buffer = u64::from(sampler.sampling.hardware_buffer.max(1));
        let written =
            (read + lost) * (costs.record_ns + costs.interrupt_ns / buffer + costs.handle_ns);
        let reading = read * costs.read_ns;
        self.disturb(written);
        self.spend(reading);
        self.sampler = Some(sampler);
        Lost(lost)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Compared with a binary search without hints; some parts are empty.
        #[test]
        fn parts_are_drawn_by_their_shares(parts in prop::collection::vec(0u32..5, 1..40), share in 0.0f64..1.0) {
            let sum = |sum: &mut f64, part: &u32| {
                *sum += f64::from(*part) / 7.0;
                Some(*sum)
            };
            let below: Vec<f64> = parts.iter().scan(0.0, sum).collect();
            let sums = Sums::new(below.clone());
            let at = share * sums.whole();
            let wanted = below.partition_point(|below| *below <= at).min(below.len() - 1);
            prop_assert_eq!(sums.part(share), wanted);
        }
    }
}
