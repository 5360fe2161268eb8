//! Speed of the target: a closed loop of threads, each with a limited number of lines in flight,
//! over caches and tiers.
//!
//! An access takes the same time as in exact mode (`exact/cpu/execute.rs`): the stalls of
//! translation and data, and at least the core's own time between two accesses. A core that waits
//! for several lines at a time divides the latency among them. At a busy tier requests wait for
//! each other by the mean of a queue with random arrivals and fixed service (M/D/1; Pollaczek and
//! Khinchine), as in exact mode (`exact/memory/tier.rs`). The more accesses a second, the longer
//! the waits; the longer the waits, the fewer accesses: the rate is the single fixed point of that.

use tierscope_hw::Machine as Hardware;
use tierscope_hw::config::MemoryTier;

use super::hits::Hits;
use crate::account::TIERS;

/// Outcomes of a translation: first TLB, second TLB, a walk with its leaf entry in the cache, a
/// walk with its leaf entry in memory.
const TRANSLATIONS: usize = 4;
/// Sources of the data: a core's private caches, the last-level cache, a tier.
const DATA: usize = 2 + TIERS;

/// Shares of the accesses by outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mix {
    /// By outcome of the translation and source of the data.
    shares: [[f64; DATA]; TRANSLATIONS],
    /// Entries above the leaf read for an access, and how many of them from memory.
    upper: [f64; 2],
    /// Lines read and written for an access, by tier, without leaf entries.
    lines: [[f64; TIERS]; 2],
}

impl Mix {
    /// Adds `share` of all accesses, whose memory is spread over the tiers by `places`.
    pub(super) fn add(&mut self, share: f64, hits: &Hits, places: &[f64; TIERS]) {
        let [first, second, walks] = hits.translation;
        let leaf = hits.leaf_misses;
        let translation = [first, second, walks * (1.0 - leaf), walks * leaf];
        for (row, of_row) in self.shares.iter_mut().zip(translation) {
            let each = share * of_row;
            row[0] += each * hits.cached[0];
            row[1] += each * hits.cached[1];
            for (cell, place) in row[2..].iter_mut().zip(places) {
                *cell += each * hits.misses() * place;
            }
        }
        for (sum, reads) in self.upper.iter_mut().zip(hits.upper) {
            *sum += share * walks * reads;
        }
        for (tier, place) in places.iter().enumerate() {
            self.lines[0][tier] += share * hits.reads * place;
            self.lines[1][tier] += share * hits.writebacks * place;
        }
    }

    fn row(&self, row: usize) -> f64 {
        self.shares[row].iter().sum()
    }

    fn column(&self, column: usize) -> f64 {
        self.shares.iter().map(|row| row[column]).sum()
    }

    /// Shares of the accesses that walk, that hit the second TLB, and that hit the last-level
    /// cache; entries read by walks, and those read from memory; accesses served by memory, by
    /// tier.
    pub(super) fn counted(&self) -> Counted {
        let walks = self.row(2) + self.row(3);
        Counted {
            second: self.row(1),
            walks,
            walk_reads: walks + self.upper[0],
            walk_misses: self.row(3) + self.upper[1],
            llc: self.column(1),
            served: std::array::from_fn(|tier| self.column(2 + tier)),
        }
    }
}

/// Events of an access, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) second: f64,
    pub(super) walks: f64,
    pub(super) walk_reads: f64,
    pub(super) walk_misses: f64,
    pub(super) llc: f64,
    pub(super) served: [f64; TIERS],
}

/// Load of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierFlow {
    /// Share of the time that the tier is busy, 0..1.
    pub utilisation: f64,
    /// Mean queueing delay of a read, in nanoseconds.
    pub wait_ns: f64,
    /// Bytes read a second, prefetches, page walks and moves included.
    pub read_bytes: f64,
    /// Bytes written a second.
    pub written_bytes: f64,
    /// Share of the last-level cache misses that the tier served.
    pub share: f64,
}

/// Speed of the target.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Accesses a second.
    pub rate: f64,
    /// Accesses a second if the threads were not paced.
    pub capacity: f64,
    /// Mean nanoseconds that a thread spends on an access.
    pub access_ns: f64,
    /// The tiers, fastest first.
    pub tiers: Vec<TierFlow>,
    /// Nanoseconds until the data of an access arrives, and share of the accesses; ascending.
    latencies: Vec<(f64, f64)>,
    pub(super) counted: Counted,
    pub(super) lines: [[f64; TIERS]; 2],
}

