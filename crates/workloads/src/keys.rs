//! Key distributions: which key a client requests next, independent of store and kind of request.
//!
//! The distributions are those of YCSB (Cooper et al., SoCC 2010; its generators) and of
//! memtier_benchmark's Gaussian key pattern. Keys are numbers, in the order in which the store was
//! loaded.

use std::time::Duration;

use tierscope_core::Rng;

use crate::bins::{SCRAMBLED_RANKS, power_sum, scramble};
use crate::description::Pattern;
use crate::hotspot::{Hotspot, Layout, unit};

/// YCSB's default skew.
pub const YCSB_THETA: f64 = 0.99;

/// A distribution over keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Uniform over all keys.
    Uniform,
    /// Zipf's law with this skew: key `r` has rank `r`.
    Zipf(f64),
    /// Zipf's law over `ranks` ranks, whose FNV hash selects the key. YCSB's `zipfian` has 10^10
    /// ranks whatever the number of keys, so that the ranks beyond the number of keys are spread
    /// evenly over the keys.
    Scrambled {
        /// Skew of Zipf's law.
        theta: f64,
        /// Number of ranks.
        ranks: u64,
    },
    /// Zipf's law with this skew, backwards from the key that was inserted last.
    Latest(f64),
    /// A run of keys, from the first key on, takes a share of the requests.
    Hotspot {
        /// Share of the keys, 0..1.
        keys: f64,
        /// Share of the requests, 0..1.
        operations: f64,
    },
    /// The normal distribution; draws outside the keys are repeated.
    Gaussian {
        /// Standard deviation in keys.
        sd: f64,
        /// Median key; by default the middle one.
        median: Option<f64>,
    },
}

/// A shift of the hot keys at regular intervals, wrapping around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Number of keys by which the hot set moves at each shift.
    pub keys: u64,
    /// Time between two shifts.
    pub every: Duration,
}

impl Shift {
    /// Number of shifts in the time `since` the client's start.
    #[must_use]
    pub fn steps(&self, since: Duration) -> u64 {
        (since.as_nanos() / self.every.as_nanos().max(1)) as u64
    }
}

impl Law {
    /// YCSB's `zipfian` with its defaults.
    pub const YCSB: Law = Law::Scrambled { theta: YCSB_THETA, ranks: SCRAMBLED_RANKS };

