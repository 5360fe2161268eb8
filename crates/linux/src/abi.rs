//! The Rust twin of `kmod/tierscope_abi.h`, which explains every field.
//!
//! `tests/abi.rs` compiles the header and compares every size, offset and constant.

/// `TIERSCOPE_ABI_VERSION`: the version that this build uses.
pub const ABI_VERSION: u32 = 4;
/// `TIERSCOPE_DEVICE_NAME`: the device's name below /dev.
pub const DEVICE_NAME: &str = "tierscope";
/// `TIERSCOPE_MAX_LEVELS`: the most levels that a page table has.
pub const MAX_LEVELS: usize = 5;

/// `TIERSCOPE_FEATURE_PTI`: page-table isolation; the two copies of the PGD are judged as one.
pub const FEATURE_PTI: u32 = 1 << 0;
/// `TIERSCOPE_FEATURE_LA57`: 5-level paging is on.
pub const FEATURE_LA57: u32 = 1 << 1;
/// `TIERSCOPE_FEATURE_HANDBACK`: cleared young leaves are handed back to their page.
pub const FEATURE_HANDBACK: u32 = 1 << 2;
/// `TIERSCOPE_FEATURE_MAPPING_LOCKS`: walks lock single mappings, not the whole address space.
pub const FEATURE_MAPPING_LOCKS: u32 = 1 << 3;

/// `struct tierscope_info`: facts of the running kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// In: size of this struct. Out: the size of the kernel's version of it.
    pub size: u32,
    /// ABI version of the module.
    pub abi: u32,
    /// Levels of the page table, 4 or 5.
    pub levels: u32,
    /// Bit `level - 1`: hardware sets ACCESSED in entries of that level.
    pub hardware_levels: u32,
    /// Set of `FEATURE_*` bits.
    pub features: u32,
    /// Largest batch of one PROBE.
    pub max_probes: u32,
    /// A lock hold ends at the first check after this time, in µs.
    pub lock_budget_us: u32,
    /// Minimum time between two FLUSH calls on a file descriptor, in µs.
    pub flush_interval_us: u32,
}

/// `TIERSCOPE_ATTACH_SHARED`: attach beside other file descriptors, too.
pub const ATTACH_SHARED: u32 = 1 << 0;

/// `struct tierscope_attach`: bind a file descriptor to an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Attach {
    /// Size of this struct.
    pub size: u32,
    /// Thread group id in the caller's pid namespace.
    pub pid: i32,
    /// Address of a readable, private, resident page of the caller.
    pub selftest_addr: u64,
    /// Set of `ATTACH_*` bits.
    pub flags: u32,
    /// Out, bit `level - 1`: the self-test saw hardware set ACCESSED there.
    pub proven_levels: u32,
    /// Out, with EBUSY: process that attached first, or 0 if this pid namespace does not have it.
    pub owner: u32,
    /// Reserved, must be zero.
    pub reserved: u32,
}

/// `TIERSCOPE_OP_TEST`: test ACCESSED.
pub const OP_TEST: u8 = 0;
/// `TIERSCOPE_OP_TEST_AND_CLEAR`: test and clear ACCESSED.
pub const OP_TEST_AND_CLEAR: u8 = 1;

/// `TIERSCOPE_STATE_UNMAPPED`: no mapping holds the address.
pub const STATE_UNMAPPED: u8 = 0;
/// `TIERSCOPE_STATE_ABSENT`: the entry, or one above it, is not present.
pub const STATE_ABSENT: u8 = 1;
/// `TIERSCOPE_STATE_OLD`: ACCESSED is clear.
pub const STATE_OLD: u8 = 2;
/// `TIERSCOPE_STATE_YOUNG`: ACCESSED is set.
pub const STATE_YOUNG: u8 = 3;
/// `TIERSCOPE_STATE_REFUSED`: the entry is of shared hugetlb memory and is not judged.
pub const STATE_REFUSED: u8 = 4;

/// `TIERSCOPE_KIND_NONE`.
pub const KIND_NONE: u8 = 0;
/// `TIERSCOPE_KIND_TABLE`: the entry points to a lower table.
pub const KIND_TABLE: u8 = 1;
/// `TIERSCOPE_KIND_PAGE`: a leaf of page cache or anonymous memory.
pub const KIND_PAGE: u8 = 2;
/// `TIERSCOPE_KIND_HUGETLB`: a leaf of hugetlbfs.
pub const KIND_HUGETLB: u8 = 3;
/// `TIERSCOPE_KIND_SPECIAL`: a leaf without a `struct page` of its own.
pub const KIND_SPECIAL: u8 = 4;

/// `struct tierscope_probe`: test, or test and clear, one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probe {
    /// In: an address that the entry covers.
    pub addr: u64,
    /// In: level of the entry, 1..=5.
    pub level: u8,
    /// In: operation, one of `OP_*`.
    pub op: u8,
    /// Out: state of the entry, one of `STATE_*`.
    pub state: u8,
    /// Out: level of the entry that was judged or found absent; 0 if the address is unmapped.
    pub reached: u8,
    /// Out: kind of the entry, one of `KIND_*`.
    pub kind: u8,
    /// Reserved, must be zero.
    pub reserved: [u8; 3],
}

/// `struct tierscope_probes`: a batch, judged in the order given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Probes {
    /// Size of this struct.
    pub size: u32,
    /// Probes in the batch.
    pub count: u32,
    /// User address of the first [`Probe`].
    pub probes: u64,
    /// Out: number of probes that were completed.
    pub done: u32,
    /// Out: number of times the mmap lock was taken.
    pub lock_holds: u32,
    /// Out: longest hold of the mmap lock.
    pub lock_ns_max: u64,
    /// Out: bits of the address space that other file descriptors cleared since ATTACH.
    pub cleared_by_others: u64,
}

