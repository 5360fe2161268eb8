//! Counts of page walks by page: the machine's own count, to compare a bus monitor with.

use std::collections::{BTreeMap, HashMap};

use tierscope_core::{BusObserver, Level, SpaceId};
use tierscope_hw::PageSize;

use crate::exact::Machine;

/// Walks of a core, page by page.
#[derive(Default)]
pub(super) struct Walks {
    pub(super) space: SpaceId,
    pub(super) counts: HashMap<(SpaceId, Level, u64), u64>,
}

impl Walks {
    #[inline(never)]
    pub(super) fn count(&mut self, linear: u64, size: PageSize) {
        let page = (linear & !(size.bytes() - 1)) >> 12;
        *self.counts.entry((self.space, size.level(), page)).or_default() += 1;
    }
}

impl<B: BusObserver> Machine<B> {
    /// Attributes the core's walks to a space from here on.
    pub(super) fn count_walks_of(&mut self, at: usize, space: SpaceId) {
        if let Some(walks) = &mut self.cpus[at].walks {
            walks.space = space;
        }
    }

    /// Successful walks by space, level and number of the first 4 KiB of the page: the machine's
    /// own count, kept only with [`Setup::watch_tables`](crate::exact::Setup::watch_tables).
    #[must_use]
    pub fn walks(&self) -> BTreeMap<(SpaceId, Level, u64), u64> {
        let mut all = BTreeMap::new();
        for walks in self.cpus.iter().filter_map(|cpu| cpu.walks.as_deref()) {
            walks.counts.iter().for_each(|(page, count)| *all.entry(*page).or_default() += count);
        }
        all
    }
}
