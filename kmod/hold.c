// SPDX-License-Identifier: GPL-2.0
/*
 * Bounded holds of the target's mappings, and their histograms.
 *
 * A hold keeps the target's memory (mm_users), and not a moment longer: a target
 * that exits in the middle of a long scan is torn down at the end of the present
 * hold, by a worker (mmput_async()), not in the caller's time.
 *
 * What it locks is a single mapping, where the kernel lets modules do so
 * (ts_mapping_lock()): then the mmap lock is taken only to find the next mapping
 * behind a gap, and mmap(), munmap() and mprotect() of other mappings wait for
 * nothing. Elsewhere it is the mmap lock, for all mappings that the hold meets.
 */
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>

#include "tierscope.h"

static bool mapping_locks = TS_MAPPING_LOCKS;
module_param(mapping_locks, bool, 0444);
MODULE_PARM_DESC(mapping_locks,
		 "Lock single mappings where the kernel lets modules do so (default Y there); N: always the mmap lock");

/* Are single mappings locked, or the whole address space? */
bool ts_locks_mappings(void)
{
	return TS_MAPPING_LOCKS && mapping_locks;
}

/**
 * ts_hold_begin() - keep the target's memory
 * @hold: @hold->session is set, all else zero before the first hold
 *
 * Nothing is locked before ts_hold_vma().
 *
 * Return: 0, ESRCH if the address space is gone.
 */
int ts_hold_begin(struct ts_hold *hold)
{
	if (!mmget_not_zero(hold->session->mm))
		return -ESRCH;
	hold->since = ktime_get_ns();
	hold->unchecked = 0;
	return 0;
}

static bool is_contended(const struct ts_hold *hold)
{
	switch (hold->lock) {
	case TS_LOCK_MMAP:
		return mmap_lock_is_contended(hold->session->mm);
	case TS_LOCK_MAPPING:
		return ts_mapping_contended(hold->vma);
	default:
		return false;
	}
}

/**
 * ts_hold_spent() - is it time to let the locks go?
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
	if (is_contended(hold)) {
		hold->session->stats.contended++;
		return true;
	}
	return need_resched() ||
	       ktime_get_ns() - hold->since >= TS_LOCK_BUDGET_US * NSEC_PER_USEC;
}

/* Bucket of a hold in tierscope_holds, as tierscope_abi.h has it. */
static unsigned int bucket(u64 ns)
{
	unsigned int octave;

	if (ns < 4)
		return 0;
	octave = ilog2(ns);
	return min_t(unsigned int, 4 * octave + ((ns >> (octave - 2)) & 3),
		     TIERSCOPE_HOLD_BUCKETS - 1);
}

static void count(struct tierscope_holds *holds, u64 ns)
{
	holds->ns_max = max(holds->ns_max, ns);
	holds->by_length[bucket(ns)]++;
}

static void locked(struct ts_hold *hold, enum ts_lock lock)
{
	hold->lock = lock;
	hold->locked_at = ktime_get_ns();
}

/* Let the lock go and count the hold; the unlocking is part of it. */
static void unlock(struct ts_hold *hold)
{
	struct ts_session *session = hold->session;
	u64 ns;

	switch (hold->lock) {
	case TS_LOCK_MMAP:
		mmap_read_unlock(session->mm);
		ns = ktime_get_ns() - hold->locked_at;
		hold->count++;
		hold->ns_max = max(hold->ns_max, ns);
		count(&session->stats.mmap_holds, ns);
		break;
	case TS_LOCK_MAPPING:
		vma_end_read(hold->vma);
		count(&session->stats.mapping_holds,
		      ktime_get_ns() - hold->locked_at);
		break;
	default:
		break;
	}
	hold->lock = TS_LOCK_NONE;
	hold->vma = NULL;
}

void ts_hold_end(struct ts_hold *hold)
{
	unlock(hold);
	mmput_async(hold->session->mm);
}

/* Find the mapping under the mmap lock, and keep but the mapping's lock if possible. */
static int find_mapping(struct ts_hold *hold, unsigned long addr)
{
	struct mm_struct *mm = hold->session->mm;
	struct vm_area_struct *vma;

	if (hold->lock != TS_LOCK_MMAP) {
		if (mmap_read_lock_killable(mm))
			return -EINTR;
		locked(hold, TS_LOCK_MMAP);
	}
	vma = find_vma(mm, addr);
	if (vma && ts_locks_mappings() && ts_mapping_keep(vma)) {
		unlock(hold);
		locked(hold, TS_LOCK_MAPPING);
	}
	hold->vma = vma;
	return 0;
}

/**
 * ts_hold_vma() - lock the mapping at an address
 * @hold: begun
 * @addr: of the target
 *
 * Return: the mapping that holds @addr, else the next one above it, else NULL; it
 * is locked until the next call or ts_hold_end(). EINTR if the caller was killed
 * while waiting.
 */
struct vm_area_struct *ts_hold_vma(struct ts_hold *hold, unsigned long addr)
{
	struct vm_area_struct *vma = hold->vma;
	int err;

	if (vma && addr >= vma->vm_start && addr < vma->vm_end)
		return vma;
	if (hold->lock == TS_LOCK_MAPPING)
		unlock(hold);
	vma = NULL;
	if (hold->lock == TS_LOCK_NONE && ts_locks_mappings())
		vma = ts_mapping_lock(hold->session->mm, addr);
	if (!vma) {
		err = find_mapping(hold, addr);
		return err ? ERR_PTR(err) : hold->vma;
	}
	locked(hold, TS_LOCK_MAPPING);
	hold->vma = vma;
	return vma;
}
