//! Shared test code of all kernels: small graphs, and naive solutions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use proptest::prelude::{Strategy, TestCaseError, prop, prop_assert};

use super::csr::Csr;
use super::input::{Input, Kind};
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Array, Kernel, Loop, Out, run_out, team};

/// A graph, and the number of lanes and the batch size to compute on it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) input: Input,
    pub(crate) lanes: usize,
    pub(crate) batch: usize,
}

pub(crate) fn any_case() -> impl Strategy<Value = Case> {
    let kind = prop::sample::select(vec![Kind::Kronecker, Kind::Uniform]);
    (kind, 1u32..9, 1u64..17, 0u64..1000, 1usize..5, 1usize..600).prop_map(
        |(kind, scale, degree, seed, lanes, batch)| Case {
            input: Input { kind, scale, degree, seed },
            lanes,
            batch,
        },
    )
}

/// Distance in bytes between two arrays: no test's array is larger.
const APART: u64 = 1 << 32;

impl Case {
    pub(crate) fn rows(&self) -> Rows {
        let graph = Csr::build(&self.input, &mut |_| true).expect("it is never stopped");
        Rows {
            graph: Arc::new(graph),
            index: Array::new(APART, 8),
            column: Array::new(2 * APART, 4),
        }
    }

    pub(crate) fn bases(&self) -> Vec<u64> {
        (3..12).map(|at| at * APART).collect()
    }
}

pub(crate) fn sources_of(case: &Case) -> Sources {
    Sources::new(case.input.seed)
}

/// A kernel that can be taken back after its team has run it.
struct SharedKernel<K>(Arc<Mutex<Option<K>>>);

impl<K: Kernel> Kernel for SharedKernel<K> {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.0.lock().unwrap().as_mut().unwrap().next_loop(out)
    }
    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        self.0.lock().unwrap().as_mut().unwrap().one(lane, item, out);
    }
    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        self.0.lock().unwrap().as_mut().unwrap().finish(lane, out)
    }
}

/// Runs a kernel to its end, and returns the kernel, which holds its result.
pub(crate) fn compute<K: Kernel + 'static>(kernel: K, lanes: usize, batch: usize) -> K {
    let kernel = Arc::new(Mutex::new(Some(kernel)));
    let mut lanes = team(SharedKernel(Arc::clone(&kernel)), lanes as u32);
    run_out(&mut lanes, batch);
    kernel.lock().unwrap().take().expect("it is taken once")
}

/// Distances from the source in edges, by a queue.
pub(crate) fn depths(graph: &Csr, source: u32) -> Vec<Option<u32>> {
    let mut depths = vec![None; graph.vertices() as usize];
    depths[source as usize] = Some(0);
    let mut queue = VecDeque::from([source]);
    while let Some(vertex) = queue.pop_front() {
        for other in graph.neighbours(vertex) {
            if depths[*other as usize].is_none() {
                depths[*other as usize] = depths[vertex as usize].map(|depth: u32| depth + 1);
                queue.push_back(*other);
            }
        }
    }
    depths
}

/// Checks that every reachable vertex has a parent: a neighbour that is one step closer to the
/// source.
pub(crate) fn check_tree(
    graph: &Csr,
    source: u32,
    parent: impl Fn(u32) -> Option<u32>,
) -> Result<(), TestCaseError> {
    let depths = depths(graph, source);
    for vertex in 0..graph.vertices() as u32 {
        let depth = depths[vertex as usize];
        match parent(vertex) {
            None => prop_assert!(depth.is_none(), "{vertex} was not found"),
            Some(found) if vertex == source => prop_assert!(found == source),
            Some(found) => {
                prop_assert!(graph.neighbours(vertex).binary_search(&found).is_ok());
                prop_assert!(depth == depths[found as usize].map(|depth| depth + 1));
            }
        }
    }
    Ok(())
}
