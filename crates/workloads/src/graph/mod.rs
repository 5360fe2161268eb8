//! Programs on graphs: the six kernels of the GAP Benchmark Suite, and Graph500's search, as in
//! `bfs:scale=23,graph=kron,degree=16`.
//!
//! The graph is undirected, generated from its seed, and lies in two areas as in GAPBS: `index`
//! (the start of each vertex's neighbours, 8 bytes) and `column` (the neighbours, 4 bytes; 8 with
//! weights). `column` has room for all edges that are drawn; the room of repeated edges and
//! self-loops is never touched, so page tables and caches are not affected by it. Graph500 has
//! names and widths of its own.
//!
//! Kernels make the accesses of GAPBS's code (version 1.5) to its arrays in its order; a fill
//! stores a cache line at a time, and thread-private buffers are left out. Loops dispatch work in
//! chunks to the next free lane, as OpenMP's `schedule(dynamic)`.

mod bc;
mod bfs;
mod bits;
mod cc;
mod csr;
mod graph500;
mod input;
#[cfg(test)]
mod oracle;
mod pr;
mod queue;
mod rows;
mod sources;
mod sssp;
mod tc;

use std::sync::{Arc, OnceLock};

use crate::description::Area;
use crate::programs::{self, Family};
use crate::spec::{Keys, Parsed};
use crate::team::{Array, Kernel, Loaded, team};
use crate::{App, Lane};
use csr::Csr;
use input::{Input, Kind};
use rows::Rows;
use sources::Sources;

pub(crate) const FAMILY: Family =
    Family { names: &["bfs", "sssp", "pr", "cc", "bc", "tc", "graph500"], build };

/// The largest scale: vertex numbers have 32 bits.
const MAX_SCALE: u32 = 31;

/// The algorithm and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Bfs,
    Sssp { delta: u32 },
    PageRank,
    Components,
    Centrality { iterations: u32 },
    Triangles,
    Graph500 { validate: bool },
}

/// A kernel and its graph.
#[derive(Debug)]
struct GraphApp {
    name: String,
    algorithm: Algorithm,
    input: Input,
    /// Number of repetitions in a run.
    trials: u32,
    /// Whether the run begins by writing the graph into memory.
    load: bool,
    threads: Option<u32>,
    areas: Vec<Area>,
    graph: OnceLock<Arc<Csr>>,
}

fn build(name: &str, keys: &mut Keys<'_>) -> Parsed<Arc<dyn App>> {
    let kinds = [("kron", Kind::Kronecker), ("uniform", Kind::Uniform)];
    let input = Input {
        kind: keys.word("graph", Kind::Kronecker, &kinds)?,
        scale: keys.within("scale", 20, 1..=MAX_SCALE)?,
        degree: keys.within("degree", 16, 1..=1024)?,
        seed: keys.number("seed", 1)?,
    };
    let algorithm = algorithm(name, keys)?;
    // GAPBS runs 16 trials by default; Graph500 requires 64 searches.
    let trials = if name == "graph500" {
        keys.within("keys", 64, 1..=1 << 20)?
    } else {
        keys.within("trials", 16, 1..=1 << 20)?
    };
    let graph = if input.kind == Kind::Kronecker { "kron" } else { "uniform" };
    Ok(Arc::new(GraphApp {
        name: format!("{name} on {graph}, scale {}, degree {}", input.scale, input.degree),
        load: keys.word("load", true, &[("true", true), ("false", false)])?,
        threads: programs::threads(keys)?,
        areas: areas(algorithm, &input),
        graph: OnceLock::new(),
        algorithm,
        input,
        trials,
    }))
}

