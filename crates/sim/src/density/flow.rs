//! Speed of the target: a closed loop of threads, each with a limited number of accesses under way,
//! over caches and tiers.
//!
//! A core is limited as in exact mode (`window.rs`). Of a mix of accesses whose walks take `w` and
//! whose lines take `d` on average, summed to `l`, with a share `m` that waits for anything:
//!
//! ```text
//! access      between two dispatches
//! d / buffers lines that are under way together
//! w / walkers walks
//! f / ahead   lines fetched ahead, as many as the prefetcher has places for, or is ahead
//! (l + access) / (m·window + 1)   for loads: the window is full behind the oldest
//! c·l         of the share c that depends on the access before
//! ```
//!
//! The longest of these is a first estimate of the time of an access. The third comes from rounds:
//! the window holds `window` accesses behind the oldest miss, and the next one that waits follows
//! `1/m` later. Accesses come in bursts of one pattern: with bursts of at least a quarter of the
//! window, each pattern has an estimate of its own. Where two limits are close to each other the
//! time is longer than either: how much is measured once for the patterns, with accesses drawn from
//! them and the window of exact mode, at unloaded latencies.
//!
//! At a busy tier requests wait for each other (`tierscope_hw::loaded`), as in exact mode
//! (`exact/memory/tier.rs`). The more accesses a second, the longer the waits; the longer the
//! waits, the fewer accesses: the rate is the single fixed point of that. A tier that is full lets
//! requests wait for as long as its bandwidth demands.

use std::cell::RefCell;

use tierscope_core::{PAGE_SIZE, Rng};
use tierscope_hw::Machine as Hardware;
use tierscope_hw::config::MemoryTier;
use tierscope_hw::loaded::Loaded;

use crate::window::{Core, Window};

use super::hits::Hits;
use crate::account::TIERS;

/// Outcomes of a translation: first TLB, second TLB, walks with their leaf entry in the private
/// caches, in the last-level cache and in memory.
const TRANSLATIONS: usize = 5;
/// Sources of the data: a core's private caches, the last-level cache, a tier.
const DATA: usize = 2 + TIERS;

/// Shares of the accesses by outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mix {
    /// By outcome of the translation and source of the data.
    shares: [[f64; DATA]; TRANSLATIONS],
    /// Entries above the leaf read for an access, how many of them the private caches lack, and
    /// how many are read from memory.
    upper: [f64; 3],
    /// Lines read and written for an access, by tier, without leaf entries.
    lines: [[f64; TIERS]; 2],
    /// Lines that media move for these, in whole units.
    media: [[f64; TIERS]; 2],
    /// Shares of the accesses that find their line in a tier's buffer of units.
    buffered: [f64; TIERS],
    /// Lines fetched ahead for an access, by tier.
    ahead: [f64; TIERS],
    /// Share of the accesses that write.
    stores: f64,
    /// Share of the accesses that depend on the one before.
    pub(super) chases: f64,
    /// Lines of a page that a sweep touches; 0 if most accesses are random.
    lines_of_a_page: f64,
}

/// The accesses of all patterns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Patterns {
    /// Each pattern's accesses, as shares of all.
    pub(super) each: Vec<Mix>,
    /// Their sum.
    pub(super) all: Mix,
    /// Successive accesses of a pattern.
    pub(super) burst: u32,
}

impl Mix {
    /// Nanoseconds of the lines that are fetched ahead for an access.
    fn fetched_ahead(&self, reads: &[f64; TIERS]) -> f64 {
        self.ahead.iter().zip(reads).map(|(lines, read)| lines * read).sum()
    }

    /// Share of all accesses.
    fn share(&self) -> f64 {
        self.shares.iter().flatten().sum()
    }

    fn row(&self, row: usize) -> f64 {
        self.shares[row].iter().sum()
    }

    fn walks(&self) -> f64 {
        self.row(2) + self.row(3) + self.row(4)
    }

    /// Page-table entries read from memory for an access.
    fn entries(&self) -> f64 {
        self.row(4) + self.upper[2]
    }

