// SPDX-License-Identifier: GPL-2.0
/*
 * The physical pages: 512 pages of a shared memory file, one for each entry of
 * a level 1 table, so that every table looks the same.
 *
 * A page that is mapped holds a reference and a map count for each entry. Even
 * a whole address space of 47 bits maps each page 2^26 times only: neither
 * counter comes near 2^31.
 */
#include <linux/err.h>
#include <linux/file.h>
#include <linux/pagemap.h>
#include <linux/preempt.h>
#include <linux/shmem_fs.h>
#include <linux/vmstat.h>

#include "filler.h"

/*
 * A new page waits in a batch of its CPU for a few more before it goes to an
 * LRU list. DAMON takes no page that is not on one (damon_get_folio() in
 * mm/damon/ops-common.c): further pages push the batch out. Batches hold 31 at
 * most; more than two of them mean that something else is the matter.
 */
#define SPARE_PAGES	64

static int get_page_at(struct filler *filler, pgoff_t index,
		       struct page **page)
{
	*page = shmem_read_mapping_page(filler->shmem->f_mapping, index);
	if (IS_ERR(*page))
		return PTR_ERR(*page);
	if (PageCompound(*page)) {	/* shmem_enabled= makes huge pages */
		put_page(*page);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int get_mapped_pages(struct filler *filler)
{
	int i, err;

	for (i = 0; i < PTRS_PER_PTE; i++) {
		struct page *page;

		err = get_page_at(filler, i, &page);
		if (err)
			return err;
		filler->pages[i] = page;
	}
	return 0;
}

static bool all_on_lru(const struct filler *filler)
{
	int i;

	for (i = 0; i < PTRS_PER_PTE; i++)
		if (!PageLRU(filler->pages[i]))
			return false;
	return true;
}

static int push_to_lru(struct filler *filler)
{
	struct page *spare;
	int i, err;

	for (i = 0; i < SPARE_PAGES && !all_on_lru(filler); i++) {
		err = get_page_at(filler, PTRS_PER_PTE + i, &spare);
		if (err)
			return err;
		put_page(spare);
	}
	return all_on_lru(filler) ? 0 : -EAGAIN;
}

int filler_get_pages(struct filler *filler)
{
	loff_t size = (loff_t)(PTRS_PER_PTE + SPARE_PAGES) << PAGE_SHIFT;
	int err;

	filler->shmem = shmem_file_setup(TIERSCOPE_FILLER_NAME, size,
					 FILLER_NO_FLAGS);
	if (IS_ERR(filler->shmem))
		return PTR_ERR(filler->shmem);
	/* Reclaim could not free them: do not let it try. */
	mapping_set_unevictable(filler->shmem->f_mapping);
	migrate_disable();	/* one CPU's batch */
	err = get_mapped_pages(filler) ?: push_to_lru(filler);
	migrate_enable();
	if (err)
		filler_put_pages(filler);
	return err;
}

void filler_put_pages(struct filler *filler)
{
	int i;

	for (i = 0; i < PTRS_PER_PTE && filler->pages[i]; i++)
		put_page(filler->pages[i]);
	fput(filler->shmem);
}

/*
 * What folio_get() and folio_add_file_rmap_pte() do for one entry, done for
 * many at once. The first mapping of a page and the last are counted apart.
 */
void filler_map_page(struct page *page, unsigned int times)
{
	page_ref_add(page, times);
	if (atomic_fetch_add(times, &page->_mapcount) < 0)
		lruvec_stat_mod_folio(page_folio(page), NR_FILE_MAPPED, 1);
}

/* The filler's own reference keeps the page. */
void filler_unmap_page(struct page *page, unsigned int times)
{
	if (atomic_sub_return(times, &page->_mapcount) < 0)
		lruvec_stat_mod_folio(page_folio(page), NR_FILE_MAPPED, -1);
	page_ref_sub(page, times);
}
