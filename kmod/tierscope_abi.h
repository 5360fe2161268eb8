/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * tierscope kernel interface: the one place where its layout is written down.
 *
 * The Rust twin is crates/linux/src/abi.rs; a test compares the size and the
 * field offsets of both. Change one, change the other, and raise
 * TIERSCOPE_ABI_VERSION.
 *
 * Protocol
 * --------
 *  - open("/dev/tierscope") needs CAP_SYS_PTRACE and CAP_SYS_ADMIN (EPERM).
 *  - INFO works before ATTACH. Its first two fields never move, so that any
 *    two versions can tell each other apart.
 *  - One file descriptor watches one address space: ATTACH once (EALREADY on the
 *    second), then PROBE, SCAN, FLUSH and STATS. Before ATTACH they fail with ENXIO.
 *  - One address space is watched by one file descriptor, since a cleared bit is lost
 *    to all others: ATTACH to a second one fails with EBUSY and the pid of the first,
 *    unless it has TIERSCOPE_ATTACH_SHARED. PROBE and SCAN count the bits that other
 *    file descriptors have cleared.
 *  - Every struct begins with its size. Any other size is refused (EINVAL):
 *    nothing is guessed. Reserved fields and unknown flags must be zero.
 *  - After the target exits or executes another program every call but INFO
 *    and STATS fails with ESRCH. A new program is a new attach. (An address
 *    space lives as long as anybody runs in it: a vfork() child counts.)
 *  - The file descriptor is the permission: whoever it is handed to may use it.
 *  - Levels are numbered as in the design: 1 = PTE (4 KiB), 2 = PMD (2 MiB),
 *    3 = PUD (1 GiB), 4 = PGD or P4D (512 GiB), 5 = PGD of 5-level paging.
 *  - Clearing flushes no TLB, as in the kernel's own aging on x86: a translation
 *    that stays cached can be used without setting the bit again. FLUSH drops such
 *    translations, when it is called and at no other time.
 *
 * Errors
 * ------
 *  open    EACCES      the device node is the superuser's
 *          EPERM       CAP_SYS_PTRACE or CAP_SYS_ADMIN is missing
 *          ENOMEM
 *  all     EFAULT      an address of the caller cannot be read or written
 *          EINVAL      wrong size, a reserved field or unknown flag is set, or as below
 *          ENOTTY      no call of this interface
 *  INFO    EPROTO      the caller's struct is of another ABI
 *  ATTACH  EALREADY    this file descriptor is attached
 *          EBUSY       another one is attached to the address space: @owner
 *          EFAULT      @selftest_addr is not readable
 *          EINVAL      @pid is not positive or a kernel thread's; @selftest_addr is
 *                      in a shared mapping
 *          EOPNOTSUPP  hardware sets ACCESSED at no level that could be tested
 *          ESRCH       no such thread group, or it has no memory any more (a zombie)
 *          EINTR       killed while waiting
 *          ENOMEM
 *  PROBE,  ENXIO       before ATTACH
 *  SCAN    ESRCH       the target is gone
 *          EOPNOTSUPP  the level is not among @proven_levels
 *          EINTR       a signal is pending; at least one chunk was done
 *  PROBE   EINVAL      @count is too large, or probes[done] has a bad level or op
 *  SCAN    EINVAL      bad level; range or cursor not aligned, reversed or beyond
 *                      the user half of the address space
 *          EFAULT      also a bitmap that is not aligned to 8 bytes
 *  FLUSH   ENXIO       before ATTACH
 *          ESRCH       the target is gone
 *          EAGAIN      too soon: @flush_interval_us after the last one have not passed
 *  STATS   ENXIO       before ATTACH
 * PROBE and SCAN fill in their struct on every error of their own (from EOPNOTSUPP
 * on). ATTACH does with EBUSY only; any error leaves the descriptor free for another try.
 */
#ifndef TIERSCOPE_ABI_H
#define TIERSCOPE_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TIERSCOPE_ABI_VERSION	4
#define TIERSCOPE_DEVICE_NAME	"tierscope"
#define TIERSCOPE_MAX_LEVELS	5

