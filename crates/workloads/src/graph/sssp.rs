//! Shortest paths by Δ-stepping (Meyer, Sanders 2003; GAPBS `sssp`): vertices are kept in bins by
//! distance, the lowest bin of all lanes is processed next, and small bins that refill are
//! processed at once ("bucket fusion", Zhang et al. 2020). A vertex whose distance shrinks also
//! stays in its old bin, where it is skipped.

use super::input::weight;
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Array, Kernel, LINE, Loop, Out};

/// Distance of vertices that were not reached.
const FAR: u32 = i32::MAX as u32 / 2;
/// Bins with fewer vertices are processed at once.
const FUSED: usize = 1000;
/// Bytes of a neighbour with its weight.
pub(crate) const NEIGHBOUR: u64 = 8;
/// Entries of a bin in one cache line.
const TOGETHER: usize = LINE as usize / 4;

/// Areas of the algorithm, without the graph's: names and bytes for that number of vertices and
/// edges. The frontier and the bins each have room for all edges, as in GAPBS.
pub(crate) fn areas(vertices: u64, edges: u64) -> Vec<(&'static str, u64)> {
    let edges = edges.next_multiple_of(TOGETHER as u64);
    vec![("distance", 4 * vertices), ("frontier", 4 * edges), ("bins", 4 * edges)]
}

/// Vertices of similar distance, in memory blocks of a cache line each.
#[derive(Clone, Debug, Default)]
struct Bin {
    vertices: Vec<u32>,
    lines: Vec<u64>,
}

/// Allocator of cache lines for bins.
struct Lines {
    /// The memory, in elements of 4 bytes.
    array: Array,
    free: Vec<u64>,
    next: u64,
    count: u64,
}

impl Lines {
    /// Allocates a line; reuses lines from the first on if memory runs out, for a computation that
    /// never ends.
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            (self.next - 1) % self.count
        })
    }

    fn push(&mut self, bin: &mut Bin, vertex: u32, out: &mut Out) {
        let place = bin.vertices.len();
        if place.is_multiple_of(TOGETHER) {
            bin.lines.push(self.take());
        }
        let line = bin.lines[place / TOGETHER];
        out.write(self.array, line * TOGETHER as u64 + (place % TOGETHER) as u64);
        bin.vertices.push(vertex);
    }

    fn read(&self, bin: &Bin, place: usize, out: &mut Out) -> u32 {
        let line = bin.lines[place / TOGETHER];
        out.read(self.array, line * TOGETHER as u64 + (place % TOGETHER) as u64);
        bin.vertices[place]
    }

    fn give(&mut self, bin: &mut Bin) {
        bin.vertices.clear();
        self.free.append(&mut bin.lines);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Over,
    Init,
    Relax,
    Copy,
}

/// Private state of a lane.
#[derive(Clone, Default)]
struct LaneState {
    bins: Vec<Bin>,
    /// The bin that the lane processes at once, and its progress.
    fused: Bin,
    at: usize,
}

/// Searches from several sources, one after the other.
pub(crate) struct Paths {
    rows: Rows,
    sources: Sources,
    trials: u32,
    seed: u64,
    delta: u32,
    phase: Phase,
    distances: Array,
    distance: Vec<u32>,
    frontiers: Array,
    frontier: Vec<u32>,
    lines: Lines,
    own: Vec<LaneState>,
    /// The bin that is processed now, and the lowest of those to follow.
    bin: usize,
    next: usize,
}

impl Paths {
    pub(crate) fn new(
        rows: Rows,
        bases: &[u64],
        sources: Sources,
        (trials, seed, delta): (u32, u64, u32),
        lanes: usize,
    ) -> Self {
        let lines = Lines {
            array: Array::new(bases[2], 4),
            free: Vec::new(),
            next: 0,
            count: rows.graph.edges().div_ceil(TOGETHER as u64).max(1),
        };
        Self {
            phase: Phase::Over,
            distances: Array::new(bases[0], 4),
            distance: vec![FAR; rows.vertices() as usize],
            frontiers: Array::new(bases[1], 4),
            frontier: Vec::new(),
            lines,
            own: vec![LaneState::default(); lanes],
            bin: 0,
            next: usize::MAX,
            rows,
            sources,
            trials,
            seed,
            delta,
        }
    }

    fn begin(&mut self, out: &mut Out) {
        let source = self.sources.pick(&self.rows.graph);
        self.distance[source as usize] = 0;
        out.write(self.distances, source);
        self.frontier = vec![source];
        out.write(self.frontiers, 0u64);
        self.bin = 0;
    }

    /// Relaxes the edges of a vertex: shortens its neighbours' distances if the path over it is
    /// shorter.
    fn relax(&mut self, lane: usize, vertex: u32, out: &mut Out) {
        let row = self.rows.row(vertex, out);
        out.complete(row.end - row.start);
        for at in row {
            let other = self.rows.neighbour(at, out);
            out.read(self.distances, other);
            out.read(self.distances, vertex);
            let new = self.distance[vertex as usize] + weight(self.seed, vertex, other);
            if new < self.distance[other as usize] {
                out.update(self.distances, other);
                self.distance[other as usize] = new;
                self.put(lane, (new / self.delta) as usize, other, out);
            }
        }
    }

