//! Cache model: shares of the accesses that TLBs, a core's private caches and the last-level cache
//! serve, computed from access rates alone.
//!
//! TLBs and the last-level cache are modelled by their characteristic times (`residency.rs`). A
//! core's private caches are sets of lines by a hash, as in exact mode
//! (`exact/cpu/private_caches.rs`): a line is present if fewer others than a set has ways were used
//! in its set since its last use. Entries of page tables share all caches with the data, eight to a
//! line. A sequential sweep returns to a line after all others: a cache holds all of the sweep or
//! nothing, and the prefetcher fetches most misses ahead of it.

use tierscope_core::{Level, PAGE_SIZE};
use tierscope_hw::Machine as Hardware;

use crate::exact::PRIVATE_WAYS as WAYS;

use super::residency::{Group, alike, characteristic_time};

/// Bytes of a cache line.
const LINE: f64 = 64.0;
/// Page-table entries in a cache line.
pub(super) const ENTRIES: u64 = 8;
/// Number of times for which distinct lines are tabulated: four to a doubling, from a nanosecond
/// on.
const STEPS: u32 = 240;
const FINE: f64 = 4.0;
/// Number of quantiles of the time between two visits in the mean.
const PARTS: u32 = 32;

/// The time of a step, in seconds.
fn seconds(step: u32) -> f64 {
    (f64::from(step) / FINE).exp2() / 1e9
}

/// Distinct lines that are used within `time` seconds.
fn used(lines: &[Group], time: f64) -> f64 {
    lines.iter().map(|group| group.count * -(-group.rate * time).exp_m1()).sum()
}

/// Probability of fewer than `count` events where `mean` are expected (Poisson).
fn fewer_than(count: usize, mean: f64) -> f64 {
    let terms = (1..count).scan(1.0, |term, number| {
        *term *= mean / number as f64;
        Some(*term)
    });
    (1.0 + terms.sum::<f64>()) * (-mean).exp()
}

/// Accesses to a range, as caches see them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// Bytes of the range.
    pub(super) bytes: f64,
    /// Distance between accessed pages, in bytes.
    pub(super) every: f64,
    /// Bytes between successive accesses of a sweep; `None` for random accesses.
    pub(super) stride: Option<f64>,
    /// Accesses a second.
    pub(super) rate: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
    /// The level of the range's leaf entries.
    pub(super) leaf: Level,
    /// Shares of the accesses that hit the first TLB, that hit the second, and that walk.
    pub(super) translation: [f64; 3],
    /// Share of the walks that read an entry, by level number.
    pub(super) loads: [f64; 6],
    /// Walks a second, to this range and others, that read a line of its entries, by level number.
    pub(super) line_reads: [f64; 6],
}

impl Use {
    /// Accesses to a page of `page` bytes before the next page.
    pub(super) fn run(stride: Option<u64>, page: u64) -> f64 {
        stride.map_or(1.0, |stride| (page as f64 / stride as f64).max(1.0))
    }

    fn pages(&self) -> f64 {
        (self.bytes / self.every).max(1.0)
    }

    fn lines(&self) -> f64 {
        let step = self.stride.unwrap_or(0.0).max(LINE);
        let of_page = (PAGE_SIZE as f64 / step).max(1.0);
        let pages = if self.every > PAGE_SIZE as f64 { 1.0 } else { of_page } * self.pages();
        pages.min(self.bytes / step).max(1.0)
    }

    /// Successive accesses to a line, at least one.
    fn in_a_row(&self) -> f64 {
        self.stride.map_or(1.0, |stride| (LINE / stride).max(1.0))
    }

    /// Successive walks that read their leaf entry from one line, at least one.
    fn in_a_line(&self) -> f64 {
        let page = self.leaf.entry_bytes() as f64;
        let line = ENTRIES as f64 * page / self.every.max(page);
        self.stride.map_or(1.0, |_| line.max(1.0))
    }

    /// Lines, and visits a second to each.
    fn visited(&self) -> Group {
        let count = self.lines();
        Group { count, rate: self.rate / self.in_a_row() / count }
    }

    /// Lines that the entries of a level occupy, and walks a second that read one of them. A line
    /// that holds entries of other ranges too counts in part.
    fn entries(&self, level: Level) -> Group {
        let number = usize::from(level.number());
        let reads = self.rate * self.translation[2] * self.loads[number];
        let rate = self.line_reads[number];
        Group { count: if rate > 0.0 { reads / rate } else { 0.0 }, rate }
    }
}