/* tierscope_info.features */
#define TIERSCOPE_FEATURE_PTI		(1U << 0) /* with 4 levels: two copies of the PGD are judged as one */
#define TIERSCOPE_FEATURE_LA57		(1U << 1) /* 5-level paging is on */
#define TIERSCOPE_FEATURE_HANDBACK	(1U << 2) /* cleared young leaves are handed back to their page */
#define TIERSCOPE_FEATURE_MAPPING_LOCKS	(1U << 3) /* walks lock single mappings, not the whole address space */

/*
 * struct tierscope_info - facts of the running kernel
 * @size: in, sizeof(struct tierscope_info); out, the size this kernel knows
 * @abi: out, TIERSCOPE_ABI_VERSION of the module
 * @levels: out, levels of the page table, 4 or 5
 * @hardware_levels: out, bit (level - 1) set: hardware sets ACCESSED in entries of that
 *	level, and the kernel bears its clearing. Never level 5: Linux takes a PGD entry of
 *	5-level paging without the bit for a broken one (pgd_bad())
 * @features: out, TIERSCOPE_FEATURE_*
 * @max_probes: out, largest count of one PROBE
 * @lock_budget_us: out, a lock is dropped at the first check after this time
 * @flush_interval_us: out, least time from one FLUSH of a file descriptor to its next
 *
 * A caller of another ABI gets size and abi filled in, then EPROTO.
 */
struct tierscope_info {
	__u32 size;
	__u32 abi;
	__u32 levels;
	__u32 hardware_levels;
	__u32 features;
	__u32 max_probes;
	__u32 lock_budget_us;
	__u32 flush_interval_us;
};

/* tierscope_attach.flags */
#define TIERSCOPE_ATTACH_SHARED		(1U << 0) /* beside other file descriptors too */

/*
 * struct tierscope_attach - bind this file descriptor to an address space
 * @size: in
 * @pid: in, thread group id in the caller's pid namespace. The caller holds a
 *	pidfd and signals it with 0 after ATTACH: that proves the pid was not reused
 * @selftest_addr: in, address of a readable, private, resident page of the caller. The
 *	module clears ACCESSED on the way to it, flushes this CPU, reads the
 *	page and looks again. A huge page leaves the levels below it unproven: use
 *	one that was mapped by itself, with MADV_NOHUGEPAGE
 * @flags: in, TIERSCOPE_ATTACH_*
 * @proven_levels: out, bit (level - 1) set: the self-test saw hardware set the bit.
 *	PROBE and SCAN at another level answer EOPNOTSUPP
 * @owner: out, with EBUSY: thread group that attached first, in the caller's pid
 *	namespace, or 0 if it is not there
 * @reserved: zero
 */
struct tierscope_attach {
	__u32 size;
	__s32 pid;
	__u64 selftest_addr;
	__u32 flags;
	__u32 proven_levels;
	__u32 owner;
	__u32 reserved;
};

/* tierscope_probe.op */
#define TIERSCOPE_OP_TEST		0
#define TIERSCOPE_OP_TEST_AND_CLEAR	1

/* tierscope_probe.state */
#define TIERSCOPE_STATE_UNMAPPED	0 /* no mapping holds the address */
#define TIERSCOPE_STATE_ABSENT		1 /* an entry on the way is not present */
#define TIERSCOPE_STATE_OLD		2
#define TIERSCOPE_STATE_YOUNG		3
#define TIERSCOPE_STATE_REFUSED		4 /* shared hugetlb, at any level, whose tables cannot be locked (now) */

/* tierscope_probe.kind: what the judged entry is */
#define TIERSCOPE_KIND_NONE	0
#define TIERSCOPE_KIND_TABLE	1 /* it points to a table */
#define TIERSCOPE_KIND_PAGE	2 /* a leaf of page cache or anonymous memory, of its level's size */
#define TIERSCOPE_KIND_HUGETLB	3 /* a leaf of hugetlbfs */
#define TIERSCOPE_KIND_SPECIAL	4 /* a leaf without a struct page of its own: PFN mappings, the zero page */

