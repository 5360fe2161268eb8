// SPDX-License-Identifier: GPL-2.0
/*
 * Bounded holds of the target's mmap lock, and their histogram.
 *
 * A hold also keeps the target's memory (mm_users), and not a moment longer:
 * a target that exits in the middle of a long scan is torn down at the end of
 * the present hold, by a worker (mmput_async()), not in the caller's time.
 */
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>

#include "tierscope.h"

/**
 * ts_hold_begin() - lock the target's mappings for reading
 * @hold: @hold->session is set, all else zero before the first hold
 *
 * Return: 0, ESRCH if the address space is gone, EINTR if the caller was killed
 * while waiting.
 */
int ts_hold_begin(struct ts_hold *hold)
{
	struct mm_struct *mm = hold->session->mm;

	if (!mmget_not_zero(mm))
		return -ESRCH;
	if (mmap_read_lock_killable(mm)) {
		mmput_async(mm);
		return -EINTR;
	}
	hold->since = ktime_get_ns();
	hold->unchecked = 0;
	hold->vma = NULL;
	return 0;
}

/**
 * ts_hold_spent() - is it time to let the lock go?
 * @hold: begun
 * @entries: entries looked at since the last call
 *
 * Looks at the clock and at those who wait every TS_CHECK_ENTRIES entries.
 */
bool ts_hold_spent(struct ts_hold *hold, unsigned int entries)
{
	hold->unchecked += entries;
	if (hold->unchecked < TS_CHECK_ENTRIES)
		return false;
	hold->unchecked = 0;
	if (mmap_lock_is_contended(hold->session->mm)) {
		hold->session->stats.contended++;
		return true;
	}
	return need_resched() ||
	       ktime_get_ns() - hold->since >= TS_LOCK_BUDGET_US * NSEC_PER_USEC;
}

/* Bucket of a hold in tierscope_stats.holds, as tierscope_abi.h has it. */
static unsigned int bucket(u64 ns)
{
	unsigned int octave;

	if (ns < 4)
		return 0;
	octave = ilog2(ns);
	return min_t(unsigned int, 4 * octave + ((ns >> (octave - 2)) & 3),
		     TIERSCOPE_HOLD_BUCKETS - 1);
}

/* Let the lock go and count the hold; the unlocking is part of it. */
void ts_hold_end(struct ts_hold *hold)
{
	struct tierscope_stats *stats = &hold->session->stats;
	struct mm_struct *mm = hold->session->mm;
	u64 ns;

	mmap_read_unlock(mm);
	ns = ktime_get_ns() - hold->since;
	mmput_async(mm);

	hold->count++;
	hold->ns_max = max(hold->ns_max, ns);
	stats->hold_ns_max = max(stats->hold_ns_max, ns);
	stats->holds[bucket(ns)]++;
}

/* The mapping that holds @addr, else the next one above it, else NULL. */
struct vm_area_struct *ts_hold_vma(struct ts_hold *hold, unsigned long addr)
{
	struct vm_area_struct *vma = hold->vma;

	if (!vma || addr < vma->vm_start || addr >= vma->vm_end)
		hold->vma = find_vma(hold->session->mm, addr);
	return hold->vma;
}
