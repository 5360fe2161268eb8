//! Shares of the accesses that walk, and of the walks that load an entry.
//!
//! A walk begins below the lowest entry that a paging-structure cache holds: it looks up the cache
//! of a level only after misses in those below. So a level's cache is used by the walks that missed
//! in all caches below it, and the share of walks that load an entry is a product over the levels.

use tierscope_core::{Level, PAGE_SIZE, Range};

use super::config::Config;
use super::hits::{ENTRIES, Use};
use super::profile::{Placed, pages};
use super::residency::{Group, alike, characteristic_time, seen};
use super::sums::Sums;
use super::upper::Upper;

/// Largest number of a cache's sets in a mean.
const SETS: u64 = 8;

/// Characteristic times of the TLBs and of the paging-structure caches in a segment.
#[derive(Clone, Debug)]
pub(super) struct Residency {
    /// Cores that the accesses are spread over.
    cores: f64,
    /// Accesses a second.
    rate: f64,
    /// The level of leaves, and the number of levels.
    pub(super) leaf: Level,
    levels: u8,
    /// Seconds between two flushes.
    flush: f64,
    /// Characteristic times of the first-level TLB, and of both.
    pub(super) tlb: [f64; 2],
    /// Pages, and visits a second of a core to each of them.
    pub(super) pages: Vec<Group>,
    /// Visits a second to a huge page; `None` if pages are small.
    turns: Option<Sums>,
    /// By level number, from above the leaves on: look-ups, and the cache.
    upper: Vec<(Sums, Upper)>,
    /// By level number, from the leaves on: walks a second that read an entry.
    line_reads: Vec<Sums>,
}

/// Bytes below a line of entries.
fn line_bytes(level: Level) -> u64 {
    ENTRIES * level.entry_bytes()
}

/// Bytes of a page. Successive visits to 4 KiB pages of one huge page count as one visit.
fn page_bytes(leaf: Level) -> u64 {
    leaf.entry_bytes()
}

/// Visits a second to pages of `page` bytes.
fn turns(placed: &Placed, rate: f64, page: u64) -> f64 {
    placed.density.weight * rate / Use::run(placed.density.stride, page)
}

impl Residency {
    pub(super) fn new(config: &Config, layers: &[Vec<Placed>], rate: f64) -> Self {
        let cores = f64::from(config.cores);
        let leaf = config.leaf();
        let huge = leaf > Level::PTE;
        let turned = huge.then(|| Sums::of(layers, |placed| turns(placed, rate, page_bytes(leaf))));
        let small = |placed: &Placed| Group {
            count: pages(placed),
            rate: turns(placed, rate, PAGE_SIZE) / pages(placed) / cores,
        };
        let groups = match &turned {
            Some(sums) => alike(sums.groups(leaf, cores)),
            None => alike(layers.iter().flatten().map(small)),
        };
        let entries = if huge { config.tlb_huge } else { config.tlb_pages };
        let mut residency = Self {
            cores,
            rate,
            leaf,
            levels: config.radix.levels,
            flush: config.flush.map_or(f64::INFINITY, |every| every.as_secs_f64()),
            tlb: entries.map(|pages| characteristic_time(&groups, f64::from(pages))),
            pages: groups,
            turns: turned,
            upper: Vec::new(),
            line_reads: Vec::new(),
        };
        for level in residency.above() {
            let uses = Sums::of(layers, |placed| {
                let below = usize::from(level.number()) - 1;
                residency.walks(placed) * residency.loads(placed, true)[below]
            });
            let cache = Upper::new(config, level, &uses);
            residency.upper.push((uses, cache));
        }
        let reads = layers.iter().flatten();
        let reads: Vec<_> =
            reads.map(|placed| residency.reads(placed, residency.loads(placed, true))).collect();
        let sums = |level: Level| {
            let mut reads = reads.iter().map(|reads| reads[usize::from(level.number())]);
            Sums::of(layers, |placed| {
                let reads = reads.next().unwrap_or(0.0);
                if placed.density.every <= line_bytes(level) { reads } else { 0.0 }
            })
        };
        residency.line_reads = residency.levels().map(sums).collect();
        residency
    }

    /// All levels, the leaves' first.
    fn levels(&self) -> impl Iterator<Item = Level> + use<> {
        (self.leaf.number()..=self.levels).filter_map(Level::new)
    }

    /// Levels above the leaves, the lowest first.
    fn above(&self) -> impl Iterator<Item = Level> + use<> {
        (self.leaf.number() + 1..=self.levels).filter_map(Level::new)
    }

    fn cache(&self, level: Level) -> Option<&(Sums, Upper)> {
        self.upper.get(usize::from(level.number() - self.leaf.number()) - 1)
    }

    /// Share of the page visits that miss a TLB. A sweep returns to a page after all others: a TLB
    /// holds all of them or none.
    fn missing(&self, placed: &Placed, (tlb, flush): (f64, f64)) -> f64 {
        let middle = placed.range.start + placed.range.bytes() / 2;
        let each = match &self.turns {
            Some(turns) => turns.through(middle, self.leaf),
            None => turns(placed, self.rate, PAGE_SIZE) / pages(placed),
        };
        let each = each / self.cores;
        if placed.density.stride.is_some() && each * tlb < 1.0 {
            return 1.0;
        }
        seen(each, tlb, flush)
    }

    /// Walks a second to the pages of a density.
    fn walks(&self, placed: &Placed) -> f64 {
        let page = page_bytes(self.leaf);
        turns(placed, self.rate, page) * self.missing(placed, (self.tlb[1], self.flush))
    }

