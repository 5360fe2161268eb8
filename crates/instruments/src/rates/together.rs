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
use super::looks::{Bits, Look, mask};

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

/// A correlation: its sum over looks, and the number of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Correlation {
    sum: f32,
    looks: f32,
}

impl Correlation {
    /// Of no looks.
    const NONE: Self = Self { sum: 0.0, looks: 0.0 };
    /// Before any entries were looked at.
    const FIRST: Self = Self { sum: 0.0, looks: AT_FIRST };

    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.looks += other.looks;
    }

    fn fade(&mut self, keep: f32, other: &Self) {
        self.sum = keep * self.sum + other.sum;
        self.looks = keep * self.looks + other.looks;
    }

    /// The correlation of entries, given this mean of all others: from 0 to 1.
    fn given(&self, others: &Self) -> f32 {
        let mean = others.sum / others.looks.max(1e-6);
        ((self.sum + OTHERS * mean) / (self.looks + OTHERS)).clamp(0.0, 1.0)
    }
}

/// How far entries become young together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Together {
    /// Those of one segment, where a look at many may be hardly more evidence than one at a few.
    pub(super) segments: Correlation,
    /// All of a table, as in bursts of work: one after another, objects of a few pages become young
    /// each by itself.
    pub(super) tables: Correlation,
}

impl Together {
    pub(super) const NONE: Self = Self { segments: Correlation::NONE, tables: Correlation::NONE };
    pub(super) const FIRST: Self =
        Self { segments: Correlation::FIRST, tables: Correlation::FIRST };

    /// That of one segment, as far as looks show it: a look that finds all entries young, or none,
    /// as expected, shows nothing.
    pub(super) fn of_segment(segment: &Segment, looks: &[Look]) -> Self {
        let segments = correlation(&[(segment.entries.clone(), cell_at(segment))], looks);
        Self { segments, ..Self::NONE }
    }

    /// The same of all segments of a table, from three looks on: two may have found an object young
    /// and then none.
    pub(super) fn of_table(segments: &[Segment], looks: &[Look]) -> Self {
        if looks.len() < 3 {
            return Self::NONE;
        }
        let parts = segments.iter().map(|segment| (segment.entries.clone(), cell_at(segment)));
        Self { tables: correlation(&parts.collect::<Vec<_>>(), looks), ..Self::NONE }
    }

    /// Both, of segments of which other looks had shown other rates.
    pub(super) fn of_changed(segments: &[Segment], looks: &[Look]) -> Self {
        let cell = |entries: &Range<usize>| {
            let likelihood = as_one(looks, std::slice::from_ref(entries));
            let best = (0..CELLS).max_by(|a, b| likelihood[*a].total_cmp(&likelihood[*b]));
            best.unwrap_or(0)
        };
        let parts = segments.iter().map(|s| (s.entries.clone(), cell(&s.entries)));
        let parts: Vec<_> = parts.collect();
        let mut all = Self { tables: correlation(&parts, looks), ..Self::NONE };
        for part in &parts {
            all.segments.add(&correlation(std::slice::from_ref(part), looks));
        }
        all
    }

    /// Adds that of another segment or table.
    pub(super) fn add(&mut self, other: &Self) {
        self.segments.add(&other.segments);
        self.tables.add(&other.tables);
    }

    /// Adds that of another table; earlier ones fade.
    pub(super) fn learn(&mut self, other: &Self) {
        let keep = |other: &Correlation| if other.looks > 0.0 { FADING } else { 1.0 };
        self.segments.fade(keep(&other.segments), &other.segments);
        self.tables.fade(keep(&other.tables), &other.tables);
    }

    /// Adds that of looks at the same table, so many seconds later; earlier ones fade.
    pub(super) fn renew(&mut self, other: &Self, seconds: f32) {
        let keep = (-seconds / FORGOTTEN).exp();
        self.segments.fade(keep, &other.segments);
        self.tables.fade(keep, &other.tables);
    }

    /// The correlation of the entries of a segment, and that of a table, with these of their own.
    pub(super) fn given(&self, own: &Self) -> [f32; 2] {
        [own.segments.given(&self.segments), own.tables.given(&self.tables)]
    }
}

/// The cell of a segment's mean rate.
fn cell_at(segment: &Segment) -> usize {
    segment.mean.round().clamp(0.0, (CELLS - 1) as f32) as usize
}