impl Flow {
    /// The latency in nanoseconds that `share` of the accesses do not exceed: of each kind of
    /// access, with the mean wait, so that variation within a kind is not included.
    #[must_use]
    pub fn latency_ns(&self, share: f64) -> f64 {
        let mut sum = 0.0;
        let reached = self.latencies.iter().find(|(_, part)| {
            sum += part;
            sum >= share * (1.0 - 1e-9)
        });
        reached.or(self.latencies.last()).map_or(0.0, |(latency, _)| *latency)
    }

    /// Share of the last-level cache misses that the fastest tier served; `None` if there were
    /// none.
    #[must_use]
    pub fn fast_tier_share(&self) -> Option<f64> {
        let missed = self.tiers.iter().any(|tier| tier.share > 0.0);
        missed.then(|| self.tiers[0].share)
    }
}

/// A machine's times, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    access: f64,
    second_tlb: f64,
    llc: f64,
    overlap: f64,
    walkers: f64,
    pause: f64,
    threads: f64,
    tiers: Vec<MemoryTier>,
}

/// Nanoseconds that a tier's memory is busy with a line: read, written.
fn service(tier: &MemoryTier) -> [f64; 2] {
    [tier.read_mib_s, tier.write_mib_s].map(|mib| 64e9 / (mib << 20) as f64)
}

/// Highest load that the model allows.
const FULL: f64 = 1.0 - 1e-6;

impl Loop {
    /// `threads` on cores of their own, each with up to `overlap` lines in flight and `pause`
    /// nanoseconds of other work for every access.
    pub(super) fn new(hardware: &Hardware, threads: f64, overlap: Option<u32>, pause: f64) -> Self {
        let timing = &hardware.timing;
        let ns = |cycles: u32| f64::from(cycles) * 1e3 / f64::from(hardware.processor.mhz);
        let overlap = f64::from(overlap.unwrap_or(timing.fill_buffers).min(timing.fill_buffers));
        Self {
            access: ns(timing.access_cycles),
            second_tlb: ns(timing.second_tlb_cycles),
            llc: ns(timing.llc_cycles),
            overlap,
            walkers: f64::from(timing.walkers).min(overlap),
            pause,
            threads,
            tiers: hardware.tiers.clone(),
        }
    }

    /// Nanoseconds of a read by tier, at a given load.
    fn reads(&self, load: &[f64; TIERS]) -> [f64; TIERS] {
        let mut reads = [0.0; TIERS];
        for ((read, tier), load) in reads.iter_mut().zip(&self.tiers).zip(load) {
            *read = f64::from(tier.read_ns) + wait(service(tier)[0], *load);
        }
        reads
    }

    /// Share of the time that tiers are busy at `rate` accesses a second; `others` are additional
    /// lines a second read and written.
    fn load(&self, mix: &Mix, rate: f64, others: &[[f64; TIERS]; 2]) -> [f64; TIERS] {
        let mut load = [0.0; TIERS];
        for (number, tier) in self.tiers.iter().enumerate() {
            let lines = self.lines(mix, rate, others, number);
            let [read, write] = service(tier);
            load[number] = (lines[0] * read + lines[1] * write) / 1e9;
        }
        load
    }

    /// Lines a second that a tier reads and writes. Page tables are in the fastest tier.
    fn lines(&self, mix: &Mix, rate: f64, others: &[[f64; TIERS]; 2], tier: usize) -> [f64; 2] {
        let entries = if tier == 0 { mix.row(3) + mix.upper[1] } else { 0.0 };
        [
            rate * (mix.lines[0][tier] + entries) + others[0][tier],
            rate * mix.lines[1][tier] + others[1][tier],
        ]
    }