    /// Parses `uniform`, `zipf[:theta=T]`, `scrambled[:theta=T][:ranks=N]`, `latest[:theta=T]`,
    /// `hotspot[:keys=S][:ops=S]` or `gaussian:sd=N[:median=K]`.
    ///
    /// # Errors
    /// A message that names the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let known: &[&str] = match name {
            "uniform" => &[],
            "zipf" | "latest" => &["theta"],
            "scrambled" => &["theta", "ranks"],
            "hotspot" => &["keys", "ops"],
            "gaussian" => &["sd", "median"],
            _ => {
                return Err(format!(
                    "`{name}` is none of uniform, zipf, scrambled, latest, hotspot, gaussian"
                ));
            }
        };
        let mut told = [None; 2];
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let at = known.iter().position(|k| *k == key);
            let at = at.ok_or_else(|| format!("`{name}` has no key `{key}`"))?;
            told[at] =
                Some(value.parse::<f64>().map_err(|_| format!("{key}: `{value}` is no number"))?);
        }
        let law = match name {
            "uniform" => Law::Uniform,
            "zipf" => Law::Zipf(told[0].unwrap_or(YCSB_THETA)),
            "scrambled" => Law::Scrambled {
                theta: told[0].unwrap_or(YCSB_THETA),
                ranks: told[1].map_or(SCRAMBLED_RANKS, |ranks| ranks as u64),
            },
            "latest" => Law::Latest(told[0].unwrap_or(YCSB_THETA)),
            // YCSB's defaults of hotspotdatafraction and hotspotopnfraction.
            "hotspot" => {
                Law::Hotspot { keys: told[0].unwrap_or(0.2), operations: told[1].unwrap_or(0.8) }
            }
            _ => {
                Law::Gaussian { sd: told[0].ok_or("gaussian needs sd, in keys")?, median: told[1] }
            }
        };
        law.check().map(|()| law)
    }

    /// Checks that the parameters are within their bounds.
    ///
    /// # Errors
    /// A message that names the parameter.
    pub fn check(&self) -> Result<(), String> {
        let share = |what: &str, value: f64| match value {
            0.0..=1.0 => Ok(()),
            _ => Err(format!("{what} is a share within 0..1")),
        };
        match *self {
            Law::Scrambled { ranks: 0, .. } => Err("ranks is a number above 0".into()),
            Law::Zipf(theta) | Law::Scrambled { theta, .. } | Law::Latest(theta) => {
                // Gray's formula is valid for theta below 1 (SIGMOD 1994, section 4).
                let fits = (0.0..1.0).contains(&theta);
                fits.then_some(()).ok_or_else(|| "theta is a number within 0..1, below 1".into())
            }
            Law::Hotspot { keys, operations } => share("keys", keys).and(share("ops", operations)),
            Law::Gaussian { sd, median } => {
                let fits =
                    sd > 0.0 && sd <= 1e12 && median.is_none_or(|m| (0.0..1e15).contains(&m));
                fits.then_some(()).ok_or_else(|| "sd and median are positive numbers".into())
            }
            Law::Uniform => Ok(()),
        }
    }

    /// The distribution as patterns over `keys` items of `item` bytes that lie in key order,
    /// shifted by `moved` keys: offset in keys, keys, pattern, weight. `None` if patterns cannot
    /// express it.
    #[must_use]
    pub fn patterns(
        &self,
        keys: u64,
        item: u64,
        moved: u64,
    ) -> Option<Vec<(u64, u64, Pattern, f64)>> {
        let run = |from: u64, count: u64, weight: f64| {
            let from = (from + moved) % keys;
            let first = count.min(keys - from);
            let mut parts =
                vec![(from, first, Pattern::Random, weight * first as f64 / count as f64)];
            if first < count {
                let rest = (count - first) as f64 / count as f64;
                parts.push((0, count - first, Pattern::Random, weight * rest));
            }
            parts
        };
        let whole = |pattern| (moved.is_multiple_of(keys)).then(|| vec![(0, keys, pattern, 1.0)]);
        match *self {
            Law::Uniform => Some(run(0, keys, 1.0)),
            Law::Zipf(theta) => whole(Pattern::Zipf { item, theta, scrambled: false }),
            Law::Scrambled { theta, ranks: SCRAMBLED_RANKS } => {
                whole(Pattern::Zipf { item, theta, scrambled: true })
            }
            Law::Scrambled { .. } => None,
            Law::Latest(_) => None,
            Law::Hotspot { keys: share, operations } => {
                let spot = Hotspot::new(keys, share, operations, Layout::Run(0.0));
                let hot = spot.count();
                if hot == keys {
                    return Some(run(0, keys, 1.0));
                }
                let mut parts = run(0, hot, operations);
                parts.extend(run(hot, keys - hot, 1.0 - operations));
                Some(parts)
            }
            Law::Gaussian { sd, median } => {
                let mean = median.unwrap_or_else(|| middle(keys)) + (moved % keys) as f64;
                let mean = if mean >= keys as f64 { mean - keys as f64 } else { mean };
                // A bell that is shifted across the end would wrap around, which one pattern cannot
                // express.
                let fits = moved.is_multiple_of(keys)
                    || (mean > 6.0 * sd && mean + 6.0 * sd < keys as f64);
                fits.then(|| vec![(0, keys, Pattern::Gaussian { item, mean, sd }, 1.0)])
            }
        }
    }
}

/// memtier_benchmark's default median (`--key-median`).
fn middle(keys: u64) -> f64 {
    keys as f64 / 2.0
}

