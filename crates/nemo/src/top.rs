//! The K hottest regions if there are more regions than states, by two consecutive passes (NEMO,
//! sections 3.3 and 6.3: exact top-K needs more than one state per request).
//!
//! The first pass counts all regions in a sketch. Those with the largest estimates become
//! candidates: since estimates are never too low, a region that is left out was accessed no more
//! often than the least candidate's estimate. The second pass counts the candidates alone, exactly,
//! while the sketch gathers the next candidates. It takes a pipeline for each 8,192 keys of the
//! filter, as any table does.

use tierscope_core::{Counters, Result, RuleId};

use crate::driver::{Driver, Spec};
use crate::engine::Engine;
use crate::sketch::CountMin;

/// Both passes; each takes a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK {
    sketch: CountMin,
    exact: RuleId,
    candidates: Vec<u64>,
    slots: usize,
}

impl TopK {
    /// Installs a sketch of `rows` by `2^bits`, and `slots` exact counters. The rule should reset
    /// on read.
    ///
    /// # Errors
    /// As for [`Driver::install`]; nothing is installed then.
    pub fn install<E: Engine>(
        driver: &mut Driver<E>,
        spec: &Spec,
        (rows, bits): (usize, u32),
        slots: u32,
        seed: u64,
    ) -> Result<Self> {
        let sketch = CountMin::install(driver, spec, rows, bits, seed)?;
        match driver.install(&Spec { states: Some(slots.into()), ..*spec }) {
            Ok(exact) => Ok(Self { sketch, exact, candidates: Vec::new(), slots: slots as usize }),
            Err(error) => {
                sketch.uninstall(driver)?;
                Err(error)
            }
        }
    }

    /// Removes the sketch and the counters.
    ///
    /// # Errors
    /// The telemetries are not installed.
    pub fn uninstall<E: Engine>(self, driver: &mut Driver<E>) -> Result<()> {
        driver.uninstall(self.exact)?;
        self.sketch.uninstall(driver)
    }

    /// Ends a period: returns the `k` most accessed candidates with exact counts, hottest first;
    /// none after the first period. The sketch's estimates for `keys` determine the next
    /// candidates.
    ///
    /// # Errors
    /// A key does not belong to the telemetry.
    pub fn advance<E: Engine>(
        &mut self,
        driver: &mut Driver<E>,
        keys: impl IntoIterator<Item = u64>,
        k: usize,
    ) -> Result<Vec<(u64, u64)>> {
        for key in &self.candidates {
            driver.translate(self.exact, *key, None)?;
        }
        let mut counts = vec![0; self.candidates.len()];
        driver.read(self.exact, &mut counts)?;
        let mut found: Vec<(u64, u64)> = self.candidates.drain(..).zip(counts).collect();
        found.sort_unstable_by_key(|(key, count)| (std::cmp::Reverse(*count), *key));
        found.truncate(k);
        let next = self.sketch.read(driver)?.largest(keys, self.slots);
        self.candidates.extend(next.into_iter().map(|(key, _)| key));
        for (slot, key) in (0..).zip(&self.candidates) {
            driver.translate(self.exact, *key, Some(slot))?;
        }
        Ok(found)
    }
}
