//! The accesses of one segment of a workload: its densities as point processes, split into accesses
//! that walk and accesses that hit the TLB.

use tierscope_core::{Level, PAGE_SIZE, Range, SpaceId};
use tierscope_workloads::{Density, Segment, Workload};

use super::access_range::AccessRange;
use super::config::{Config, VALUES};
use super::hash::draw;
use super::hits::{Caches, Hits, Use};
use super::walks::Residency;

/// A density with its computed access processes.
#[derive(Clone, Debug)]
pub(super) struct AccessStream {
    /// Accesses that walk the page table.
    pub(super) walks: Option<AccessRange>,
    /// Accesses that hit the TLB, unless it was flushed.
    pub(super) hits: Option<AccessRange>,
    /// Share of the walks that load the entry of a level because it was evicted since the previous
    /// walk, by level number, in the middle of the range.
    pub(super) loads: [f64; 6],
    /// Whether the accesses are sequential.
    pub(super) sweeps: bool,
    /// Whether each access depends on the one before.
    pub(super) chases: bool,
    /// The addresses.
    pub(super) range: Range,
    /// Share of all accesses.
    pub(super) share: f64,
    /// Accesses a second.
    pub(super) rate: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
    /// Average outcome of an access in the caches.
    pub(super) hits_of: Hits,
}

/// Streams by pattern: within each pattern they are disjoint and ascending.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Begin of the segment, in nanoseconds.
    pub(super) begin: u64,
    /// End of the segment, in nanoseconds.
    pub(super) end: u64,
    /// Residency of pages and page-table entries in the translation caches.
    pub(super) residency: Residency,
    /// One list for each pattern.
    pub(super) layers: Vec<Vec<AccessStream>>,
}

/// Bytes from one access of a visit to the next.
const LINE: u64 = 64;
/// Processes with fewer accesses a second than this are omitted: one in three million years.
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
        let layers = cut(layered(&densities, bases, &visited(config, workload)));
        let residency = Residency::new(config, &layers, rate);
        let uses: Vec<Use> = layers.iter().flatten().map(|placed| residency.used(placed)).collect();
        let caches = Caches::new(&config.hardware, &uses);
        let mut number = 0;
        let mut stream = |placed: &Placed| {
            let Placed { density, range, visit } = *placed;
            let each = &uses[number];
            number += 1;
            let key = draw(draw(config.seed, begin), number as u64);
            let visits = residency.visits(placed);
            let walking = residency.late(placed);
            let part = |share: f64, salt: u64| {
                let rate = visits * share;
                let key = draw(key, salt);
                (rate > NEVER).then(|| match visit {
                    None => AccessRange::new(range, density.every, rate, density.writes, key),
                    Some(bytes) => {
                        let visits = rate * PAGE_SIZE as f64 / bytes as f64;
                        AccessRange::visits(range, bytes, visits, density.writes, key)
                    }
                })
            };
            AccessStream {
                walks: part(walking, 0),
                hits: part(1.0 - walking, 1),
                loads: residency.loads(placed, false),
                sweeps: density.stride.is_some(),
                chases: density.chase,
                range,
                share: density.weight,
                rate: each.rate,
                writes: density.writes,
                hits_of: caches.hits(each),
            }
        };
        let layers = layers.iter().map(|layer| layer.iter().map(&mut stream).collect()).collect();
        Self { begin, end: segment.end.as_nanos() as u64, residency, layers }
    }

    /// The streams that overlap a range, layer by layer.
    pub(super) fn overlapping(&self, range: Range) -> impl Iterator<Item = &AccessStream> {
        self.layers.iter().flat_map(move |layer| {
            let from = layer.partition_point(|stream| stream.range.end <= range.start);
            layer[from..].iter().take_while(move |stream| stream.range.start < range.end)
        })
    }
}

/// A density with its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) density: Density,
    pub(super) range: Range,
    /// Bytes of a visit, if accesses touch whole values instead of random addresses.
    pub(super) visit: Option<u64>,
}

/// Bytes of a visit, for each area.
fn visited(config: &Config, workload: &Workload) -> Vec<Option<u64>> {
    let of = |area: &tierscope_workloads::description::Area| {
        config.visit.filter(|bytes| area.bytes / bytes >= VALUES)
    };
    workload.areas.iter().map(of).collect()
}

/// Densities with their addresses, grouped into ascending lists.
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

/// Splits ranges at the ends of other layers' ranges, on huge-page boundaries, so that all pages of
/// a huge page have the same accesses in every layer. Sequential ranges are left whole, and so are
/// all ranges if there are too many ends.
fn cut(layers: Vec<Vec<Placed>>) -> Vec<Vec<Placed>> {
    let size = Level::PMD.entry_bytes();
    let ends = |placed: &Placed| {
        [placed.range.start & !(size - 1), placed.range.end.next_multiple_of(size)]
    };
    let mut edges: Vec<u64> = layers.iter().flatten().flat_map(ends).collect();
    edges.sort_unstable();
    edges.dedup();
    if layers.len() < 2 || edges.len() > EDGES {
        return layers;
    }
    let of_one = |placed: Placed| -> Vec<Placed> {
        let Placed { density, range, .. } = placed;
        if density.stride.is_some() || density.every != PAGE_SIZE {
            return vec![placed];
        }
        let first = edges.partition_point(|edge| *edge <= range.start);
        let inside = edges[first..].iter().take_while(|edge| **edge < range.end);
        let starts: Vec<u64> = [range.start].into_iter().chain(inside.copied()).collect();
        let stops = starts[1..].iter().copied().chain([range.end]);
        let part = |(start, end): (&u64, u64)| {
            let weight = density.weight * (end - start) as f64 / range.bytes() as f64;
            let range = Range { start: *start, end, ..range };
            Placed { density: Density { weight, ..density }, range, ..placed }
        };
        starts.iter().zip(stops).map(part).collect()
    };
    layers.into_iter().map(|layer| layer.into_iter().flat_map(of_one).collect()).collect()
}

/// Largest number of ends at which ranges are split.
const EDGES: usize = 1 << 16;

/// Number of accessed 4 KiB pages.
pub(super) fn pages(Placed { density, range, .. }: &Placed) -> f64 {
    range.bytes().div_ceil(density.every).max(1) as f64
}
