// SPDX-License-Identifier: GPL-2.0
/* Faults of code that uses memory wrongly. */
#include <linux/compiler.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/slab.h>

#include "faults.h"

void fault_use_after_free(void)
{
	char *freed = kmalloc(64, GFP_KERNEL);

	kfree(freed);
	OPTIMIZER_HIDE_VAR(freed);
	READ_ONCE(freed[8]);
}

/* Several: a value on some stack may look like one of them. */
void fault_leak(void)
{
	char *leaked;
	int i;

	for (i = 0; i < 16; i++) {
		leaked = kmalloc(300, GFP_KERNEL);
		if (leaked)
			WRITE_ONCE(leaked[0], i);
	}
}

void fault_bad_page(void)
{
	struct page *page = alloc_page(GFP_KERNEL);

	if (!page)
		return;
	__folio_set_locked(page_folio(page));
	__free_page(page);
}

void fault_freed_twice(void)
{
	struct page *page = alloc_page(GFP_KERNEL);

	if (!page)
		return;
	put_page(page);
	put_page(page);
}

void fault_shift(void)
{
	int bits = 40;

	OPTIMIZER_HIDE_VAR(bits);
	pr_info("%d\n", 1 << bits);
}

void fault_null(void)
{
	int *nothing = NULL;

	OPTIMIZER_HIDE_VAR(nothing);
	asm volatile("movl $1, (%0)" : : "r" (nothing) : "memory");
}

/* Not a canonical address; an instrumented access would look at its shadow. */
void fault_wild(void)
{
	unsigned long wild = 0x5555000000000000UL;

	asm volatile("movl $1, (%0)" : : "r" (wild) : "memory");
}
