//! The arrays of a graph in the program's memory.

use std::sync::Arc;

use super::csr::Csr;
use crate::team::{Array, Out};

/// A graph, and the addresses of its arrays.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) graph: Arc<Csr>,
    pub(crate) index: Array,
    pub(crate) column: Array,
}

impl Rows {
    pub(crate) fn vertices(&self) -> u64 {
        self.graph.vertices()
    }

    /// Reads the positions of a vertex's neighbours.
    #[inline(always)]
    pub(crate) fn row(&self, vertex: u32, out: &mut Out) -> std::ops::Range<u64> {
        out.read(self.index, vertex);
        out.read(self.index, vertex + 1);
        self.graph.row(vertex)
    }

    /// Reads the neighbour at a position.
    #[inline(always)]
    pub(crate) fn neighbour(&self, at: u64, out: &mut Out) -> u32 {
        out.read(self.column, at);
        self.graph.neighbour(at)
    }

    /// The graph's arrays and their bytes, for [`crate::team::Loaded`].
    pub(crate) fn arrays(&self) -> Vec<(Array, u64)> {
        let index = (self.index, (self.vertices() + 1) * self.index.width());
        vec![index, (self.column, self.graph.edges() * self.column.width())]
    }
}
