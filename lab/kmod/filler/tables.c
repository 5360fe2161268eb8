// SPDX-License-Identifier: GPL-2.0
/*
 * The page tables.
 *
 * vm_insert_page() fills the first entry of each level 1 table: it is the one
 * exported way to have tables allocated and accounted. The other 511 entries
 * are written here, and what they owe to the kernel's books is paid once for
 * all tables of a call: references and map counts of the pages, and the
 * process's resident set.
 *
 * The entries are valid, not special, and point to pages with a descriptor.
 * vm_normal_page() takes them for what they are, and the kernel takes the
 * mapping down without knowing that we were here.
 */
#include <linux/mm.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "filler.h"

static void make_old(unsigned long *entry)
{
	if (READ_ONCE(*entry) & _PAGE_ACCESSED)
		clear_bit(_PAGE_BIT_ACCESSED, entry);
}

static bool is_table(unsigned long entry)
{
	return (entry & (_PAGE_PRESENT | _PAGE_PSE)) == _PAGE_PRESENT;
}

/*
 * Entries of level 4 and below. With four levels that is the PGD, which exists
 * twice under page-table isolation. With five, the PGD is left alone: the kernel
 * takes one without ACCESSED for bad, and wipes it (pgd_none_or_clear_bad()).
 */
static void make_top_old(p4d_t *p4d)
{
	make_old((unsigned long *)p4d);
#ifdef FILLER_PTI_BUILT
	if (!pgtable_l5_enabled() && boot_cpu_has(X86_FEATURE_PTI))
		make_old((unsigned long *)kernel_to_user_pgdp((pgd_t *)p4d));
#endif
}

/*
 * The level 2 entry of a level 1 table, or NULL. Inside a VMA and under the mmap
 * lock tables stay; no huge page ever takes the place of one in this mapping.
 * New tables come with ACCESSED set above them: with @old, it is cleared.
 */
static pmd_t *find_table(struct mm_struct *mm, unsigned long addr, bool old)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd;

	if (pgtable_l5_enabled() && !is_table(pgd_val(*pgd)))
		return NULL;
	p4d = p4d_offset(pgd, addr);
	if (!is_table(p4d_val(*p4d)))
		return NULL;
	pud = pud_offset(p4d, addr);
	if (!is_table(pud_val(*pud)))
		return NULL;
	pmd = pmd_offset(pud, addr);
	if (!is_table(pmd_val(*pmd)))
		return NULL;
	if (old) {
		make_top_old(p4d);
		make_old((unsigned long *)pud);
		make_old((unsigned long *)pmd);
	}
	return pmd;
}

/*
 * Fill the table at @addr. @owed counts for each page how many of the mappings
 * paid for were not made: what is there already, stays.
 */
static int fill_table(struct filler *filler, struct vm_area_struct *vma,
		      unsigned long addr, unsigned int *owed)
{
	spinlock_t *ptl;
	pmd_t *pmd;
	pte_t *pte;
	int i, err;

	err = vm_insert_page(vma, addr, filler->pages[0]);
	if (err)
		return err;
	pmd = find_table(vma->vm_mm, addr, true);
	if (WARN_ON_ONCE(!pmd))
		return -EFAULT;
	ptl = pte_lockptr(vma->vm_mm, pmd);
	spin_lock(ptl);
	pte = pte_offset_kernel(pmd, addr);
	for (i = 1; i < PTRS_PER_PTE; i++) {
		if (likely(pte_none(READ_ONCE(pte[i]))))
			set_pte(pte + i, mk_pte(filler->pages[i],
						vma->vm_page_prot));
		else
			owed[i]++;
	}
	spin_unlock(ptl);
	return 0;
}

/* Empty the table at @addr. @gone counts for each page the mappings taken away. */
static void empty_table(struct vm_area_struct *vma, unsigned long addr,
			unsigned int *gone)
{
	pmd_t *pmd = find_table(vma->vm_mm, addr, false);
	spinlock_t *ptl;
	pte_t *pte;
	int i;

	if (!pmd)
		return;
	ptl = pte_lockptr(vma->vm_mm, pmd);
	spin_lock(ptl);
	pte = pte_offset_kernel(pmd, addr);
	for (i = 0; i < PTRS_PER_PTE; i++) {
		if (pte_none(READ_ONCE(pte[i])))
			continue;
		set_pte(pte + i, __pte(0));
		gone[i]++;
	}
	spin_unlock(ptl);
}

/* Book for every page as many mappings less as @counts says; returns their sum. */
static long unmap_counted(struct filler *filler, const unsigned int *counts)
{
	long sum = 0;
	int i;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		if (counts[i])
			filler_unmap_page(filler->pages[i], counts[i]);
		sum += counts[i];
	}
	return sum;
}

static unsigned int *new_counts(void)
{
	return kcalloc(PTRS_PER_PTE, sizeof(unsigned int), GFP_KERNEL);
}

/**
 * filler_fill() - fill whole tables
 * @filler: whose pages they get
 * @vma: holds all of it
 * @cursor: in/out, where to begin, where it ended; multiple of PMD_SIZE
 * @end: multiple of PMD_SIZE
 */
int filler_fill(struct filler *filler, struct vm_area_struct *vma,
		unsigned long *cursor, unsigned long end)
{
	unsigned int tables = (end - *cursor) >> PMD_SHIFT;
	unsigned int *owed = new_counts();
	long paid = (long)tables * (PTRS_PER_PTE - 1);
	int i, err = 0;

	if (!owed)
		return -ENOMEM;
	for (i = 1; i < PTRS_PER_PTE; i++)
		filler_map_page(filler->pages[i], tables);
	while (!err && *cursor < end) {
		err = fill_table(filler, vma, *cursor, owed);
		if (!err)
			*cursor += PMD_SIZE;
		cond_resched();
	}
	for (i = 1; i < PTRS_PER_PTE; i++)
		owed[i] += (end - *cursor) >> PMD_SHIFT;
	filler_count_rss(vma->vm_mm, paid - unmap_counted(filler, owed));
	kfree(owed);
	return err;
}

/**
 * filler_empty() - take all entries out of whole tables; arguments as filler_fill()
 *
 * The TLB is not flushed: a translation that stays cached leads to a page that
 * the file keeps until the mapping is gone, and munmap() flushes.
 */
int filler_empty(struct filler *filler, struct vm_area_struct *vma,
		 unsigned long *cursor, unsigned long end)
{
	unsigned int *gone = new_counts();

	if (!gone)
		return -ENOMEM;
	for (; *cursor < end; *cursor += PMD_SIZE) {
		empty_table(vma, *cursor, gone);
		cond_resched();
	}
	filler_count_rss(vma->vm_mm, -unmap_counted(filler, gone));
	kfree(gone);
	return 0;
}