    /// Mean nanoseconds of an access, for the given read times; calls `visit` with the data latency
    /// and the share of every kind of access.
    fn access(&self, mix: &Mix, reads: &[f64; TIERS], mut visit: impl FnMut(f64, f64)) -> f64 {
        let walks = (mix.row(2) + mix.row(3)).max(f64::MIN_POSITIVE);
        let upper = mix.upper.map(|sum| sum / walks);
        let above = (upper[0] - upper[1]) * self.llc + upper[1] * reads[0];
        let translation =
            [0.0, self.second_tlb, above + self.llc, above + reads[0]].map(|time| time.max(0.0));
        let mut mean = 0.0;
        for (row, (shares, walk)) in mix.shares.iter().zip(translation).enumerate() {
            let stalls = if row < 2 { walk } else { walk / self.walkers };
            for (column, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let data = match column {
                    0 => 0.0,
                    1 => self.llc,
                    tier => reads[tier - 2],
                };
                mean += share * ((stalls + data / self.overlap).max(self.access) + self.pause);
                visit(walk + data, *share);
            }
        }
        mean
    }

    /// Solves for the fixed point. The rate is limited to `wanted` accesses a second; `stolen` is
    /// the share of the threads' time that they lose to others.
    pub(super) fn solve(
        &self,
        mix: &Mix,
        wanted: Option<f64>,
        stolen: f64,
        others: &[[f64; TIERS]; 2],
    ) -> Flow {
        let threads = self.threads * (1.0 - stolen).max(0.0);
        let possible = |rate: f64| {
            let load = self.load(mix, rate, others);
            let time = self.access(mix, &self.reads(&load), |_, _| {});
            threads * 1e9 / time.max(f64::MIN_POSITIVE)
        };
        let (mut low, mut high) = (0.0, possible(0.0));
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            if possible(middle) > middle { low = middle } else { high = middle }
        }
        let capacity = low;
        let rate = wanted.map_or(capacity, |wanted| wanted.min(capacity));
        self.at(mix, rate, capacity, others)
    }

    fn at(&self, mix: &Mix, rate: f64, capacity: f64, others: &[[f64; TIERS]; 2]) -> Flow {
        let load = self.load(mix, rate, others);
        let reads = self.reads(&load);
        let mut latencies = Vec::new();
        let access_ns = self.access(mix, &reads, |latency, share| latencies.push((latency, share)));
        latencies.sort_by(|a: &(f64, f64), b| a.0.total_cmp(&b.0));
        let counted = mix.counted();
        let missed: f64 = counted.served.iter().sum();
        let mut lines = [[0.0; TIERS]; 2];
        let tiers = self.tiers.iter().enumerate().map(|(number, tier)| {
            let moved = self.lines(mix, rate, others, number);
            let own = self.lines(mix, 1.0, &[[0.0; TIERS]; 2], number);
            (lines[0][number], lines[1][number]) = (own[0], own[1]);
            TierFlow {
                utilisation: load[number].min(1.0),
                wait_ns: reads[number] - f64::from(tier.read_ns),
                read_bytes: moved[0] * 64.0,
                written_bytes: moved[1] * 64.0,
                share: if missed > 0.0 { counted.served[number] / missed } else { 0.0 },
            }
        });
        let tiers = tiers.collect();
        Flow { rate, capacity, access_ns, tiers, latencies, counted, lines }
    }
}

