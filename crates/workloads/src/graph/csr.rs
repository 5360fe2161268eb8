//! An undirected graph in compressed sparse rows: each vertex's neighbours in ascending order,
//! without repetitions and self-loops.
//!
//! It is built without a list of edges: edges are drawn twice, first to count them and then to
//! place them, so that building needs little more memory than the graph itself.

use std::fmt;
use std::ops::Range;

use super::input::{Input, Source};

/// A graph in compressed sparse rows.
pub(crate) struct Csr {
    /// Start of each vertex's neighbours in `column`, and the end of the last ones.
    index: Vec<u64>,
    column: Vec<u32>,
}

impl fmt::Debug for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} vertices, {} directed edges", self.vertices(), self.edges())
    }
}

impl Csr {
    /// Builds a graph. `on` receives the share that is done, and returns `false` to stop.
    pub(crate) fn build(input: &Input, on: &mut dyn FnMut(f64) -> bool) -> Option<Self> {
        let mut starts = count(input, &mut |share| on(0.3 * share))?;
        let mut column = vec![0; *starts.last().expect("an end") as usize];
        place(input, &mut starts, &mut column, &mut |share| on(0.3 + 0.5 * share))?;
        // Placing advanced every start to its end, which is the next vertex's start.
        starts.rotate_right(1);
        starts[0] = 0;
        let mut graph = Self { index: starts, column };
        graph.squeeze(&mut |share| on(0.8 + 0.2 * share))?;
        Some(graph)
    }

    pub(crate) fn vertices(&self) -> u64 {
        self.index.len() as u64 - 1
    }

    /// Number of directed edges: each edge counts twice.
    pub(crate) fn edges(&self) -> u64 {
        self.column.len() as u64
    }

    #[inline(always)]
    pub(crate) fn degree(&self, vertex: u32) -> u64 {
        self.index[vertex as usize + 1] - self.index[vertex as usize]
    }

    /// Positions of a vertex's neighbours in the column array.
    #[inline(always)]
    pub(crate) fn row(&self, vertex: u32) -> Range<u64> {
        self.index[vertex as usize]..self.index[vertex as usize + 1]
    }

    #[inline(always)]
    pub(crate) fn neighbour(&self, at: u64) -> u32 {
        self.column[at as usize]
    }

    pub(crate) fn neighbours(&self, vertex: u32) -> &[u32] {
        let row = self.row(vertex);
        &self.column[row.start as usize..row.end as usize]
    }

    /// Sorts each vertex's neighbours, and drops repetitions and self-loops.
    fn squeeze(&mut self, on: &mut dyn FnMut(f64) -> bool) -> Option<()> {
        let vertices = self.vertices() as usize;
        let mut kept = 0;
        for vertex in 0..vertices {
            if vertex.is_multiple_of(1 << 16) && !on(vertex as f64 / vertices as f64) {
                return None;
            }
            let row = self.index[vertex] as usize..self.index[vertex + 1] as usize;
            self.column[row.clone()].sort_unstable();
            self.index[vertex] = kept as u64;
            let mut last = vertex as u32;
            for at in row {
                let neighbour = self.column[at];
                if neighbour != last && neighbour != vertex as u32 {
                    self.column[kept] = neighbour;
                    kept += 1;
                    last = neighbour;
                }
            }
        }
        self.index[vertices] = kept as u64;
        self.column.truncate(kept);
        self.column.shrink_to_fit();
        Some(())
    }

    /// The same graph with vertices renamed by descending degree.
    pub(crate) fn by_degree(&self) -> Self {
        let vertices = self.vertices() as u32;
        let mut order: Vec<u32> = (0..vertices).collect();
        order.sort_by_key(|vertex| std::cmp::Reverse(self.degree(*vertex)));
        let mut names = vec![0; vertices as usize];
        order.iter().enumerate().for_each(|(name, old)| names[*old as usize] = name as u32);
        let mut index = vec![0];
        let mut column = Vec::with_capacity(self.column.len());
        for old in order {
            let first = column.len();
            column.extend(self.neighbours(old).iter().map(|old| names[*old as usize]));
            column[first..].sort_unstable();
            index.push(column.len() as u64);
        }
        Self { index, column }
    }

    /// A graph with the given edges.
    #[cfg(test)]
    pub(crate) fn of(vertices: usize, edges: &[(u32, u32)]) -> Self {
        let mut rows = vec![Vec::new(); vertices];
        for (from, to) in edges {
            rows[*from as usize].push(*to);
            rows[*to as usize].push(*from);
        }
        let mut index = vec![0];
        let ends = rows.iter().scan(0, |sum, row| {
            *sum += row.len() as u64;
            Some(*sum)
        });
        index.extend(ends);
        let mut graph = Self { index, column: rows.concat() };
        graph.squeeze(&mut |_| true);
        graph
    }
}