/// Draws keys from a distribution.
#[derive(Clone, Debug)]
pub struct Chooser {
    kind: Kind,
    keys: u64,
    /// Largest number of keys ever: keys that scrambling selects beyond those present are drawn
    /// again, as in YCSB for keys that a run has yet to insert.
    space: u64,
    shift: Option<Shift>,
    steps: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Zipf(Gray),
    Scrambled(Gray),
    Latest(Gray),
    Hotspot(Hotspot),
    Gaussian { sd: f64, median: f64, spare: Option<f64> },
}

impl Chooser {
    /// A chooser over `keys` keys at the beginning, and up to `inserts` inserted later.
    #[must_use]
    pub fn new(law: Law, keys: u64, inserts: u64, shift: Option<Shift>) -> Self {
        let kind = match law {
            Law::Uniform => Kind::Uniform,
            Law::Zipf(theta) => Kind::Zipf(Gray::new(keys, theta)),
            Law::Scrambled { theta, ranks } => Kind::Scrambled(Gray::new(ranks, theta)),
            Law::Latest(theta) => Kind::Latest(Gray::new(keys, theta)),
            Law::Hotspot { keys: share, operations } => {
                Kind::Hotspot(Hotspot::new(keys, share, operations, Layout::Run(0.0)))
            }
            Law::Gaussian { sd, median } => Kind::Gaussian {
                sd,
                // The median must lie within the keys, or no draw around it would ever be accepted.
                median: median.unwrap_or_else(|| middle(keys)).min(keys as f64 - 0.5),
                spare: None,
            },
        };
        Self { kind, keys, space: keys + inserts, shift, steps: 0 }
    }

    /// Sets the time since the client began.
    pub fn now(&mut self, since: Duration) {
        self.steps = self.shift.map_or(0, |shift| shift.steps(since));
    }

    /// The next key, given that `present` keys exist.
    pub fn next(&mut self, rng: &mut Rng, present: u64) -> u64 {
        let (keys, space) = (self.keys, self.space);
        let key = match &mut self.kind {
            Kind::Uniform => rng.below(keys),
            Kind::Zipf(gray) => gray.draw(rng),
            Kind::Scrambled(gray) => loop {
                let key = scramble(gray.draw(rng), space);
                if key < present {
                    break key;
                }
            },
            Kind::Latest(gray) => {
                gray.grow(present);
                return present - 1 - gray.draw(rng).min(present - 1);
            }
            Kind::Hotspot(spot) => spot.next(rng),
            Kind::Gaussian { sd, median, spare } => loop {
                let at = *median + *sd * normal(rng, spare);
                if (0.0..keys as f64).contains(&at) {
                    break at as u64;
                }
            },
        };
        match self.shift {
            Some(shift) => moved(key, shift.keys, self.steps, present),
            None => key,
        }
    }
}

fn moved(key: u64, by: u64, steps: u64, keys: u64) -> u64 {
    ((u128::from(key) + u128::from(by) * u128::from(steps)) % u128::from(keys)) as u64
}

/// A draw from the standard normal distribution (Marsaglia's polar method, 1964; every second draw
/// is the `spare` of the previous one).
fn normal(rng: &mut Rng, spare: &mut Option<f64>) -> f64 {
    if let Some(draw) = spare.take() {
        return draw;
    }
    loop {
        let (u, v) = (2.0 * unit(rng) - 1.0, 2.0 * unit(rng) - 1.0);
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            let scale = (-2.0 * s.ln() / s).sqrt();
            *spare = Some(v * scale);
            return u * scale;
        }
    }
}

/// Zipf's law as YCSB draws it: the formula of Gray et al., "Quickly generating billion-record
/// synthetic databases", SIGMOD 1994. The first two ranks are exact; the share of the first `r`
/// ranks is up to 1.6 percentage points too large for 1000 items, 0.8 for 10^10.
#[derive(Clone, Debug)]
struct Gray {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Gray {
    fn new(items: u64, theta: f64) -> Self {
        let head = power_sum(1, items.min(1023) + 1, theta);
        let tail = if items > 1023 { power_sum(1024, items + 1, theta) } else { 0.0 };
        let mut gray = Self { items, theta, zeta: head + tail, eta: 0.0 };
        gray.tune();
        gray
    }