    fn put(&mut self, lane: usize, bin: usize, vertex: u32, out: &mut Out) {
        let bins = &mut self.own[lane].bins;
        if bin >= bins.len() {
            bins.resize(bin + 1, Bin::default());
        }
        self.lines.push(&mut bins[bin], vertex, out);
    }

    fn relax_from_frontier(&mut self, lane: usize, item: u64, out: &mut Out) {
        out.read(self.frontiers, item);
        let vertex = self.frontier[item as usize];
        out.read(self.distances, vertex);
        if self.distance[vertex as usize] as usize >= self.delta as usize * self.bin {
            self.relax(lane, vertex, out);
        }
    }

    /// Processes the lane's share of the current bin while it is small; `false` if work remains.
    fn fuse(&mut self, lane: usize, out: &mut Out) -> bool {
        loop {
            let own = &mut self.own[lane];
            if own.at == own.fused.vertices.len() {
                self.lines.give(&mut own.fused);
                own.at = 0;
                let Some(bin) = own.bins.get_mut(self.bin) else { return true };
                if bin.vertices.is_empty() || bin.vertices.len() >= FUSED {
                    return true;
                }
                own.fused = std::mem::take(bin);
            }
            if out.is_full() {
                return false;
            }
            let vertex = self.lines.read(&own.fused, own.at, out);
            own.at += 1;
            self.relax(lane, vertex, out);
        }
    }

    /// The lane's lowest non-empty bin.
    fn lowest(&self, lane: usize) -> usize {
        let bins = self.own[lane].bins.iter().enumerate().skip(self.bin);
        let mut full = bins.filter(|(_, bin)| !bin.vertices.is_empty());
        full.next().map_or(usize::MAX, |(at, _)| at)
    }

    /// Appends the lane's share of the next bin to the frontier.
    fn copy(&mut self, lane: usize, out: &mut Out) {
        let Some(bin) = self.own[lane].bins.get_mut(self.bin) else { return };
        for place in 0..bin.vertices.len() {
            let vertex = self.lines.read(bin, place, out);
            // Wraps at the end of the array: GAPBS assumes that it never overflows.
            out.write(
                self.frontiers,
                self.frontier.len() as u64 % (self.lines.count * TOGETHER as u64),
            );
            self.frontier.push(vertex);
        }
        self.lines.give(bin);
    }
}

impl Kernel for Paths {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.phase = match self.phase {
            Phase::Over => {
                self.trials = self.trials.checked_sub(1)?;
                Phase::Init
            }
            Phase::Init => {
                self.begin(out);
                Phase::Relax
            }
            Phase::Relax if self.next == usize::MAX => {
                self.phase = Phase::Over;
                return self.next_loop(out);
            }
            Phase::Relax => {
                self.bin = self.next;
                self.frontier.clear();
                Phase::Copy
            }
            Phase::Copy => Phase::Relax,
        };
        self.next = usize::MAX;
        Some(match self.phase {
            Phase::Relax => Loop { items: self.frontier.len() as u64, chunk: 64 },
            Phase::Copy | Phase::Over => Loop { items: 0, chunk: 1 },
            // A fill stores a line at a time.
            Phase::Init => {
                Loop { items: self.rows.vertices().div_ceil(TOGETHER as u64), chunk: 1024 }
            }
        })
    }

    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        if self.phase == Phase::Relax {
            self.relax_from_frontier(lane, item, out);
        } else {
            let first = item as usize * TOGETHER;
            let end = self.distance.len().min(first + TOGETHER);
            self.distance[first..end].fill(FAR);
            out.write(self.distances, first as u64);
        }
    }

    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        match self.phase {
            Phase::Relax => {
                if !self.fuse(lane, out) {
                    return false;
                }
                self.next = self.next.min(self.lowest(lane));
            }
            Phase::Copy => self.copy(lane, out),
            Phase::Init | Phase::Over => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, compute, sources_of};
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        // Oracle by Bellman and Ford: relax every edge until nothing changes.
        #[test]
        fn distances_are_the_shortest(case in any_case(), delta in 1u32..300) {
            let rows = case.rows();
            let source = sources_of(&case).pick(&rows.graph);
            let paths = Paths::new(rows.clone(), &case.bases(), sources_of(&case), (1, 5, delta), case.lanes);
            let paths = compute(paths, case.lanes, case.batch);
            let mut distance = vec![FAR; rows.vertices() as usize];
            distance[source as usize] = 0;
            let mut changed = true;
            while std::mem::take(&mut changed) {
                for a in 0..rows.vertices() as u32 {
                    for b in rows.graph.neighbours(a) {
                        let new = distance[a as usize].saturating_add(weight(5, a, *b));
                        if new < distance[*b as usize] {
                            (distance[*b as usize], changed) = (new, true);
                        }
                    }
                }
            }
            prop_assert_eq!(paths.distance, distance);
        }
    }
}