    /// Share of the visits to 4 KiB pages that walk even without flushes.
    pub(super) fn late(&self, placed: &Placed) -> f64 {
        let page = page_bytes(self.leaf);
        let of_small = turns(placed, self.rate, page) / turns(placed, self.rate, PAGE_SIZE);
        of_small * self.missing(placed, (self.tlb[1], f64::INFINITY))
    }

    /// Visits a second to 4 KiB pages.
    pub(super) fn visits(&self, placed: &Placed) -> f64 {
        turns(placed, self.rate, PAGE_SIZE)
    }

    /// The accesses to a range as caches see them.
    pub(super) fn used(&self, placed: &Placed) -> Use {
        let Placed { density, range, .. } = placed;
        let turns = 1.0 / Use::run(density.stride, page_bytes(self.leaf));
        let walks = turns * self.missing(placed, (self.tlb[1], self.flush));
        let second = turns * self.missing(placed, (self.tlb[0], self.flush)) - walks;
        let second = second.max(0.0);
        let loads = self.loads(placed, true);
        Use {
            bytes: range.bytes() as f64,
            every: density.every as f64,
            stride: density.stride.map(|stride| stride as f64),
            rate: density.weight * self.rate,
            writes: density.writes,
            leaf: self.leaf,
            translation: [1.0 - walks - second, second, walks],
            loads,
            line_reads: self.line_reads(placed, loads),
        }
    }

    /// By level number: walks a second that read an entry, of which `loads` are the shares.
    fn reads(&self, placed: &Placed, loads: [f64; 6]) -> [f64; 6] {
        let walks = self.walks(placed);
        loads.map(|share| walks * share)
    }

    /// By level number: walks a second that read the line of entries in the middle of a range. A
    /// sweep reads it by itself, and so do accesses to fewer pages than lines.
    fn line_reads(&self, placed: &Placed, loads: [f64; 6]) -> [f64; 6] {
        let Placed { density, range, .. } = placed;
        let mut reads = self.reads(placed, loads);
        for (level, sums) in self.levels().zip(&self.line_reads) {
            let number = usize::from(level.number());
            let apart = line_bytes(level).max(density.every);
            let lines = (range.bytes() as f64 / apart as f64).max(1.0);
            let alone = reads[number] / lines;
            let middle = range.start + range.bytes() / 2;
            reads[number] = match density.stride {
                None => alone.max(sums.within(middle, line_bytes(level))),
                Some(_) => alone,
            };
        }
        reads
    }

    /// Share of the walks that miss the cache of a level, among walks that look an entry up there.
    pub(super) fn missed(&self, at: u64, level: Level, flushed: bool) -> f64 {
        self.visited(at, level, 1.0, flushed)
    }

    /// Whether each kernel tick empties the set of an entry.
    pub(super) fn is_emptied(&self, at: u64, level: Level) -> bool {
        let set = self.cache(level).and_then(|(_, cache)| cache.set(at, level));
        set.is_some_and(|set| set.emptied)
    }

    /// Seconds after a walk through the entry at an address until all caches have evicted it and
    /// the entries below it.
    pub(super) fn held(&self, at: u64, level: Level) -> f64 {
        let mut held: f64 = 0.0;
        for lower in self.above().take_while(|lower| *lower < level) {
            held = held.max(self.cache(lower).map_or(0.0, |(_, cache)| cache.longest()));
        }
        let set = self.cache(level).and_then(|(_, cache)| cache.set(at, level));
        set.map_or(held, |set| held.max(set.held))
    }

    /// Share of the walks of a density that load the entry of each level, around the middle of its
    /// range; with or without the first walks after a flush.
    pub(super) fn loads(&self, placed: &Placed, forgets: bool) -> [f64; 6] {
        let Placed { density, range, visit } = placed;
        let mut loads = [0.0; 6];
        let mut below = 1.0;
        loads[usize::from(self.leaf.number())] = below;
        for level in self.above().take(self.upper.len()) {
            let middle = range.start + range.bytes() / 2;
            let bytes = level.entry_bytes();
            let cached = self.cache(level).is_some_and(|(_, cache)| cache.longest() > 0.0);
            below = match density.stride {
                _ if !cached => below,
                // A visit loads the entry if any of its walks does.
                Some(_) if let (Some(visit), false) = (visit, forgets) => {
                    let walks = (bytes.min(*visit) / page_bytes(self.leaf)).max(1);
                    self.visited(middle, level, walks as f64, false).min(below)
                }
                // A sweep loads the next entry once, at its beginning.
                Some(_) => {
                    (density.every.max(page_bytes(self.leaf)) as f64 / bytes as f64).min(below)
                }
                None => below * self.missed_within(range, level, forgets),
            };
            loads[usize::from(level.number())] = below;
        }
        loads
    }

    /// [`Residency::missed`] for the middle of a range: the mean over the sets if it has entries in
    /// several.
    fn missed_within(&self, range: &Range, level: Level, flushed: bool) -> f64 {
        let sets = self.cache(level).map_or(1, |(_, cache)| cache.sets());
        let sets = sets.min(range.bytes() >> level.shift()).clamp(1, SETS);
        // Neighbouring entries around the middle, each taken at its own middle: all of them in the
        // range.
        let spread = (sets - 1) << level.shift();
        let first = range.start + (range.bytes() - spread) / 2;
        let missed = |set: u64| self.missed(first + (set << level.shift()), level, flushed);
        (0..sets).map(missed).sum::<f64>() / sets as f64
    }

    /// [`Residency::missed`] for visits that look the entry up for `walks` pages in a row.
    fn visited(&self, at: u64, level: Level, walks: f64, flushed: bool) -> f64 {
        let Some((uses, cache)) = self.cache(level) else { return 1.0 };
        let Some(set) = cache.set(at, level) else { return 1.0 };
        set.lru.missed(uses.through(at, level) / walks / self.cores, flushed)
    }
}
