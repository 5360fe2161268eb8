//! Inference for tables with uncorrelated entries (scrambled keys): each entry is inferred from its
//! own looks only.
//!
//! Entries with the same bits have the same posterior, and bits with a common beginning share the
//! looks up to its end: the posteriors are computed along the tree of the patterns found, one step
//! for each look that differs.

use std::ops::Range;

use tierscope_core::Time;

use super::chain::{LookModel, Prior, Segment, add_segment};
use super::curve::normalise;
use super::looks::{DEPTH, ENTRIES, Looks};

/// Work in nodes of the chain: a pass over the entries of a table; and the number of steps, and of
/// posteriors, that cost as much as one node.
const TABLE: usize = 18;
const STEPS: usize = 12;
const POSTERIORS: usize = 3;

/// Infers the segments of a table's mapped entries as of `now` from their looks and the
/// distribution of rates. Returns the work in nodes of the chain.
pub(super) fn infer(
    looks: &Looks,
    span: &Range<usize>,
    prior: &Prior,
    now: Time,
    segments: &mut Vec<Segment>,
) -> usize {
    segments.clear();
    let patterns = patterns(looks);
    let mut found = [false; 256];
    patterns[span.clone()].iter().for_each(|pattern| found[usize::from(*pattern)] = true);
    let (model, depth) = (LookModel::new(looks.all(), now), looks.all().len());
    let mut known: [Option<Segment>; 256] = [const { None }; 256];
    let mut states = [*prior.rates(); DEPTH + 1];
    let (mut before, mut steps, mut posteriors) = (None, 0usize, 0usize);
    for pattern in (0..=u8::MAX).filter(|pattern| found[usize::from(*pattern)]) {
        // The first look in which this pattern differs from the previous one.
        let from = before.map_or(0, |before: u8| (before ^ pattern).leading_zeros() as usize);
        for look in from..depth {
            states[look + 1] = states[look];
            model.step(&mut states[look + 1], look, pattern << look >> 7 == 1, prior.rates());
        }
        (before, steps, posteriors) = (Some(pattern), steps + depth - from, posteriors + 1);
        let mut marginal = states[depth];
        model.fade(&mut marginal, prior.rates());
        normalise(&mut marginal);
        known[usize::from(pattern)] = Some(Segment::of(0..0, &marginal));
    }
    for at in span.clone().rev() {
        if let Some(alike) = &known[usize::from(patterns[at])] {
            add_segment(segments, Segment { entries: at..at + 1, ..alike.clone() });
        }
    }
    segments.reverse();
    TABLE + steps.div_ceil(STEPS) + posteriors.div_ceil(POSTERIORS)
}

/// Pattern of each entry: a bit for each look in which it was young, the oldest look highest, so
/// that patterns with a common beginning are adjacent in numerical order.
fn patterns(looks: &Looks) -> [u8; ENTRIES] {
    let mut patterns = [0; ENTRIES];
    for (index, look) in looks.all().iter().enumerate() {
        for (word, entries) in look.young.iter().zip(patterns.chunks_exact_mut(64)) {
            for (at, pattern) in entries.iter_mut().enumerate() {
                *pattern |= ((word >> at & 1) as u8) << (7 - index);
            }
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::super::chain::single;
    use super::super::looks::{Look, WORDS};
    use super::*;
    use tierscope_core::Rng;

    /// Looks in which a fifth of the entries is young, at random.
    fn looks(count: u64) -> Looks {
        let mut rng = Rng::seeded(count);
        let mut looks = Looks::default();
        for index in 0..count {
            let mut young = [0; WORDS];
            (0..100)
                .map(|_| rng.below(512) as usize)
                .for_each(|at| young[at / 64] |= 1 << (at % 64));
            let seconds = [0.02, 0.02, 0.005][index as usize % 3];
            looks.add(Look { at: Time(index * 300_000_000), seconds, young });
        }
        looks
    }

    // The tree against separate inference of each entry: likelihood times prior.
    #[test]
    fn shared_looks_change_no_posterior() {
        for count in [1, 3, 8, 11] {
            let (looks, prior, now) = (looks(count), Prior::default(), Time(count * 300_000_000));
            let mut segments = Vec::new();
            infer(&looks, &(3..500), &prior, now, &mut segments);
            assert_eq!(
                (segments[0].entries.start, segments[segments.len() - 1].entries.end),
                (3, 500)
            );
            assert!(segments.windows(2).all(|pair| pair[0].entries.end == pair[1].entries.start));
            let model = LookModel::new(looks.all(), now);
            for segment in segments.iter().filter(|segment| segment.entries.len() == 1) {
                let pattern = looks.pattern(segment.entries.start);
                let mut marginal = single(&model, pattern, prior.rates());
                marginal.iter_mut().zip(prior.rates()).for_each(|(cell, prior)| *cell *= prior);
                normalise(&mut marginal);
                let wanted = Segment::of(segment.entries.clone(), &marginal);
                for (got, wanted) in [segment.low, segment.mean, segment.high].iter().zip([
                    wanted.low,
                    wanted.mean,
                    wanted.high,
                ]) {
                    assert!((got - wanted).abs() < 0.02, "{segment:?} {wanted}");
                }
            }
        }
    }
}
