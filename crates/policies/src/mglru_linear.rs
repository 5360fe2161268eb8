//! MGLRU with linear scans: the Telescope article's "standalone" MGLRU.
//!
//! Source: the article, "MGLRU + Telescope": MGLRU "uses linear-scanning-based telemetry"; "Each
//! MGLRU scan starts by creating a new generation LRU list. In every scan, frequently accessed or
//! hot pages are moved to newer generations". Every walk scans all leaves and skips none.
//! Generations and eviction are [`crate::reclaim`]'s.

use tierscope_core::Need;

use crate::reclaim::{Config, Known, Look, Reclaimer, Walk};
use crate::registry::{BY_ACCESSED, Entry, keys_of, made};

/// The policy `mglru-linear` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "mglru-linear",
    about: "generations of pages; every walk looks at every leaf",
    source: "the Telescope article, MGLRU standalone",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "never",
    demotes: "reclaims the oldest of up to four generations",
    cost: "all leaves",
    page_bytes: Some(crate::reclaim::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: true,
    make: made!("mglru-linear", crate::reclaim::Config::default(), MglruLinear::new),
    keys: || keys_of(&mut crate::reclaim::Config::default()),
};

/// A walk that scans every leaf.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear;

impl Walk for Linear {
    const NAME: &'static str = "mglru-linear";
    const PRUNES: Option<bool> = None;

    fn enters(&mut self, _: Known<'_>, _: bool) -> Look {
        Look::Into
    }

    fn saw(&mut self, _: Known<'_>, _: u64, _: u64, _: bool) {}
}

/// MGLRU with linear scans as a policy.
pub type MglruLinear = Reclaimer<Linear>;

impl MglruLinear {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::of(config, Linear)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trace::Trace;

    #[test]
    fn the_oldest_pages_are_reclaimed_and_young_ones_stay() {
        let config = Config { interval: Duration::from_secs(1), ..Config::default() };
        let mut trace = Trace::new(MglruLinear::new(config), [64], 8);
        // Page 3 is touched in every third second: an interval of three walks is too long to
        // survive.
        trace.seconds(7, |second| if second % 3 == 0 { vec![0, 3] } else { vec![0] });
        assert_eq!(trace.tier(0), Some(tierscope_core::Tier(0)));
        assert!(trace.orders() >= 2, "{:?}", trace.ordered());
        assert_eq!(trace.tier(5), None);
    }
}