fn algorithm(name: &str, keys: &mut Keys<'_>) -> Parsed<Algorithm> {
    Ok(match name {
        "bfs" => Algorithm::Bfs,
        // The value that the suite's own runs use for graphs of this kind.
        "sssp" => Algorithm::Sssp { delta: keys.within("delta", 2, 1..=1 << 20)? },
        "pr" => Algorithm::PageRank,
        "cc" => Algorithm::Components,
        "bc" => Algorithm::Centrality { iterations: keys.within("iterations", 1, 1..=1 << 20)? },
        "tc" => Algorithm::Triangles,
        _ => Algorithm::Graph500 {
            validate: keys.word("validate", false, &[("true", true), ("false", false)])?,
        },
    })
}

/// The areas of the graph, followed by those of the algorithm.
fn areas(algorithm: Algorithm, input: &Input) -> Vec<Area> {
    let (vertices, edges) = (input.vertices(), 2 * input.edges());
    let (start, neighbour) = widths(algorithm, input);
    let mut areas = match algorithm {
        Algorithm::Graph500 { .. } => vec![("rowstarts", start * (vertices + 1))],
        _ => vec![("index", start * (vertices + 1))],
    };
    areas.push(("column", neighbour * edges));
    areas.extend(match algorithm {
        Algorithm::Bfs => bfs::areas(vertices),
        Algorithm::Sssp { .. } => sssp::areas(vertices, edges),
        Algorithm::PageRank => pr::areas(vertices),
        Algorithm::Components => cc::areas(vertices),
        Algorithm::Centrality { .. } => bc::areas(vertices, edges),
        Algorithm::Triangles => Vec::new(),
        Algorithm::Graph500 { .. } => graph500::areas(vertices),
    });
    let area = |(name, bytes): (&str, u64)| Area { name: name.into(), bytes, content: None };
    areas.into_iter().map(area).collect()
}

/// Widths in bytes of a row start and of a neighbour.
fn widths(algorithm: Algorithm, input: &Input) -> (u64, u64) {
    match algorithm {
        Algorithm::Sssp { .. } => (8, sssp::NEIGHBOUR),
        // 32-bit row starts as long as they suffice.
        Algorithm::Graph500 { .. } if 2 * input.edges() < 1 << 31 => {
            (graph500::START, graph500::NEIGHBOUR)
        }
        Algorithm::Graph500 { .. } => (8, graph500::NEIGHBOUR),
        _ => (8, 4),
    }
}

impl GraphApp {
    /// The graph, built on first use; `None` if `on` stopped the build.
    fn graph(&self, on: &mut dyn FnMut(f64) -> bool) -> Option<Arc<Csr>> {
        if let Some(graph) = self.graph.get() {
            return Some(Arc::clone(graph));
        }
        let mut graph = Csr::build(&self.input, on)?;
        if self.algorithm == Algorithm::Triangles && tc::is_worth_renaming(&graph, self.input.seed)
        {
            graph = graph.by_degree();
        }
        Some(Arc::clone(self.graph.get_or_init(|| Arc::new(graph))))
    }

    fn lanes<K: Kernel + 'static>(&self, rows: &Rows, kernel: K, lanes: u32) -> Vec<Box<dyn Lane>> {
        let load = if self.load { rows.arrays() } else { Vec::new() };
        team(Loaded::new(load, kernel), lanes)
    }
}

impl App for GraphApp {
    fn name(&self) -> &str {
        &self.name
    }

    fn areas(&self) -> &[Area] {
        &self.areas
    }

