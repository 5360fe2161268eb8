//! MGLRU that looks from above: upper entries first, and nothing below those that were not accessed.
//!
//! Source: the Telescope article, "MGLRU + Telescope": "We augment MGLRU with Telescope's profiling technique to
//! make it effective for memory reclaim on terabyte-scale workloads." The article says no more about how; here:
//!
//! - A walk clears entries from the top down, and skips what lies under one that was old: its pages age without
//!   a look. Memory met for the first time is young, all of it, without a look at its leaves.
//! - A table of which many pages were young (MGLRU's one in eight) is not looked into for `rest` walks while its
//!   upper entry is young: what was young then stays so.
//! - Before pages go, their upper entry is asked once more: under one that is still old nothing was accessed.
//!   Under a young one the leaves are looked at.
//! - Where an instrument (Telescope) gives regions, those that it never found accessed, the oldest first, are
//!   given back before others. An instrument clears the same bits; so leaves are looked at always then, and a
//!   table within a region that the instrument found accessed is looked into whatever its own entry says.
//!
//! An upper entry can miss an access: where a core keeps it in its paging-structure cache, an access below sets
//! nothing above. What goes by that comes back by a fault, and is counted.

use tierscope_core::{Range, Region, Snapshot};

use crate::reclaim::filter::is_dense;
use crate::reclaim::generations::range_of;
use crate::reclaim::{Config, Known, Look, Reclaimer, Walk};

/// How it walks.
#[derive(Clone, Debug, Default)]
pub struct FromAbove {
    rest: u8,
    /// Regions without an access, the longest so first.
    cold: Vec<Range>,
    /// Regions with some, by address.
    hot: Vec<Range>,
    /// An instrument speaks.
    guided: bool,
}

impl Walk for FromAbove {
    const NAME: &'static str = "mglru-telescope";
    const PRUNES: Option<bool> = Some(true);
    const ASKS_ABOVE: bool = true;

    fn enters(&mut self, known: Known<'_>, fresh: bool) -> Look {
        if fresh {
            return Look::Past;
        }
        let rests = known.table.rest > 0 && !self.is_hot(&range_of(known.key));
        known.table.rest = known.table.rest.saturating_sub(1);
        if rests { Look::Trust } else { Look::Into }
    }

    fn saw(&mut self, known: Known<'_>, young: u64, present: u64, _: bool) {
        known.table.rest = if is_dense(young, present) { self.rest } else { 0 };
    }

    fn regions(&mut self, snapshot: &Snapshot) {
        self.guided = true;
        let (cold, hot): (Vec<&Region>, Vec<&Region>) =
            snapshot.regions.iter().partition(|region| region.hits == 0.0);
        let mut cold = cold;
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

impl FromAbove {
    fn is_hot(&self, range: &Range) -> bool {
        let next = self.hot.partition_point(|r| (r.space, r.end) <= (range.space, range.start));
        self.hot.get(next).is_some_and(|hot| hot.intersect(range).is_some())
    }
}

/// The policy.
pub type MglruTelescope = Reclaimer<FromAbove>;

impl MglruTelescope {
    /// What it takes where nothing is said: a dense table rests for a walk. Assumed; to be varied from 0 to 3.
    #[must_use]
    pub fn defaults() -> Config {
        Config { rest: 1, ..Config::default() }
    }

    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let walk = FromAbove { rest: config.rest, ..FromAbove::default() };
        Self::of(config, walk)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::Trace;

    fn config() -> Config {
        Config { interval: Duration::from_secs(1), ..MglruTelescope::defaults() }
    }

    // Four tables; pages 3 and 512 are touched in every second: half of the tables are never looked into.
    #[test]
    fn what_lies_under_old_entries_goes_without_a_look() {
        let mut trace = Trace::new(MglruTelescope::new(config()), [4096], 2048);
        trace.seconds(8, |_| vec![3, 512]);
        assert_eq!(trace.places(), "3:0 512:0");
        let ordered = trace.ordered();
        assert_eq!(ordered[ordered.len() - 2..], ["1024 Reclaim", "1536 Reclaim"], "{ordered:?}");
    }
}
