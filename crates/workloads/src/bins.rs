//! Distributions over items as histograms: all items of a bin have the same probability.
//!
//! Streams draw from the same bins that densities report, so both agree by construction. The bins
//! are so fine (see each function) that no sampling window can distinguish them from the exact
//! distribution.

/// Neighbouring items of equal probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// First item of the bin.
    pub from: u64,
    /// Number of items, at least 1.
    pub items: u64,
    /// Probability of the whole bin.
    pub mass: f64,
}

/// Ranks that have a bin of their own.
const EXACT_RANKS: u64 = 1024;

/// Zipf's law over `n` ranks from 0: probability proportional to `1 / (rank + 1)^theta`.
///
/// The first 1024 ranks have a bin each; bins then grow by 1/256 of their rank, over which the law
/// changes by less than `theta / 256`. `theta` is not 1.
#[must_use]
pub fn zipf(n: u64, theta: f64) -> Vec<Bin> {
    let mut bins = Vec::new();
    let mut from = 0;
    while from < n {
        let items = if from < EXACT_RANKS { 1 } else { (from / 256).min(n - from) };
        bins.push(Bin { from, items, mass: power_sum(from + 1, from + items + 1, theta) });
        from += items;
    }
    normalised(bins)
}

/// Sum of `k^-theta` for `k` in `from..to`: term by term below 1024, else by the Euler-Maclaurin
/// formula, whose next term is below `theta^3 / from^4` of the first.
pub(crate) fn power_sum(from: u64, to: u64, theta: f64) -> f64 {
    let term = |k: f64| k.powf(-theta);
    if from < EXACT_RANKS || to - from < 4 {
        return (from..to).map(|k| term(k as f64)).sum();
    }
    let (a, b) = (from as f64, to as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    integral + (term(a) - term(b)) / 2.0 + theta * (term(a) / a - term(b) / b) / 12.0
}

/// The normal distribution over items `0..n` around `mean`, truncated at both ends and at eight
/// standard deviations, beyond which the mass is below 10^-15.
///
/// Item `k` has the mass between `k` and `k + 1`. A bin is a 64th of the standard deviation wide,
/// and one item at least.
#[must_use]
pub fn gaussian(n: u64, mean: f64, sd: f64) -> Vec<Bin> {
    let reach = 8.0 * sd + 1.0;
    let first = (mean - reach).max(0.0) as u64;
    let last = ((mean + reach).ceil() as u64).min(n);
    let width = ((sd / 64.0) as u64).max(1);
    let mut bins = Vec::new();
    let mut from = first.min(n - 1);
    while from < last {
        let items = width.min(last - from);
        let edges = ((from as f64 - mean) / sd, ((from + items) as f64 - mean) / sd);
        bins.push(Bin { from, items, mass: bell(edges.0, edges.1) });
        from += items;
    }
    normalised(bins)
}

/// Integral of `exp(-x^2 / 2)` from `a` to `b`, by Simpson's rule in steps of at most 1/16.
fn bell(a: f64, b: f64) -> f64 {
    let (a, b) = (a.clamp(-9.0, 9.0), b.clamp(-9.0, 9.0));
    let steps = ((b - a) * 16.0).ceil().max(1.0);
    let h = (b - a) / steps;
    let density = |x: f64| (-x * x / 2.0).exp();
    let simpson = |x: f64| (density(x) + 4.0 * density(x + h / 2.0) + density(x + h)) * h / 6.0;
    (0..steps as u32).map(|i| simpson(a + h * f64::from(i))).sum()
}

fn normalised(mut bins: Vec<Bin>) -> Vec<Bin> {
    let total: f64 = bins.iter().map(|bin| bin.mass).sum();
    if total > 0.0 {
        bins.iter_mut().for_each(|bin| bin.mass /= total);
    } else if let Some(bin) = bins.first_mut() {
        // All masses underflowed: only the bin of the mean is left.
        bin.mass = 1.0;
    }
    bins
}

/// Ranks that YCSB's scrambled generator draws from, whatever the number of items
/// (ScrambledZipfianGenerator, ITEM_COUNT).
pub const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// The item of a rank: FNV-1a of the rank's eight bytes, the sign dropped, modulo the number of
/// items (YCSB, ScrambledZipfianGenerator and Utils.fnvhash64).
#[inline]
#[must_use]
pub fn scramble(rank: u64, items: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut rest = rank;
    for _ in 0..8 {
        hash = (hash ^ (rest & 0xFF)).wrapping_mul(0x100_0000_01B3);
        rest >>= 8;
    }
    (hash as i64).unsigned_abs() % items
}

/// Probability of each of `items` items under YCSB's scrambled Zipf. The first four ranks per item
/// are scrambled one by one; the mass of all further ranks is spread evenly, as a hash would.
#[must_use]
pub fn scrambled_masses(items: u64, theta: f64) -> Vec<f64> {
    let told = (4 * items).min(SCRAMBLED_RANKS);
    let mut masses = vec![0.0; items as usize];
    let mut rest = 0.0;
    for bin in zipf(SCRAMBLED_RANKS, theta) {
        let end = (bin.from + bin.items).min(told);
        let each = bin.mass / bin.items as f64;
        (bin.from..end).for_each(|rank| masses[scramble(rank, items) as usize] += each);
        rest += each * (bin.from + bin.items - end.max(bin.from)) as f64;
    }
    masses.iter_mut().for_each(|mass| *mass += rest / items as f64);
    masses
}

/// Largest number of items for which each item's probability is summed up individually.
const MAX_SINGLE: u64 = 1 << 24;

/// Ranks that are scrambled one by one if there are more items than `MAX_SINGLE`.
const HEAD: u64 = 1 << 16;

/// YCSB's scrambled Zipf over `items` items: one bin each up to 2^24 items ([`scrambled_masses`]).
/// For more items, each of the first 2^16 ranks is placed by its hash, and the mass of all others
/// is spread evenly over all items: a hash does so too, apart from small deviations of each item
/// from the mean.
#[must_use]
pub fn scrambled(items: u64, theta: f64) -> Vec<Bin> {
    if items <= MAX_SINGLE {
        let masses = scrambled_masses(items, theta).into_iter().enumerate();
        return masses.map(|(at, mass)| Bin { from: at as u64, items: 1, mass }).collect();
    }
    let mut head: Vec<(u64, f64)> = Vec::new();
    for bin in zipf(SCRAMBLED_RANKS, theta) {
        let each = bin.mass / bin.items as f64;
        let ranks = bin.from..(bin.from + bin.items).min(HEAD);
        head.extend(ranks.map(|rank| (scramble(rank, items), each)));
    }
    head.sort_unstable_by_key(|(item, _)| *item);
    let rest = (1.0 - head.iter().map(|(_, mass)| mass).sum::<f64>()).max(0.0) / items as f64;
    let mut bins = Vec::with_capacity(2 * head.len());
    let mut from = 0;
    for same in head.chunk_by(|a, b| a.0 == b.0) {
        let at = same[0].0;
        if at > from {
            bins.push(Bin { from, items: at - from, mass: rest * (at - from) as f64 });
        }
        let mass = same.iter().map(|(_, mass)| mass).sum::<f64>() + rest;
        bins.push(Bin { from: at, items: 1, mass });
        from = at + 1;
    }
    if from < items {
        bins.push(Bin { from, items: items - from, mass: rest * (items - from) as f64 });
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // zeta(3, 0.5) = 1 + 0.70711 + 0.57735 = 2.28446.
    #[test]
    fn three_ranks_by_hand() {
        let masses: Vec<_> = zipf(3, 0.5).iter().map(|bin| bin.mass).collect();
        for (mass, by_hand) in masses.iter().zip([0.43774, 0.30953, 0.25273]) {
            assert!((mass - by_hand).abs() < 1e-5, "{masses:?}");
        }
    }

    // YCSB's own constant: zeta(10^10, 0.99) = 26.46902820178302.
    #[test]
    fn ycsb_s_zeta() {
        let first = zipf(SCRAMBLED_RANKS, 0.99)[0].mass;
        assert!((1.0 / first - 26.469_028_201_783_02).abs() < 1e-6, "{}", 1.0 / first);
    }

    // FNV-1a of eight zero bytes is the offset basis times the prime to the eighth.
    #[test]
    fn fnv_of_zero() {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        (0..8).for_each(|_| hash = hash.wrapping_mul(1_099_511_628_211));
        assert_eq!(scramble(0, 1000), (hash as i64).unsigned_abs() % 1000);
    }

    // 68.27 % lie within one standard deviation, 95.45 % within two.
    #[test]
    fn the_bell_has_its_quantiles() {
        let within = |sds: f64| -> f64 {
            let (low, high) = (5000 - (sds * 100.0) as u64, 5000 + (sds * 100.0) as u64);
            let inside = |bin: &&Bin| low <= bin.from && bin.from + bin.items <= high;
            gaussian(10_000, 5000.0, 100.0).iter().filter(inside).map(|bin| bin.mass).sum()
        };
        assert!((within(1.0) - 0.682_689).abs() < 1e-5, "{}", within(1.0));
        assert!((within(2.0) - 0.954_500).abs() < 1e-5, "{}", within(2.0));
    }

    #[test]
    fn scrambled_masses_add_up_and_rank_zero_has_the_most() {
        let masses = scrambled_masses(1000, 0.99);
        assert!((masses.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let top = scramble(0, 1000) as usize;
        assert!(masses[top] > 1.0 / 26.5 && masses.iter().all(|mass| *mass <= masses[top]));
    }

    // Few items: one bin each. Many items: the hottest rank has its own bin at its item, and no
    // mass is lost.
    #[test]
    fn scrambled_bins_cover_all_items() {
        assert_eq!(scrambled(1000, 0.99).len(), 1000);
        let items = (1 << 24) + 1;
        let bins = scrambled(items, 0.99);
        assert!(gapless(&bins) && bins[0].from == 0);
        assert_eq!(bins.iter().map(|bin| bin.items).sum::<u64>(), items);
        assert!((bins.iter().map(|bin| bin.mass).sum::<f64>() - 1.0).abs() < 1e-9);
        let top = scramble(0, items);
        let single = bins.iter().find(|bin| bin.from == top).unwrap();
        assert!(single.items == 1 && single.mass > 1.0 / 26.5, "{single:?}");
    }

    fn gapless(bins: &[Bin]) -> bool {
        bins.windows(2).all(|pair| pair[0].from + pair[0].items == pair[1].from)
    }

    proptest! {
        #[test]
        fn zipf_covers_every_rank_and_falls(n in 1u64..5_000_000, theta in prop::sample::select(vec![0.0, 0.5, 0.99, 1.2, 3.0])) {
            let bins = zipf(n, theta);
            prop_assert_eq!(bins[0].from, 0);
            prop_assert!(gapless(&bins));
            prop_assert_eq!(bins.iter().map(|bin| bin.items).sum::<u64>(), n);
            prop_assert!((bins.iter().map(|bin| bin.mass).sum::<f64>() - 1.0).abs() < 1e-9);
            let each = |bin: &Bin| bin.mass / bin.items as f64;
            prop_assert!(bins.windows(2).all(|pair| each(&pair[0]) >= each(&pair[1]) * (1.0 - 1e-6)));
        }

        #[test]
        fn zipf_s_sums_are_those_of_the_terms(from in 1024u64..100_000, items in 4u64..2000, theta in prop::sample::select(vec![0.3, 0.99, 2.0])) {
            let naive: f64 = (from..from + items).map(|k| (k as f64).powf(-theta)).sum();
            prop_assert!((power_sum(from, from + items, theta) / naive - 1.0).abs() < 1e-9);
        }

        #[test]
        fn gaussian_lies_within_the_items(n in 1u64..1_000_000, mean in 0.0f64..=1.0, sd in 0.01f64..1e6) {
            let bins = gaussian(n, mean * n as f64, sd);
            prop_assert!(gapless(&bins));
            prop_assert!(bins.iter().all(|bin| bin.items > 0 && bin.from + bin.items <= n && bin.mass >= 0.0));
            prop_assert!((bins.iter().map(|bin| bin.mass).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