/// `TIERSCOPE_SCAN_CLEAR`: clear ACCESSED after testing it.
pub const SCAN_CLEAR: u32 = 1 << 0;
/// `TIERSCOPE_SCAN_PRUNE`: skip the subtree of an upper entry found old.
pub const SCAN_PRUNE: u32 = 1 << 1;

/// `TIERSCOPE_JUDGED`, in [`Scan::judged`]: the upper entry was judged.
pub const JUDGED: u32 = 1 << 0;
/// `TIERSCOPE_JUDGED_YOUNG`, in [`Scan::judged`]: the upper entry was young.
pub const JUDGED_YOUNG: u32 = 1 << 1;
/// `TIERSCOPE_JUDGED_LEAF`, in [`Scan::judged`]: the upper entry was a leaf.
pub const JUDGED_LEAF: u32 = 1 << 2;

/// `struct tierscope_scan`: judge every entry of a level in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Scan {
    /// Size of this struct.
    pub size: u32,
    /// Level to be scanned, 1..=5.
    pub level: u32,
    /// Set of `SCAN_*` bits.
    pub flags: u32,
    /// Reserved, must be zero.
    pub reserved: u32,
    /// First byte, a multiple of the level's entry size.
    pub start: u64,
    /// One past the last byte, a multiple of the level's entry size.
    pub end: u64,
    /// Address of the bitmap of young entries.
    pub young: u64,
    /// Address of the bitmap of present entries, or 0.
    pub present: u64,
    /// In and out: the address at which to resume.
    pub cursor: u64,
    /// In and out: base addresses of the upper entries judged last, by level, with `JUDGED*`.
    pub judged: [u64; MAX_LEVELS],
    /// Accumulated: entries visited.
    pub visited: u64,
    /// Accumulated: present entries.
    pub found_present: u64,
    /// Accumulated: young entries.
    pub found_young: u64,
    /// Accumulated: old upper entries whose subtree was skipped.
    pub pruned: u64,
    /// Accumulated: present leaves encountered, by level.
    pub leaves: [u64; MAX_LEVELS],
    /// Accumulated: number of times the mmap lock was taken.
    pub lock_holds: u64,
    /// Longest hold of the mmap lock.
    pub lock_ns_max: u64,
    /// Out: as in [`Probes`].
    pub cleared_by_others: u64,
}

/// `struct tierscope_flush`: flush the target's TLB entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Flush {
    /// Size of this struct.
    pub size: u32,
    /// Out: number of CPUs that were requested to flush.
    pub cpus: u32,
}

/// `TIERSCOPE_HOLD_BUCKETS`: number of buckets in [`Holds::by_length`].
pub const HOLD_BUCKETS: usize = 128;

/// `struct tierscope_holds`: holds of one kind of lock since ATTACH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Holds {
    /// Longest single hold, in ns.
    pub ns_max: u64,
    /// Holds by length, in buckets of a quarter of an octave.
    pub by_length: [u64; HOLD_BUCKETS],
}

impl Default for Holds {
    fn default() -> Self {
        Self { ns_max: 0, by_length: [0; HOLD_BUCKETS] }
    }
}

/// `struct tierscope_stats`: work of a file descriptor since ATTACH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Size of this struct.
    pub size: u32,
    /// Reserved, must be zero.
    pub reserved: u32,
    /// Entries judged by PROBE.
    pub probes: u64,
    /// Entries visited by SCAN.
    pub scanned: u64,
    /// Holds cut short because a writer waited for the lock.
    pub contended: u64,
    /// FLUSH calls that succeeded.
    pub flushes: u64,
    /// Interrupts that these calls sent to other CPUs.
    pub interrupts: u64,
    /// Holds of the mmap lock.
    pub mmap_holds: Holds,
    /// Holds of the lock of a single mapping; none without [`FEATURE_MAPPING_LOCKS`].
    pub mapping_holds: Holds,
}

/// `TIERSCOPE_IOC_MAGIC`: type byte of all ioctl numbers.
pub const IOC_MAGIC: u32 = 0xE7;

/// Encodes an ioctl number like `_IO` and `_IOWR` of `asm-generic/ioctl.h`.
const fn request(read_write: bool, number: u32, size: usize) -> u32 {
    let direction = if read_write { 3 } else { 0 };
    (direction << 30) | ((size as u32) << 16) | (IOC_MAGIC << 8) | number
}

/// `TIERSCOPE_IOC_INFO`. Its number does not encode the struct's size, so that every ABI version
/// answers it.
pub const IOC_INFO: u32 = request(false, 0, 0);
/// `TIERSCOPE_IOC_ATTACH`.
pub const IOC_ATTACH: u32 = request(true, 1, size_of::<Attach>());
/// `TIERSCOPE_IOC_PROBE`.
pub const IOC_PROBE: u32 = request(true, 2, size_of::<Probes>());
/// `TIERSCOPE_IOC_SCAN`.
pub const IOC_SCAN: u32 = request(true, 3, size_of::<Scan>());
/// `TIERSCOPE_IOC_STATS`.
pub const IOC_STATS: u32 = request(true, 4, size_of::<Stats>());
/// `TIERSCOPE_IOC_FLUSH`.
pub const IOC_FLUSH: u32 = request(true, 5, size_of::<Flush>());