/// Average outcome of an access to a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hits {
    /// Shares of the accesses that hit the first TLB, that hit the second, and that walk.
    pub(super) translation: [f64; 3],
    /// Shares of the walks whose leaf entry the private caches lack, and that read it from memory.
    pub(super) leaf_misses: [f64; 2],
    /// Upper entries that a walk reads, how many of them the private caches lack, and how many it
    /// reads from memory.
    pub(super) upper: [f64; 3],
    /// Shares of the accesses that hit a core's private caches, and that hit the last-level cache.
    pub(super) cached: [f64; 2],
    /// Lines read from memory for an access, prefetched ones included.
    pub(super) reads: f64,
    /// Lines written back for an access.
    pub(super) writebacks: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
    /// Bytes between successive lines of a sweep; infinite for random accesses.
    pub(super) step: f64,
}

impl Hits {
    /// Share of the accesses that wait for memory.
    pub(super) fn misses(&self) -> f64 {
        (1.0 - self.cached[0] - self.cached[1]).max(0.0)
    }
}

/// A machine's caches under the accesses of one segment.
pub(super) struct Caches {
    /// Places of a core's private caches.
    own: f64,
    /// Distinct lines used within a time, by step of its logarithm.
    distinct: Vec<f64>,
    /// Seconds for which the last-level cache holds a line after its last use.
    held: f64,
    /// Lines of the last-level cache, and sets of one of its slices.
    last: [f64; 2],
    /// Lines of a page that train the prefetcher, and the longest stride that it follows.
    prefetcher: Option<[f64; 2]>,
}

impl Caches {
    pub(super) fn new(hardware: &Hardware, uses: &[Use]) -> Self {
        let own = hardware.llc.as_ref().map_or(0, |_| hardware.timing.private_kib) * 16;
        let capacity = hardware.llc.as_ref().map_or(0.0, |llc| llc.bytes() as f64 / LINE);
        let mut caches = Self {
            own: f64::from(own),
            distinct: Vec::new(),
            held: 0.0,
            last: [capacity, hardware.llc.as_ref().map_or(1.0, |llc| f64::from(llc.sets))],
            prefetcher: hardware
                .prefetcher
                .as_ref()
                .filter(|_| capacity > 0.0)
                .map(|p| [f64::from(p.train), f64::from(p.degree) * LINE]),
        };
        if capacity == 0.0 {
            return caches;
        }
        let of = |each: &Use| {
            let levels = (1..=5).filter_map(Level::new);
            let entries = levels.map(|level| each.entries(level));
            std::iter::once(each.visited()).chain(entries).collect::<Vec<_>>()
        };
        if own > 0 {
            let lines = alike(uses.iter().flat_map(of));
            caches.distinct = (0..STEPS).map(|step| used(&lines, seconds(step))).collect();
        }
        let rest = |each: &Use| {
            let sequential = each.stride.is_some();
            let visited = each.visited();
            let seldom = |group: Group, own: f64| Group { rate: group.rate * (1.0 - own), ..group };
            let data = seldom(visited, caches.own(visited, sequential));
            let entries = of(each).into_iter().skip(1);
            let entries = entries.map(|group| seldom(group, caches.own(group, false)));
            std::iter::once(data).chain(entries).collect::<Vec<_>>()
        };
        caches.held = characteristic_time(&alike(uses.iter().flat_map(rest)), capacity);
        caches
    }

    /// Share of the visits to lines that a core's private caches serve: a line is present unless
    /// as many of the lines used since as a set has ways are hashed to its set. Their number there
    /// has a Poisson distribution.
    fn own(&self, Group { count, rate }: Group, sequential: bool) -> f64 {
        if self.own == 0.0 || rate == 0.0 {
            return 0.0;
        }
        if sequential {
            // A sweep uses all its other lines between two visits to a line.
            return f64::from(u8::from(count <= self.own));
        }
        // Times between two visits are exponential; their mean is taken over equally likely
        // quantiles.
        let pause = |part: u32| -((f64::from(part) + 0.5) / f64::from(PARTS)).ln() / rate;
        let stays = |part| fewer_than(WAYS, self.others(pause(part)) * WAYS as f64 / self.own);
        (0..PARTS).map(stays).sum::<f64>() / f64::from(PARTS)
    }

