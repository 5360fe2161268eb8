//! Accesses that memory served, by page: what a placement that is known to be the best follows.

use std::collections::{BTreeMap, HashMap};

use tierscope_core::{BusObserver, Level, PAGE_SHIFT, Range, SpaceId};

use crate::exact::Machine;

/// Accesses of a core that memory served, by space and number of the 4 KiB page.
#[derive(Default)]
pub(super) struct Misses(HashMap<(SpaceId, u64), u64>);

impl Misses {
    #[inline(never)]
    pub(super) fn count(&mut self, space: SpaceId, linear: u64) {
        *self.0.entry((space, linear >> PAGE_SHIFT)).or_default() += 1;
    }
}

impl<B: BusObserver> Machine<B> {
    /// Accesses that memory served since the last call, by page of its present size, in order of
    /// address; none without [`Setup::count_misses`](crate::exact::Setup::count_misses).
    pub fn take_misses(&mut self) -> Vec<(Range, f64)> {
        let mut pages = BTreeMap::<(SpaceId, u64), u64>::new();
        for misses in self.cpus.iter_mut().filter_map(|cpu| cpu.misses.as_deref_mut()) {
            misses.0.drain().for_each(|(page, count)| *pages.entry(page).or_default() += count);
        }
        let mut taken: Vec<(Range, f64)> = Vec::with_capacity(pages.len());
        for ((space, page), count) in pages {
            let at = page << PAGE_SHIFT;
            match taken.last_mut() {
                Some((last, sum)) if last.space == space && at < last.end => *sum += count as f64,
                _ => taken.push((self.page_around(space, at), count as f64)),
            }
        }
        taken
    }

    /// The page that holds an address; 4 KiB if there is none any more.
    fn page_around(&self, space: SpaceId, at: u64) -> Range {
        let root = self.os.spaces[space.0 as usize].root;
        let found = self.os.tables.locate(root, at, Level::PTE);
        let bytes = if found.is_leaf() { found.level } else { Level::PTE }.entry_bytes();
        let start = at & !(bytes - 1);
        Range::new(space, start, start + bytes)
    }
}
