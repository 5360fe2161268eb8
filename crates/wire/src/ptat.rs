//! Page-table events of a kernel that keeps page tables in an uncached region (PTAT, section
//! 4.1.4): the simulated machine emits them, and readers of dumps decode them. File layouts are in
//! `crates/tlb/PTAT.md`.

use tierscope_core::Level;

/// A range of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its first address.
    pub start: u64,
    /// Its length; 0 for an empty range.
    pub bytes: u64,
}

impl Window {
    /// Whether the address lies in the range.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// Kind of a page-table event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// The entry now maps a page.
    Map,
    /// The entry maps no page any more.
    Unmap,
    /// The page's write permission changed.
    Flags,
    /// The kernel read the entry, or cleared flags that hardware sets.
    Look,
    /// The entry now points to a table of the level below.
    Table,
    /// The entry points to no table any more.
    NoTable,
    /// The page's data now lie in the uncached region, at this page number relative to the region's
    /// start: accesses to the page cross the bus.
    Place,
    /// The page's data left the uncached region.
    Leave,
}

/// A change of a page-table entry, and how often the kernel read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// Kind of the event.
    pub what: What,
    /// The process that owns the page table.
    pub pid: u32,
    /// The level of the entry: 1 for pages of 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub level: Level,
    /// Whether the page is writable.
    pub writable: bool,
    /// Number of the first virtual 4 KiB page that the entry translates.
    pub page: u64,
    /// Number of the first physical 4 KiB page that the entry points to: of the mapped page, or of
    /// the table.
    pub frame: u64,
    /// Physical address of the entry, a multiple of 8.
    pub entry: u64,
    /// Reads of the entry that were not TLB misses, up to 15: by the kernel, and by walks that
    /// ended in the page fault that the kernel resolves here. All of them precede the tag.
    pub reads: u8,
}

/// Events in the life of a traced process (PTAT, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The control program passed the pid to the kernel: page tables of the process are put into
    /// the region from now on.
    Announced,
    /// The process has started to execute the traced program.
    Executes,
    /// The process has exited.
    Exited,
    /// The process is a virtual machine: its pages are guest-physical, and its entries belong to
    /// the hypervisor.
    Machine,
    /// The process runs inside the virtual machine of that number, below 2^24.
    Within(u32),
}

/// An event that the kernel reports; events are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelEvent {
    /// An entry changed.
    Change(Change),
    /// A process reached another stage.
    Process {
        /// Its pid.
        pid: u32,
        /// The stage that it reached.
        stage: Stage,
    },
    /// The events since the last tag take effect at the bus request that carries this number.
    Tag(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends() {
        let window = Window { start: 4096, bytes: 64 };
        assert_eq!([4095, 4096, 4159, 4160].map(|at| window.holds(at)), [false, true, true, false]);
        assert!(!Window::default().holds(0));
    }
}
