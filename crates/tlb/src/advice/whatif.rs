//! Other TLBs, page sizes and placements of page tables for the same accesses.

use tierscope_core::{Access, Error, ErrorKind, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_trace::Event;

use crate::attribution::{All, Counts, Listener, Model, Placement, Second, Seen};
use crate::ptat::{Block, Sink};

/// One configuration of machine, pages and tables, with its model.
pub struct Configuration {
    /// Name of the machine.
    pub name: String,
    /// Page size of the accesses.
    pub size: PageSize,
    /// Caching of page tables.
    pub placement: Placement,
    /// Page size of the hypervisor, if there is one.
    pub nested: Option<PageSize>,
    model: Model,
    /// Latency of an entry's read in nanoseconds: from the last-level cache, and from memory.
    llc_ns: f64,
    memory_ns: f64,
}

impl Configuration {
    /// A machine with empty TLBs.
    ///
    /// # Errors
    /// The machine has no last-level cache, or its configuration is invalid.
    pub fn new(
        name: &str,
        machine: &Machine,
        size: PageSize,
        placement: Placement,
        nested: Option<PageSize>,
    ) -> Result<Self> {
        if machine.llc.is_none() {
            let what = format!("cannot predict the cost of walks on {name}");
            return Err(Error::new(ErrorKind::Usage, what)
                .cause("the machine has no last-level cache")
                .remedy("give another, or add [llc] to its file"));
        }
        let model = Model::new(machine, Some(placement))?;
        let model = match nested {
            Some(size) => model.nested(machine, size)?,
            None => model,
        };
        Ok(Self {
            name: name.to_owned(),
            size,
            placement,
            nested,
            model,
            llc_ns: machine.nanoseconds(machine.timing.llc_cycles),
            memory_ns: f64::from(machine.tiers[0].read_ns),
        })
    }

    /// Counts of accesses and walks.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.model.counts
    }

    /// Total latency of walk reads, if none overlaps with other work; reads of a hypervisor's
    /// entries are taken to hit the last-level cache.
    #[must_use]
    pub fn walk_ns(&self) -> f64 {
        let Counts { reads, memory, .. } = self.counts();
        let host = self.model.second().map_or(0, |second| second.reads);
        (reads + host - memory) as f64 * self.llc_ns + memory as f64 * self.memory_ns
    }

    /// Counts of the hypervisor's tables, if there is a hypervisor.
    #[must_use]
    pub fn second(&self) -> Option<Second> {
        self.model.second()
    }
}

impl Listener for Configuration {
    fn event(&mut self, _: &Event) {}

    #[inline]
    fn access(&mut self, seen: Seen) {
        let _ = self.model.access((seen.thread, seen.pid), seen.address, seen.access, self.size);
    }
}

/// Feeds the misses of a capture, in place of accesses, to all configurations.
impl Sink for All<Configuration> {
    fn miss(&mut self, _: u64, block: &Block) {
        let Some(page) = block.pages().next() else { return };
        for way in &mut self.0 {
            let who = (0, page.pid.into());
            let _ = way.model.access(who, page.start(), Access::Load, way.size);
        }
    }
}
