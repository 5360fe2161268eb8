//! Allocates the pipelines and banks of a controller.

use crate::geometry::Geometry;

/// A pipeline, and the banks that it owns in each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PipelineBanks {
    pub(super) pipeline: usize,
    pub(super) first_bank: usize,
    pub(super) banks: usize,
}

/// The free pipelines and banks of a controller. Runs of banks are powers of two, aligned to their
/// length, to limit fragmentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slab {
    pipelines: Vec<bool>,
    banks: Vec<bool>,
}

impl Slab {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self { pipelines: vec![false; geometry.pipelines], banks: vec![false; geometry.banks] }
    }

    pub(super) fn free_pipelines(&self) -> usize {
        self.pipelines.iter().filter(|taken| !**taken).count()
    }

    pub(super) fn free_banks(&self) -> usize {
        self.banks.iter().filter(|taken| !**taken).count()
    }

    /// Allocates pipelines with these numbers of banks; all or nothing. `in_a_row` requires
    /// adjacent pipelines, as a chain needs.
    pub(super) fn take(&mut self, banks: &[usize], in_a_row: bool) -> Option<Vec<PipelineBanks>> {
        let before = self.clone();
        let taken = self.take_pipelines(banks.len(), in_a_row).and_then(|pipelines| {
            let pieces = pipelines.into_iter().zip(banks);
            pieces.map(|(pipeline, banks)| self.take_banks(pipeline, *banks)).collect()
        });
        if taken.is_none() {
            *self = before;
        }
        taken
    }

    fn take_pipelines(&mut self, count: usize, in_a_row: bool) -> Option<Vec<usize>> {
        let free = |number: &usize| !self.pipelines[*number];
        let found: Vec<usize> = if in_a_row {
            let starts = 0..(self.pipelines.len() + 1).saturating_sub(count);
            let start =
                starts.into_iter().find(|start| (*start..start + count).all(|n| free(&n)))?;
            (start..start + count).collect()
        } else {
            (0..self.pipelines.len()).filter(free).take(count).collect()
        };
        (found.len() == count).then(|| {
            found.iter().for_each(|number| self.pipelines[*number] = true);
            found
        })
    }

    fn take_banks(&mut self, pipeline: usize, banks: usize) -> Option<PipelineBanks> {
        let run = banks.next_power_of_two();
        let starts = (0..self.banks.len()).step_by(run).filter(|at| at + run <= self.banks.len());
        let mut fitting = starts.filter(|at| self.banks[*at..at + run].iter().all(|taken| !taken));
        let first_bank = fitting.next()?;
        self.banks[first_bank..first_bank + run].fill(true);
        Some(PipelineBanks { pipeline, first_bank, banks: run })
    }

    pub(super) fn give_back(&mut self, piece: PipelineBanks) {
        self.pipelines[piece.pipeline] = false;
        self.banks[piece.first_bank..piece.first_bank + piece.banks].fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Geometry = Geometry { pipelines: 4, channels: 1, banks: 16 };

    #[test]
    fn runs_lie_at_multiples_of_their_length() {
        let mut slab = Slab::new(TINY);
        let pieces = slab.take(&[1, 3, 8], false).unwrap();
        let runs: Vec<_> = pieces.iter().map(|p| (p.pipeline, p.first_bank, p.banks)).collect();
        assert_eq!(runs, [(0, 0, 1), (1, 4, 4), (2, 8, 8)]);
        assert_eq!((slab.free_pipelines(), slab.free_banks()), (1, 3));
        assert_eq!(slab.take(&[4], false), None);
        assert_eq!(slab.free_pipelines(), 1, "nothing is kept of what does not fit");
        pieces.into_iter().for_each(|piece| slab.give_back(piece));
        assert_eq!(slab, Slab::new(TINY));
    }

    #[test]
    fn chains_need_neighbours() {
        let mut slab = Slab::new(TINY);
        let pieces = slab.take(&[1, 1, 1], false).unwrap();
        slab.give_back(pieces[0]);
        assert_eq!(slab.take(&[1, 1], true), None);
        assert!(slab.take(&[1, 1], false).is_some());
    }
}
