//! The K hottest regions of more than there are states for, by two passes that follow one another
//! (NEMO, sections 3.3 and 6.3: exact top-K needs more than one state a request).
//!
//! The first pass counts all regions in a sketch. Those with the largest estimates become candidates:
//! since no estimate falls short, a region that is left out was asked for no more often than the least
//! candidate's estimate. The second pass counts the candidates alone, exactly, while the sketch goes
//! on for the next time. It takes a pipeline for each 8,192 keys of the filter, as any table does.

use tierscope_core::{Counters, Result, RuleId};

use crate::driver::{Driver, Spec};
use crate::engine::Engine;
use crate::sketch::CountMin;

/// The two passes, each as long as a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK {
    sketch: CountMin,
    exact: RuleId,
    candidates: Vec<u64>,
    slots: usize,
}

impl TopK {
    /// Installs a sketch of `rows` by `2^bits`, and `slots` exact counters. The rule should reset on
    /// read.
    ///
    /// # Errors
    /// As [`Driver::install`]; nothing is installed then.
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

    /// Removes it.
    ///
    /// # Errors
    /// It is not installed.
    pub fn uninstall<E: Engine>(self, driver: &mut Driver<E>) -> Result<()> {
        driver.uninstall(self.exact)?;
        self.sketch.uninstall(driver)
    }

    /// Ends a period: gives the `k` candidates that were asked for most, exactly, hottest first; none
    /// after the first period. What the sketch saw of `keys` decides who is counted next.
    ///
    /// # Errors
    /// A key is not the telemetry's.
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