/// Counts the edge ends at each vertex; returns the start of each vertex's neighbours, and the end.
fn count(input: &Input, on: &mut dyn FnMut(f64) -> bool) -> Option<Vec<u64>> {
    let mut starts = vec![0u64; input.vertices() as usize + 1];
    each_block(input, on, |edges| {
        for (from, to) in edges {
            starts[*from as usize] += 1;
            starts[*to as usize] += 1;
        }
    })?;
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    Some(starts)
}

/// Places both ends of every edge, advancing the starts.
fn place(
    input: &Input,
    starts: &mut [u64],
    column: &mut [u32],
    on: &mut dyn FnMut(f64) -> bool,
) -> Option<()> {
    let mut places = Vec::new();
    each_block(input, on, |edges| {
        // All positions first, then all stores: cache misses of one kind overlap.
        places.clear();
        let mut take = |vertex: u32| {
            let start = &mut starts[vertex as usize];
            *start += 1;
            *start - 1
        };
        places.extend(edges.iter().map(|(from, to)| (take(*from), take(*to))));
        for ((from, to), (here, there)) in edges.iter().zip(&places) {
            column[*here as usize] = *to;
            column[*there as usize] = *from;
        }
    })
}

fn each_block(
    input: &Input,
    on: &mut dyn FnMut(f64) -> bool,
    mut each: impl FnMut(&[(u32, u32)]),
) -> Option<()> {
    let (source, mut edges) = (Source::new(input), Vec::new());
    for block in 0..input.blocks() {
        if block.is_multiple_of(64) && !on(block as f64 / input.blocks() as f64) {
            return None;
        }
        source.block(block, &mut edges);
        each(&edges);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::input::Kind;
    use super::*;
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};
    use std::collections::BTreeSet;

    pub(crate) fn any_input() -> impl Strategy<Value = Input> {
        let kind = prop::sample::select(vec![Kind::Kronecker, Kind::Uniform]);
        (kind, 1u32..9, 1u64..20, 0u64..1000).prop_map(|(kind, scale, degree, seed)| Input {
            kind,
            scale,
            degree,
            seed,
        })
    }

    //  0 ── 1    2 isolated, 0-1 drawn twice, 1 with a self-loop
    #[test]
    fn repetitions_and_loops_are_removed() {
        let graph = Csr::of(4, &[(0, 1), (1, 0), (1, 1), (3, 1)]);
        let rows: Vec<&[u32]> = (0..4).map(|v| graph.neighbours(v)).collect();
        assert_eq!(rows, [&[1][..], &[0, 3], &[], &[1]]);
        assert_eq!((graph.vertices(), graph.edges(), graph.degree(1)), (4, 4, 2));
    }

    #[test]
    fn a_build_can_be_stopped() {
        let input = Input { kind: Kind::Uniform, scale: 8, degree: 4, seed: 1 };
        assert!(Csr::build(&input, &mut |share| share < 0.3).is_none());
        let mut told = Vec::new();
        assert!(
            Csr::build(&input, &mut |share| {
                told.push(share);
                true
            })
            .is_some()
        );
        assert!(told.is_sorted() && told.len() >= 3, "{told:?}");
    }

    proptest! {
        #[test]
        fn a_graph_has_the_edges_that_were_drawn(input in any_input()) {
            let graph = Csr::build(&input, &mut |_| true).unwrap();
            let mut rows = vec![BTreeSet::new(); input.vertices() as usize];
            each_block(&input, &mut |_| true, |edges| for (a, b) in edges.iter().filter(|(a, b)| a != b) {
                rows[*a as usize].insert(*b);
                rows[*b as usize].insert(*a);
            });
            for (vertex, row) in rows.iter().enumerate() {
                prop_assert!(row.iter().eq(graph.neighbours(vertex as u32)));
            }
        }

        #[test]
        fn renaming_by_degree_keeps_the_shape(input in any_input()) {
            let graph = Csr::build(&input, &mut |_| true).unwrap();
            let renamed = graph.by_degree();
            let degrees: Vec<u64> = (0..renamed.vertices() as u32).map(|v| renamed.degree(v)).collect();
            prop_assert!(degrees.is_sorted_by(|a, b| a >= b));
            prop_assert_eq!(renamed.edges(), graph.edges());
            for vertex in 0..renamed.vertices() as u32 {
                for other in renamed.neighbours(vertex) {
                    prop_assert!(renamed.neighbours(*other).binary_search(&vertex).is_ok());
                }
            }
        }
    }
}