    fn column(&self, column: usize) -> f64 {
        self.shares.iter().map(|row| row[column]).sum()
    }

    /// Shares of the accesses that walk, that hit the second TLB, and that hit the last-level
    /// cache; entries read by walks, and those read from memory; accesses served by memory, by
    /// tier.
    pub(super) fn counted(&self) -> Counted {
        let walks = self.walks();
        Counted {
            second: self.row(1),
            walks,
            walk_reads: walks + self.upper[0],
            walk_misses: self.entries(),
            llc: self.column(1),
            served: std::array::from_fn(|tier| self.column(2 + tier)),
            outstanding: [0.0; TIERS],
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
    /// Nanoseconds for which these were outstanding.
    pub(super) outstanding: [f64; TIERS],
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
    /// Nanoseconds of an access that its core stalls.
    pub(super) stalled_ns: f64,
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

/// A tier's times.
#[derive(Clone, Debug)]
struct Tier {
    read_ns: f64,
    /// Of a line in the buffer of units.
    hit_ns: f64,
    /// Bytes of a unit.
    unit: f64,
    model: Loaded,
}

impl Tier {
    fn new(tier: &MemoryTier) -> Self {
        let (read_ns, unit) = (f64::from(tier.read_ns), tier.medium.unit);
        Self {
            read_ns,
            hit_ns: unit.map_or(read_ns, |unit| unit.hit_ns.into()),
            unit: unit.map_or(LINE, |unit| unit.bytes.into()),
            model: Loaded::new(tier),
        }
    }
}

/// A machine's times, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    access: f64,
    second_tlb: f64,
    private: f64,
    llc: f64,
    pause: f64,
    threads: f64,
    tiers: Vec<Tier>,
    core: Core,
    /// Lines that the prefetcher is ahead, at most.
    ahead: f64,
    /// What [`Loop::beyond`] found last, and for which patterns: with the same placement and rate
    /// they are the same window after window.
    last: RefCell<Option<(Patterns, f64)>>,
}

/// A kind of access: its share of all, and the nanoseconds of its translation and of its line.
#[derive(Clone, Copy, Debug)]
struct Kind {
    share: f64,
    walk: f64,
    /// Whether the translation occupies a walker.
    walks: bool,
    data: f64,
}

/// Accesses of a pattern to draw from.
struct Draw {
    /// Kinds that wait for nothing first, then the others, the longest wait for a line first.
    kinds: Vec<Kind>,
    /// Sums of their shares.
    up_to: Vec<u64>,
    stores: u64,
    chases: u64,
    /// Nanoseconds until a prefetched line arrives.
    fetched: f64,
    /// Of a sweep: lines of a page, share of the accesses that reach a new one, and nanoseconds of
    /// the walk to a page.
    sweep: Option<(u64, f64, f64)>,
}

impl Draw {
    fn new(mut kinds: Vec<Kind>, mix: &Mix, reads: &[f64; TIERS]) -> Self {
        kinds.sort_by(|a, b| (b.data == 0.0).cmp(&(a.data == 0.0)).then(b.data.total_cmp(&a.data)));
        let up_to = up_to(&kinds.iter().map(|kind| kind.share).collect::<Vec<_>>());
        let share = mix.share().max(f64::MIN_POSITIVE);
        let [stores, chases] =
            [mix.stores, mix.chases].map(|part| (part / share * (1u64 << 32) as f64) as u64);
        let new = kinds.iter().filter(|kind| kind.data > 0.0).map(|kind| kind.share).sum::<f64>();
        let lines = mix.lines_of_a_page as u64;
        let walks = kinds.iter().filter(|kind| kind.walks).map(|kind| kind.share * kind.walk);
        let walk = walks.sum::<f64>() / new.max(f64::MIN_POSITIVE) * lines as f64;
        let ahead: f64 = mix.ahead.iter().sum();
        let fetched = mix.fetched_ahead(reads) / ahead.max(f64::MIN_POSITIVE);
        Self {
            kinds,
            up_to,
            stores,
            chases,
            fetched,
            sweep: (lines > 1).then_some((lines, new / share, walk)),
        }
    }

    /// Number of the line that a sweep is at, and whether the access reaches it first.
    fn line(number: u32, new: f64) -> (u64, bool) {
        let line = |number: u32| (f64::from(number) * new) as u64;
        (line(number), line(number + 1) > line(number))
    }

    /// Of a sweep's access that reaches a new line: the line's number in its page.
    fn line_of_page(&self, number: u32) -> Option<usize> {
        let (lines, new, _) = self.sweep?;
        let (line, is_new) = Self::line(number, new);
        is_new.then_some((line % lines.min(64)) as usize)
    }

    /// An access, and whether it is a store. A sweep reaches new lines at even distances; the first
    /// one of a page walks, and the first ones wait for longest, until the prefetcher follows.
    fn next(&self, number: u32, word: u64) -> Option<(Kind, bool)> {
        let store = (word >> 32) < self.stores;
        let Some((lines, new, walk)) = self.sweep else {
            return Some((*self.kinds.get(find(&self.up_to, word))?, store));
        };
        let (line, is_new) = Self::line(number, new);
        let within = (line % lines) as f64 / lines as f64;
        let share = if is_new { 1.0 - new + new * within } else { 0.0 };
        let kind = self.kinds.get(find(&self.up_to, (share * (1u64 << 32) as f64) as u64))?;
        let walks = is_new && line % lines == 0 && walk > 0.0;
        Some((Kind { walks, walk: if walks { walk } else { 0.0 }, ..*kind }, store))
    }
}

/// Sums of shares, which are 2^32 together.
fn up_to(shares: &[f64]) -> Vec<u64> {
    let all: f64 = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mut sum = 0.0;
    let next = |share: &f64| {
        sum += share / all;
        (sum * (1u64 << 32) as f64) as u64
    };
    shares.iter().map(next).collect()
}

/// The share that the low 32 bits of a random word fall into.
fn find(up_to: &[u64], word: u64) -> usize {
    let word = word & 0xffff_ffff;
    up_to.partition_point(|up_to| *up_to <= word).min(up_to.len().saturating_sub(1))
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3) as u64
}

/// Nanoseconds of a read of data, by tier, and of a page-table entry.
type Reads = ([f64; TIERS], f64);

/// Accesses drawn to compare a mix with its limits.
const DRAWN: u32 = 1 << 14;
/// Bytes of a line.
const LINE: f64 = 64.0;
/// Steps of a bisection.
const STEPS: u32 = 64;

/// Lines a second that tiers read and write for others than the target.
type Others = [[f64; TIERS]; 2];

/// Waits of a full tier beyond those of the model, in nanoseconds.
type Extra = [f64; TIERS];

impl Loop {
    /// `threads` on cores of their own, each with up to `overlap` lines in flight and `pause`
    /// nanoseconds of other work for every access.
    pub(super) fn new(hardware: &Hardware, threads: f64, overlap: Option<u32>, pause: f64) -> Self {
        let timing = &hardware.timing;
        let ns = |cycles: u32| hardware.nanoseconds(cycles);
        let all = Core::of(timing);
        let buffers = overlap.map_or(all.buffers, |lines| all.buffers.min(lines as usize));
        let distance = hardware.prefetcher.as_ref().map_or(1, |prefetcher| prefetcher.distance);
        Self {
            access: ns(timing.access_cycles),
            second_tlb: ns(timing.second_tlb_cycles),
            private: ns(timing.private_cycles),
            llc: ns(timing.llc_cycles),
            pause,
            threads,
            tiers: hardware.tiers.iter().map(Tier::new).collect(),
            ahead: f64::from(distance.min(timing.prefetches)),
            core: Core { buffers, walkers: all.walkers.min(buffers), ..all },
            last: RefCell::new(None),
        }
    }

