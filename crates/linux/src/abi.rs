//! The Rust twin of `kmod/tierscope_abi.h`, which is where every field is explained.
//!
//! `tests/abi.rs` compiles the header and compares every size, offset and constant.

/// `TIERSCOPE_ABI_VERSION`: what this build speaks.
pub const ABI_VERSION: u32 = 2;
/// `TIERSCOPE_DEVICE_NAME`.
pub const DEVICE_NAME: &str = "tierscope";
/// `TIERSCOPE_MAX_LEVELS`.
pub const MAX_LEVELS: usize = 5;

/// `TIERSCOPE_FEATURE_PTI`: two copies of the PGD are judged as one.
pub const FEATURE_PTI: u32 = 1 << 0;
/// `TIERSCOPE_FEATURE_LA57`: 5-level paging is on.
pub const FEATURE_LA57: u32 = 1 << 1;
/// `TIERSCOPE_FEATURE_HANDBACK`: cleared young leaves are handed back to their page.
pub const FEATURE_HANDBACK: u32 = 1 << 2;

/// `struct tierscope_info`: facts of the running kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// In: size of this struct. Out: the size that the kernel knows.
    pub size: u32,
    /// ABI version of the module.
    pub abi: u32,
    /// Levels of the page table, 4 or 5.
    pub levels: u32,
    /// Bit `level - 1`: hardware sets ACCESSED in entries of that level.
    pub hardware_levels: u32,
    /// `FEATURE_*`.
    pub features: u32,
    /// Largest count of one PROBE.
    pub max_probes: u32,
    /// A lock is dropped at the first check after this time, in µs.
    pub lock_budget_us: u32,
    /// Least time from one FLUSH of a file descriptor to its next, in µs.
    pub flush_interval_us: u32,
}

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
    /// Zero.
    pub flags: u32,
    /// Out, bit `level - 1`: the self-test saw hardware set ACCESSED there.
    pub proven_levels: u32,
}

/// `TIERSCOPE_OP_TEST`.
pub const OP_TEST: u8 = 0;
/// `TIERSCOPE_OP_TEST_AND_CLEAR`.
pub const OP_TEST_AND_CLEAR: u8 = 1;

/// `TIERSCOPE_STATE_UNMAPPED`: no mapping holds the address.
pub const STATE_UNMAPPED: u8 = 0;
/// `TIERSCOPE_STATE_ABSENT`: an entry on the way is not present.
pub const STATE_ABSENT: u8 = 1;
/// `TIERSCOPE_STATE_OLD`.
pub const STATE_OLD: u8 = 2;
/// `TIERSCOPE_STATE_YOUNG`.
pub const STATE_YOUNG: u8 = 3;
/// `TIERSCOPE_STATE_REFUSED`: shared hugetlb.
pub const STATE_REFUSED: u8 = 4;

/// `TIERSCOPE_KIND_NONE`.
pub const KIND_NONE: u8 = 0;
/// `TIERSCOPE_KIND_TABLE`: the entry points to a table.
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
    /// In: `OP_*`.
    pub op: u8,
    /// Out: `STATE_*`.
    pub state: u8,
    /// Out: level of the entry that was judged or found absent; 0 if unmapped.
    pub reached: u8,
    /// Out: `KIND_*`.
    pub kind: u8,
    /// Zero.
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
    /// Address of the first [`Probe`].
    pub probes: u64,
    /// Out: probes answered.
    pub done: u32,
    /// Out: how often the mmap lock was taken.
    pub lock_holds: u32,
    /// Out: longest hold of the mmap lock.
    pub lock_ns_max: u64,
}

/// `TIERSCOPE_SCAN_CLEAR`: test and clear.
pub const SCAN_CLEAR: u32 = 1 << 0;
/// `TIERSCOPE_SCAN_PRUNE`: skip what lies under an upper entry found old.
pub const SCAN_PRUNE: u32 = 1 << 1;

/// `TIERSCOPE_JUDGED`, in [`Scan::judged`]: the upper entry was judged.
pub const JUDGED: u32 = 1 << 0;
/// `TIERSCOPE_JUDGED_YOUNG`: it was young.
pub const JUDGED_YOUNG: u32 = 1 << 1;
/// `TIERSCOPE_JUDGED_LEAF`: it was a leaf.
pub const JUDGED_LEAF: u32 = 1 << 2;

/// `struct tierscope_scan`: judge every entry of a level in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Scan {
    /// Size of this struct.
    pub size: u32,
    /// Level, 1..=5.
    pub level: u32,
    /// `SCAN_*`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// First byte, a multiple of the level's entry size.
    pub start: u64,
    /// One past the last byte, likewise.
    pub end: u64,
    /// Address of the bitmap of young entries.
    pub young: u64,
    /// Address of the bitmap of present entries, or 0.
    pub present: u64,
    /// In and out: where to go on.
    pub cursor: u64,
    /// In and out: base addresses of the upper entries judged last, by level, with `JUDGED*`.
    pub judged: [u64; MAX_LEVELS],
    /// Added up: entries looked at.
    pub visited: u64,
    /// Added up: present entries.
    pub found_present: u64,
    /// Added up: young entries.
    pub found_young: u64,
    /// Added up: old upper entries whose subtree was skipped.
    pub pruned: u64,
    /// Added up: present leaves met, by level.
    pub leaves: [u64; MAX_LEVELS],
    /// Added up: how often the mmap lock was taken.
    pub lock_holds: u64,
    /// Longest hold of the mmap lock.
    pub lock_ns_max: u64,
}

/// `struct tierscope_flush`: drop the target's translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Flush {
    /// Size of this struct.
    pub size: u32,
    /// Out: CPUs asked to.
    pub cpus: u32,
}

/// `TIERSCOPE_HOLD_BUCKETS`.
pub const HOLD_BUCKETS: usize = 128;

/// `struct tierscope_stats`: what a file descriptor did since ATTACH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Size of this struct.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// Entries judged by PROBE.
    pub probes: u64,
    /// Entries looked at by SCAN.
    pub scanned: u64,
    /// Holds cut short because somebody waited for the lock.
    pub contended: u64,
    /// FLUSH calls that succeeded.
    pub flushes: u64,
    /// Interrupts that they sent to other CPUs.
    pub interrupts: u64,
    /// Longest hold of the mmap lock.
    pub hold_ns_max: u64,
    /// Holds of the mmap lock by length, in buckets of a quarter of an octave.
    pub holds: [u64; HOLD_BUCKETS],
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            size: 0,
            reserved: 0,
            probes: 0,
            scanned: 0,
            contended: 0,
            flushes: 0,
            interrupts: 0,
            hold_ns_max: 0,
            holds: [0; HOLD_BUCKETS],
        }
    }
}

/// `TIERSCOPE_IOC_MAGIC`.
pub const IOC_MAGIC: u32 = 0xE7;

/// `_IO` and `_IOWR` of `asm-generic/ioctl.h`.
const fn request(read_write: bool, number: u32, size: usize) -> u32 {
    let direction = if read_write { 3 } else { 0 };
    (direction << 30) | ((size as u32) << 16) | (IOC_MAGIC << 8) | number
}

/// `TIERSCOPE_IOC_INFO`. Its number does not hold its size: every version answers it.
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
