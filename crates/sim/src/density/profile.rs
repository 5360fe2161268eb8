//! The accesses of one segment of a workload: its densities as point processes, split into those
//! that walk and those that hit the TLB.

use tierscope_core::{Level, PAGE_SIZE, Range, SpaceId};
use tierscope_workloads::{Density, Segment, Workload};

use super::config::{Config, VALUES};
use super::hash::draw;
use super::hits::{Caches, Hits, Use};
use super::piece::Piece;
use super::residency::{Group, alike, characteristic_time, seen};

/// A density at work.
#[derive(Clone, Debug)]
pub(super) struct Strand {
    /// Accesses that walk the page table.
    pub(super) walks: Option<Piece>,
    /// Accesses that the TLB answers, unless it was flushed.
    pub(super) hits: Option<Piece>,
    /// Share of the walks that load the entry of a level because it was dropped since the walk before,
    /// by level number.
    pub(super) loads: [f64; 6],
    /// The addresses.
    pub(super) range: Range,
    /// Share of all accesses.
    pub(super) share: f64,
    /// Accesses a second.
    pub(super) rate: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
    /// What caches make of the accesses.
    pub(super) hits_of: Hits,
}

/// Strands by pattern: within each they are disjoint and ascending.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Nanoseconds at which the segment begins.
    pub(super) begin: u64,
    /// And ends.
    pub(super) end: u64,
    /// Seconds that translation caches hold an entry since its last use, by level number; 1 is the
    /// TLB's.
    pub(super) held: [f64; 6],
    /// One list for each pattern.
    pub(super) layers: Vec<Vec<Strand>>,
}

/// Bytes from one access of a visit to the next.
const LINE: u64 = 64;
/// Processes with fewer accesses a second than this are left out: one in three million years.
const NEVER: f64 = 1e-14;

impl Profile {
    /// The accesses of `segment`, `rate` a second, from `begin` on.
    pub(super) fn new(
        config: &Config,
        workload: &Workload,
        segment: &Segment,
        bases: &[u64],
        (begin, rate): (u64, f64),
    ) -> Self {
        let densities = workload.densities(segment);
        let layers = layered(&densities, bases, &visited(config, workload));
        let residency = Residency::new(config, &layers, rate);
        let uses: Vec<Use> =
            layers.iter().flatten().map(|placed| residency.used(placed, rate)).collect();
        let caches = Caches::new(&config.hardware, &uses);
        let mut number = 0;
        let mut strand = |placed: &Placed| {
            let Placed { density, range, visit } = *placed;
            let each = &uses[number];
            number += 1;
            let key = draw(draw(config.seed, begin), number as u64);
            let visits = visits(placed, rate);
            let walking = residency.late(placed, rate);
            let part = |share: f64, salt: u64| {
                let rate = visits * share;
                let key = draw(key, salt);
                (rate > NEVER).then(|| match visit {
                    None => Piece::new(range, density.every, rate, density.writes, key),
                    Some(bytes) => {
                        let visits = rate * PAGE_SIZE as f64 / bytes as f64;
                        Piece::visits(range, bytes, visits, density.writes, key)
                    }
                })
            };
            Strand {
                walks: part(walking, 0),
                hits: part(1.0 - walking, 1),
                loads: residency.loads(placed, false),
                range,
                share: density.weight,
                rate: each.rate,
                writes: density.writes,
                hits_of: caches.hits(each),
            }
        };
        let layers = layers.iter().map(|layer| layer.iter().map(&mut strand).collect()).collect();
        let mut held = residency.held;
        held[1] = residency.tlb[1];
        Self { begin, end: segment.end.as_nanos() as u64, held, layers }
    }

    /// The strands that overlap a range, layer by layer.
    pub(super) fn overlapping(&self, range: Range) -> impl Iterator<Item = &Strand> {
        self.layers.iter().flat_map(move |layer| {
            let from = layer.partition_point(|strand| strand.range.end <= range.start);
            layer[from..].iter().take_while(move |strand| strand.range.start < range.end)
        })
    }
}