    /// Adds `share` of all accesses to a mix, whose memory is spread over the tiers by `places`.
    pub(super) fn add(&self, mix: &mut Mix, share: f64, hits: &Hits, places: &[f64; TIERS]) {
        let [first, second, walks] = hits.translation;
        let [beyond, leaf] = hits.leaf_misses;
        let translation =
            [first, second, walks * (1.0 - beyond), walks * (beyond - leaf), walks * leaf];
        for (row, of_row) in mix.shares.iter_mut().zip(translation) {
            let each = share * of_row;
            row[0] += each * hits.cached[0];
            row[1] += each * hits.cached[1];
            for (cell, place) in row[2..].iter_mut().zip(places) {
                *cell += each * hits.misses() * place;
            }
        }
        for (sum, reads) in mix.upper.iter_mut().zip(hits.upper) {
            *sum += share * walks * reads;
        }
        mix.stores += share * hits.writes;
        mix.lines_of_a_page = (PAGE_SIZE as f64 / hits.step).max(0.0);
        for (number, (tier, place)) in self.tiers.iter().zip(places).enumerate() {
            let lines = [hits.reads, hits.writebacks].map(|lines| share * lines * place);
            // Lines of a unit that follow each other, and lines that it is moved for.
            let in_a_row = (tier.unit / hits.step.max(LINE)).max(1.0);
            let each = tier.unit / LINE / in_a_row;
            let first = if each > 1.0 { lines[1] * each } else { 0.0 };
            for (way, sum) in [lines[0] * each + first, lines[1] * each].into_iter().enumerate() {
                mix.lines[way][number] += lines[way];
                mix.media[way][number] += sum;
            }
            mix.ahead[number] += (lines[0] - share * hits.misses() * place).max(0.0);
            mix.buffered[number] += share * hits.misses() * place * (1.0 - 1.0 / in_a_row);
        }
    }