/*
 * struct tierscope_probe - test, or test and clear, one entry
 * @addr: in, any; what no process can map is UNMAPPED
 * @level: in, level whose entry is asked for. A leaf above it is judged instead
 * @op: in, TIERSCOPE_OP_*
 * @state: out, TIERSCOPE_STATE_*
 * @reached: out, level of the entry that was judged or found absent; 0 if unmapped or
 *	refused
 * @kind: out, TIERSCOPE_KIND_*
 * @reserved: zero
 */
struct tierscope_probe {
	__u64 addr;
	__u8 level;
	__u8 op;
	__u8 state;
	__u8 reached;
	__u8 kind;
	__u8 reserved[3];
};

/*
 * struct tierscope_probes - a batch, judged in the order given
 * @size: in
 * @count: in, at most tierscope_info.max_probes
 * @probes: in, address of struct tierscope_probe[count]
 * @done: out, probes answered; less than count only with an error
 * @lock_holds: out, how often the mmap lock was taken
 * @lock_ns_max: out, longest single hold of the mmap lock
 * @cleared_by_others: out, bits of the address space that other file descriptors have
 *	found set and cleared since ATTACH: accesses that this one cannot see any more
 */
struct tierscope_probes {
	__u32 size;
	__u32 count;
	__u64 probes;
	__u32 done;
	__u32 lock_holds;
	__u64 lock_ns_max;
	__u64 cleared_by_others;
};

/* tierscope_scan.flags */
#define TIERSCOPE_SCAN_CLEAR	(1U << 0) /* test-and-clear instead of test */
#define TIERSCOPE_SCAN_PRUNE	(1U << 1) /* skip what lies under an upper entry found old */

/* tierscope_scan.judged: flags beside the base address */
#define TIERSCOPE_JUDGED	(1U << 0)
#define TIERSCOPE_JUDGED_YOUNG	(1U << 1)
#define TIERSCOPE_JUDGED_LEAF	(1U << 2)

/*
 * struct tierscope_scan - judge every entry of a level in a range
 * @size: in
 * @level: in
 * @flags: in, TIERSCOPE_SCAN_*. CLEAR with PRUNE clears the upper entries that it
 *	judges too, before what lies beneath
 * @start: in, multiple of the level's entry size
 * @end: in, likewise, exclusive
 * @young: in, address, aligned, of __u64[]: bit i answers for the entry at start + i * entry size.
 *	Words are written whole; a young leaf above the level sets all its bits
 *	in the range and its mapping. Refused mappings answer zero
 * @present: in, likewise for present entries, or 0. Zero under what was pruned:
 *	nobody looked
 * @cursor: in/out, where to go on; @start at first. EINTR leaves it between @start
 *	and @end: call again with the struct as it came back. Always a multiple of
 *	64 entries from @start, or @end. After another error the words before
 *	it are good, those behind it are not
 * @judged: in/out, per level (index level - 1) the base address of the upper
 *	entry judged last, with TIERSCOPE_JUDGED*; zero at first. It makes an upper entry (or a leaf above
 *	the level) that many VMAs or chunks share be judged once per scan, also
 *	over an EINTR
 * @visited: in/out, entries of any level judged, or found absent on the way; this and
 *	what follows is added up
 * @found_present: in/out, bits set in @present, counted with or without the bitmap
 * @found_young: in/out, bits set in @young
 * @pruned: in/out, upper entries found old whose subtree was skipped
 * @leaves: in/out, present leaves met, by level
 * @lock_holds: in/out, how often the mmap lock was taken
 * @lock_ns_max: in/out, longest single hold of the mmap lock
 * @cleared_by_others: out, as in struct tierscope_probes
 */
struct tierscope_scan {
	__u32 size;
	__u32 level;
	__u32 flags;
	__u32 reserved;
	__u64 start;
	__u64 end;
	__u64 young;
	__u64 present;
	__u64 cursor;
	__u64 judged[TIERSCOPE_MAX_LEVELS];
	__u64 visited;
	__u64 found_present;
	__u64 found_young;
	__u64 pruned;
	__u64 leaves[TIERSCOPE_MAX_LEVELS];
	__u64 lock_holds;
	__u64 lock_ns_max;
	__u64 cleared_by_others;
};

