//! Betweenness centrality from some sources (Brandes 2001; Madduri et al. 2009; GAPBS `bc`): the
//! forward pass counts the shortest paths to each vertex and marks the edges to the next level; the
//! backward pass, level by level, sums up at every vertex the dependencies of its successors.

use super::bits::{self, Bits};
use super::queue::Queue;
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Array, Kernel, LINE, Loop, Out};
use std::ops::Range;

/// Areas of the algorithm, without the graph's: names and bytes for that number of vertices and
/// edges.
pub(crate) fn areas(vertices: u64, edges: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("score", 4 * vertices),
        ("paths", 8 * vertices),
        ("successor", bits::bytes(edges)),
        ("queue", 4 * vertices),
        ("depth", 4 * vertices),
        ("delta", 4 * vertices),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Forward,
    /// Backward pass at the level of that number.
    Backward(usize),
    Largest,
    Normalise,
}

/// Computes scores from some sources, restarted for each trial.
pub(crate) struct Centrality {
    rows: Rows,
    sources: Sources,
    trials: u32,
    /// Sources per trial, and those left in this trial.
    iterations: u32,
    left: u32,
    phase: Phase,
    scores: Array,
    score: Vec<f32>,
    paths: Array,
    path: Vec<f64>,
    successors: Bits,
    queue: Queue,
    depths: Array,
    depth: Vec<i32>,
    deltas: Array,
    delta: Vec<f32>,
    /// Positions of the levels in the queue.
    levels: Vec<Range<usize>>,
    largest: f32,
}

impl Centrality {
    pub(crate) fn new(
        rows: Rows,
        bases: &[u64],
        sources: Sources,
        (trials, iterations): (u32, u32),
        lanes: usize,
    ) -> Self {
        let vertices = rows.vertices() as usize;
        Self {
            phase: Phase::Normalise,
            left: 0,
            scores: Array::new(bases[0], 4),
            score: vec![0.0; vertices],
            paths: Array::new(bases[1], 8),
            path: vec![0.0; vertices],
            successors: Bits::new(rows.graph.edges(), bases[2]),
            queue: Queue::new(bases[3], 4, lanes),
            depths: Array::new(bases[4], 4),
            depth: vec![-1; vertices],
            deltas: Array::new(bases[5], 4),
            delta: vec![0.0; vertices],
            levels: Vec::new(),
            largest: 0.0,
            rows,
            sources,
            trials,
            iterations,
        }
    }

    /// Initialises the arrays for the next source.
    fn begin(&mut self, out: &mut Out) {
        let vertices = self.rows.vertices();
        self.left -= 1;
        self.path.fill(0.0);
        out.fill(self.paths, 8 * vertices);
        self.successors.reset(out);
        self.depth.fill(-1);
        out.fill(self.depths, 4 * vertices);
        let source = self.sources.pick(&self.rows.graph);
        self.depth[source as usize] = 0;
        out.write(self.depths, source);
        self.path[source as usize] = 1.0;
        out.write(self.paths, source);
        self.levels.clear();
        self.queue.clear();
        self.queue.push(source, out);
        self.queue.slide();
        self.levels.push(self.queue.window());
    }

    fn following(&mut self, out: &mut Out) -> Option<Phase> {
        Some(match self.phase {
            Phase::Normalise => {
                self.trials = self.trials.checked_sub(1)?;
                self.left = self.iterations;
                self.score.fill(0.0);
                out.fill(self.scores, 4 * self.rows.vertices());
                Phase::Begin
            }
            Phase::Begin => {
                self.begin(out);
                Phase::Forward
            }
            Phase::Forward => {
                self.queue.slide();
                if self.queue.len() > 0 {
                    self.levels.push(self.queue.window());
                    return Some(Phase::Forward);
                }
                self.delta.fill(0.0);
                out.fill(self.deltas, 4 * self.rows.vertices());
                Phase::Backward(self.levels.len() - 1)
            }
            Phase::Backward(0) if self.left > 0 => Phase::Begin,
            Phase::Backward(0) => {
                self.largest = 0.0;
                Phase::Largest
            }
            Phase::Backward(level) => Phase::Backward(level - 1),
            Phase::Largest => Phase::Normalise,
        })
    }

