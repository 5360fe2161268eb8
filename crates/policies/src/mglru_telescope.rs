//! MGLRU with top-down walks: upper entries first, and nothing below an entry that was not
//! accessed.
//!
//! Source: the Telescope article, "MGLRU + Telescope": "We augment MGLRU with Telescope's profiling
//! technique to make it effective for memory reclaim on terabyte-scale workloads." The article
//! gives no further detail; here:
//!
//! - A walk clears entries from the top down, and skips the subtree of an old entry: its pages age
//!   without a scan. Newly mapped memory counts as young, without a scan of its leaves unless
//!   `fresh` is set: then the first walk is one full scan, as the article's table 3 times it.
//! - Below a young entry, a walk scans a table if many of its pages (MGLRU's one in eight) were
//!   young at the last scan; this replaces the Bloom filter. After such a scan it skips the table
//!   for `rest` walks: the pages that were young then stay young. The first scan of a table does
//!   not count for this, because its leaves were never cleared.
//! - Before pages are evicted, their upper entry is probed once more: if it is old, and was old in
//!   all walks since its leaves were scanned, none of its pages was accessed. Otherwise the leaves
//!   are scanned.
//! - If an instrument (Telescope) supplies regions, those never found accessed are evicted first,
//!   the oldest first. The instrument clears the same bits; so leaves are then always scanned
//!   before eviction, and a table in a region that the instrument found accessed is scanned
//!   whatever its own entry shows.
//!
//! An upper entry can miss an access: while a core holds it in its paging-structure cache, an
//! access below sets no bit above. Such a page is evicted, refaults, and is counted.

use tierscope_core::{Need, Range, Region, Snapshot};

use crate::reclaim::filter::is_dense;
use crate::reclaim::generations::{Leaves, range_of};
use crate::reclaim::{Config, Known, Look, Reclaimer, Walk};
use crate::registry::{BY_ACCESSED, Entry, keys_of, made};

/// The policy `mglru-telescope` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "mglru-telescope",
    about: "generations of pages, walked top-down: nothing below an entry that was not accessed",
    source: "the Telescope article, MGLRU + Telescope",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "never",
    demotes: "reclaims the oldest generation, cold regions first",
    cost: "upper entries, and leaves under young ones",
    page_bytes: Some(crate::reclaim::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::Regions, Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: true,
    make: made!("mglru-telescope", MglruTelescope::defaults(), MglruTelescope::new),
    keys: || keys_of(&mut MglruTelescope::defaults()),
};

/// The top-down walk, optionally guided by an instrument's regions.
#[derive(Clone, Debug, Default)]
pub struct TopDown {
    rest: u8,
    /// Whether leaves of new tables are scanned.
    fresh: bool,
    /// Regions without an access, sorted by age, oldest first.
    cold: Vec<Range>,
    /// Regions with accesses, sorted by address.
    hot: Vec<Range>,
    /// Whether an instrument supplies regions.
    guided: bool,
}

impl Walk for TopDown {
    const NAME: &'static str = "mglru-telescope";
    const PRUNES: Option<bool> = Some(true);
    const CHECKS_ABOVE: bool = true;

    fn enters(&mut self, known: Known<'_>, fresh: bool) -> Look {
        if fresh {
            return if self.fresh { Look::Into } else { Look::Past };
        }
        if self.is_hot(&range_of(known.key)) {
            return Look::Into;
        }
        let leaves = known.table.leaves;
        match leaves.rest() {
            None => {
                known.table.leaves = leaves.doubted();
                Look::Past
            }
            Some(0) => Look::Into,
            Some(rest) => {
                known.table.leaves = Leaves::dense(rest - 1).doubted();
                Look::Trust
            }
        }
    }

    fn saw(&mut self, known: Known<'_>, young: u64, present: u64, _: bool) {
        let met = !known.table.leaves.is_unmet();
        let dense = met && is_dense(young, present);
        known.table.leaves = if dense { Leaves::dense(self.rest) } else { Leaves::SPARSE };
    }

    fn regions(&mut self, snapshot: &Snapshot) {
        // An instrument that reports no regions clears no bits either.
        if snapshot.regions.is_empty() {
            return;
        }
        self.guided = true;
        let known = snapshot.regions.iter().filter(|region| !region.is_unknown());
        let (mut cold, hot): (Vec<&Region>, Vec<&Region>) =
            known.partition(|region| region.is_cold());
        cold.sort_by_key(|region| (std::cmp::Reverse(region.age), region.range));
        self.cold = cold.into_iter().map(|region| region.range).collect();
        self.hot = hot.into_iter().map(|region| region.range).collect();
    }

    fn first(&self) -> &[Range] {
        &self.cold
    }

    fn shares_bits(&self) -> bool {
        self.guided
    }

    fn also(&self) -> &[Range] {
        &self.hot
    }
}

impl TopDown {
    fn is_hot(&self, range: &Range) -> bool {
        let next = self.hot.partition_point(|r| (r.space, r.end) <= (range.space, range.start));
        self.hot.get(next).is_some_and(|hot| hot.intersect(range).is_some())
    }
}