    /// Distinct lines that are used within `time` seconds, interpolated.
    fn others(&self, time: f64) -> f64 {
        let place = (time * 1e9).log2().clamp(0.0, f64::from(STEPS - 1) / FINE - 1e-9) * FINE;
        let (step, part) = (place as usize, place.fract());
        self.distinct[step] * (1.0 - part) + self.distinct[step + 1] * part
    }

    /// Share of the uses, `rate` a second, that hit the last-level cache.
    fn last(&self, rate: f64, sequential: bool) -> f64 {
        if rate == 0.0 {
            // Held for ever, but never used.
            return 0.0;
        }
        if sequential {
            return f64::from(u8::from(rate * self.held > 1.0));
        }
        -(-rate * self.held).exp_m1()
    }

    /// Lines of the last-level cache that a sweep can use: a stride with a power of two leaves sets
    /// out.
    fn within_reach(&self, each: &Use) -> f64 {
        let [lines, sets] = self.last;
        let stride = each.stride.map_or(LINE, |stride| stride.max(LINE)) as u64;
        let apart = (1u64 << stride.trailing_zeros()) as f64 / LINE;
        if each.stride.is_some() { lines / apart.clamp(1.0, sets) } else { f64::INFINITY }
    }

    /// Average outcome of an access.
    pub(super) fn hits(&self, each: &Use) -> Hits {
        let (visits, sequential) = (1.0 / each.in_a_row(), each.stride.is_some());
        let visited = each.visited();
        let own = self.own(visited, sequential);
        let mut last = self.last(visited.rate * (1.0 - own), sequential);
        if each.lines() > self.within_reach(each) {
            last = 0.0;
        }
        let lines = visits * (1.0 - own) * (1.0 - last);
        let waited = lines * (1.0 - self.ahead(each));
        let llc = visits * (1.0 - own) - waited;
        let stay = 1.0 / (1.0 - last).max(1e-9);
        let leaf = self.entry_misses(each.entries(each.leaf), sequential);
        let mut upper = [0.0; 3];
        for level in (each.leaf.number() + 1..=5).filter_map(Level::new) {
            let reads = each.loads[usize::from(level.number())];
            if reads == 0.0 {
                continue;
            }
            let [beyond, missed] = self.entry_misses(each.entries(level), false);
            for (sum, share) in upper.iter_mut().zip([1.0, beyond, missed]) {
                *sum += reads * share;
            }
        }
        Hits {
            translation: each.translation,
            leaf_misses: leaf.map(|share| share / each.in_a_line()),
            upper,
            cached: [1.0 - visits * (1.0 - own), llc],
            reads: lines,
            writebacks: lines * (1.0 - (1.0 - each.writes).powf(stay)),
            writes: each.writes,
            step: each.stride.map_or(f64::INFINITY, |stride| stride.max(LINE)),
        }
    }

    /// Shares of the reads of entries that the private caches lack, and that go to memory.
    fn entry_misses(&self, entries: Group, sequential: bool) -> [f64; 2] {
        let beyond = 1.0 - self.own(entries, sequential);
        [beyond, beyond * (1.0 - self.last(entries.rate * beyond, sequential))]
    }