/*
 * struct tierscope_flush - drop the target's translations
 * @size: in
 * @cpus: out, CPUs asked to: those that run the target, or ran it last and are idle
 *
 * What it does: every CPU that runs the target when FLUSH is called drops the target's
 * translations from its TLB and paging-structure caches, the user half's under PTI
 * included. From then on its first access to a page walks to it, and its first walk
 * beneath an upper entry reads that entry: both set ACCESSED again. A CPU that kept
 * translations while it runs something else, or nothing, drops them when it comes back
 * to the target. Nothing of the target's memory or page tables is changed.
 *
 * What it does not: wait. The CPUs are interrupted, and FLUSH returns; one that has
 * interrupts off goes on using its translations until it turns them on. It drops no
 * translation of other address spaces, but for what the CPU cannot tell apart: without
 * PCIDs the paging-structure caches of all, and under PTI on a CPU with PCIDs that lacks
 * INVPCID everything. It does not reach second-level tables (KVM guests of the target)
 * nor an IOMMU; nor, with AMD's broadcast invalidation (INVLPGB, Linux 6.15), what CPUs
 * that ran the target earlier have kept.
 *
 * What it costs: an interrupt to each of @cpus, the walks that follow, and on each of
 * them one whole flush more at its next switch to the target or its next flush of a few
 * pages, whichever comes first.
 */
struct tierscope_flush {
	__u32 size;
	__u32 cpus;
};

#define TIERSCOPE_HOLD_BUCKETS	128

/*
 * struct tierscope_holds - holds of one kind of lock since ATTACH
 * @ns_max: longest single hold
 * @by_length: holds counted in buckets of a quarter of an octave: a hold of t ns,
 *	t >= 4, counts in bucket 4 * floor(log2 t) + (the two bits below the highest);
 *	shorter holds count in bucket 0
 */
struct tierscope_holds {
	__u64 ns_max;
	__u64 by_length[TIERSCOPE_HOLD_BUCKETS];
};

/*
 * struct tierscope_stats - what this file descriptor did since ATTACH
 * @size: in
 * @reserved: zero
 * @probes: out, entries judged by PROBE
 * @scanned: out, entries looked at by SCAN
 * @contended: out, holds cut short because a writer waited for the lock
 * @flushes: out, FLUSH calls that succeeded
 * @interrupts: out, interrupts that they sent to other CPUs
 * @mmap_holds: out, holds of the mmap lock
 * @mapping_holds: out, holds of the lock of a single mapping; none without
 *	TIERSCOPE_FEATURE_MAPPING_LOCKS
 */
struct tierscope_stats {
	__u32 size;
	__u32 reserved;
	__u64 probes;
	__u64 scanned;
	__u64 contended;
	__u64 flushes;
	__u64 interrupts;
	struct tierscope_holds mmap_holds;
	struct tierscope_holds mapping_holds;
};

/*
 * The size of INFO is not encoded in its number, so that every version answers it.
 */
#define TIERSCOPE_IOC_MAGIC	0xE7
#define TIERSCOPE_IOC_INFO	_IO(TIERSCOPE_IOC_MAGIC, 0)
#define TIERSCOPE_IOC_ATTACH	_IOWR(TIERSCOPE_IOC_MAGIC, 1, struct tierscope_attach)
#define TIERSCOPE_IOC_PROBE	_IOWR(TIERSCOPE_IOC_MAGIC, 2, struct tierscope_probes)
#define TIERSCOPE_IOC_SCAN	_IOWR(TIERSCOPE_IOC_MAGIC, 3, struct tierscope_scan)
#define TIERSCOPE_IOC_STATS	_IOWR(TIERSCOPE_IOC_MAGIC, 4, struct tierscope_stats)
#define TIERSCOPE_IOC_FLUSH	_IOWR(TIERSCOPE_IOC_MAGIC, 5, struct tierscope_flush)

#endif /* TIERSCOPE_ABI_H */