/// MGLRU with top-down walks as a policy.
pub type MglruTelescope = Reclaimer<TopDown>;

impl MglruTelescope {
    /// Defaults: a dense table is skipped for one walk. Assumed; to be varied from 0 to 3.
    #[must_use]
    pub fn defaults() -> Config {
        Config { rest: 1, ..Config::default() }
    }

    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let walk = TopDown { rest: config.rest, fresh: config.fresh, ..TopDown::default() };
        Self::of(config, walk)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tierscope_core::{
        Evidence, Orders, PlacementView, Policy, RangeSet, Setting, SpaceId, Time,
    };

    use super::*;
    use crate::reclaim::generations::{Generations, Key};
    use crate::trace::Trace;

    fn config() -> Config {
        Config { interval: Duration::from_secs(1), ..MglruTelescope::defaults() }
    }

    // Four tables; pages 3 and 512 are touched in every second: two of the tables are never
    // scanned.
    #[test]
    fn memory_below_old_entries_is_reclaimed_without_a_scan() {
        let mut trace = Trace::new(MglruTelescope::new(config()), [4096], 2048);
        trace.seconds(8, |_| vec![3, 512]);
        assert_eq!(trace.places(), "3:0 512:0");
        let ordered = trace.ordered();
        assert_eq!(ordered[ordered.len() - 2..], ["1024 Reclaim", "1536 Reclaim"], "{ordered:?}");
    }

    /// The policy without regions from an instrument.
    struct Alone(MglruTelescope);

    impl Policy for Alone {
        fn name(&self) -> &'static str {
            self.0.name()
        }

        fn settings(&self) -> Vec<Setting> {
            self.0.settings()
        }

        fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
            if !matches!(evidence, Evidence::Regions(_)) {
                self.0.observe(evidence, orders);
            }
        }

        fn tick(&mut self, now: Time, places: &dyn PlacementView, orders: &mut Orders) -> Time {
            self.0.tick(now, places, orders)
        }
    }

    // One page of a table is touched between any two walks, at any time between them; the walk
    // before the eviction clears the upper entry.
    #[test]
    fn leaves_below_young_entries_are_scanned_before_reclaim() {
        for phase in 0..3 {
            let config = Config { interval: Duration::from_secs(3), ..config() };
            let mut trace = Trace::new(Alone(MglruTelescope::new(config)), [4096], 2048);
            trace.seconds(24, |second| if second % 3 == phase { vec![1030] } else { vec![] });
            // Pages before and behind the touched one are evicted by separate actions.
            let ordered = trace.ordered();
            assert!(ordered.contains(&"1031 Reclaim".into()), "phase {phase}: {ordered:?}");
            assert!(trace.places().contains("1030:0"), "phase {phase}");
        }
    }

    const KEY: Key = (SpaceId(0), 3);

    /// A table whose pages are all resident.
    fn pages() -> Generations {
        let mapped: RangeSet = [range_of(KEY)].into_iter().collect();
        let mut pages = Generations::default();
        pages.learn(KEY, &mapped);
        pages
    }

    fn known(pages: &mut Generations) -> Known<'_> {
        Known { key: KEY, table: pages.table_mut(KEY).expect("it is there") }
    }

    // The first scan finds all pages young, because their bits were never cleared; the second 64 of
    // 512; the third 63.
    #[test]
    fn tables_are_scanned_while_many_of_their_pages_are_young() {
        let mut pages = pages();
        let mut walk = TopDown { rest: 1, ..TopDown::default() };
        assert_eq!(walk.enters(known(&mut pages), true), Look::Past);
        assert_eq!(walk.enters(known(&mut pages), false), Look::Past, "no look yet");
        walk.saw(known(&mut pages), 512, 512, false);
        assert_eq!(walk.enters(known(&mut pages), false), Look::Past);
        walk.saw(known(&mut pages), 64, 512, false);
        assert_eq!(walk.enters(known(&mut pages), false), Look::Trust, "it rests for a walk");
        assert_eq!(walk.enters(known(&mut pages), false), Look::Into);
        walk.saw(known(&mut pages), 63, 512, true);
        assert_eq!(walk.enters(known(&mut pages), false), Look::Past);
    }

    #[test]
    fn a_new_table_is_scanned_at_once_if_asked_for() {
        let mut pages = pages();
        let mut walk = TopDown { fresh: true, ..TopDown::default() };
        assert_eq!(walk.enters(known(&mut pages), true), Look::Into);
        assert_eq!(walk.enters(known(&mut pages), false), Look::Past, "then as without it");
    }

    #[test]
    fn regions_of_an_instrument_override_upper_entries() {
        let mut pages = pages();
        let mut walk = TopDown { rest: 1, ..TopDown::default() };
        walk.regions(&Snapshot::default());
        assert!(!walk.shares_bits(), "without regions it clears no bits");
        let region = Region::sampled(range_of(KEY), 2.0, 4);
        walk.regions(&Snapshot { regions: vec![region], ..Snapshot::default() });
        assert!(walk.shares_bits());
        assert_eq!(walk.enters(known(&mut pages), false), Look::Into);
    }
}
