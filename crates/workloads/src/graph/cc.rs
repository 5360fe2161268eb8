//! Connected components (Sutton, Ben-Nun, Barak 2018, "Afforest"; GAPBS `cc`): linking two
//! neighbours of each vertex joins most of the graph into one component; only vertices outside of
//! it process their remaining neighbours.

use std::collections::BTreeMap;

use tierscope_core::Rng;

use super::rows::Rows;
use crate::team::{Array, Kernel, Loop, Out};

/// Neighbours of every vertex that are linked in the first phase.
const ROUNDS: u64 = 2;
/// Sampled vertices for finding the largest component.
const ASKED: u32 = 1024;

/// Areas of the algorithm, without the graph's: names and bytes.
pub(crate) fn areas(vertices: u64) -> Vec<(&'static str, u64)> {
    vec![("component", 4 * vertices)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Init,
    /// Links every vertex to its neighbour of that number.
    Link(u64),
    Compress(u64),
    /// Links the remaining neighbours of vertices outside of the largest component.
    Rest(u32),
    Final,
}

/// Finds components, restarted for each trial.
pub(crate) struct Components {
    rows: Rows,
    trials: u32,
    rng: Rng,
    components: Array,
    component: Vec<u32>,
    phase: Phase,
}

impl Components {
    pub(crate) fn new(rows: Rows, bases: &[u64], seed: u64, trials: u32) -> Self {
        Self {
            components: Array::new(bases[0], 4),
            component: vec![0; rows.vertices() as usize],
            rng: Rng::seeded(seed),
            phase: Phase::Final,
            rows,
            trials,
        }
    }

    #[inline(always)]
    fn of(&self, vertex: u32, out: &mut Out) -> u32 {
        out.read(self.components, vertex);
        self.component[vertex as usize]
    }

    #[inline(always)]
    fn put(&mut self, vertex: u32, component: u32) {
        self.component[vertex as usize] = component;
    }

    /// Merges the components of two vertices; the lower label wins.
    fn link(&mut self, one: u32, other: u32, out: &mut Out) {
        out.complete(1);
        let (mut a, mut b) = (self.of(one, out), self.of(other, out));
        while a != b {
            let (low, high) = (a.min(b), a.max(b));
            let above = self.of(high, out);
            if above == low {
                return;
            }
            if above == high {
                out.update(self.components, high);
                self.put(high, low);
                return;
            }
            let up = self.of(high, out);
            a = self.of(up, out);
            b = self.of(low, out);
        }
    }

    /// Lets a vertex point directly to the root of its component.
    fn compress(&mut self, vertex: u32, out: &mut Out) {
        loop {
            let own = self.of(vertex, out);
            let above = self.of(own, out);
            if own == above {
                return;
            }
            out.write(self.components, vertex);
            self.put(vertex, above);
        }
    }

    /// The most frequent component among the sampled vertices.
    fn most_frequent(&mut self, out: &mut Out) -> u32 {
        let mut counts = BTreeMap::new();
        for _ in 0..ASKED {
            let vertex = self.rng.below(self.rows.vertices()) as u32;
            *counts.entry(self.of(vertex, out)).or_insert(0u32) += 1;
        }
        let most = counts.iter().max_by_key(|(_, count)| **count);
        most.map_or(0, |(component, _)| *component)
    }
}

impl Kernel for Components {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.phase = match self.phase {
            Phase::Final => {
                self.trials = self.trials.checked_sub(1)?;
                Phase::Init
            }
            Phase::Init => Phase::Link(0),
            Phase::Link(number) => Phase::Compress(number + 1),
            Phase::Compress(ROUNDS) => Phase::Rest(self.most_frequent(out)),
            Phase::Compress(number) => Phase::Link(number),
            Phase::Rest(_) => Phase::Final,
        };
        Some(Loop { items: self.rows.vertices(), chunk: 16_384 })
    }

    fn one(&mut self, _: usize, vertex: u64, out: &mut Out) {
        let vertex = vertex as u32;
        match self.phase {
            Phase::Init => {
                out.write(self.components, vertex);
                self.put(vertex, vertex);
            }
            Phase::Link(number) => {
                let row = self.rows.row(vertex, out);
                if row.start + number < row.end {
                    let other = self.rows.neighbour(row.start + number, out);
                    self.link(vertex, other, out);
                }
            }
            Phase::Rest(largest) => {
                if self.of(vertex, out) == largest {
                    return;
                }
                let row = self.rows.row(vertex, out);
                for at in (row.start + ROUNDS).min(row.end)..row.end {
                    let other = self.rows.neighbour(at, out);
                    self.link(vertex, other, out);
                }
            }
            Phase::Compress(_) | Phase::Final => self.compress(vertex, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, compute, depths};
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn connected_vertices_are_in_the_same_component(case in any_case()) {
            let rows = case.rows();
            let cc = Components::new(rows.clone(), &case.bases(), 1, 1);
            let cc = compute(cc, case.lanes, case.batch);
            for vertex in 0..rows.vertices() as u32 {
                let lowest = depths(&rows.graph, vertex).iter().position(Option::is_some);
                prop_assert_eq!(Some(cc.component[vertex as usize] as usize), lowest);
            }
        }
    }
}
