// SPDX-License-Identifier: GPL-2.0
/* Faults in the page tables, or in the accounts, of the process that loads the module. */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/percpu_counter.h>
#include <linux/pgtable.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/uaccess.h>

#include "faults.h"

static pmd_t *pmd_of(unsigned long addr)
{
	pgd_t *pgd = pgd_offset(current->mm, addr);
	p4d_t *p4d = p4d_offset(pgd, addr);

	return pmd_offset(pud_offset(p4d, addr), addr);
}

/* New memory; its first page, at a multiple of 4 MiB, is there. */
static unsigned long touched(void)
{
	unsigned long addr = vm_mmap(NULL, 0, SZ_8M, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, 0);

	if (IS_ERR_VALUE(addr))
		return 0;
	addr = ALIGN(addr, SZ_4M);
	return clear_user((void __user *)addr, 8) ? 0 : addr;
}

/* An entry that is neither a table nor a page: munmap takes it away again. */
void fault_bad_pmd(void)
{
	struct page *page = alloc_page(GFP_KERNEL);
	unsigned long addr = touched();

	if (!addr || !page)
		return;
	WRITE_ONCE(*pmd_of(addr + SZ_2M), __pmd(page_to_phys(page) | _PAGE_PRESENT));
	vm_munmap(addr, SZ_4M);
	__free_page(page);
}

/* A private page that is mapped at a second address. */
void fault_double_map(void)
{
	unsigned long addr = touched();
	pte_t *pte;

	if (!addr)
		return;
	pte = pte_offset_kernel(pmd_of(addr), addr);
	set_pte_at(current->mm, addr + PAGE_SIZE, pte + 1, READ_ONCE(*pte));
}

/* Both are noticed when the process has ended. */
void fault_rss(void)
{
	percpu_counter_add(&current->mm->rss_stat[MM_ANONPAGES], 7);
}

void fault_pgtables(void)
{
	mm_inc_nr_ptes(current->mm);
}
