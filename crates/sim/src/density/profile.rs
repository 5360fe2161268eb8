//! The accesses of one segment of a workload: its densities as point processes, split into those
//! that walk and those that hit the TLB.

use tierscope_core::{Level, Range, SpaceId};
use tierscope_workloads::{Density, Segment, Workload};

use super::Config;
use super::hash::draw;
use super::piece::Piece;
use super::residency::{Group, characteristic_time, seen};

/// A density at work.
#[derive(Clone, Debug)]
pub(super) struct Strand {
    /// Accesses that walk the page table.
    pub(super) walks: Option<Piece>,
    /// Accesses that the TLB answers.
    pub(super) hits: Option<Piece>,
    /// Share of the walks that load the entry of a level, by level number.
    pub(super) loads: [f64; 6],
    /// The addresses.
    pub(super) range: Range,
    /// Accesses a second.
    pub(super) rate: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
}

/// Strands by pattern: within each they are disjoint and ascending.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Nanoseconds at which the segment begins.
    pub(super) begin: u64,
    /// And ends.
    pub(super) end: u64,
    /// One list for each pattern.
    pub(super) layers: Vec<Vec<Strand>>,
}

/// Processes with fewer accesses a second than this are left out: one in three million years.
const NEVER: f64 = 1e-14;

impl Profile {
    /// The accesses of `segment`.
    pub(super) fn new(
        config: &Config,
        workload: &Workload,
        segment: &Segment,
        bases: &[u64],
    ) -> Self {
        let begin = segment.begin.as_nanos() as u64;
        let rate = workload.phase(segment).rate.map_or(config.rate, |rate| rate as f64);
        let densities = workload.densities(segment);
        let layers = layered(&densities, bases);
        let residency = Residency::new(config, &layers, rate);
        let mut number = 0;
        let mut strand = |density: &Density, range: Range| {
            number += 1;
            let key = draw(draw(config.seed, begin), number);
            let per_second = density.weight * rate;
            let pages = range.bytes().div_ceil(density.every).max(1) as f64;
            let walking = residency.walking(per_second / pages);
            let part = |share: f64, salt: u64| {
                let rate = per_second * share;
                (rate > NEVER).then(|| {
                    Piece::new(range, density.every, rate, density.writes, draw(key, salt))
                })
            };
            Strand {
                walks: part(walking, 0),
                hits: part(1.0 - walking, 1),
                loads: residency.loads(&range),
                range,
                rate: per_second,
                writes: density.writes,
            }
        };
        let layers = layers
            .iter()
            .map(|layer| layer.iter().map(|(density, range)| strand(density, *range)).collect())
            .collect();
        Self { begin, end: segment.end.as_nanos() as u64, layers }
    }

    /// The strands that overlap a range, layer by layer.
    pub(super) fn overlapping(&self, range: Range) -> impl Iterator<Item = &Strand> {
        self.layers.iter().flat_map(move |layer| {
            let from = layer.partition_point(|strand| strand.range.end <= range.start);
            layer[from..].iter().take_while(move |strand| strand.range.start < range.end)
        })
    }
}

type Placed = (Density, Range);

/// Densities with their addresses, cut into lists that ascend.
fn layered(densities: &[Density], bases: &[u64]) -> Vec<Vec<Placed>> {
    let mut layers: Vec<Vec<Placed>> = Vec::new();
    for density in densities.iter().filter(|density| density.weight > 0.0) {
        let range = density.part.at(bases, SpaceId(0));
        match layers.last_mut() {
            Some(layer) if layer.last().is_some_and(|(_, last)| last.end <= range.start) => {
                layer.push((*density, range));
            }
            _ => layers.push(vec![(*density, range)]),
        }
    }
    layers
}

/// Characteristic times of the TLB and of the paging-structure caches in a segment.
struct Residency {
    /// Cores that the accesses are spread over.
    cores: f64,
    flush: f64,
    tlb: f64,
    /// By level number; 0 where a level is not cached.
    held: [f64; 6],
    /// Of each layer: where a density begins, and walks a second below it.
    sums: Vec<Vec<(u64, f64)>>,
}

impl Residency {
    fn new(config: &Config, layers: &[Vec<Placed>], rate: f64) -> Self {
        let cores = f64::from(config.cores);
        let flush = config.flush.map_or(f64::INFINITY, |every| every.as_secs_f64());
        let pages = |(density, range): &Placed| range.bytes().div_ceil(density.every).max(1) as f64;
        let group = |placed: &Placed| Group {
            count: pages(placed),
            rate: placed.0.weight * rate / pages(placed) / cores,
        };
        let groups: Vec<Group> = layers.iter().flatten().map(group).collect();
        let tlb = characteristic_time(&groups, f64::from(config.tlb_pages));
        let mut residency =
            Self { cores, flush, tlb, held: [0.0; 6], sums: Vec::with_capacity(layers.len()) };
        for layer in layers {
            let mut sum = 0.0;
            let mut sums = Vec::with_capacity(2 * layer.len());
            for placed in layer {
                sums.push((placed.1.start, sum));
                let each = placed.0.weight * rate / pages(placed);
                sum += placed.0.weight * rate * residency.walking(each);
                sums.push((placed.1.end, sum));
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

    /// Share of the accesses to a page, accessed `rate` times a second, that walk.
    fn walking(&self, rate: f64) -> f64 {
        seen(rate / self.cores, self.tlb, self.flush)
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
            .flat_map(|(_, range)| [range.start >> level.shift(), (range.end - 1) >> level.shift()])
            .flat_map(|entry| [entry, entry + 1])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let group = |pair: &[u64]| Group {
            count: (pair[1] - pair[0]) as f64,
            rate: self.through(pair[0] << level.shift(), level),
        };
        edges.windows(2).map(group).filter(|group| group.rate > 0.0).collect()
    }

    /// Share of the walks in `range` that load the entry of each level: where a lower level's
    /// cache answers, the levels above are not read. Told for the middle of the range.
    fn loads(&self, range: &Range) -> [f64; 6] {
        let mut loads = [1.0; 6];
        for level in (2..=5).filter_map(Level::new) {
            let number = usize::from(level.number());
            let start = (range.start + range.bytes() / 2) & !(level.entry_bytes() - 1);
            let held = self.held[number];
            let own =
                if held > 0.0 { seen(self.through(start, level), held, self.flush) } else { 1.0 };
            loads[number] = own.min(loads[number - 1]);
        }
        loads
    }
}
