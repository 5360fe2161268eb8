//! What a kernel that keeps page tables in an uncached region tells of them (PTAT, section 4.1.4): what the simulated
//! machine says and the readers of dumps understand. Layouts of files are in `crates/trace/PTAT.md`.

use tierscope_core::Level;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its first byte.
    pub start: u64,
    /// How many there are; none if nothing is there.
    pub bytes: u64,
}

impl Window {
    /// Whether the address lies in it.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// It maps a page from now on.
    Map,
    /// It maps none any more.
    Unmap,
    /// Its page may be written to from now on, or may not.
    Flags,
    /// The kernel looked at it, or cleared flags that hardware sets.
    Look,
    /// It points to a table of the level below from now on.
    Table,
    /// It points to none any more.
    NoTable,
    /// What its page holds lies in the region from now on, at the page of that number, counted from the region's first: accesses to
    /// it cross the bus.
    Place,
    /// It does so no longer.
    Leave,
}

/// A change of an entry, and what the kernel read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// What happened.
    pub what: What,
    /// The process.
    pub pid: u32,
    /// The level of the entry: 1 for pages of 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub level: Level,
    /// Whether the page may be written to.
    pub writable: bool,
    /// Number of the first virtual page of 4 KiB that the entry is about.
    pub page: u64,
    /// Number of the first physical one; of the table's if it points to one.
    pub frame: u64,
    /// Physical address of the entry, a multiple of 8.
    pub entry: u64,
    /// Reads of it that were no TLB misses, up to 15: by the kernel, and by walks that ended in the page fault that
    /// the kernel resolves here. All of them come before the tag.
    pub reads: u8,
}

/// How far the control program got with a process (PTAT, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Its number was passed to the kernel: its tables go to the region from now on.
    Announced,
    /// It executes the program.
    Executes,
    /// It is gone.
    Exited,
    /// It is a machine in this one: its pages are guest-physical ones, and its entries the hypervisor's.
    Machine,
    /// It runs in the machine of that number, below 2^24.
    Within(u32),
}

/// What the kernel has to tell, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// An entry changed.
    Change(Change),
    /// A process got on.
    Process {
        /// Its number.
        pid: u32,
        /// How far.
        stage: Stage,
    },
    /// What was told since the last tag is in force from the request on that bears this number.
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
