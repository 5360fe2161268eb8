// SPDX-License-Identifier: GPL-2.0
/*
 * FLUSH: make CPUs forget the target's translations, and wait for none of them.
 *
 * flush_tlb_mm_range() is not exported. What it does for a whole address space
 * is done here by its own two means:
 *
 *  - The generation count of the address space goes up (inc_mm_tlb_gen(), which
 *    modules are not given). A CPU that loads the address space compares it with
 *    what it saw last, and flushes if it is behind: that serves CPUs that run
 *    something else and kept translations by PCID, and CPUs in lazy mode. The
 *    count only ever grows, and to be behind only ever makes a CPU flush more:
 *    the kernel's next flush of a few pages becomes a whole one there. Nothing
 *    of what the kernel knows of a CPU (cpu_tlbstate) is touched.
 *  - The CPUs that run the target now drop the translations of what they have
 *    loaded, by instruction, in an interrupt. 209954cbc7d0 ("x86/mm/tlb: Update
 *    mm_cpumask lazily"), v6.14: a CPU that left the target stays in the mask
 *    until the kernel's own flushes trim it, and is interrupted for nothing.
 *
 * The order matters, and is the kernel's: count, full barrier, read the mask. A
 * CPU that loads the address space sets its bit in the mask, full barrier, and
 * reads the count (switch_mm_irqs_off()). So one of the two sees the other.
 */
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/mm_types.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <asm/invpcid.h>
#include <asm/special_insns.h>

#include "tierscope.h"

/* A change of CR4.PGE drops all translations of this CPU, of every PCID. */
static void toggle_pge(void)
{
	unsigned long cr4;

	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	asm volatile("mov %0, %%cr4" : : "r" (cr4 ^ X86_CR4_PGE) : "memory");
	asm volatile("mov %0, %%cr4" : : "r" (cr4) : "memory");
}

/*
 * Interrupts are off. Writing CR3 as it is (bit 63 reads as zero) drops what is
 * tagged with the loaded PCID in the TLB and the paging-structure caches (Intel
 * SDM vol. 3, 4.10.4.1). Under PTI that is the kernel's PCID, and user mode's
 * differs by a bit. Without PCIDs the way back to user mode drops all anyway.
 */
static void drop_loaded(void)
{
	unsigned long cr3 = __read_cr3();
	unsigned long user = (cr3 & X86_CR3_PCID_MASK) |
			     BIT(X86_CR3_PTI_PCID_USER_BIT);

	if (ts_pti() && boot_cpu_has(X86_FEATURE_PCID)) {
		if (boot_cpu_has(X86_FEATURE_INVPCID))
			invpcid_flush_single_context(user);
		else
			toggle_pge();
	}
	write_cr3(cr3);
}

/*
 * @mm is compared and never followed: the target may be gone. A CPU that left it
 * meanwhile, or is lazy (current->mm is NULL in the idle task and in kernel
 * threads), flushes when it comes back: see above.
 */
static void drop_here(void *mm)
{
	if (current->mm == mm)
		drop_loaded();
}

/*
 * An address space with a PCID of its own on all CPUs: one that comes back to it
 * compares no generation, and what it kept is dropped now, whatever it runs. The
 * kernel drops it by INVLPGB, and leaves the mask alone: all CPUs that may have
 * kept something are in it. No emulated CPU has INVLPGB: never run so far.
 */
static void drop_asid(void *asid)
{
	unsigned long pcid = (unsigned long)asid + 1;	/* kern_pcid() */

	invpcid_flush_single_context(pcid);
	if (ts_pti())
		invpcid_flush_single_context(pcid |
					     BIT(X86_CR3_PTI_PCID_USER_BIT));
}

static void drop_on(const struct cpumask *cpus, struct mm_struct *mm)
{
	bool transition;
	unsigned long asid = ts_global_asid(mm, &transition);

	if (asid)
		on_each_cpu_mask(cpus, drop_asid, (void *)asid, false);
	if (!asid || transition)
		on_each_cpu_mask(cpus, drop_here, mm, false);
}

/* TIERSCOPE_IOC_FLUSH */
int ts_flush(struct ts_session *session, struct tierscope_flush *arg)
{
	struct mm_struct *mm = session->mm;
	u64 now = ktime_get_ns();
	int this_cpu;

	if (now < session->flush_due)
		return -EAGAIN;
	session->flush_due = now + TS_FLUSH_INTERVAL_US * NSEC_PER_USEC;

	atomic64_inc_return(&mm->context.tlb_gen);	/* and a full barrier */
	this_cpu = get_cpu();
	cpumask_and(&session->cpus, mm_cpumask(mm), cpu_online_mask);
	arg->cpus = cpumask_weight(&session->cpus);
	session->stats.flushes++;
	session->stats.interrupts += arg->cpus;
	if (cpumask_test_cpu(this_cpu, &session->cpus))
		session->stats.interrupts--;
	drop_on(&session->cpus, mm);
	put_cpu();
	return 0;
}

static void nothing(void *unused)
{
}

/**
 * ts_flush_drain() - wait for drop_here() on all CPUs
 *
 * Before the module goes. A CPU answers those who wait first, so that only the
 * second answer comes after a flush that was on its way.
 */
void ts_flush_drain(void)
{
	on_each_cpu(nothing, NULL, true);
	on_each_cpu(nothing, NULL, true);
}
