/* SPDX-License-Identifier: GPL-2.0 */
/* tierscope_filler: what its files share. Read tierscope_filler.h first. */
#ifndef FILLER_H
#define FILLER_H

#include <linux/mm.h>
#include <linux/percpu_counter.h>
#include <linux/pgtable.h>
#include <linux/version.h>

#include "tierscope_filler.h"

#ifndef CONFIG_X86_64
#error "the filler knows the page tables of x86-64 only"
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
/* bc292ab00f6c ("mm: introduce vma->vm_flags wrapper functions"), v6.3 */
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
#endif

/* v7.0: shmem_file_setup() takes vma_flags_t, which is a struct */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define FILLER_NO_FLAGS	EMPTY_VMA_FLAGS
#else
#define FILLER_NO_FLAGS	0
#endif

/*
 * ea4654e08853 ("x86/bugs: Rename CONFIG_PAGE_TABLE_ISOLATION =>
 * CONFIG_MITIGATION_PAGE_TABLE_ISOLATION"), v6.9
 */
#if defined(CONFIG_MITIGATION_PAGE_TABLE_ISOLATION) || \
	defined(CONFIG_PAGE_TABLE_ISOLATION)
#define FILLER_PTI_BUILT
#endif

/*
 * add_mm_counter() without its tracepoint, which is not exported.
 * f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter"), v6.2
 */
static inline void filler_count_rss(struct mm_struct *mm, long pages)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
	atomic_long_add(pages, &mm->rss_stat.count[MM_SHMEMPAGES]);
#else
	percpu_counter_add(&mm->rss_stat[MM_SHMEMPAGES], pages);
#endif
}

/**
 * struct filler - one open file
 * @shmem: the file whose pages stand behind the mapping
 * @pages: its first pages, one for each entry of a level 1 table; held
 */
struct filler {
	struct file *shmem;
	struct page *pages[PTRS_PER_PTE];
};

/* pages.c: the physical pages */
int filler_get_pages(struct filler *filler);
void filler_put_pages(struct filler *filler);
void filler_map_page(struct page *page, unsigned int times);
void filler_unmap_page(struct page *page, unsigned int times);

/* tables.c: the page tables; mmap lock held for reading */
int filler_fill(struct filler *filler, struct vm_area_struct *vma,
		unsigned long *cursor, unsigned long end);
int filler_empty(struct filler *filler, struct vm_area_struct *vma,
		 unsigned long *cursor, unsigned long end);

#endif /* FILLER_H */
