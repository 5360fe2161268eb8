//! MGLRU as implemented in the kernel.
//!
//! Source: Linux 6.12 mm/vmscan.c: `walk_pmd_range`, `walk_pmd_range_locked`, `walk_pte_range`,
//! `suitable_to_scan`, `update_bloom_filter`. Every 2 MiB entry is tested and cleared; a PTE table
//! is skipped if its entry was old, or if the Bloom filter does not contain it. A table in which at
//! least one in eight pages is young is added to the filter of the next walk, also if a look-around
//! before eviction finds it so. The first walk has no filter.
//!
//! The code shared by walks and evictions is in [`crate::reclaim`], with the differences from the
//! kernel.
//!
//! The kernel's newest code only marks a page at its first young sighting and takes it for young at
//! the second; the kernels of the lab do not.

use tierscope_core::Need;

use crate::reclaim::filter::{Filters, is_dense};
use crate::reclaim::{Config, Known, Look, Reclaimer, Walk};
use crate::registry::{BY_ACCESSED, Entry, keys_of, made};

/// The policy `mglru` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "mglru",
    about: "generations of pages as the kernel keeps them; the oldest are reclaimed",
    source: "Linux mm/vmscan.c",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "never",
    demotes: "reclaims the oldest of up to four generations",
    cost: "all entries of 2 MiB, leaves under young ones in a Bloom filter",
    page_bytes: Some(crate::reclaim::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: true,
    make: made!("mglru", crate::reclaim::Config::default(), Mglru::new),
    keys: || keys_of(&mut crate::reclaim::Config::default()),
};

/// The kernel's walk, guided by Bloom filters.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    filters: Filters,
}

impl Walk for Kernel {
    const NAME: &'static str = "mglru";
    const PRUNES: Option<bool> = Some(false);

    fn enters(&mut self, known: Known<'_>, _: bool) -> Look {
        if self.filters.passes(known.key) { Look::Into } else { Look::Past }
    }

    fn saw(&mut self, known: Known<'_>, young: u64, present: u64, walking: bool) {
        if is_dense(young, present) {
            self.filters.note(known.key, walking);
        }
    }

    fn end(&mut self) {
        self.filters.turn();
    }
}

/// The kernel's MGLRU as a policy.
pub type Mglru = Reclaimer<Kernel>;

impl Mglru {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::of(config, Kernel::default())
    }
}

#[cfg(test)]
mod tests {
    use tierscope_core::{Access, PageEventKind};

    use super::*;
    use crate::reclaim::goal::Goal;
    use crate::trace::Trace;

    fn config() -> Config {
        Config { interval: std::time::Duration::from_secs(1), ..Config::default() }
    }

    // Eight pages, accessed at half past each second: 0 and 1 always, the others never. The walk at
    // 0 s opens generation 4, the walk at 1 s generation 5: then the pages of generation 3 are
    // scanned, and six are old.
    #[test]
    fn pages_old_in_two_walks_are_reclaimed() {
        let mut trace = Trace::new(Mglru::new(config()), [64], 8);
        trace.seconds(5, |_| vec![0, 1]);
        assert_eq!(trace.ordered(), ["2 Reclaim"]);
        assert_eq!(trace.places(), "0:0 1:0");
    }

    // Page 5 refaults, and is young from then on.
    #[test]
    fn refaulted_pages_stay() {
        let mut trace = Trace::new(Mglru::new(config()), [64], 8);
        trace.seconds(10, |second| if second < 5 { vec![0] } else { vec![0, 5] });
        assert_eq!(trace.places(), "0:0 5:0");
        assert_eq!(trace.ordered(), ["1 Reclaim"]);
    }

    #[test]
    fn a_share_is_given_back_and_no_more() {
        let goal = Goal { share: Some(0.25), ..Goal::default() };
        let mut trace = Trace::new(Mglru::new(Config { goal, ..config() }), [64], 16);
        trace.seconds(8, |_| vec![0, 1]);
        assert_eq!(trace.ordered(), ["2 Reclaim"]);
        assert_eq!(trace.places().split(' ').count(), 12);
    }

    #[test]
    fn locked_pages_stay() {
        let mut trace = Trace::new(Mglru::new(config()), [64], 8);
        trace.page_event(4, 2, PageEventKind::Locked);
        trace.page_event(3, 1, PageEventKind::FileAccess(Access::Load));
        trace.seconds(6, |_| vec![0]);
        assert_eq!(trace.places(), "0:0 4:0 5:0");
    }
}