    fn unit(&self) -> &'static str {
        "edges"
    }

    fn threads(&self) -> Option<u32> {
        self.threads
    }

    fn reseeded(&self, shift: u64) -> Option<Arc<dyn App>> {
        Some(Arc::new(Self {
            name: self.name.clone(),
            input: Input { seed: self.input.seed.wrapping_add(shift), ..self.input },
            areas: self.areas.clone(),
            graph: OnceLock::new(),
            ..*self
        }))
    }

    fn prepare(&self, on: &mut dyn FnMut(f64) -> bool) -> bool {
        self.graph(on).is_some()
    }

    fn start(&self, bases: &[u64], seed: u64, lanes: u32) -> Vec<Box<dyn Lane>> {
        let graph = self.graph(&mut |_| true).expect("it is never stopped");
        let (start, neighbour) = widths(self.algorithm, &self.input);
        let rows = Rows {
            graph,
            index: Array::new(bases[0], start),
            column: Array::new(bases[1], neighbour),
        };
        let (own, sources) = (&bases[2..], Sources::new(seed));
        let (count, trials) = (lanes as usize, self.trials);
        let again = rows.clone();
        match self.algorithm {
            Algorithm::Bfs => {
                self.lanes(&rows, bfs::Bfs::new(again, own, sources, trials, count), lanes)
            }
            Algorithm::Sssp { delta } => {
                let how = (trials, self.input.seed, delta);
                self.lanes(&rows, sssp::Paths::new(again, own, sources, how, count), lanes)
            }
            Algorithm::PageRank => self.lanes(&rows, pr::PageRank::new(again, own, trials), lanes),
            Algorithm::Components => {
                self.lanes(&rows, cc::Components::new(again, own, seed, trials), lanes)
            }
            Algorithm::Centrality { iterations } => {
                let how = (trials, iterations);
                self.lanes(&rows, bc::Centrality::new(again, own, sources, how, count), lanes)
            }
            Algorithm::Triangles => self.lanes(&rows, tc::Triangles::new(again, trials), lanes),
            Algorithm::Graph500 { validate } => {
                let how = (trials, validate);
                self.lanes(&rows, graph500::Search::new(again, own, sources, how, count), lanes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::run_out;
    use crate::{Touch, programs};
    use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};

    fn handed(app: &dyn App, seed: u64, lanes: u32, batch: usize) -> Vec<Vec<Touch>> {
        let bases: Vec<u64> = (1..=app.areas().len() as u64).map(|at| at << 32).collect();
        run_out(&mut app.start(&bases, seed, lanes), batch)
    }

    // 2^23 vertices, 2^28 directed edges of 8 bytes: PTAT's "nearly 2GB" (section V.A).
    #[test]
    fn graph500_at_scale_23_is_as_large_as_in_the_paper() {
        let app = programs::from_spec("graph500:scale=23").unwrap();
        let of = |name: &str| app.areas().iter().find(|area| area.name == name).unwrap().bytes;
        assert_eq!(of("column"), 2 << 30);
        assert_eq!((of("rowstarts") >> 20, of("pred") >> 20), (32, 64));
    }

    // The seed of a graph is part of its line: a reseeded program is the one of the other line.
    #[test]
    fn a_reseeded_program_has_the_graph_of_another_seed() {
        let of = |seed| programs::from_spec(&format!("pr:scale=6,trials=1,seed={seed}")).unwrap();
        let accesses = |app: &dyn App| handed(app, 1, 1, 100);
        let moved = of(3).reseeded(4).unwrap();
        assert_eq!(accesses(&*moved), accesses(&*of(7)));
        assert_ne!(accesses(&*moved), accesses(&*of(3)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn accesses_stay_within_areas_and_come_again(
            name in prop::sample::select(FAMILY.names.to_vec()),
            kind in prop::sample::select(vec!["kron", "uniform"]),
            scale in 1u32..8, degree in 1u32..9, seed: u64, lanes in 1u32..5, batch in 1usize..300,
        ) {
            let many = if name == "graph500" { "keys" } else { "trials" };
            let spec = format!("{name}:scale={scale},degree={degree},graph={kind},{many}=2");
            let app = programs::from_spec(&spec).unwrap();
            let all = handed(&*app, seed, lanes, batch);
            for touch in all.iter().flatten() {
                let (area, at) = ((touch.address() >> 32) as usize - 1, touch.address() & 0xffff_ffff);
                prop_assert!(at < app.areas()[area].bytes, "{spec}: {at} of {:?}", app.areas()[area]);
            }
            prop_assert_eq!(all, handed(&*programs::from_spec(&spec).unwrap(), seed, lanes, batch));
        }
    }
}