    fn tune(&mut self) {
        let two = 1.0 + 0.5f64.powf(self.theta);
        let beyond = 1.0 - two / self.zeta;
        self.eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta)) / beyond;
    }

    /// Increases the number of items: the sum is extended, as YCSB does.
    fn grow(&mut self, items: u64) {
        if items > self.items {
            let terms = (self.items + 1..=items).map(|k| (k as f64).powf(-self.theta));
            self.zeta += terms.sum::<f64>();
            self.items = items;
            self.tune();
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let u = unit(rng);
        let sum = u * self.zeta;
        if sum < 1.0 {
            return 0;
        }
        if sum < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let share = (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        ((self.items as f64 * share) as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bins;

    fn draw(law: Law, keys: u64, count: usize) -> Vec<u64> {
        let (mut chooser, mut rng) = (Chooser::new(law, keys, 0, None), Rng::seeded(1));
        (0..count).map(|_| chooser.next(&mut rng, keys)).collect()
    }

    // Zeta of 3 items at 0.5 is 2.28446: 43.8 %, 31.0 %, 25.3 %; of 100,000 draws 43,774 ± 157,
    // 30,953 ± 146; six sigma allowed. The third rank takes the rest.
    #[test]
    fn three_ranks_by_hand() {
        let drawn = draw(Law::Zipf(0.5), 3, 100_000);
        let count = |key| drawn.iter().filter(|k| **k == key).count();
        assert!(count(0).abs_diff(43_774) < 942, "{}", count(0));
        assert!(count(1).abs_diff(30_953) < 876, "{}", count(1));
    }

    // Compares with Zipf's law itself: the share of the first r ranks, 200,000 draws. Gray's
    // formula is off by up to 0.011 at 10^6 items; the draws by six sigma, 0.007.
    #[test]
    fn gray_s_formula_stays_near_the_law() {
        let law = bins::zipf(1_000_000, YCSB_THETA);
        let drawn = draw(Law::Zipf(YCSB_THETA), 1_000_000, 200_000);
        for rank in [1u64, 2, 10, 100, 1000, 10_000, 100_000] {
            let below = drawn.iter().filter(|k| **k < rank).count() as f64 / 2e5;
            let inside = law.iter().filter(|bin| bin.from < rank);
            let share = |bin: &bins::Bin| {
                bin.mass * (bin.items.min(rank - bin.from)) as f64 / bin.items as f64
            };
            let expected: f64 = inside.map(share).sum();
            assert!((below - expected).abs() < 0.018, "rank {rank}: {below}, law {expected}");
        }
    }

    // YCSB's own constant: zeta(10^10, 0.99) = 26.46902820178302.
    #[test]
    fn zeta_is_ycsb_s_and_grows_with_the_items() {
        assert!((Gray::new(SCRAMBLED_RANKS, 0.99).zeta - 26.469_028_201_783_02).abs() < 1e-6);
        let mut gray = Gray::new(1000, 0.99);
        gray.grow(3000);
        assert!((gray.zeta - Gray::new(3000, 0.99).zeta).abs() < 1e-9);
        assert!((gray.eta - Gray::new(3000, 0.99).eta).abs() < 1e-9);
    }

    #[test]
    fn the_latest_keys_come_first_and_move_with_inserts() {
        let (mut chooser, mut rng) =
            (Chooser::new(Law::Latest(0.99), 1000, 1000, None), Rng::seeded(1));
        let mut last = |present| {
            let drawn: Vec<u64> = (0..1000).map(|_| chooser.next(&mut rng, present)).collect();
            assert!(drawn.iter().all(|key| *key < present));
            drawn.iter().filter(|key| **key + 1 == present).count()
        };
        // 1 / zeta(1000, .99) = 13 %: 132 ± 11 of 1000.
        assert!(last(1000).abs_diff(132) < 66);
        assert!(last(2000).abs_diff(122) < 66);
    }

    #[test]
    fn scrambled_keys_that_are_not_there_yet_are_drawn_again() {
        let (mut chooser, mut rng) = (Chooser::new(Law::YCSB, 10, 10, None), Rng::seeded(1));
        assert!((0..1000).all(|_| chooser.next(&mut rng, 10) < 10));
        assert!((0..1000).any(|_| chooser.next(&mut rng, 20) >= 10));
    }

    // 68.27 % of 100,000 draws lie within one standard deviation of the median: 68,269 ± 147; six
    // sigma allowed.
    #[test]
    fn gaussian_keys_lie_around_the_median() {
        let drawn = draw(Law::Gaussian { sd: 1000.0, median: None }, 200_000, 100_000);
        let near = drawn.iter().filter(|key| (99_000..101_000).contains(*key)).count();
        assert!(near.abs_diff(68_269) < 882, "{near}");
        let cut = draw(Law::Gaussian { sd: 5.0, median: Some(0.0) }, 3, 1000);
        assert!(cut.iter().all(|key| *key < 3));
    }

    // 20 % of 10 keys are hot; every 2 s the next two keys are.
    #[test]
    fn a_hot_set_moves_completely() {
        let shift = Shift { keys: 2, every: Duration::from_secs(2) };
        let law = Law::Hotspot { keys: 0.2, operations: 1.0 };
        let (mut chooser, mut rng) = (Chooser::new(law, 10, 0, Some(shift)), Rng::seeded(1));
        for (second, hot) in [(0, 0..2), (1, 0..2), (2, 2..4), (8, 8..10), (10, 0..2)] {
            chooser.now(Duration::from_secs(second));
            assert!((0..100).all(|_| hot.contains(&chooser.next(&mut rng, 10))), "{second}");
        }
    }

    // The first of 1000 ranks has 1 of 7.7, of 10^10 ranks 1 of 26.5: of 10,000 draws 1300 and 380.
    // Other ranks that hash to the same key add few draws or, for 10^10 ranks, a thousandth of the
    // draws of all other ranks: 7.
    #[test]
    fn fewer_ranks_are_more_skewed() {
        let most = |law: Law| {
            let (mut chooser, mut rng) = (Chooser::new(law, 1000, 0, None), Rng::seeded(1));
            let mut counts = [0; 1000];
            (0..10_000).for_each(|_| counts[chooser.next(&mut rng, 1000) as usize] += 1);
            counts.into_iter().max().unwrap()
        };
        let thousand = most(Law::Scrambled { theta: YCSB_THETA, ranks: 1000 });
        assert!((1100..1600).contains(&thousand), "{thousand}");
        assert!((260..520).contains(&most(Law::YCSB)), "{}", most(Law::YCSB));
    }

    #[test]
    fn laws_are_read_or_refused() {
        assert_eq!(Law::parse("uniform"), Ok(Law::Uniform));
        assert_eq!(Law::parse("scrambled"), Ok(Law::YCSB));
        let ranks = Law::Scrambled { theta: 0.99, ranks: 5000 };
        assert_eq!(Law::parse("scrambled:ranks=5000"), Ok(ranks));
        assert!(Law::parse("scrambled:ranks=0").is_err());
        assert_eq!(
            Law::parse("hotspot:keys=0.01:ops=0.99"),
            Ok(Law::Hotspot { keys: 0.01, operations: 0.99 })
        );
        assert_eq!(
            Law::parse("gaussian:sd=100:median=5"),
            Ok(Law::Gaussian { sd: 100.0, median: Some(5.0) })
        );
        for bad in
            ["", "gaussian", "zipf:theta=1", "hotspot:keys=2", "uniform:sd=1", "zipf:theta=x"]
        {
            assert!(Law::parse(bad).is_err(), "{bad}");
        }
    }

    // Two of ten keys from the ninth on: one part at the end, one at the beginning.
    #[test]
    fn a_run_that_wraps_is_two_parts() {
        let law = Law::Hotspot { keys: 0.2, operations: 0.9 };
        let parts = law.patterns(10, 64, 9).unwrap();
        let told: Vec<_> = parts.iter().map(|part| (part.0, part.1)).collect();
        assert_eq!(told, [(9, 1), (0, 1), (1, 8)]);
        assert!((parts.iter().map(|part| part.3).sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
