//! Variance of the access counts within a region, by two chained pipelines (NEMO, section 3.3:
//! variance needs two running sums).
//!
//! The first counts requests by sub-region. The second adds, to a state of the whole region, the
//! growth of the square of that count: n² − (n − 1)² = 2n − 1, one addition. A third, outside of
//! the chain, counts the region's requests. So reading the variance takes two states per region,
//! not one per sub-region.
//!
//! Channels and controllers each square their own share c of a count: with B banks, Σc² ≤ (Σc)² ≤
//! B·Σc² (Cauchy and Schwarz). The variance is reported as these bounds; they coincide if a
//! sub-region lies in one bank.

use tierscope_core::{Counters, Key, Operand, Operator, ReadEffect, Result, Rule, RuleId};

use crate::driver::{Driver, Spec};
use crate::engine::Engine;
use crate::program::Chain;

/// Installed counters of sums and squares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moments {
    counts: RuleId,
    squares: RuleId,
    sums: RuleId,
    /// Sub-regions of a region.
    parts: u64,
    regions: u64,
    banks: u64,
}

/// Distribution of the requests to one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Number of sub-regions.
    pub parts: u64,
    /// Requests to the region.
    pub sum: u64,
    /// Sum, over banks and sub-regions, of the squared counts.
    pub squares: u64,
    /// Banks that a sub-region may be spread over.
    pub banks: u64,
}

impl Spread {
    /// Mean requests per sub-region.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.parts as f64
    }

    /// Lower and upper bound of the variance of the sub-regions' counts.
    #[must_use]
    pub fn variance(&self) -> (f64, f64) {
        let square = |of: f64| of / self.parts as f64 - self.mean() * self.mean();
        let squares = self.squares as f64;
        (square(squares).max(0.0), square(squares * self.banks as f64).max(0.0))
    }
}

impl Moments {
    /// Installs the counters for `regions` regions at a time; `rule` selects the requests and
    /// defines regions and sub-regions. Its update and read effect are replaced: counting by 1,
    /// reset on read.
    ///
    /// # Errors
    /// As for [`Driver::install_chain`]; nothing is installed then.
    pub fn install<E: Engine>(driver: &mut Driver<E>, rule: Rule, regions: u64) -> Result<Self> {
        let reset = ReadEffect::Reset(0);
        let one = (Operator::Add, Operand::Constant(1));
        let counting = Rule { update: one, notify: None, on_read: reset, ..rule };
        let whole = Rule { offset: Key::NONE, ..counting };
        let parts = rule.states_per_key();
        let spec = |rule, states| Spec { states: Some(states), ..Spec::from(rule) };
        let per_part = spec(counting, regions * parts);
        let per_region = spec(whole, regions);
        let chain = driver.install_chain(&per_part, &[(per_region, Chain::SquareStep)])?;
        let banks = driver.banks(chain[0])?;
        match driver.install(&per_region) {
            Ok(sums) => {
                Ok(Self { counts: chain[0], squares: chain[1], sums, parts, regions, banks })
            }
            Err(error) => {
                driver.uninstall(chain[0])?;
                Err(error)
            }
        }
    }

    /// Removes the counters.
    ///
    /// # Errors
    /// The counters are not installed.
    pub fn uninstall<E: Engine>(self, driver: &mut Driver<E>) -> Result<()> {
        driver.uninstall(self.counts)?;
        driver.uninstall(self.sums)
    }

    /// Watches the region of a key in a slot below the number of regions; with `None`, stops
    /// watching it.
    ///
    /// # Errors
    /// The key or the slot is out of range.
    pub fn watch<E: Engine>(
        &self,
        driver: &mut Driver<E>,
        key: u64,
        slot: Option<u32>,
    ) -> Result<()> {
        // The last link first, so that no count lacks its square.
        driver.translate(self.sums, key, slot)?;
        driver.translate(self.squares, key, slot)?;
        let first = slot.map(|slot| u64::from(slot) * self.parts);
        driver.translate(self.counts, key, first.and_then(|first| u32::try_from(first).ok()))
    }

    /// Reads and resets all slots. Requests between the reads of the three telemetries are
    /// attributed inconsistently.
    ///
    /// # Errors
    /// The counters are not installed.
    pub fn read<E: Engine>(&self, driver: &mut Driver<E>) -> Result<Vec<Spread>> {
        let (mut sums, mut squares) =
            (vec![0; self.regions as usize], vec![0; self.regions as usize]);
        driver.read(self.sums, &mut sums)?;
        driver.read(self.squares, &mut squares)?;
        driver.read(self.counts, &mut vec![0; (self.regions * self.parts) as usize])?;
        let spread = |(sum, squares)| Spread { parts: self.parts, sum, squares, banks: self.banks };
        Ok(sums.into_iter().zip(squares).map(spread).collect())
    }
}