/// The mean wait of M/D/1.
fn wait(service: f64, load: f64) -> f64 {
    let load = load.min(FULL);
    service * load / (2.0 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_OTHERS: [[f64; TIERS]; 2] = [[0.0; TIERS]; 2];

    /// 100 and 300 ns; 6400 MB/s of either for reads: 100 lines a microsecond; a cycle a
    /// nanosecond.
    fn toy() -> Hardware {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        hardware.processor.mhz = 1000;
        for (tier, ns) in hardware.tiers.iter_mut().zip([100, 300]) {
            (tier.read_ns, tier.read_mib_s, tier.write_mib_s) = (ns, 6104, 6104);
        }
        hardware
    }

    /// Every access goes to memory, a share of `fast` to the fast tier; no translation stalls.
    fn mix(fast: f64) -> Mix {
        let mut mix = Mix::default();
        let hits = Hits { translation: [1.0, 0.0, 0.0], reads: 1.0, ..Hits::default() };
        let mut places = [0.0; TIERS];
        (places[0], places[1]) = (fast, 1.0 - fast);
        mix.add(1.0, &hits, &places);
        mix
    }

    // One line in flight, 0.75 in 100 ns and 0.25 in 300 ns: 150 ns, 6.67 M/s of the 100 M/s that a
    // tier can serve: hardly any wait.
    #[test]
    fn one_thread_that_waits_for_each_line() {
        let one = Loop::new(&toy(), 1.0, Some(1), 0.0);
        let flow = one.solve(&mix(0.75), None, 0.0, &NO_OTHERS);
        assert!((flow.access_ns - 150.0).abs() < 0.5, "{flow:?}");
        assert!((flow.rate / 6.667e6 - 1.0).abs() < 0.003, "{flow:?}");
        assert_eq!(flow.fast_tier_share(), Some(0.75));
        assert!((flow.latency_ns(0.5) - 100.0).abs() < 0.5, "{flow:?}");
        assert!((flow.latency_ns(0.95) - 300.0).abs() < 0.5, "{flow:?}");
        assert!((flow.tiers[0].utilisation - 0.05).abs() < 0.001, "{flow:?}");
    }

    // 12 lines each: 8.3 ns an access; 16 threads request 1.9 G/s from a tier that serves 100 M/s.
    #[test]
    fn a_full_tier_is_the_limit() {
        let many = Loop::new(&toy(), 16.0, None, 0.0);
        let flow = many.solve(&mix(1.0), None, 0.0, &NO_OTHERS);
        assert!((flow.rate / 100e6 - 1.0).abs() < 0.01, "{flow:?}");
        assert!(flow.tiers[0].utilisation > 0.99);
        // 16 threads of 12 lines at 100 M/s: 1.92 us from request to answer.
        assert!((flow.latency_ns(0.5) / 1920.0 - 1.0).abs() < 0.02, "{flow:?}");
    }

    // A mover that reads half of the tier's bandwidth leaves half.
    #[test]
    fn moves_take_bandwidth_away() {
        let many = Loop::new(&toy(), 16.0, None, 0.0);
        let mut others = NO_OTHERS;
        others[0][0] = 50e6;
        let flow = many.solve(&mix(1.0), None, 0.0, &others);
        assert!((flow.rate / 50e6 - 1.0).abs() < 0.02, "{flow:?}");
    }

    #[test]
    fn a_paced_thread_gets_its_rate_and_stolen_time_lowers_the_rest() {
        let one = Loop::new(&toy(), 1.0, Some(1), 0.0);
        let flow = one.solve(&mix(1.0), Some(1e6), 0.0, &NO_OTHERS);
        assert_eq!(flow.rate, 1e6);
        assert!(flow.capacity > 9e6);
        let robbed = one.solve(&mix(1.0), None, 0.25, &NO_OTHERS);
        assert!((robbed.rate / flow.capacity - 0.75).abs() < 0.005);
    }

    // 100 ns of memory and 300 of other work: 2.5 M/s; memory three times as slow makes it 1.67
    // M/s.
    #[test]
    fn other_work_is_not_sped_up_by_faster_memory() {
        let one = Loop::new(&toy(), 1.0, Some(1), 300.0);
        let rate = |fast: f64| one.solve(&mix(fast), None, 0.0, &NO_OTHERS).rate;
        assert!((rate(1.0) / 2.5e6 - 1.0).abs() < 0.003, "{}", rate(1.0));
        assert!((rate(0.0) / 1.667e6 - 1.0).abs() < 0.003, "{}", rate(0.0));
    }

    // A walk reads two upper entries, one of them from memory, and the leaf from the cache, with
    // one of two walkers: (100 + 70 + 70) / 2 = 120 ns; the data from the private caches costs
    // nothing.
    #[test]
    fn walks_stall_for_the_entries_that_they_read() {
        let hits = Hits {
            translation: [0.0, 0.0, 1.0],
            upper: [2.0, 1.0],
            cached: [1.0, 0.0],
            ..Hits::default()
        };
        let mut mix = Mix::default();
        mix.add(1.0, &hits, &[0.0; TIERS]);
        let flow = Loop::new(&toy(), 1.0, None, 0.0).solve(&mix, None, 0.0, &NO_OTHERS);
        assert!((flow.access_ns - 120.0).abs() < 0.5, "{flow:?}");
        assert_eq!(flow.fast_tier_share(), None);
        assert_eq!(flow.counted.walk_reads, 3.0);
    }
}