    /// Lines a nanosecond that a tier's medium reads and writes at `rate` accesses a second. Page
    /// tables are in the fastest tier.
    fn load(&self, mix: &Mix, rate: f64, others: &Others, tier: usize) -> [f64; 2] {
        let entries = if tier == 0 { mix.entries() * self.tiers[0].unit / LINE } else { 0.0 };
        [
            (rate * (mix.media[0][tier] + entries) + others[0][tier]) / 1e9,
            (rate * mix.media[1][tier] + others[1][tier]) / 1e9,
        ]
    }

    /// Lines a second that a tier reads and writes.
    fn lines(&self, mix: &Mix, rate: f64, others: &Others, tier: usize) -> [f64; 2] {
        let entries = if tier == 0 { mix.entries() } else { 0.0 };
        [
            rate * (mix.lines[0][tier] + entries) + others[0][tier],
            rate * mix.lines[1][tier] + others[1][tier],
        ]
    }

    /// Share of the time that the fullest tier is busy, and its number.
    fn fullest(&self, mix: &Mix, rate: f64, others: &Others) -> (f64, usize) {
        let of = |number: usize| {
            self.tiers[number].model.utilisation(self.load(mix, rate, others, number))
        };
        let all = (0..self.tiers.len()).map(|number| (of(number), number));
        all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
    }

    /// Nanoseconds of a read of data, by tier, and of a page-table entry.
    fn reads(&self, mix: &Mix, rate: f64, others: &Others, extra: &Extra) -> Reads {
        let (mut reads, mut entry) = ([0.0; TIERS], 0.0);
        for (number, tier) in self.tiers.iter().enumerate() {
            let [wait, _] = tier.model.waits(self.load(mix, rate, others, number));
            let served = mix.column(2 + number).max(f64::MIN_POSITIVE);
            let hits = mix.buffered[number] / served;
            let wait = wait + extra[number];
            // A line in the buffer of units does not wait for the medium.
            reads[number] = hits * tier.hit_ns + (1.0 - hits) * (tier.read_ns + wait);
            entry = if number == 0 { tier.read_ns + wait } else { entry };
        }
        (reads, entry)
    }

