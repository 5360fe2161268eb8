//! Memory that belongs to a group of processes and is in no page table of theirs.
//!
//! A file that is read and not mapped, slab and page tables are used by the kernel through its own
//! mappings: no ACCESSED bit of a process shows that. Machines report their size, and events that
//! tell how well they fit.

/// A kind of such memory, or of such events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Charge {
    /// Bytes of page cache that no process maps: files read or written, tmpfs.
    PageCache,
    /// Bytes of kernel objects: dentries, inodes.
    Slab,
    /// Bytes of page tables.
    PageTables,
    /// Bytes of threads' stacks in the kernel.
    KernelStacks,
    /// Bytes of socket buffers.
    Sockets,
    /// Refaults so far of file pages: read again soon after they were evicted.
    FileRefaults,
    /// Refaults so far of anonymous pages.
    AnonRefaults,
    /// Page faults so far that waited for a device.
    MajorFaults,
}

impl Charge {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::PageCache,
        Self::Slab,
        Self::PageTables,
        Self::KernelStacks,
        Self::Sockets,
        Self::FileRefaults,
        Self::AnonRefaults,
        Self::MajorFaults,
    ];

    /// Name of its series in recordings.
    #[must_use]
    pub fn series(self) -> &'static str {
        match self {
            Self::PageCache => "page_cache_bytes",
            Self::Slab => "slab_bytes",
            Self::PageTables => "page_table_bytes",
            Self::KernelStacks => "kernel_stack_bytes",
            Self::Sockets => "socket_bytes",
            Self::FileRefaults => "file_refaults",
            Self::AnonRefaults => "anon_refaults",
            Self::MajorFaults => "major_faults",
        }
    }

    /// The kind with this series.
    #[must_use]
    pub fn of_series(series: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|charge| charge.series() == series)
    }

    /// Whether it counts events so far instead of bytes.
    #[must_use]
    pub fn is_count(self) -> bool {
        matches!(self, Self::FileRefaults | Self::AnonRefaults | Self::MajorFaults)
    }

    /// Name in reports.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::PageCache => "page cache",
            Self::Slab => "slab",
            Self::PageTables => "page tables",
            Self::KernelStacks => "kernel stacks",
            Self::Sockets => "sockets",
            Self::FileRefaults => "refaults of files",
            Self::AnonRefaults => "refaults of anonymous memory",
            Self::MajorFaults => "major faults",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_found_by_name() {
        for charge in Charge::ALL {
            assert_eq!(Charge::of_series(charge.series()), Some(charge));
            assert_eq!(charge.series().ends_with("_bytes"), !charge.is_count());
        }
        assert_eq!(Charge::of_series("hot_bytes"), None);
    }
}