    fn forward(&mut self, lane: usize, item: u64, out: &mut Out) {
        let vertex = self.queue.get(item, out);
        let depth = self.levels.len() as i32;
        let row = self.rows.row(vertex, out);
        out.complete(row.end - row.start);
        for at in row {
            let other = self.rows.neighbour(at, out);
            out.read(self.depths, other);
            if self.depth[other as usize] == -1 {
                out.update(self.depths, other);
                self.depth[other as usize] = depth;
                self.queue.keep(lane, other, out);
            }
            if self.depth[other as usize] == depth {
                self.successors.set(at, out);
                out.read(self.paths, vertex);
                out.update(self.paths, other);
                self.path[other as usize] += self.path[vertex as usize];
            }
        }
    }

    fn backward(&mut self, at: u64, out: &mut Out) {
        let vertex = self.queue.at(at, out);
        let mut sum = 0.0;
        let row = self.rows.row(vertex, out);
        out.complete(row.end - row.start);
        for at in row {
            if self.successors.get(at, out) {
                let other = self.rows.neighbour(at, out);
                out.read(self.paths, vertex);
                out.read(self.paths, other);
                out.read(self.deltas, other);
                let share = self.path[vertex as usize] / self.path[other as usize];
                sum += share as f32 * (1.0 + self.delta[other as usize]);
            }
        }
        out.write(self.deltas, vertex);
        self.delta[vertex as usize] = sum;
        out.update(self.scores, vertex);
        self.score[vertex as usize] += sum;
    }
}

impl Kernel for Centrality {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.phase = self.following(out)?;
        Some(match self.phase {
            Phase::Begin => Loop { items: 0, chunk: 1 },
            Phase::Forward => Loop { items: self.queue.len(), chunk: 64 },
            Phase::Backward(level) => Loop { items: self.levels[level].len() as u64, chunk: 64 },
            Phase::Largest | Phase::Normalise => {
                Loop { items: self.rows.vertices(), chunk: 16 * LINE }
            }
        })
    }

    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        match self.phase {
            Phase::Begin => {}
            Phase::Forward => self.forward(lane, item, out),
            Phase::Backward(level) => {
                self.backward(self.levels[level].start as u64 + item, out);
            }
            Phase::Largest => {
                out.read(self.scores, item);
                self.largest = self.largest.max(self.score[item as usize]);
            }
            Phase::Normalise => {
                out.update(self.scores, item);
                self.score[item as usize] /= self.largest;
            }
        }
    }

    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        self.queue.flush(lane, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::csr::Csr;
    use super::super::oracle::{any_case, compute, depths, sources_of};
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    /// Brandes' definition, vertex by vertex in order of depth: adds the dependencies on each
    /// vertex.
    fn naive(graph: &Csr, source: u32, scores: &mut [f64]) {
        let depths = depths(graph, source);
        let mut order: Vec<u32> =
            (0..graph.vertices() as u32).filter(|v| depths[*v as usize].is_some()).collect();
        order.sort_by_key(|v| depths[*v as usize]);
        let leads_on = |a: u32, b: u32| depths[b as usize] == depths[a as usize].map(|d| d + 1);
        let mut paths = vec![0.0; scores.len()];
        paths[source as usize] = 1.0;
        for a in &order {
            for b in graph.neighbours(*a).iter().filter(|b| leads_on(*a, **b)) {
                paths[*b as usize] += paths[*a as usize];
            }
        }
        let mut delta = vec![0.0; scores.len()];
        for a in order.iter().rev() {
            for b in graph.neighbours(*a).iter().filter(|b| leads_on(*a, **b)) {
                delta[*a as usize] +=
                    paths[*a as usize] / paths[*b as usize] * (1.0 + delta[*b as usize]);
            }
            scores[*a as usize] += delta[*a as usize];
        }
    }

    proptest! {
        // 32-bit sums against 64-bit sums: the tolerance is a thousand times a rounding error of a
        // millionth of the largest score.
        #[test]
        fn scores_are_those_of_the_definition(case in any_case(), iterations in 1u32..4) {
            let rows = case.rows();
            let sources = sources_of(&case);
            let bc = Centrality::new(rows.clone(), &case.bases(), sources.clone(), (1, iterations), case.lanes);
            let bc = compute(bc, case.lanes, case.batch);
            let mut scores = vec![0.0; rows.vertices() as usize];
            let mut sources = sources;
            (0..iterations).for_each(|_| naive(&rows.graph, sources.pick(&rows.graph), &mut scores));
            let largest = scores.iter().copied().fold(0.0, f64::max);
            if largest > 0.0 {
                for (found, expected) in bc.score.iter().zip(&scores) {
                    prop_assert!((f64::from(*found) - expected / largest).abs() < 1e-3, "{found} {expected} of {largest}");
                }
            }
        }
    }
}
