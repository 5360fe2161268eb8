//! Entries that become young together, in sweeps or while a program works: a look at many of them
//! is hardly more evidence than a look at one.
//!
//! With independent accesses the number of young entries of a segment has the variance of the
//! binomial distribution. Where entries become young together it is larger: for n entries with the
//! correlation c by the factor `1 + (n - 1) c`, where c is estimated by Pearson's statistic over
//! the looks. The variance of the rate is larger by that factor (quasi-likelihood: Wedderburn,
//! Biometrika 61, 1974; McCullagh and Nelder, "Generalized Linear Models", 1989, chapter 4.5).

use std::ops::Range;

use super::chain::Segment;
use super::grid::{CELLS, Curve, LookLikelihood, look_likelihood};
use super::looks::{Look, mask};

/// Weight of the mean correlation of all segments, in looks, next to that of a segment's own.
const OTHERS: f32 = 4.0;
/// Looks over which the mean correlation is taken at the start, when it is zero; and the factor by
/// which the weight of earlier looks fades with each table; and the mean time in seconds until what
/// looks at one table have shown is forgotten.
const AT_FIRST: f32 = 8.0;
const FADING: f32 = 0.99;
const FORGOTTEN: f32 = 10.0;
/// Tails of 5 and 20 % of the normal distribution, in standard deviations.
const OF_TAIL: f32 = 1.645;
const OF_CORE: f32 = 0.842;
/// Least factor of the variance that is taken for more than chance.
const CERTAIN: f32 = 1.5;

/// Correlation of the entries of segments: its sum over looks, and the number of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Together {
    sum: f32,
    looks: f32,
}

impl Together {
    /// Of no entries.
    pub(super) const NONE: Self = Self { sum: 0.0, looks: 0.0 };
    /// Before any entries were looked at.
    pub(super) const FIRST: Self = Self { sum: 0.0, looks: AT_FIRST };

    /// The correlation between entries of a segment with at least two entries, as far as looks
    /// show it: a look that finds all entries young, or none, as expected, shows nothing.
    pub(super) fn of(segment: &Segment, looks: &[Look]) -> Self {
        let cell = segment.mean.round().clamp(0.0, (CELLS - 1) as f32) as usize;
        Self::at(cell, &segment.entries, looks)
    }

    /// The same of entries of which other looks had shown another rate.
    pub(super) fn of_changed(entries: &Range<usize>, looks: &[Look]) -> Self {
        let likelihood = as_one(looks, std::slice::from_ref(entries));
        let best = (0..CELLS).max_by(|a, b| likelihood[*a].total_cmp(&likelihood[*b]));
        Self::at(best.unwrap_or(0), entries, looks)
    }

    fn at(cell: usize, of: &Range<usize>, looks: &[Look]) -> Self {
        let entries = of.len() as f32;
        if looks.len() < 2 || entries < 2.0 {
            return Self::NONE;
        }
        let (mut squares, mut weight) = (0.0, 0.0);
        for (likelihood, young) in counts(looks, of) {
            let (chance, other) = (likelihood.young[cell], likelihood.old[cell]);
            let variance = entries * chance * other;
            let difference = young - entries * chance;
            // That of a correlation of one.
            squares += (difference * difference / variance.max(1e-6)).min(entries);
            weight += 4.0 * chance * other;
        }
        let factor = squares / (looks.len() - 1) as f32;
        Self { sum: weight * (factor - 1.0) / (entries - 1.0), looks: weight }
    }

    /// Adds that of another segment.
    pub(super) fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.looks += other.looks;
    }

    /// Adds that of the segments of another table; earlier ones fade.
    pub(super) fn learn(&mut self, other: &Self) {
        let keep = if other.looks > 0.0 { FADING } else { 1.0 };
        self.fade(keep, other);
    }

    /// Adds that of looks at the same table, so many seconds later; earlier ones fade.
    pub(super) fn renew(&mut self, other: &Self, seconds: f32) {
        self.fade((-seconds / FORGOTTEN).exp(), other);
    }

    fn fade(&mut self, keep: f32, other: &Self) {
        self.sum = keep * self.sum + other.sum;
        self.looks = keep * self.looks + other.looks;
    }

    /// The correlation of a segment with this of its own: from 0 to 1.
    pub(super) fn with(&self, own: &Self) -> f32 {
        let mean = self.sum / self.looks.max(1e-6);
        ((own.sum + OTHERS * mean) / (own.looks + OTHERS)).clamp(0.0, 1.0)
    }
}

/// The likelihood of each look and the number of young entries.
fn counts<'l>(
    looks: &'l [Look],
    entries: &Range<usize>,
) -> impl Iterator<Item = (LookLikelihood, f32)> + 'l {
    let of = mask(entries);
    looks.iter().map(move |look| {
        let young = look.young.iter().zip(&of).map(|(young, of)| (young & of).count_ones());
        (look_likelihood(look.seconds), young.sum::<u32>() as f32)
    })
}

/// Logarithm of the likelihood of the rate that entries have in common, as if each look at all of
/// them were one at a single entry.
pub(super) fn as_one(looks: &[Look], parts: &[Range<usize>]) -> Curve {
    let all: usize = parts.iter().map(ExactSizeIterator::len).sum();
    let mut sum = [0.0; CELLS];
    for part in parts {
        add(&mut sum, looks, part, 1.0 / all as f32);
    }
    sum
}

