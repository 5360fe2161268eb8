//! Memory of a cgroup that its processes do not map: `memory.stat` of the cgroup
//! (Documentation/admin-guide/cgroup-v2.rst), which includes the cgroups below it.
//!
//! Page cache belongs to the cgroup that brought it into memory. `cachestat(2)` says the same of
//! one open file, at the cost of a walk over its pages, and not of which cgroup they are.

use std::path::Path;

use tierscope_core::Charge;

use crate::proc::read_whole;

/// Figures of a `memory.stat`; what the kernel does not report is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CgroupMemory {
    /// Swapped bytes that zswap holds compressed in memory, at their original size.
    pub(crate) zswapped: Option<u64>,
    /// Memory in no page table, in the order of [`Charge::ALL`].
    pub(crate) charges: Vec<(Charge, u64)>,
}

impl CgroupMemory {
    /// Of the cgroup with this directory; empty if it has no memory controller.
    pub(crate) fn read(directory: &Path) -> Self {
        let text = read_whole(&directory.join("memory.stat")).ok().flatten();
        text.map_or_else(Self::default, |text| Self::parse(&text))
    }

    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let of = |key: &str| -> Option<u64> {
            let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok();
            text.lines().find_map(value)
        };
        let value = |charge: Charge| -> Option<u64> {
            match charge {
                Charge::PageCache => Some(of("file")?.saturating_sub(of("file_mapped")?)),
                Charge::Slab => of("slab"),
                Charge::PageTables => of("pagetables"),
                Charge::KernelStacks => of("kernel_stack"),
                Charge::Sockets => of("sock"),
                Charge::FileRefaults => of("workingset_refault_file"),
                Charge::AnonRefaults => of("workingset_refault_anon"),
                Charge::MajorFaults => of("pgmajfault"),
            }
        };
        let known = |charge| Some((charge, value(charge)?));
        Self {
            zswapped: of("zswapped"),
            charges: Charge::ALL.into_iter().filter_map(known).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Excerpt of a memory.stat of Linux 6.12.
    const STAT: &str = "anon 4096\nfile 1048576\nkernel 50000\nkernel_stack 16384\n\
                        pagetables 8192\nsec_pagetables 0\npercpu 0\nsock 12288\nvmalloc 0\n\
                        shmem 0\nzswap 1024\nzswapped 20480\nfile_mapped 262144\n\
                        file_dirty 0\nslab_reclaimable 1000\nslab_unreclaimable 2000\nslab 3000\n\
                        workingset_refault_anon 5\nworkingset_refault_file 7\npgfault 90\n\
                        pgmajfault 9\n";

    #[test]
    fn page_cache_is_what_is_not_mapped() {
        let memory = CgroupMemory::parse(STAT.as_bytes());
        assert_eq!(memory.zswapped, Some(20480));
        let values = [786_432, 3000, 8192, 16384, 12288, 7, 5, 9];
        assert_eq!(memory.charges, Charge::ALL.into_iter().zip(values).collect::<Vec<_>>());
    }

    // Linux 5.10 counts neither page tables nor zswap, and all refaults in one.
    #[test]
    fn figures_that_the_kernel_lacks_are_absent() {
        let text = "anon 4096\nfile 8192\nfile_mapped 4096\nslab 1\nworkingset_refault 3\n";
        let memory = CgroupMemory::parse(text.as_bytes());
        assert_eq!(memory.charges, [(Charge::PageCache, 4096), (Charge::Slab, 1)]);
        assert_eq!(memory.zswapped, None);
    }

    #[test]
    fn the_file_is_that_of_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(CgroupMemory::read(directory.path()), CgroupMemory::default());
        std::fs::write(directory.path().join("memory.stat"), STAT).unwrap();
        assert_eq!(CgroupMemory::read(directory.path()), CgroupMemory::parse(STAT.as_bytes()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = CgroupMemory::parse(&bytes);
        }
    }
}