    /// The kinds of access of a mix, for the given read times.
    fn kinds(&self, mix: &Mix, (reads, entry): Reads) -> Vec<Kind> {
        let [all, beyond, missed] = mix.upper.map(|sum| sum / mix.walks().max(f64::MIN_POSITIVE));
        let above = (all - beyond) * self.private + (beyond - missed) * self.llc + missed * entry;
        let walk = [self.private, self.llc, entry].map(|leaf| (above + leaf).max(0.0));
        let translation = [0.0, self.second_tlb, walk[0], walk[1], walk[2]];
        let mut kinds = Vec::new();
        for (row, (shares, walk)) in mix.shares.iter().zip(translation).enumerate() {
            for (column, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let data = match column {
                    0 => 0.0,
                    1 => self.llc,
                    tier => reads[tier - 2],
                };
                kinds.push(Kind { share: *share, walk, walks: row > 1, data });
            }
        }
        kinds
    }

    /// Mean nanoseconds of an access, by the longest limit of each pattern.
    fn limit(&self, patterns: &Patterns, reads: Reads) -> f64 {
        if patterns.burst < self.core.window.div_ceil(4) {
            return self.limit_of(&patterns.all, reads);
        }
        let of = |mix: &Mix| mix.share() * self.limit_of(mix, reads);
        patterns.each.iter().map(of).sum::<f64>().max(self.access)
    }

    fn limit_of(&self, mix: &Mix, reads: Reads) -> f64 {
        let kinds = self.kinds(mix, reads);
        let share = mix.share().max(f64::MIN_POSITIVE);
        let mean = |of: fn(&Kind) -> f64| {
            kinds.iter().map(|kind| kind.share * of(kind)).sum::<f64>() / share
        };
        let walking = mean(|kind| if kind.walks { kind.walk } else { 0.0 });
        let fetching = mean(|kind| kind.data);
        let all = mean(|kind| kind.walk + kind.data);
        let waiting = mean(|kind| f64::from(u8::from(kind.walk + kind.data > 0.0)));
        let Core { buffers, walkers, window, .. } = self.core;
        let loads = (1.0 - mix.stores / share).max(0.0);
        let window = (loads * all + self.access) / (loads * waiting * f64::from(window) + 1.0);
        let together = (fetching / buffers as f64).max(walking / walkers as f64).max(window);
        // Links of a chain take their time one after another.
        let chases = if buffers > 1 { mix.chases / share } else { 1.0 };
        let prefetched = mix.fetched_ahead(&reads.0) / share / self.ahead;
        together.max(chases * all).max(prefetched).max(self.access)
    }

    /// How much longer an access takes than by the longest limits, at unloaded latencies. Less than
    /// 1 where bursts of patterns with different limits overlap.
    fn beyond(&self, patterns: &Patterns) -> f64 {
        if let Some((known, beyond)) = &*self.last.borrow()
            && known == patterns
        {
            return *beyond;
        }
        let none = [0.0; TIERS];
        let reads = self.reads(&patterns.all, 0.0, &[none; 2], &none);
        let limit = self.limit(patterns, reads).max(f64::MIN_POSITIVE);
        let beyond = self.drawn(patterns, reads) / limit;
        *self.last.borrow_mut() = Some((patterns.clone(), beyond));
        beyond
    }

