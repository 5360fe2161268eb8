//! Descriptions of a store's accesses by area, for machines that work on densities.

use std::time::Duration;

use crate::Workload;
use crate::description::{Access, Area, DEFAULT_HOT_SHARE, MAX_BYTES, Mix, Pattern, Phase};
use crate::keys::{Law, Shift};

/// Upper bound on the phases of a description with shifting hot keys; longer cycles are truncated.
const MOST_PHASES: u64 = 1000;

/// Accesses to an area by one read of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heat {
    area: usize,
    touches: f64,
    spread: Spread,
}

#[derive(Clone, Copy, Debug)]
enum Spread {
    /// Uniform over the area, as a hash would place them.
    Anywhere,
    /// Uniform over a number of bytes from an offset on.
    Within { from: u64, bytes: u64 },
    /// In key order: `keys` keys in each block of `block` bytes.
    ByKey { keys: u64, block: u64 },
}

impl Heat {
    pub(super) fn anywhere(area: usize, touches: f64) -> Self {
        Self { area, touches, spread: Spread::Anywhere }
    }

    /// Uniform over `bytes` bytes of an area from `from` on.
    pub(super) fn within(area: usize, touches: f64, from: u64, bytes: u64) -> Self {
        Self { area, touches, spread: Spread::Within { from, bytes } }
    }

    pub(super) fn by_key(area: usize, touches: f64, keys: u64, block: u64) -> Self {
        Self { area, touches, spread: Spread::ByKey { keys, block } }
    }
}

/// Average number of cache lines that an unaligned range of bytes spans.
pub(super) fn lines(bytes: u64) -> f64 {
    1.0 + (bytes.max(1) - 1) as f64 / 64.0
}

/// The description of reads of `keys` keys, of which a share `writes` also writes. `None` if
/// patterns cannot express the key distribution.
pub(super) fn describe(
    name: &str,
    areas: &[Area],
    heat: &[Heat],
    law: Law,
    keys: u64,
    shift: Option<Shift>,
    writes: f64,
) -> Option<Workload> {
    let steps = shift.map_or(1, |shift| period(keys, shift.keys).min(MOST_PHASES));
    let duration = shift.map_or(Duration::from_secs(60), |shift| shift.every);
    let phase = |step: u64| {
        let moved = shift.map_or(0, |shift| shift.keys % keys * step % keys);
        let accesses: Option<Vec<_>> =
            heat.iter().map(|heat| heat.accesses(areas, law, keys, moved, writes)).collect();
        Some(Phase {
            name: format!("{name} {step}"),
            duration,
            rate: None,
            hot_share: DEFAULT_HOT_SHARE,
            accesses: accesses?.into_iter().flatten().filter(|a| a.weight > 0.0).collect(),
        })
    };
    let workload = Workload {
        name: name.into(),
        seed: 1,
        burst: 1,
        areas: areas.to_vec(),
        phases: (0..steps).map(phase).collect::<Option<_>>()?,
    };
    workload.check().is_ok().then_some(workload)
}

/// Number of shifts after which the keys are at their old positions again.
fn period(keys: u64, by: u64) -> u64 {
    let (mut a, mut b) = (keys, by % keys);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    keys / a
}

impl Heat {
    fn accesses(
        &self,
        areas: &[Area],
        law: Law,
        keys: u64,
        moved: u64,
        writes: f64,
    ) -> Option<Vec<Access>> {
        let access = |from, bytes, pattern, weight| Access {
            area: self.area,
            from,
            bytes,
            pattern,
            weight: self.touches * weight,
            mix: Mix::Writes(writes),
            chase: false,
            hot: None,
        };
        let anywhere = |from, bytes| Some(vec![access(from, bytes, Pattern::Random, 1.0)]);
        let (per, block) = match self.spread {
            Spread::Anywhere => return anywhere(0, areas[self.area].bytes),
            Spread::Within { from, bytes } => return anywhere(from, bytes),
            Spread::ByKey { keys, block } => (keys, block),
        };
        let at = |key: u64| key / per * block + key % per * (block / per);
        let item = block / per;
        // A bell over keys is a bell over blocks if a block has many keys.
        let (law, item, keys, moved) = match law {
            Law::Gaussian { sd, median } if per > 1 => {
                let mean = median.unwrap_or(keys as f64 / 2.0) + moved as f64;
                let law = Law::Gaussian {
                    sd: sd / per as f64,
                    median: Some(mean % keys as f64 / per as f64),
                };
                let blocks = keys.div_ceil(per);
                return Some(
                    law.patterns(blocks, block, 0)?
                        .into_iter()
                        .map(|part| access(0, blocks * block, part.2, part.3))
                        .collect(),
                );
            }
            law => (law, item, keys, moved),
        };
        let parts = law.patterns(keys, item, moved)?;
        let part = |(first, count, pattern, weight): (u64, u64, Pattern, f64)| {
            let (from, end) = (at(first), (at(first + count)).min(MAX_BYTES));
            // The size must be an exact multiple of the item: the pattern derives the number of
            // items from it.
            let bytes = if matches!(pattern, Pattern::Random) { end - from } else { count * item };
            access(from, bytes, pattern, weight)
        };
        Some(parts.into_iter().map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_returns_after_its_period() {
        assert_eq!(
            [(10, 2), (10, 3), (10, 10), (7, 0)].map(|(n, by)| period(n, by)),
            [5, 10, 1, 1]
        );
    }

    #[test]
    fn lines_by_hand() {
        assert_eq!([1, 65, 129].map(lines), [1.0, 2.0, 3.0]);
    }
}
