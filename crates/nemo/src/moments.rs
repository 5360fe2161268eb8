//! How unevenly a region's parts are asked for, in two chained pipelines (NEMO, section 3.3: variance
//! needs two running sums).
//!
//! The first counts sub-regions. The second adds, to a state of the whole region, by how much the
//! square of the count just grew: n² − (n − 1)² = 2n − 1, one addition. A third, beside the chain,
//! counts the region's requests. So variance takes two states a region to read, not one a sub-region.
//!
//! Channels and controllers each square their own share c of a count: with B banks,
//! Σc² ≤ (Σc)² ≤ B·Σc² (Cauchy and Schwarz). The variance is told as these bounds; they meet where
//! a sub-region lies in one bank.

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

/// What was asked of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Sub-regions.
    pub parts: u64,
    /// Requests to all of them.
    pub sum: u64,
    /// Sum of the squares of what each bank counted of each sub-region.
    pub squares: u64,
    /// Banks over which a sub-region may be spread.
    pub banks: u64,
}

impl Spread {
    /// Requests to a sub-region in the mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.parts as f64
    }

    /// Between which values the variance of the sub-regions' counts lies.
    #[must_use]
    pub fn variance(&self) -> (f64, f64) {
        let square = |of: f64| of / self.parts as f64 - self.mean() * self.mean();
        let squares = self.squares as f64;
        (square(squares).max(0.0), square(squares * self.banks as f64).max(0.0))
    }
}

impl Moments {
    /// Installs them for `regions` regions at a time; `rule` says which requests, and what regions and
    /// sub-regions are. What it does with them is replaced: counting by 1, reset on read.
    ///
    /// # Errors
    /// As [`Driver::install_chain`]; nothing is installed then.
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

    /// Removes them.
    ///
    /// # Errors
    /// They are not installed.
    pub fn uninstall<E: Engine>(self, driver: &mut Driver<E>) -> Result<()> {
        driver.uninstall(self.counts)?;
        driver.uninstall(self.sums)
    }

    /// Watches the region of a key in a slot below the number of regions; `None` for no more.
    ///
    /// # Errors
    /// The key or the slot is out of range.
    pub fn watch<E: Engine>(
        &self,
        driver: &mut Driver<E>,
        key: u64,
        slot: Option<u32>,
    ) -> Result<()> {
        // The last link first, so that nothing is counted that has no square.
        driver.translate(self.sums, key, slot)?;
        driver.translate(self.squares, key, slot)?;
        let first = slot.map(|slot| u64::from(slot) * self.parts);
        driver.translate(self.counts, key, first.and_then(|first| u32::try_from(first).ok()))
    }

    /// Reads all slots and begins anew. Requests between the reads of the three fall between them.
    ///
    /// # Errors
    /// They are not installed.
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