    /// Mean nanoseconds of an access of which many are drawn from the patterns.
    fn drawn(&self, patterns: &Patterns, reads: Reads) -> f64 {
        let of = |mix: &Mix| (mix.share(), Draw::new(self.kinds(mix, reads), mix, &reads.0));
        let (shares, draws): (Vec<f64>, Vec<Draw>) = patterns.each.iter().map(of).unzip();
        let pattern = up_to(&shares);
        let (mut rng, mut window) = (Rng::seeded(1), Window::of(self.core));
        let (each, mut time) = (ps(self.access), 0);
        let (mut left, mut draw) = (0, 0);
        let mut lines = [0; PAGE_SIZE as usize / LINE as usize];
        for number in 0..DRAWN {
            if left == 0 {
                (draw, left) = (find(&pattern, rng.next_u64()), patterns.burst.max(1));
            }
            left -= 1;
            let word = rng.next_u64();
            let Some(from) = draws.get(draw) else { return self.access };
            let Some((Kind { walk, walks, data, .. }, store)) = from.next(number, word) else {
                return self.access;
            };
            let depends = word.rotate_left(16) & 0xffff_ffff < from.chases;
            let mut at = window.begins(time, depends || self.core.buffers == 1);
            if walks {
                let (walker, free) = window.walker(self.core.walkers);
                at = at.max(free);
                window.walks(walker, at + ps(walk));
            }
            at += ps(walk);
            if data > 0.0 {
                let (buffer, free) = window.buffer(self.core.buffers);
                at = at.max(free);
                if let Some(line) = from.line_of_page(number) {
                    // The prefetcher doubles its lead from the begin of a page on.
                    let request = line.saturating_sub(self.ahead as usize).max(line / 2);
                    lines[line] = at;
                    if data <= self.llc {
                        at = at.max(lines[request] + ps(from.fetched));
                    }
                }
                at += ps(data);
                window.fills(buffer, at);
            }
            match store {
                true => time = window.store(time, at),
                false => window.load(time, at),
            }
            time = window.dispatch(time, 1, each);
        }
        window.drain(time) as f64 / 1e3 / f64::from(DRAWN)
    }

    /// Solves for the fixed point. The rate is limited to `wanted` accesses a second; `stolen` is
    /// the share of the threads' time that they lose to others.
    pub(super) fn solve(
        &self,
        patterns: &Patterns,
        wanted: Option<f64>,
        stolen: f64,
        others: &Others,
    ) -> Flow {
        let mix = &patterns.all;
        let threads = self.threads * (1.0 - stolen).max(0.0);
        let beyond = self.beyond(patterns);
        let time = |rate: f64, extra: &Extra| {
            let reads = self.reads(mix, rate, others, extra);
            (self.limit(patterns, reads) * beyond + self.pause).max(f64::MIN_POSITIVE)
        };
        let possible = |rate: f64, extra: &Extra| threads * 1e9 / time(rate, extra);
        let none = [0.0; TIERS];
        let fits = |rate: f64| self.fullest(mix, rate, others).0 <= 1.0;
        let capacity =
            bisect(possible(0.0, &none), |rate| fits(rate) && possible(rate, &none) > rate);
        let rate = wanted.map_or(capacity, |wanted| wanted.min(capacity));
        // Beyond a full tier's bandwidth its requests wait until the threads ask for no more.
        let mut extra = none;
        let (_, full) = self.fullest(mix, capacity, others);
        if rate == capacity && possible(rate, &none) > 1.001 * rate {
            let with = |wait: f64| {
                let mut extra = none;
                extra[full] = wait;
                extra
            };
            extra = with(bisect(1e9, |wait| possible(rate, &with(wait)) > rate));
        }
        let access_ns = time(rate, &extra);
        let flow = self.at(mix, rate, capacity, (others, &extra));
        let stalled_ns = (access_ns - self.pause - self.access).max(0.0);
        Flow { access_ns, stalled_ns, ..flow }
    }

