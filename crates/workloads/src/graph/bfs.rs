//! Direction-optimising breadth-first search (Beamer, Asanović, Patterson 2012; GAPBS `bfs`).
//!
//! Top-down steps read the queue and try to become the parent of every neighbour. When the edges to
//! check are more than 1/15 of the remaining ones, the search changes to bottom-up steps, in which
//! every vertex without parent searches for one in a bitmap of the previous level, until a level
//! has less than 1/18 of the vertices again.

use super::bits::{self, Bits};
use super::queue::Queue;
use super::rows::Rows;
use super::sources::Sources;
use crate::team::{Array, Kernel, Loop, Out};

/// Threshold for bottom-up steps: α.
const ALPHA: i64 = 15;
/// Threshold for top-down steps: β.
const BETA: u64 = 18;

/// Areas of the algorithm, without the graph's: names and bytes for that number of vertices.
pub(crate) fn areas(vertices: u64) -> Vec<(&'static str, u64)> {
    let bitmap = bits::bytes(vertices);
    vec![("parent", 4 * vertices), ("queue", 4 * vertices), ("front", bitmap), ("next", bitmap)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Init,
    TopDown,
    ToBitmap,
    BottomUp,
    ToQueue,
    Clean,
}

/// Searches from several sources, one after the other.
pub(crate) struct Bfs {
    rows: Rows,
    sources: Sources,
    trials: u32,
    phase: Phase,
    source: u32,
    parents: Array,
    /// The parent; negative if there is none: minus the degree.
    parent: Vec<i32>,
    queue: Queue,
    front: Bits,
    next: Bits,
    edges_left: i64,
    /// Number of edges at the vertices of the next level (GAPBS's scout count).
    scout: i64,
    /// Number of vertices in the next level, in bottom-up steps.
    awake: u64,
    before: u64,
}

impl Bfs {
    pub(crate) fn new(
        rows: Rows,
        bases: &[u64],
        sources: Sources,
        trials: u32,
        lanes: usize,
    ) -> Self {
        let vertices = rows.vertices();
        Self {
            phase: Phase::Begin,
            source: 0,
            parents: Array::new(bases[0], 4),
            parent: vec![-1; vertices as usize],
            queue: Queue::new(bases[1], 4, lanes),
            front: Bits::new(vertices, bases[2]),
            next: Bits::new(vertices, bases[3]),
            edges_left: 0,
            scout: 0,
            awake: 0,
            before: 0,
            rows,
            sources,
            trials,
        }
    }

    fn begin(&mut self, out: &mut Out) {
        self.source = self.sources.pick(&self.rows.graph);
        out.write(self.parents, self.source);
        self.parent[self.source as usize] = self.source as i32;
        self.queue.clear();
        self.queue.push(self.source, out);
        self.queue.slide();
        self.next.reset(out);
        self.front.reset(out);
        self.edges_left = self.rows.graph.edges() as i64;
        self.scout = self.rows.graph.degree(self.source) as i64;
    }

    /// Chooses the next step, given the next level in the queue.
    fn choose(&mut self) -> Phase {
        if self.queue.len() == 0 {
            Phase::Clean
        } else if self.scout > self.edges_left / ALPHA {
            Phase::ToBitmap
        } else {
            self.edges_left -= self.scout;
            self.scout = 0;
            Phase::TopDown
        }
    }

    fn bottom_up(&mut self, out: &mut Out) -> Phase {
        self.before = std::mem::take(&mut self.awake);
        self.next.reset(out);
        Phase::BottomUp
    }

    fn following(&mut self, out: &mut Out) -> Phase {
        match self.phase {
            Phase::Begin | Phase::Clean => Phase::Init,
            Phase::Init => {
                self.begin(out);
                self.choose()
            }
            Phase::TopDown => {
                self.queue.slide();
                self.choose()
            }
            Phase::ToBitmap => {
                self.awake = self.queue.len();
                self.queue.slide();
                self.bottom_up(out)
            }
            Phase::BottomUp => {
                std::mem::swap(&mut self.front, &mut self.next);
                let many = self.awake > self.rows.vertices() / BETA;
                if self.awake >= self.before || many { self.bottom_up(out) } else { Phase::ToQueue }
            }
            Phase::ToQueue => {
                self.queue.slide();
                self.scout = 1;
                self.choose()
            }
        }
    }

    fn init(&mut self, vertex: u32, out: &mut Out) {
        let row = self.rows.row(vertex, out);
        let degree = (row.end - row.start) as i32;
        out.write(self.parents, vertex);
        self.parent[vertex as usize] = if degree != 0 { -degree } else { -1 };
    }

    fn top_down(&mut self, lane: usize, item: u64, out: &mut Out) {
        let vertex = self.queue.get(item, out);
        let row = self.rows.row(vertex, out);
        out.complete(row.end - row.start);
        for at in row {
            let other = self.rows.neighbour(at, out);
            out.read(self.parents, other);
            let parent = &mut self.parent[other as usize];
            if *parent < 0 {
                self.scout -= i64::from(*parent);
                *parent = vertex as i32;
                out.update(self.parents, other);
                self.queue.keep(lane, other, out);
            }
        }
    }

    fn look_up(&mut self, vertex: u32, out: &mut Out) {
        out.read(self.parents, vertex);
        if self.parent[vertex as usize] >= 0 {
            return;
        }
        for at in self.rows.row(vertex, out) {
            let other = self.rows.neighbour(at, out);
            out.complete(1);
            if self.front.get(other.into(), out) {
                out.write(self.parents, vertex);
                self.parent[vertex as usize] = other as i32;
                self.awake += 1;
                self.next.set(vertex.into(), out);
                return;
            }
        }
    }
}

impl Kernel for Bfs {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        if matches!(self.phase, Phase::Begin | Phase::Clean) {
            self.trials = self.trials.checked_sub(1)?;
        }
        self.phase = self.following(out);
        Some(match self.phase {
            Phase::TopDown | Phase::ToBitmap => Loop { items: self.queue.len(), chunk: 64 },
            _ => Loop { items: self.rows.vertices(), chunk: 1024 },
        })
    }

    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        let vertex = item as u32;
        match self.phase {
            Phase::Init => self.init(vertex, out),
            Phase::TopDown => self.top_down(lane, item, out),
            Phase::ToBitmap => {
                let vertex = self.queue.get(item, out);
                self.front.set(vertex.into(), out);
            }
            Phase::BottomUp => self.look_up(vertex, out),
            Phase::ToQueue => {
                if self.front.get(item, out) {
                    self.queue.keep(lane, vertex, out);
                }
            }
            Phase::Clean => {
                out.read(self.parents, vertex);
                if self.parent[vertex as usize] < -1 {
                    self.parent[vertex as usize] = -1;
                    out.write(self.parents, vertex);
                }
            }
            Phase::Begin => {}
        }
    }

    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        self.queue.flush(lane, out);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, check_tree, compute, sources_of};
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    proptest! {
        #[test]
        fn every_parent_is_one_step_nearer(case in any_case()) {
            let rows = case.rows();
            let source = sources_of(&case).pick(&rows.graph);
            let bfs = Bfs::new(rows.clone(), &case.bases(), sources_of(&case), 1, case.lanes);
            let bfs = compute(bfs, case.lanes, case.batch);
            let parent = |v: u32| u32::try_from(bfs.parent[v as usize]).ok();
            prop_assert!(bfs.parent.iter().all(|parent| *parent >= -1));
            check_tree(&rows.graph, source, parent)?;
        }
    }
}
