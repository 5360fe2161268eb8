//! Triangle counting (GAPBS `tc`): each triangle is counted once, by merging the neighbours of a
//! vertex with those of its neighbours of lower number. On graphs with strongly varying degrees,
//! vertices are renamed in advance by descending degree; that belongs to preparation.

use super::csr::Csr;
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Kernel, Loop, Out};

/// Counts triangles, once per trial.
pub(crate) struct Triangles {
    rows: Rows,
    trials: u32,
    found: u64,
}

/// Whether renaming by degree pays: at least ten neighbours on average, and a median of sampled
/// degrees far below their mean (GAPBS `WorthRelabelling`).
pub(crate) fn is_worth_renaming(graph: &Csr, seed: u64) -> bool {
    if graph.edges() / 2 / graph.vertices() < 10 {
        return false;
    }
    let mut sources = Sources::new(seed);
    let count = graph.vertices().min(1000) as usize;
    let mut degrees: Vec<u64> = (0..count).map(|_| graph.degree(sources.pick(graph))).collect();
    degrees.sort_unstable();
    let mean = degrees.iter().sum::<u64>() as f64 / count as f64;
    mean / 1.3 > degrees[count / 2] as f64
}

impl Triangles {
    pub(crate) fn new(rows: Rows, trials: u32) -> Self {
        Self { rows, trials, found: 0 }
    }

    fn count(&mut self, vertex: u32, out: &mut Out) {
        for at in self.rows.row(vertex, out) {
            let below = self.rows.neighbour(at, out);
            if below > vertex {
                break;
            }
            out.complete(1);
            self.merge(vertex, below, out);
        }
    }

    /// Counts the common neighbours of two adjacent vertices whose number is below both.
    fn merge(&mut self, vertex: u32, below: u32, out: &mut Out) {
        let mut theirs = self.rows.row(below, out).start;
        for at in self.rows.row(vertex, out) {
            let third = self.rows.neighbour(at, out);
            if third > below {
                break;
            }
            // The vertex is itself a neighbour of `below`, which ends the loop.
            while self.rows.neighbour(theirs, out) < third {
                theirs += 1;
            }
            self.found += u64::from(self.rows.graph.neighbour(theirs) == third);
        }
    }
}

impl Kernel for Triangles {
    fn next_loop(&mut self, _: &mut Out) -> Option<Loop> {
        self.trials = self.trials.checked_sub(1)?;
        self.found = 0;
        Some(Loop { items: self.rows.vertices(), chunk: 64 })
    }

    fn one(&mut self, _: usize, vertex: u64, out: &mut Out) {
        self.count(vertex as u32, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, compute};
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};
    use std::sync::Arc;

    fn naive(graph: &Csr) -> u64 {
        let is_edge = |a, b| graph.neighbours(a).binary_search(&b).is_ok();
        let pairs = |a: u32| graph.neighbours(a).iter().filter(move |b| **b < a);
        (0..graph.vertices() as u32)
            .flat_map(|a| pairs(a).flat_map(move |b| pairs(*b).map(move |c| (a, *c))))
            .filter(|(a, c)| is_edge(*a, *c))
            .count() as u64
    }

    proptest! {
        #[test]
        fn triangles_are_counted_once(case in any_case()) {
            let mut rows = case.rows();
            let expected = naive(&rows.graph);
            let count = |rows: &Rows| compute(Triangles::new(rows.clone(), 1), case.lanes, case.batch).found;
            prop_assert_eq!(count(&rows), expected);
            rows.graph = Arc::new(rows.graph.by_degree());
            prop_assert_eq!(count(&rows), expected);
        }
    }
}