/// A density with its addresses.
#[derive(Clone, Copy, Debug)]
struct Placed {
    density: Density,
    range: Range,
    /// Bytes that are accessed one after the other, if not one here and one there.
    visit: Option<u64>,
}

/// Of each area, the bytes of a visit.
fn visited(config: &Config, workload: &Workload) -> Vec<Option<u64>> {
    let of = |area: &tierscope_workloads::description::Area| {
        config.visit.filter(|bytes| area.bytes / bytes >= VALUES)
    };
    workload.areas.iter().map(of).collect()
}

/// Densities with their addresses, cut into lists that ascend.
fn layered(densities: &[Density], bases: &[u64], visits: &[Option<u64>]) -> Vec<Vec<Placed>> {
    let mut layers: Vec<Vec<Placed>> = Vec::new();
    for density in densities.iter().filter(|density| density.weight > 0.0) {
        let range = density.part.at(bases, SpaceId(0));
        let mut placed = Placed { density: *density, range, visit: None };
        if let (Some(bytes), None) = (visits[density.part.area], density.stride) {
            placed.visit = Some(bytes.min(range.bytes()));
            placed.density.stride = Some(LINE);
        }
        match layers.last_mut() {
            Some(layer) if layer.last().is_some_and(|last| last.range.end <= range.start) => {
                layer.push(placed);
            }
            _ => layers.push(vec![placed]),
        }
    }
    layers
}

fn pages(Placed { density, range, .. }: &Placed) -> f64 {
    range.bytes().div_ceil(density.every).max(1) as f64
}

/// Times a second that accesses turn to one of the pages.
fn visits(placed: &Placed, rate: f64) -> f64 {
    placed.density.weight * rate / Use::run(placed.density.stride)
}

/// Characteristic times of the TLBs and of the paging-structure caches in a segment.
struct Residency {
    /// Cores that the accesses are spread over.
    cores: f64,
    /// Seconds between two times at which all is forgotten, and at which upper levels are.
    flush: [f64; 2],
    /// Of the first-level TLB, and of both.
    tlb: [f64; 2],
    /// By level number; 0 where a level is not cached.
    held: [f64; 6],
    /// Of each layer: where a density begins, and walks a second below it.
    sums: Vec<Vec<(u64, f64)>>,
}

impl Residency {
    fn new(config: &Config, layers: &[Vec<Placed>], rate: f64) -> Self {
        let cores = f64::from(config.cores);
        let seconds = |every: Option<std::time::Duration>| {
            every.map_or(f64::INFINITY, |every| every.as_secs_f64())
        };
        let flush = seconds(config.flush);
        let group = |placed: &Placed| Group {
            count: pages(placed),
            rate: visits(placed, rate) / pages(placed) / cores,
        };
        let groups = alike(layers.iter().flatten().map(group));
        let mut residency = Self {
            cores,
            flush: [flush, flush.min(seconds(config.tick))],
            tlb: config.tlb_pages.map(|pages| characteristic_time(&groups, f64::from(pages))),
            held: [0.0; 6],
            sums: Vec::with_capacity(layers.len()),
        };
        for layer in layers {
            let mut sum = 0.0;
            let mut sums = Vec::with_capacity(2 * layer.len());
            for placed in layer {
                sums.push((placed.range.start, sum));
                sum += visits(placed, rate) * residency.walking(placed, rate);
                sums.push((placed.range.end, sum));
            }
            residency.sums.push(sums);
        }
        for level in (2..=5).filter_map(Level::new) {
            let capacity = f64::from(config.upper_entries[usize::from(level.number())]);
            if capacity > 0.0 {
                let groups = residency.entries(layers, level);
                residency.held[usize::from(level.number())] =
                    characteristic_time(&groups, capacity);
            }
        }
        residency
    }

    /// Share of the visits to pages that a TLB does not answer. A sweep comes back to a page after all
    /// others: a TLB holds all of them or none.
    fn missing(&self, placed: &Placed, rate: f64, (tlb, flush): (f64, f64)) -> f64 {
        let each = visits(placed, rate) / pages(placed) / self.cores;
        if placed.density.stride.is_some() && each * tlb < 1.0 {
            return 1.0;
        }
        seen(each, tlb, flush)
    }