/// The correlation of all entries of some parts of a table, each with the cell of its rate. Idle
/// entries count as few: what is shared is the variance.
fn correlation(parts: &[(Range<usize>, usize)], looks: &[Look]) -> Correlation {
    let mut all = Correlation::NONE;
    for look in looks {
        let likelihood = look_likelihood(look.seconds);
        let (mut difference, mut variance, mut square) = (0.0f32, 0.0f32, 0.0f32);
        for (entries, cell) in parts {
            let (chance, other) = (likelihood.young[*cell], likelihood.old[*cell]);
            let (number, each) = (entries.len() as f32, chance * other);
            difference += young_of(look, &mask(entries)) - number * chance;
            variance += number * each;
            square += number * each * each;
        }
        // As many entries of one rate would have as large a variance of their number.
        let entries = variance * variance / square.max(1e-12);
        if entries < 2.0 {
            continue;
        }
        let weight = 4.0 * square / variance.max(1e-6);
        // At most that of a correlation of one.
        let factor = (difference * difference / variance.max(1e-6)).min(entries);
        let unbiased = looks.len() as f32 / (looks.len() - 1).max(1) as f32;
        all.sum += weight * (unbiased * factor - 1.0) / (entries - 1.0);
        all.looks += weight;
    }
    if looks.len() < 2 { Correlation::NONE } else { all }
}

/// Number of entries of a mask that a look found young.
fn young_of(look: &Look, of: &Bits) -> f32 {
    look.young.iter().zip(of).map(|(young, of)| (young & of).count_ones()).sum::<u32>() as f32
}

/// The likelihood of each look and the number of young entries.
fn counts<'l>(
    looks: &'l [Look],
    entries: &Range<usize>,
) -> impl Iterator<Item = (LookLikelihood, f32)> + 'l {
    let of = mask(entries);
    looks.iter().map(move |look| (look_likelihood(look.seconds), young_of(look, &of)))
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
    use crate::rates::looks::WORDS;
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
            let own = Together::of_segment(&segment(), &looks(young)).segments;
            own.sum / own.looks
        };
        assert!(of(&[HALF; 4]).abs() < 0.01);
        assert!((1.0..1.3).contains(&of(&[ALL, [0; WORDS], ALL, [0; WORDS], ALL])));
        assert_eq!(Together::of_segment(&segment(), &looks(&[ALL])), Together::NONE);
    }

    // Sixteen objects of 32 pages, of which the even ones are young in one look and the odd ones in
    // the next: the pages of each are correlated, those of the table are not. Idle pages next to
    // them change nothing.
    #[test]
    fn objects_that_are_young_in_turns_are_not_correlated() {
        let even: Bits = [0xffff_ffff; WORDS];
        let odd: Bits = even.map(|word| !word);
        let looks = looks(&[even, odd, even, odd, even]);
        let object = |at: usize| Segment { entries: at * 32..at * 32 + 32, ..segment() };
        let objects: Vec<_> = (0..16).map(object).collect();
        let [each, all] = [
            Together::of_segment(&objects[0], &looks).segments,
            Together::of_table(&objects, &looks).tables,
        ];
        assert!((1.0..1.3).contains(&(each.sum / each.looks)), "{each:?}");
        assert!((all.sum / all.looks).abs() < 0.05, "{all:?}");
        let half = &looks
            .iter()
            .map(|look| Look { young: [look.young[0] & 0xffff_ffff; WORDS], ..*look })
            .collect::<Vec<_>>();
        let idle = |s: Segment| {
            if !s.entries.start.is_multiple_of(64) { Segment { mean: 0.0, ..s } } else { s }
        };
        let parts: Vec<_> = objects.into_iter().map(idle).collect();
        let all = Together::of_table(&parts, half).tables;
        assert!((1.0..1.3).contains(&(all.sum / all.looks)), "{all:?}");
    }

    // Own looks and four of all others: 4 x 1 and 4 x 0 are one half.
    #[test]
    fn a_segment_is_judged_by_its_looks_and_by_others() {
        let of = |sum: f32, looks: f32| {
            let each = Correlation { sum, looks };
            Together { segments: each, tables: each }
        };
        let none = of(0.0, 100.0);
        assert_eq!(none.given(&of(4.0, 4.0)), [0.5; 2]);
        assert_eq!(none.given(&Together::NONE), [0.0; 2]);
        let mut all = of(50.0, 100.0);
        assert_eq!(all.given(&Together::NONE), [0.5; 2]);
        all.learn(&of(1.0, 1.0));
        assert!((all.given(&Together::NONE)[0] - 50.5 / 100.0).abs() < 1e-3);
        all.renew(&Together::NONE, 10.0);
        assert!((all.segments.looks - 100.0 / std::f32::consts::E).abs() < 0.1);
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
