//! Policies decide, movers carry out their orders.

use crate::{Action, Evidence, Orders, Outcome, Range, Result, Setting, Time};

/// A set of memory nodes of similar speed; 0 is the fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tier(pub u8);

/// A page in page-granular policies: a dense number, assigned by the machine, reused after a free.
///
/// Within a mapping numbers follow addresses: the page `n` times 4 KiB further on has a number
/// greater by `n`. A huge page has the number of its first 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// Capacity and use of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierUse {
    /// The tier whose use is given.
    pub tier: Tier,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes in use in the tier.
    pub used: u64,
}

/// Placement of pages. No method lists all pages: at terabytes there are 10^8 of them.
pub trait PlacementView {
    /// Capacity and use of all tiers, fastest first.
    fn tiers(&self) -> &[TierUse];

    /// The tier of a page; `None` if the page is not resident.
    fn tier_of(&self, page: PageId) -> Option<Tier>;

    /// The page that holds the first byte of `range`; `None` if there is none.
    fn page_at(&self, range: &Range) -> Option<PageId>;

    /// The addresses of a page in its first mapping, whole page.
    fn range_of(&self, page: PageId) -> Option<Range>;

    /// The physical address of the first byte of `range`; `None` if it is not resident, or the
    /// machine does not report it.
    fn frame_of(&self, _range: &Range) -> Option<u64> {
        None
    }

    /// Physical memory that pages may occupy, as (first byte, one past the last), ascending. Empty
    /// where the machine does not report it.
    fn physical(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Resident bytes of `range` in `tier`.
    fn resident(&self, range: &Range, tier: Tier) -> u64;
}

/// A placement policy.
///
/// It never owns an instrument or a mover and never learns where it runs. It requests evidence and
/// actions through [`Orders`].
pub trait Policy {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Its settings, for the recording.
    fn settings(&self) -> Vec<Setting>;

    /// Statistics that only the policy itself knows, as (name, value), for comparing policies.
    fn notes(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Takes in evidence and may issue orders.
    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders);

    /// Does the work due at `now`; returns the time of the next tick.
    fn tick(&mut self, now: Time, placement: &dyn PlacementView, orders: &mut Orders) -> Time;
}

/// Limits of one submission to a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of bytes to move; the rest waits in the mover's queue.
    pub bytes: u64,
}

/// Carries out actions without ever blocking the sampling.
pub trait Mover {
    /// Queues actions in order.
    ///
    /// # Errors
    /// If this machine cannot move pages at all. Failures of single actions are [`Outcome`]s.
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()>;

    /// Appends the outcomes that arrived since the last call.
    ///
    /// # Errors
    /// Same as [`Mover::submit`].
    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()>;
}