    /// Share of the visits to pages that walk.
    fn walking(&self, placed: &Placed, rate: f64) -> f64 {
        self.missing(placed, rate, (self.tlb[1], self.flush[0]))
    }

    /// Share of the visits to pages that walk although nothing was flushed.
    fn late(&self, placed: &Placed, rate: f64) -> f64 {
        self.missing(placed, rate, (self.tlb[1], f64::INFINITY))
    }

    /// The accesses to a range as caches see them.
    fn used(&self, placed: &Placed, rate: f64) -> Use {
        let Placed { density, range, .. } = placed;
        let turns = 1.0 / Use::run(density.stride);
        let walks = turns * self.walking(placed, rate);
        let second = turns * self.missing(placed, rate, (self.tlb[0], self.flush[0])) - walks;
        let second = second.max(0.0);
        Use {
            bytes: range.bytes() as f64,
            every: density.every as f64,
            stride: density.stride.map(|stride| stride as f64),
            rate: density.weight * rate,
            writes: density.writes,
            translation: [1.0 - walks - second, second, walks],
            loads: self.loads(placed, true),
        }
    }

    /// Walks a second below an address of a layer.
    fn below(&self, layer: usize, at: u64) -> f64 {
        let sums = &self.sums[layer];
        let next = sums.partition_point(|(start, _)| *start <= at);
        let Some((start, before)) = next.checked_sub(1).map(|last| sums[last]) else { return 0.0 };
        let Some((end, after)) = sums.get(next) else { return before };
        before + (after - before) * (at - start) as f64 / (end - start) as f64
    }

    /// Walks a second and core through the entry that begins at `start`.
    fn through(&self, start: u64, level: Level) -> f64 {
        let end = start.saturating_add(level.entry_bytes());
        let sum = |layer| self.below(layer, end) - self.below(layer, start);
        (0..self.sums.len()).map(sum).sum::<f64>() / self.cores
    }

    /// The entries of a level that are walked through: those at the ends of densities one by one,
    /// those inside together.
    fn entries(&self, layers: &[Vec<Placed>], level: Level) -> Vec<Group> {
        let mut edges: Vec<u64> = layers
            .iter()
            .flatten()
            .flat_map(|Placed { range, .. }| {
                [range.start >> level.shift(), (range.end - 1) >> level.shift()]
            })
            .flat_map(|entry| [entry, entry + 1])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let group = |pair: &[u64]| Group {
            count: (pair[1] - pair[0]) as f64,
            rate: self.through(pair[0] << level.shift(), level),
        };
        alike(edges.windows(2).map(group))
    }

    /// Share of the walks of a density that load the entry of each level: where a lower level's cache
    /// answers, the levels above are not read. Told for the middle of its range; with those that come
    /// first after all was forgotten, or without.
    fn loads(&self, Placed { density, range, visit }: &Placed, forgets: bool) -> [f64; 6] {
        let mut loads = [1.0; 6];
        let flush = if forgets { self.flush[1] } else { f64::INFINITY };
        for level in (2..=5).filter_map(Level::new) {
            let number = usize::from(level.number());
            let start = (range.start + range.bytes() / 2) & !(level.entry_bytes() - 1);
            let held = self.held[number];
            let own = match density.stride {
                _ if held == 0.0 => 1.0,
                // Of a visit it counts whether the entry is loaded at all, wherever in it.
                Some(_) if let (Some(bytes), false) = (visit, forgets) => {
                    let walks = level.entry_bytes().min(*bytes) / PAGE_SIZE;
                    seen(self.through(start, level) / walks as f64, held, flush)
                }
                // A sweep turns to the next entry when it is through with one.
                Some(_) => (density.every as f64 / level.entry_bytes() as f64).min(1.0),
                None => seen(self.through(start, level), held, flush),
            };
            loads[number] = own.min(loads[number - 1]);
        }
        loads
    }
}