    fn at(&self, mix: &Mix, rate: f64, capacity: f64, (others, extra): (&Others, &Extra)) -> Flow {
        let reads = self.reads(mix, rate, others, extra);
        let kinds = self.kinds(mix, reads);
        let mut latencies: Vec<(f64, f64)> =
            kinds.iter().map(|kind| (kind.walk + kind.data, kind.share)).collect();
        latencies.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut counted = mix.counted();
        counted.outstanding = std::array::from_fn(|tier| counted.served[tier] * reads.0[tier]);
        let missed: f64 = counted.served.iter().sum();
        let mut lines = [[0.0; TIERS]; 2];
        let tiers = self.tiers.iter().enumerate().map(|(number, tier)| {
            let moved = self.lines(mix, rate, others, number);
            let own = self.lines(mix, 1.0, &[[0.0; TIERS]; 2], number);
            (lines[0][number], lines[1][number]) = (own[0], own[1]);
            let load = self.load(mix, rate, others, number);
            TierFlow {
                utilisation: tier.model.utilisation(load).min(1.0),
                wait_ns: tier.model.waits(load)[0] + extra[number],
                read_bytes: moved[0] * LINE,
                written_bytes: moved[1] * LINE,
                share: if missed > 0.0 { counted.served[number] / missed } else { 0.0 },
            }
        });
        let tiers = tiers.collect();
        let (access_ns, stalled_ns) = (0.0, 0.0);
        Flow { rate, stalled_ns, capacity, access_ns, tiers, latencies, counted, lines }
    }
}

/// The largest number up to `most` for which `holds`, if it holds for all below it.
fn bisect(most: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_hw::config::Medium;

    const NO_OTHERS: [[f64; TIERS]; 2] = [[0.0; TIERS]; 2];

    /// 100 and 300 ns; 6400 MB/s of either for reads: 100 lines a microsecond; a cycle a
    /// nanosecond.
    fn toy() -> Hardware {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        hardware.processor.mhz = 1000;
        for (tier, ns) in hardware.tiers.iter_mut().zip([100, 300]) {
            (tier.read_ns, tier.read_mib_s, tier.write_mib_s) = (ns, 6104, 6104);
            tier.medium = Medium::plain();
        }
        hardware
    }

    fn random() -> Hits {
        Hits { step: f64::INFINITY, ..Hits::default() }
    }

    fn alone(mix: Mix) -> Patterns {
        Patterns { each: vec![mix.clone()], all: mix, burst: 1 }
    }

    /// Every access goes to memory, a share of `fast` to the fast tier; no translation stalls.
    fn mix(fast: f64) -> Patterns {
        let mut mix = Mix::default();
        let hits = Hits { translation: [1.0, 0.0, 0.0], reads: 1.0, ..random() };
        let mut places = [0.0; TIERS];
        (places[0], places[1]) = (fast, 1.0 - fast);
        Loop::new(&toy(), 1.0, None, 0.0).add(&mut mix, 1.0, &hits, &places);
        alone(mix)
    }

    // One line in flight, 0.75 in 100 ns and 0.25 in 300 ns: 150 ns, 6.67 M/s of the 100 M/s that a
    // tier can serve: hardly any wait.
    #[test]
    fn one_thread_that_waits_for_each_line() {
        let one = Loop::new(&toy(), 1.0, Some(1), 0.0);
        let flow = one.solve(&mix(0.75), None, 0.0, &NO_OTHERS);
        assert!((flow.access_ns - 150.0).abs() < 2.0, "{flow:?}");
        assert!((flow.rate / 6.667e6 - 1.0).abs() < 0.015, "{flow:?}");
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

    // A walk reads two upper entries, one of them from memory, the other and the leaf from the
    // last-level cache, with one of two walkers: (100 + 70 + 70) / 2 = 120 ns; the data from the
    // private caches cost nothing.
    #[test]
    fn walks_stall_for_the_entries_that_they_read() {
        let hits = Hits {
            translation: [0.0, 0.0, 1.0],
            upper: [2.0, 2.0, 1.0],
            leaf_misses: [1.0, 0.0],
            cached: [1.0, 0.0],
            ..random()
        };
        let mut mix = Mix::default();
        Loop::new(&toy(), 1.0, None, 0.0).add(&mut mix, 1.0, &hits, &[0.0; TIERS]);
        let flow = Loop::new(&toy(), 1.0, None, 0.0).solve(&alone(mix), None, 0.0, &NO_OTHERS);
        assert!((flow.access_ns - 120.0).abs() < 0.5, "{flow:?}");
        assert_eq!(flow.fast_tier_share(), None);
        assert_eq!(flow.counted.walk_reads, 3.0);
    }
}
