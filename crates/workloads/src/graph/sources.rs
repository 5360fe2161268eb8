//! Source vertices of searches.

use tierscope_core::Rng;

use super::csr::Csr;

/// Draws vertices that have neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Sources(Rng);

impl Sources {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::seeded(seed))
    }

    /// The next source; vertex 0 if no vertex has a neighbour.
    pub(crate) fn pick(&mut self, graph: &Csr) -> u32 {
        if graph.edges() == 0 {
            return 0;
        }
        loop {
            let vertex = self.0.below(graph.vertices()) as u32;
            if graph.degree(vertex) > 0 {
                return vertex;
            }
        }
    }
}
