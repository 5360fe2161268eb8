//! Selects the tiers of a generation to protect from eviction: Linux's feedback loop on refaults
//! (mm/vmscan.c, `struct ctrl_pos`, `positive_ctrl_err`, `get_tier_idx`, `reset_ctrl_pos`).
//!
//! Pages accessed through file descriptors are in tiers of a generation, by the logarithm of these
//! accesses. The refault rate of the first tier is the set point; a tier with a higher rate is
//! protected. Averages are halved at each reset, which makes them an EMA of 1/2.

/// Number of tiers, `MAX_NR_TIERS`.
pub(crate) const TIERS: usize = 4;
/// `MIN_LRU_BATCH`: fewer refaults than this are insignificant.
const BATCH: u64 = 64;
/// Gains of the first tier and of the others.
const GAINS: (u64, u64) = (2, 3);

/// Evictions and refaults of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    refaulted: u64,
    evicted: u64,
    spared: u64,
    average_refaulted: u64,
    average_total: u64,
}

impl Tally {
    fn refaults(&self) -> u64 {
        self.average_refaulted + self.refaulted
    }

    fn total(&self) -> u64 {
        self.average_total + self.evicted + self.spared
    }

    fn reset(&mut self) {
        let (refaults, total) = (self.refaults() / 2, self.total() / 2);
        *self = Self { average_refaulted: refaults, average_total: total, ..Self::default() };
    }
}

/// The feedback loop's counters, by tier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control([Tally; TIERS]);

impl Control {
    pub(crate) fn evicted(&mut self, tier: usize) {
        self.0[tier].evicted += 1;
    }

    pub(crate) fn refaulted(&mut self, tier: usize) {
        self.0[tier].refaulted += 1;
    }

    pub(crate) fn spared(&mut self, tier: usize) {
        self.0[tier].spared += 1;
    }

    /// Resets the counters when the oldest generation changes.
    pub(crate) fn reset(&mut self) {
        self.0.iter_mut().for_each(Tally::reset);
    }

    /// The last tier that may be evicted from: while a tier's refaults are few, or its rate is no
    /// worse than the first tier's.
    pub(crate) fn last_tier(&self) -> usize {
        let first = self.0[0];
        let fits = |tally: &Tally| {
            let (refaults, total) = (u128::from(tally.refaults()), u128::from(tally.total()));
            let (of_first, all) = (u128::from(first.refaults()), u128::from(first.total()));
            tally.refaults() < BATCH
                || refaults * (all + u128::from(BATCH)) * u128::from(GAINS.0)
                    <= (of_first + 1) * total * u128::from(GAINS.1)
        };
        self.0[1..].iter().take_while(|tally| fits(tally)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(first: (u64, u64), second: (u64, u64)) -> Control {
        let tally = |(refaulted, evicted)| Tally { refaulted, evicted, ..Tally::default() };
        Control([tally(first), tally(second), Tally::default(), Tally::default()])
    }

    // First tier: 100 of 1000 refaulted. Second: 63 are insignificant. 150 of 1000: 150 x 1064 x 2
    // = 319,200 > 101 x 1000 x 3 = 303,000. 140: 297,920 is below.
    #[test]
    fn a_tier_with_more_refaults_is_protected() {
        assert_eq!(control((100, 1000), (63, 70)).last_tier(), 3);
        assert_eq!(control((100, 1000), (150, 1000)).last_tier(), 0);
        assert_eq!(control((100, 1000), (140, 1000)).last_tier(), 3);
    }

    #[test]
    fn averages_are_halved() {
        let mut control = control((100, 1000), (150, 1000));
        control.reset();
        assert_eq!((control.0[1].refaults(), control.0[1].total()), (75, 500));
        assert_eq!(control.last_tier(), 0);
        control.reset();
        assert_eq!(control.last_tier(), 3, "37 refaults are too few");
    }
}
