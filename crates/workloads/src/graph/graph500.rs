//! The breadth-first search of Graph500 (specification, kernel 2): from 64 search keys, one after
//! the other, level by level, as the sequential run of its reference code: words of 64 bits for
//! neighbours and predecessors, of 32 for row starts and queues, and a bitmap of visited vertices.

use super::bits::{self, Bits};
use super::csr::Csr;
use super::queue::Queue;
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Array, Kernel, Loop, Out};

/// Bytes of a neighbour.
pub(crate) const NEIGHBOUR: u64 = 8;
/// Bytes of a row start.
pub(crate) const START: u64 = 4;
/// Marks a vertex without predecessor.
const NOBODY: u32 = u32::MAX;

/// Areas of the algorithm, without the graph's: names and bytes.
pub(crate) fn areas(vertices: u64) -> Vec<(&'static str, u64)> {
    vec![("pred", 8 * vertices), ("visited", bits::bytes(vertices)), ("queue", 4 * vertices)]
}

/// Searches from several keys, one after the other.
pub(crate) struct Search {
    rows: Rows,
    keys: Vec<u32>,
    validate: bool,
    /// The key of the search in progress.
    root: Option<u32>,
    preds: Array,
    pred: Vec<u32>,
    visited: Bits,
    queue: Queue,
}

impl Search {
    pub(crate) fn new(
        rows: Rows,
        bases: &[u64],
        sources: Sources,
        (keys, validate): (u32, bool),
        lanes: usize,
    ) -> Self {
        let vertices = rows.vertices();
        let mut keys = search_keys(&rows.graph, sources, keys as usize);
        keys.reverse();
        Self {
            keys,
            validate,
            root: None,
            preds: Array::new(bases[0], 8),
            pred: vec![NOBODY; vertices as usize],
            visited: Bits::new(vertices, bases[1]),
            // The reference swaps two queues, each of which holds a level; one queue with a sliding
            // window touches as much memory.
            queue: Queue::new(bases[2], 4, lanes),
            rows,
        }
    }

    /// Begins the next search; `None` if no key is left.
    fn begin(&mut self, out: &mut Out) -> Option<()> {
        if let Some(root) = self.root.filter(|_| self.validate)
            && let Err(what) = validate(&self.rows.graph, root, &self.pred)
        {
            panic!("the search from {root} is wrong: {what}");
        }
        let root = self.keys.pop()?;
        self.root = Some(root);
        self.pred.fill(NOBODY);
        out.fill(self.preds, 8 * self.rows.vertices());
        self.visited.reset(out);
        self.pred[root as usize] = root;
        out.write(self.preds, root);
        self.visited.set(root.into(), out);
        self.queue.clear();
        self.queue.push(root, out);
        Some(())
    }

    fn visit(&mut self, lane: usize, vertex: u32, out: &mut Out) {
        let row = self.rows.row(vertex, out);
        out.complete(row.end - row.start);
        for at in row {
            let other = self.rows.neighbour(at, out);
            if !self.visited.get(other.into(), out) {
                self.visited.set(other.into(), out);
                self.queue.keep(lane, other, out);
                out.write(self.preds, other);
                self.pred[other as usize] = vertex;
            }
        }
    }
}

impl Kernel for Search {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.queue.slide();
        if self.queue.len() == 0 {
            self.begin(out)?;
            self.queue.slide();
        }
        Some(Loop { items: self.queue.len(), chunk: 64 })
    }

    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        let vertex = self.queue.get(item, out);
        self.visit(lane, vertex, out);
    }

    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        self.queue.flush(lane, out);
        true
    }
}

