//! Misses of a trace of accesses on a machine, by object, function and page.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tierscope_core::Result;
use tierscope_hw::{Machine, PageSize};
use tierscope_trace::Event;

use super::accesses::{Listener, Seen};
use super::model::{Counts, Model};
use super::objects::Objects;
use super::table::{Place, Table, UNIT, table};

/// Runs accesses through a machine's MMUs, and counts misses by page, object and function.
pub struct Baseline {
    model: Model,
    size: PageSize,
    objects: Objects,
    missed: HashMap<(Place, Option<usize>), u64>,
    functions: BTreeMap<Arc<str>, u64>,
    /// The trace contains allocations with their call sites.
    pub(crate) allocations: bool,
}

impl Baseline {
    /// Starts with empty TLBs, and pages of `size`.
    ///
    /// # Errors
    /// The machine's configuration is invalid.
    pub fn new(machine: &Machine, size: PageSize) -> Result<Self> {
        Ok(Self {
            model: Model::new(machine, None)?,
            size,
            objects: Objects::default(),
            missed: HashMap::new(),
            functions: BTreeMap::new(),
            allocations: false,
        })
    }

    /// Counts of accesses and misses.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.model.counts
    }

    /// The table of misses, and the objects of the trace.
    pub(crate) fn table(self) -> (Table, Objects) {
        let mut objects = self.objects;
        let missed = self.missed.into_iter().collect();
        (table(&mut objects, &missed, self.functions), objects)
    }

    fn missed(&mut self, seen: Seen) {
        let bytes = self.size.bytes();
        let place = (seen.pid, seen.address & !(bytes - 1), bytes);
        let object = self.objects.find(seen.pid, seen.address);
        *self.missed.entry((place, object)).or_default() += UNIT;
        let Some(from) = seen.from else { return };
        let named = self.objects.code(seen.pid, from.address);
        // An instruction outside of any known function is named by its mapping; the start address
        // of an unnamed function is not.
        let named =
            named.or_else(|| self.objects.find(seen.pid, from.address).filter(|_| !from.function));
        let name = match named {
            Some(at) => Arc::clone(&self.objects.list[at].name),
            None => format!("code near {:#x}", from.address & !0xffff).into(),
        };
        *self.functions.entry(name).or_default() += UNIT;
    }
}

impl Listener for Baseline {
    fn event(&mut self, event: &Event) {
        self.objects.event(event);
    }

    fn allocated(&mut self, pid: u64, start: u64, bytes: u64, site: &Arc<str>) {
        self.allocations = true;
        self.objects.allocated(pid, start, bytes, site);
    }

    #[inline]
    fn access(&mut self, seen: Seen) {
        let who = (seen.thread, seen.pid);
        if self.model.access(who, seen.address, seen.access, self.size) {
            self.missed(seen);
        }
    }
}