/// Adds the logarithm of the likelihood of the rate of entries, times a factor.
fn add(sum: &mut Curve, looks: &[Look], entries: &Range<usize>, factor: f32) {
    for (likelihood, young) in counts(looks, entries) {
        let old = entries.len() as f32 - young;
        for (cell, sum) in sum.iter_mut().enumerate() {
            let each = young * likelihood.ln_young[cell] + old * likelihood.ln_old[cell];
            *sum += factor * each;
        }
    }
}

/// Widens the bounds of a segment whose entries become young together, with this correlation, to
/// where the likelihood is lower than its maximum as far as it is in a normal distribution. Not of
/// entries that no look found young: most of them are idle, and would be unknown for long.
pub(super) fn widen(segment: &mut Segment, looks: &[Look], correlation: f32) {
    let factor = 1.0 + (segment.entries.len() - 1) as f32 * correlation;
    let is_old = counts(looks, &segment.entries).all(|(_, young)| young == 0.0);
    if factor < CERTAIN || is_old {
        return;
    }
    let mut likelihood = [0.0; CELLS];
    add(&mut likelihood, looks, &segment.entries, 1.0 / factor);
    let within = |bounds: [f32; 2], deviations: f32| {
        let [low, high] = above(&likelihood, deviations * deviations / 2.0);
        [bounds[0].min(low), bounds[1].max(high)]
    };
    [segment.low, segment.high] = within([segment.low, segment.high], OF_TAIL);
    segment.core = within(segment.core, OF_CORE);
}

/// The range of cells around the maximum of a likelihood, given by its logarithm, in which it is
/// lower by at most `less`.
fn above(likelihood: &Curve, less: f32) -> [f32; 2] {
    let best = (0..CELLS).max_by(|a, b| likelihood[*a].total_cmp(&likelihood[*b])).unwrap_or(0);
    let least = likelihood[best] - less;
    // Between a cell that is above and one that is below.
    let between = |inside: usize, outside: usize| {
        let part = (likelihood[inside] - least) / (likelihood[inside] - likelihood[outside]);
        inside as f32 + part.clamp(0.0, 1.0) * (outside as f32 - inside as f32)
    };
    let low = (0..best).rev().find(|cell| likelihood[*cell] < least);
    let high = (best + 1..CELLS).find(|cell| likelihood[*cell] < least);
    [
        low.map_or(f32::MAX, |cell| between(cell + 1, cell)),
        high.map_or((CELLS - 1) as f32, |cell| between(cell - 1, cell)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::grid::{cell_of, rate_of};
    use crate::rates::looks::{Bits, WORDS};
    use tierscope_core::Time;

    const ALL: Bits = [u64::MAX; WORDS];
    const HALF: Bits = [0x5555_5555_5555_5555; WORDS];

    /// A segment of all entries with 69 accesses a second: half of them are young after 10 ms.
    fn segment() -> Segment {
        let cell = cell_of(69.3);
        let (low, high) = (cell - 0.5, cell + 0.5);
        Segment { entries: 0..512, low, mean: cell, high, core: [cell; 2], blunt: false }
    }

    fn looks(young: &[Bits]) -> Vec<Look> {
        let look = |young: &Bits| Look { at: Time(0), seconds: 0.01, young: *young };
        young.iter().map(look).collect()
    }

    // Half of the entries young in each look: no correlation. All or none, in five looks: full, and
    // a little more by chance.
    #[test]
    fn entries_that_are_young_together_are_correlated() {
        let of = |young: &[Bits]| {
            let own = Together::of(&segment(), &looks(young));
            own.sum / own.looks
        };
        assert!(of(&[HALF; 4]).abs() < 0.01);
        assert!((1.0..1.3).contains(&of(&[ALL, [0; WORDS], ALL, [0; WORDS], ALL])));
        assert_eq!(Together::of(&segment(), &looks(&[ALL])), Together::NONE);
    }

    // Own looks and four of all others: 4 x 1 and 4 x 0 are one half.
    #[test]
    fn a_segment_is_judged_by_its_looks_and_by_others() {
        let none = Together { sum: 0.0, looks: 100.0 };
        assert_eq!(none.with(&Together { sum: 4.0, looks: 4.0 }), 0.5);
        assert_eq!(none.with(&Together::NONE), 0.0);
        let mut all = Together { sum: 50.0, looks: 100.0 };
        assert_eq!(all.with(&Together::NONE), 0.5);
        all.learn(&Together { sum: 1.0, looks: 1.0 });
        assert!((all.with(&Together::NONE) - 50.5 / 100.0).abs() < 1e-3);
        all.renew(&Together::NONE, 10.0);
        assert!((all.looks - 100.0 / std::f32::consts::E).abs() < 0.1);
    }

    // Four looks at 512 entries, half of them young: the rate is known within a cell. If they are
    // young together, it is known as from four looks at one entry: within a decade.
    #[test]
    fn looks_at_entries_that_are_young_together_are_those_at_one() {
        let width = |young: &[Bits], correlation| {
            let mut segment = segment();
            widen(&mut segment, &looks(young), correlation);
            assert!((rate_of(segment.mean) / 69.3).ln().abs() < 0.7, "{segment:?}");
            segment.high - segment.low
        };
        assert_eq!(width(&[HALF; 4], 0.0), 1.0);
        let wide = width(&[ALL, [0; WORDS], ALL, [0; WORDS]], 1.0);
        assert!((6.0..14.0).contains(&wide), "{wide}");
    }
}