    /// Share of the misses that the prefetcher fetched ahead: all lines of a page after the ones
    /// that train it.
    fn ahead(&self, each: &Use) -> f64 {
        let Some([train, longest]) = self.prefetcher else { return 0.0 };
        let Some(stride) = each.stride.filter(|stride| *stride <= longest) else { return 0.0 };
        let lines = PAGE_SIZE as f64 / stride.max(LINE);
        // The first access to a page has no direction yet.
        (1.0 - (train + 1.0) / lines).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(llc_lines: u32, private_kib: u32) -> Hardware {
        let mut hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
        let llc = hardware.llc.as_mut().unwrap();
        (llc.slices, llc.sets, llc.ways) = (1, llc_lines / 16, 16);
        hardware.timing.private_kib = private_kib;
        hardware
    }

    /// Random accesses that never walk.
    fn random(pages: u64, rate: f64) -> Use {
        Use {
            bytes: (pages * PAGE_SIZE) as f64,
            every: PAGE_SIZE as f64,
            stride: None,
            rate,
            writes: 0.0,
            leaf: Level::PTE,
            translation: [1.0, 0.0, 0.0],
            loads: [0.0; 6],
            line_reads: [0.0; 6],
        }
    }

    // 64 pages are 4096 lines, the cache holds 2048: half of the accesses hit. Lines of page-table
    // entries are never used.
    #[test]
    fn a_cache_of_half_the_lines_answers_half() {
        let each = random(64, 1e6);
        let hits = Caches::new(&hardware(2048, 0), &[each]).hits(&each);
        assert!((hits.cached[1] - 0.5).abs() < 1e-3, "{hits:?}");
        assert_eq!((hits.cached[0], hits.writebacks), (0.0, 0.0));
        assert!((hits.reads - hits.misses()).abs() < 1e-12);
    }

    // 64 lines in 16 sets of four (4 KiB): of the 64 (1 - exp(-u)) lines used within u mean
    // intervals, at most three are in the set. Naive sum over exp(-u) du.
    #[test]
    fn private_caches_keep_lines_that_were_not_evicted() {
        let each = random(1, 1e6);
        let hits = Caches::new(&hardware(2048, 4), &[each]).hits(&each);
        let step = 1e-3;
        let stays = |u: f64| {
            let x = 4.0 * (1.0 - (-u).exp());
            (-x).exp() * (1.0 + x + x * x / 2.0 + x * x * x / 6.0)
        };
        let naive: f64 = (0..20_000)
            .map(|n| f64::from(n) * step + step / 2.0)
            .map(|u| stays(u) * (-u).exp() * step)
            .sum();
        assert!((hits.cached[0] - naive).abs() < 0.005, "{hits:?} {naive}");
    }

    // One line with half of the accesses, and 100,000 others, in 1024 places: four others take its
    // set's ways within 1024 of its own uses.
    #[test]
    fn a_line_that_is_used_all_the_time_stays() {
        let hot = Use { bytes: 64.0, every: 64.0, ..random(1, 1e6) };
        let rest = random(1600, 1e6);
        let caches = Caches::new(&hardware(2048, 64), &[hot, rest]);
        assert!(caches.hits(&hot).cached[0] > 0.99, "{:?}", caches.hits(&hot));
        assert!(caches.hits(&rest).cached[0] < 0.02, "{:?}", caches.hits(&rest));
    }

    // A sweep by 8 bytes over more than the caches hold: one access in 8 reaches a new line; 3 of a
    // page's 64 lines train the prefetcher, and all come from memory.
    #[test]
    fn the_prefetcher_runs_ahead_of_a_sweep() {
        let each = Use { stride: Some(8.0), ..random(1 << 20, 1e6) };
        let hits = Caches::new(&hardware(2048, 0), &[each]).hits(&each);
        assert!((hits.reads - 0.125).abs() < 1e-9, "{hits:?}");
        assert!((hits.misses() - 0.125 * 3.0 / 64.0).abs() < 1e-9, "{hits:?}");
        assert_eq!(Use::run(Some(8), PAGE_SIZE), 512.0);
    }

    // 1024 lines fit into the cache of 2048, but the first lines of every second page share one set
    // in 128.
    #[test]
    fn a_sweep_by_a_power_of_two_uses_few_sets() {
        let every = 2.0 * PAGE_SIZE as f64;
        let wide = Use { stride: Some(every), every, ..random(2048, 1e6) };
        let caches = Caches::new(&hardware(2048, 0), &[wide]);
        assert_eq!(caches.within_reach(&wide), 16.0);
        assert_eq!(caches.hits(&wide).misses(), 1.0);
        let odd = Use { stride: Some(every + 64.0), every: every + 64.0, ..wide };
        assert_eq!(Caches::new(&hardware(2048, 0), &[odd]).hits(&odd).misses(), 0.0);
    }

    // Every line is written once and evicted: one line is read and one written for each access.
    #[test]
    fn written_lines_are_written_back() {
        let each = Use { writes: 1.0, ..random(1 << 20, 1e6) };
        let hits = Caches::new(&hardware(2048, 0), &[each]).hits(&each);
        assert!((hits.writebacks - hits.reads).abs() < 1e-9 && hits.reads > 0.99, "{hits:?}");
    }
}
