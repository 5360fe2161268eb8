//! Policies decide, movers carry out.

use crate::{Action, Evidence, Orders, Outcome, Range, Result, Setting, Time};

/// Memory of like speed; 0 is the fastest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tier(pub u8);

/// A page in page-granular policies: dense, given by the machine, reused after a free.
///
/// Within a mapping numbers follow addresses: the page that begins `n` times 4 KiB further on has a
/// number greater by `n`. A huge page goes by the number of its first 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u32);

/// How full a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierUse {
    /// The tier.
    pub tier: Tier,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
}

/// Where pages are. Nothing here lists all pages: at terabytes that would be 10^8 of them.
pub trait PlacementView {
    /// The tiers, fastest first.
    fn tiers(&self) -> &[TierUse];

    /// The tier of a page; `None` if it is not resident.
    fn tier_of(&self, page: PageId) -> Option<Tier>;

    /// The page that holds the first byte of `range`; `None` if none does.
    fn page_at(&self, range: &Range) -> Option<PageId>;

    /// The addresses that a page is mapped at first, whole.
    fn range_of(&self, page: PageId) -> Option<Range>;

    /// The physical address of the first byte of `range`; `None` if it is not in memory, or the machine
    /// does not tell.
    fn frame_of(&self, _range: &Range) -> Option<u64> {
        None
    }

    /// Physical memory that pages may lie in: first bytes, and one past the last, ascending. Nothing where
    /// the machine does not tell.
    fn physical(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Resident bytes of `range` in `tier`.
    fn resident(&self, range: &Range, tier: Tier) -> u64;
}

/// A placement policy.
///
/// It never owns an instrument or a mover and never learns where it runs. What it wants to know
/// and to happen it writes into [`Orders`].
pub trait Policy {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Its settings, for the recording.
    fn settings(&self) -> Vec<Setting>;

    /// What it knows of its own work and nobody else can tell, by name: for whoever holds policies beside each other.
    fn notes(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Takes evidence in.
    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders);

    /// Does what is due at `now`; returns when it wants to tick again.
    fn tick(&mut self, now: Time, placement: &dyn PlacementView, orders: &mut Orders) -> Time;
}

/// What a mover may spend on one submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes to move at most; the rest waits in the mover's queue.
    pub bytes: u64,
}

/// Carries out actions, never blocking whoever samples.
pub trait Mover {
    /// Queues actions in order.
    ///
    /// # Errors
    /// If nothing can be moved on this machine at all. A single action's failure is an
    /// [`Outcome`].
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()>;

    /// Appends the outcomes that arrived since the last call.
    ///
    /// # Errors
    /// As [`Mover::submit`].
    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()>;
}
