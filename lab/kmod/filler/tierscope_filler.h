/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Lab only: terabytes of real page tables in a small machine.
 *
 * A process opens /dev/tierscope_filler, maps as many bytes of it as it likes,
 * and has them filled: every virtual page gets a level 1 entry of its own, with
 * an ACCESSED bit of its own, while the same 512 physical pages stand behind
 * all of them. They are ordinary pages of page cache on an LRU list, so that
 * whoever looks at pages behind entries, as the kernel's DAMON does, sees them
 * like any other.
 *
 *	fd = open("/dev/tierscope_filler", O_RDWR);
 *	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
 *	struct tierscope_fill fill = {
 *		.size = sizeof(fill), .start = p, .end = p + bytes,
 *		.cursor = p, .budget = 16ULL << 30,
 *	};
 *	while (fill.cursor < fill.end)	// progress after every 16 GiB
 *		ioctl(fd, TIERSCOPE_FILLER_IOC_FILL, &fill);
 *	... touch any of it ...
 *	fill.cursor = fill.start;
 *	ioctl(fd, TIERSCOPE_FILLER_IOC_EMPTY, &fill);	// or exit takes minutes
 *
 * What a reader of the mapping must know
 * --------------------------------------
 *  - @bytes must be a multiple of 2 MiB; the kernel chooses a start that is, too.
 *  - Entries come old at every level that tierscope judges (5 is none).
 *  - What is written at an address is read at all others that are 2 MiB apart.
 *  - What was not filled raises SIGBUS: nothing is ever filled by a touch.
 *  - Page tables take 2 GiB a TiB. FILL looks before it begins.
 *  - The mapping is VM_MIXEDMAP: DAMON and tierscope see it; the multi-
 *    generational LRU's page-table walks, NUMA balancing and THP pass it by. A
 *    child of fork() does not inherit it. Never read its smaps or pagemap whole.
 *  - exit and munmap() work at any time, but take each entry down one by one:
 *    about a minute a TiB under emulation. EMPTY is ten times as fast.
 */
#ifndef TIERSCOPE_FILLER_H
#define TIERSCOPE_FILLER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TIERSCOPE_FILLER_NAME	"tierscope_filler"

/*
 * struct tierscope_fill - a range of the mapping, and how far it got
 * @size: in, sizeof(struct tierscope_fill)
 * @reserved: zero
 * @start: in, multiple of 2 MiB, inside the mapping
 * @end: in, likewise, exclusive
 * @cursor: in/out, where to go on; @start at first. An error leaves it where
 *	everything before is done
 * @budget: in, return after so many bytes, rounded up to 1 GiB; 0: when all is done
 * @needed: out, FILL: bytes of page tables for what lay between @cursor and @end
 * @available: out, FILL: bytes of memory that there were for them
 *
 * EINVAL: sizes, alignment or reserved fields; EFAULT: not all of it is mapped
 * from this file descriptor; ENOMEM: less is available than needed, or memory
 * ran out on the way; EBUSY: filled already; EINTR: a signal, call again.
 */
struct tierscope_fill {
	__u32 size;
	__u32 reserved;
	__u64 start;
	__u64 end;
	__u64 cursor;
	__u64 budget;
	__u64 needed;
	__u64 available;
};

#define TIERSCOPE_FILLER_IOC_MAGIC	0xE8
#define TIERSCOPE_FILLER_IOC_FILL	_IOWR(TIERSCOPE_FILLER_IOC_MAGIC, 1, struct tierscope_fill)
#define TIERSCOPE_FILLER_IOC_EMPTY	_IOWR(TIERSCOPE_FILLER_IOC_MAGIC, 2, struct tierscope_fill)

#endif /* TIERSCOPE_FILLER_H */
