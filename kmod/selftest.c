// SPDX-License-Identifier: GPL-2.0
/*
 * The self-test of ATTACH: does this CPU set ACCESSED at every level?
 *
 * A hypervisor, an emulator or an architecture may set it in leaves only, or
 * not at all. So clear it on the way to a page of the caller, make the CPU
 * forget the translation, read the page, and look again. Nothing but a page
 * walk by hardware sets the bit in a table's entry, so that a bit seen set is
 * proof. A bit seen clear may be bad luck (the page was reclaimed, or reclaim
 * cleared it between the read and the look): hence the attempts.
 *
 * PTI: the read happens in kernel mode, from the kernel's copy of the PGD, so
 * that this copy alone is tested (the other is cleared along with it, see
 * walk.c, and may be set by another thread of the caller, which only helps).
 * That proves the user copy as well: both are tables of the same level, walked
 * by the same hardware by the same rules. CR3 says which of them, and no rule on
 * ACCESSED knows CR3. The user copy's translations are tagged by a PCID of their
 * own, which the flush below leaves alone and the read does not use. (With 5
 * levels the copies differ at level 5 only, which is not judged.)
 */
#include <linux/irqflags.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <asm/special_insns.h>

#include "tierscope.h"

#define ATTEMPTS	16

/* Levels whose entry on the way to @addr is young; clear them if asked to. */
static u32 young_levels(struct vm_area_struct *vma, unsigned long addr,
			bool clear)
{
	u32 levels = 0;
	int level;

	for (level = TS_JUDGED_TOP; level >= 1; level--) {
		struct ts_verdict v;
		struct ts_walk w;

		ts_walk_lock(&w, vma->vm_mm, addr, level);
		v = ts_judge(&w, vma, clear);
		ts_walk_unlock(&w);
		if (v.state == TIERSCOPE_STATE_YOUNG)
			levels |= BIT(w.level - 1);
		if (w.level > level)
			break;
	}
	return levels;
}

/*
 * Read a byte with no cached translation. Writing CR3 flushes the TLB of this
 * address space and all paging-structure caches (Intel SDM vol. 3, 4.10.4.1);
 * user pages are never global. Interrupts are off so that nothing happens
 * in between.
 */
static int read_uncached(unsigned long addr)
{
	unsigned long flags;
	int err;
	u8 byte;

	local_irq_save(flags);
	write_cr3(__read_cr3());
	err = copy_from_user_nofault(&byte, (void __user *)addr, sizeof(byte));
	local_irq_restore(flags);
	return err;
}

/* One attempt. EAGAIN: the page went away. */
static int attempt(struct mm_struct *mm, unsigned long addr, u32 *proven)
{
	struct vm_area_struct *vma;
	int err = -EINVAL;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = find_vma(mm, addr);
	if (!vma || addr < vma->vm_start || (vma->vm_flags & VM_MAYSHARE))
		goto unlock;
	young_levels(vma, addr, true);
	err = read_uncached(addr) ? -EAGAIN : 0;
	if (!err)
		*proven |= young_levels(vma, addr, false);
unlock:
	mmap_read_unlock(mm);
	return err;
}

/**
 * ts_selftest() - prove the levels at which hardware sets ACCESSED
 * @addr: a page of the caller: readable, private, mapped by an entry of level 1
 * @proven: out, bit (level - 1)
 *
 * Return: 0, EFAULT if the page cannot be read, EINVAL if its mapping is shared,
 * EINTR if the caller was killed, EOPNOTSUPP if no level was proven.
 */
int ts_selftest(unsigned long addr, u32 *proven)
{
	int i, err;
	u8 byte;

	*proven = 0;
	for (i = 0; i < ATTEMPTS && *proven != TS_JUDGED_LEVELS; i++) {
		if (get_user(byte, (u8 __user *)addr))
			return -EFAULT;
		err = attempt(current->mm, addr, proven);
		if (err && err != -EAGAIN)
			return err;
	}
	return *proven ? 0 : -EOPNOTSUPP;
}
