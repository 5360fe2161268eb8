//! PageRank by pulling, in place (GAPBS `pr`): every vertex sums up its neighbours' contributions,
//! and its own contribution is updated at once. Damping 0.85; iterates until the sum of all changes
//! falls below 10^-4, at most 20 times.

use super::rows::Rows;
use crate::team::{Array, Kernel, Loop, Out};

const DAMPING: f32 = 0.85;
const TOLERANCE: f64 = 1e-4;
const MOST: u32 = 20;
const CHUNK: u64 = 16_384;

/// Areas of the algorithm, without the graph's: names and bytes.
pub(crate) fn areas(vertices: u64) -> Vec<(&'static str, u64)> {
    vec![("score", 4 * vertices), ("contribution", 4 * vertices)]
}

/// PageRank, restarted for each trial.
pub(crate) struct PageRank {
    rows: Rows,
    trials: u32,
    scores: Array,
    score: Vec<f32>,
    contributions: Array,
    contribution: Vec<f32>,
    /// Iterations of this trial; 0 before the contributions are initialised.
    iteration: u32,
    begun: bool,
    error: f64,
}

impl PageRank {
    pub(crate) fn new(rows: Rows, bases: &[u64], trials: u32) -> Self {
        let vertices = rows.vertices() as usize;
        Self {
            rows,
            trials,
            scores: Array::new(bases[0], 4),
            score: vec![0.0; vertices],
            contributions: Array::new(bases[1], 4),
            contribution: vec![0.0; vertices],
            iteration: 0,
            begun: false,
            error: 0.0,
        }
    }

    fn begin(&mut self, out: &mut Out) {
        self.score.fill(1.0 / self.rows.vertices() as f32);
        out.fill(self.scores, 4 * self.rows.vertices());
        self.iteration = 0;
    }

    fn is_done(&self) -> bool {
        self.iteration == MOST || self.iteration > 0 && self.error < TOLERANCE
    }

    fn init(&mut self, vertex: u32, out: &mut Out) {
        let row = self.rows.row(vertex, out);
        self.give(vertex, row.end - row.start, out);
    }

    fn give(&mut self, vertex: u32, degree: u64, out: &mut Out) {
        out.write(self.contributions, vertex);
        // The contribution of a vertex without neighbours is never read.
        self.contribution[vertex as usize] = self.score[vertex as usize] / degree as f32;
    }

    fn pull(&mut self, vertex: u32, out: &mut Out) {
        let row = self.rows.row(vertex, out);
        let degree = row.end - row.start;
        let mut sum = 0.0;
        for at in row {
            let other = self.rows.neighbour(at, out);
            out.read(self.contributions, other);
            sum += self.contribution[other as usize];
        }
        out.update(self.scores, vertex);
        let new = (1.0 - DAMPING) / self.rows.vertices() as f32 + DAMPING * sum;
        let old = std::mem::replace(&mut self.score[vertex as usize], new);
        self.error += f64::from((new - old).abs());
        self.give(vertex, degree, out);
        out.complete(degree);
    }
}

impl Kernel for PageRank {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        if !self.begun || self.is_done() {
            self.trials = self.trials.checked_sub(1)?;
            self.begun = true;
            self.begin(out);
            return Some(Loop { items: self.rows.vertices(), chunk: CHUNK });
        }
        self.iteration += 1;
        self.error = 0.0;
        Some(Loop { items: self.rows.vertices(), chunk: CHUNK })
    }

    fn one(&mut self, _: usize, vertex: u64, out: &mut Out) {
        match self.iteration {
            0 => self.init(vertex as u32, out),
            _ => self.pull(vertex as u32, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::{any_case, compute};
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    proptest! {
        // GAPBS's verification: one more iteration by pushing changes the scores by no more than
        // the tolerance, plus rounding of 32-bit sums in another order.
        #[test]
        fn one_more_iteration_changes_little(case in any_case()) {
            let rows = case.rows();
            let pr = compute(PageRank::new(rows.clone(), &case.bases(), 1), case.lanes, case.batch);
            let (graph, count) = (&rows.graph, rows.vertices() as usize);
            let mut pushed = vec![0.0f64; count];
            for vertex in 0..count as u32 {
                let share = f64::from(pr.score[vertex as usize]) / graph.degree(vertex) as f64;
                graph.neighbours(vertex).iter().for_each(|other| pushed[*other as usize] += share);
            }
            let error: f64 = pushed.iter().zip(&pr.score)
                .map(|(sum, score)| (0.15 / count as f64 + 0.85 * sum - f64::from(*score)).abs()).sum();
            prop_assert!(pr.iteration == MOST || error < 1.5 * TOLERANCE, "{error}");
            prop_assert!(error < 0.05, "{error}");
        }
    }
}
