//! Skew of the accesses within entries of 2 MiB: whether an entry's rate holds for its pages.

use super::looks::Shared;

/// Skew up to which an entry's rate holds for its pages.
const EVEN: f64 = 2.0;
/// Skew of an entry that is not by chance, and share of such entries from which on the others may
/// be like them: entries of two kinds share a table.
const STRONG: f64 = 4.0;
const OFTEN: f64 = 0.1;
/// Minimum number of entries with visited leaves for an estimate, and number of entries that the
/// estimate averages.
const LEAST: f64 = 4.0;
const MEMORY: f64 = 64.0;
/// Number of entries for which the skew over all memory counts where that of a table is estimated.
const OTHERS: f64 = 2.0;

/// Mean logarithm of the skew of entries ([`Shared::skew`]), fading. By logarithms: of hundreds
/// of entries one is very skewed by chance, and must not outweigh the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Skew {
    mean: f64,
    /// Share of entries whose skew is `STRONG`, fading.
    strong: f64,
    /// Number of entries averaged.
    weight: f64,
    /// What the looks at entries share that are not enough by themselves.
    pool: Shared,
}

impl Skew {
    /// Adds an entry by what its looks share and a lower bound of its skew. Several entries of
    /// which too few pages were young count as one.
    pub(super) fn add_entry(&mut self, (shared, least): &(Shared, f64)) {
        match shared.skew() {
            Some(skew) => self.add(skew.max(*least)),
            None => self.add_part(shared),
        }
    }

    fn add_part(&mut self, shared: &Shared) {
        self.pool.add(shared);
        if let Some(skew) = self.pool.skew() {
            self.pool = Shared::default();
            self.add(skew);
        }
    }

    /// Adds an entry with this skew.
    pub(super) fn add(&mut self, unevenness: f64) {
        self.weight = (self.weight + 1.0).min(MEMORY);
        self.mean += (unevenness.ln() - self.mean) / self.weight;
        let strong = f64::from(u8::from(unevenness >= STRONG));
        self.strong += (strong - self.strong) / self.weight;
    }

    /// Lets new entries outweigh those averaged so far soon.
    pub(super) fn doubt(&mut self) {
        self.weight = self.weight.min(LEAST);
    }

    /// The skew of a table with this estimate of its own, given that of all memory.
    pub(super) fn among(&self, all: &Self) -> Self {
        let others = all.weight.min(OTHERS);
        let weight = (self.weight + others).max(f64::MIN_POSITIVE);
        let mix = |one: f64, other: f64| (one * self.weight + other * others) / weight;
        Self {
            mean: mix(self.mean, all.mean),
            strong: mix(self.strong, all.strong),
            weight: self.weight + all.weight,
            ..*self
        }
    }

    /// Number of entries averaged, fading.
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Whether enough entries were averaged.
    pub(super) fn is_known(&self) -> bool {
        self.weight >= LEAST
    }

    /// The mean, or that of the strongly skewed entries if these are many; 1 until it is known.
    pub(super) fn mean(&self) -> f64 {
        match self.is_known() {
            true if self.strong >= OFTEN => self.mean.exp().max(STRONG),
            true => self.mean.exp().max(1.0),
            false => 1.0,
        }
    }

    /// Whether accesses are so skewed that an entry's rate does not hold for its pages.
    pub(super) fn is_uneven(&self) -> bool {
        self.mean() > EVEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[f64]) -> Skew {
        let mut skew = Skew::default();
        entries.iter().for_each(|entry| skew.add(*entry));
        skew
    }

    // The geometric mean of 1, 4, 4 and 16 is 4.
    #[test]
    fn the_mean_is_of_logarithms() {
        assert!((of(&[1.0, 4.0, 4.0, 16.0]).mean() - 4.0).abs() < 1e-9);
        assert_eq!((of(&[16.0; 3]).mean(), of(&[16.0; 3]).is_uneven()), (1.0, false));
    }

    // 64 entries of skew 16, then doubt: after four even ones they count half, and the mean is 4.
    #[test]
    fn after_a_doubt_new_entries_count() {
        let mut skew = of(&[16.0; 64]);
        skew.doubt();
        (0..4).for_each(|_| skew.add(1.0));
        assert!((skew.mean() - 4.0).abs() < 1e-9);
    }

    // Twelve shared entries must be found, or four expected.
    #[test]
    fn entries_with_little_evidence_are_pooled() {
        let mut skew = Skew::default();
        (0..6).for_each(|_| skew.add_part(&Shared { both: 4.0, chance: 1.0 }));
        assert_eq!((skew.weight(), skew.mean.exp().round()), (2.0, 4.0));
    }

    // A tenth of the entries have a skew of 8: the mean is 1.2, and the table is uneven.
    #[test]
    fn a_few_strongly_skewed_entries_count() {
        let mut entries = [1.0; 10];
        entries[0] = 8.0;
        assert_eq!(of(&entries).mean(), STRONG);
        entries[0] = 1.0;
        assert!(!of(&entries).is_uneven());
    }

    // Two entries of a table and the mean of all memory, as two more.
    #[test]
    fn a_table_is_judged_by_its_own_entries_first() {
        let all = of(&[1.0; 64]);
        assert!((of(&[16.0; 2]).among(&all).mean() - 4.0).abs() < 1e-9);
        assert!(!of(&[]).among(&all).is_uneven() && of(&[]).among(&all).is_known());
        assert!(!of(&[]).among(&of(&[])).is_known());
    }
}