/// Distinct vertices with neighbours: `count` of them, or fewer if the graph has fewer.
fn search_keys(graph: &Csr, mut sources: Sources, count: usize) -> Vec<u32> {
    let connected =
        (0..graph.vertices() as u32).filter(|v| graph.degree(*v) > 0).take(count).count();
    let mut keys = Vec::new();
    while keys.len() < connected {
        let key = sources.pick(graph);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Validates a tree of predecessors by the specification's section "Validation": it is a tree from
/// its root, its edges are edges of the graph and connect consecutive levels, every edge of the
/// graph joins levels that differ by at most one, and the tree spans the root's component.
fn validate(graph: &Csr, root: u32, pred: &[u32]) -> Result<(), String> {
    let levels = levels(root, pred)?;
    for vertex in 0..graph.vertices() as u32 {
        let level = levels[vertex as usize];
        let parent = pred[vertex as usize];
        if let Some(level) = level.filter(|_| vertex != root) {
            if graph.neighbours(vertex).binary_search(&parent).is_err() {
                return Err(format!("{parent} is no neighbour of {vertex}"));
            }
            if levels[parent as usize] != Some(level - 1) {
                return Err(format!("{parent} is not one level above {vertex}"));
            }
        }
        for other in graph.neighbours(vertex) {
            match (level, levels[*other as usize]) {
                (None, None) => {}
                (Some(one), Some(other)) if one.abs_diff(other) <= 1 => {}
                (one, other_level) => {
                    return Err(format!("{vertex} at {one:?} has {other} at {other_level:?}"));
                }
            }
        }
    }
    Ok(())
}

/// The level of every vertex, by following predecessors to the root.
fn levels(root: u32, pred: &[u32]) -> Result<Vec<Option<u32>>, String> {
    let mut levels = vec![None; pred.len()];
    if pred[root as usize] != root {
        return Err(format!("the root {root} is not its own predecessor"));
    }
    levels[root as usize] = Some(0);
    let mut path = Vec::new();
    for vertex in 0..pred.len() as u32 {
        let mut at = vertex;
        while pred[at as usize] != NOBODY && levels[at as usize].is_none() {
            path.push(at);
            at = pred[at as usize];
            if path.len() > pred.len() {
                return Err(format!("{vertex} is in a circle"));
            }
        }
        let Some(mut level) = levels[at as usize] else {
            if path.is_empty() {
                continue;
            }
            return Err(format!("{at} has no predecessor, but is one"));
        };
        while let Some(at) = path.pop() {
            level += 1;
            levels[at as usize] = Some(level);
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, check_tree, compute, sources_of};
    use super::*;
    use proptest::prelude::{prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn every_predecessor_is_one_step_nearer(case in any_case()) {
            let rows = case.rows();
            let search = Search::new(rows.clone(), &case.bases(), sources_of(&case), (4, true), case.lanes);
            let keys = search.keys.clone();
            let search = compute(search, case.lanes, case.batch);
            prop_assert_eq!(search.root, keys.first().copied(), "the last one");
            if let Some(root) = search.root {
                let pred = |v: u32| Some(search.pred[v as usize]).filter(|pred| *pred != NOBODY);
                check_tree(&rows.graph, root, pred)?;
            }
        }
    }

    //  0 ─ 1 ─ 2 ─ 3    4 ─ 5
    //  └───────┘
    #[test]
    fn wrong_trees_are_found() {
        let graph = Csr::of(6, &[(0, 1), (1, 2), (2, 3), (0, 2), (4, 5)]);
        let check = |pred: [u32; 6]| validate(&graph, 0, &pred);
        const N: u32 = NOBODY;
        assert_eq!(check([0, 0, 0, 2, N, N]), Ok(()));
        let wrong = |pred, what: &str| {
            let error = check(pred).unwrap_err();
            assert!(error.contains(what), "{error}");
        };
        wrong([1, 0, 0, 2, N, N], "not its own predecessor");
        wrong([0, 0, 0, 1, N, N], "1 is no neighbour of 3");
        wrong([0, 0, 1, 2, N, N], "0 at Some(0) has 2 at Some(2)");
        wrong([0, 0, 0, N, N, N], "2 at Some(1) has 3 at None");
        wrong([0, 2, 1, 2, N, N], "circle");
        wrong([0, 0, 0, 2, N, 4], "4 has no predecessor");
    }

    #[test]
    fn keys_differ_and_have_neighbours() {
        let graph = Csr::of(6, &[(0, 1), (1, 2)]);
        let mut keys = search_keys(&graph, Sources::new(3), 64);
        keys.sort_unstable();
        assert_eq!(keys, [0, 1, 2]);
    }
}
