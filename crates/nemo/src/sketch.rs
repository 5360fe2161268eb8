//! A count-min sketch in chained pipelines (NEMO, section 6.3): estimates the access count of any
//! region if there are more regions than states.
//!
//! Each of k pipelines counts the same requests in its own array, indexed by its own hash. The
//! least of a region's k states is its estimate, which is never below the true count. With w states
//! an array and N requests it is more than 4·N/w too large with a probability of at most 2^-k: two
//! keys collide in a row with probability ≤ 2/w (multiply-shift hashing, Dietzfelbinger et al.
//! 1997), so that a row's mean excess is ≤ 2·N/w; Markov's inequality gives probability 1/2 at
//! twice that; rows are independent (Cormode and Muthukrishnan 2005).

use tierscope_core::{Counters, Key, Result, Rng, RuleId};

use crate::driver::{Driver, Spec};
use crate::engine::Engine;
use crate::program::Select;

/// An installed sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountMin {
    rows: Vec<(RuleId, u64)>,
    bits: u32,
    key: Key,
}

/// Counts read from a sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimates {
    /// The multiplier and states of each row.
    rows: Vec<(u64, Vec<u64>)>,
    bits: u32,
}

impl CountMin {
    /// Installs `rows` arrays of `2^bits` states that count the requests of `spec` by key. Hash
    /// multipliers are drawn from `seed`.
    ///
    /// # Errors
    /// As for [`Driver::install_hashed`]; nothing is installed then.
    pub fn install<E: Engine>(
        driver: &mut Driver<E>,
        spec: &Spec,
        rows: usize,
        bits: u32,
        seed: u64,
    ) -> Result<Self> {
        let mut rng = Rng::seeded(seed);
        let mut sketch = Self { rows: Vec::new(), bits, key: spec.rule.key };
        for _ in 0..rows.max(1) {
            let multiplier = rng.next_u64() | 1;
            match driver.install_hashed(spec, multiplier, bits) {
                Ok(id) => sketch.rows.push((id, multiplier)),
                Err(error) => {
                    sketch.uninstall(driver)?;
                    return Err(error);
                }
            }
        }
        Ok(sketch)
    }

    /// Removes the sketch.
    ///
    /// # Errors
    /// The sketch is not installed.
    pub fn uninstall<E: Engine>(self, driver: &mut Driver<E>) -> Result<()> {
        self.rows.into_iter().try_for_each(|(id, _)| driver.uninstall(id))
    }

    /// Reads all rows, with the rule's read effect.
    ///
    /// # Errors
    /// The sketch is not installed.
    pub fn read<E: Engine>(&self, driver: &mut Driver<E>) -> Result<Estimates> {
        let mut rows = Vec::with_capacity(self.rows.len());
        for (id, multiplier) in &self.rows {
            let mut states = vec![0; 1 << self.bits];
            driver.read(*id, &mut states)?;
            rows.push((*multiplier, states));
        }
        Ok(Estimates { rows, bits: self.bits })
    }

    /// The key of an address.
    #[must_use]
    pub fn key_of(&self, address: u64) -> u64 {
        self.key.of(address)
    }
}

impl Estimates {
    /// Upper bound of a key's access count.
    #[must_use]
    pub fn of(&self, key: u64) -> u64 {
        let state = |multiplier| Select::hash(key, multiplier, self.bits) as usize;
        let counts = self.rows.iter().map(|(multiplier, states)| states[state(*multiplier)]);
        counts.min().unwrap_or(0)
    }

    /// The keys with the largest estimates, largest first.
    #[must_use]
    pub fn largest(&self, keys: impl IntoIterator<Item = u64>, count: usize) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> =
            keys.into_iter().map(|key| (key, self.of(key))).filter(|(_, n)| *n > 0).collect();
        all.sort_unstable_by_key(|(key, estimate)| (std::cmp::Reverse(*estimate), *key));
        all.truncate(count);
        all
    }
}
