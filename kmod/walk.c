// SPDX-License-Identifier: GPL-2.0
/*
 * Entries of page tables: find one, lock it, test or clear its ACCESSED bit.
 *
 * Callers hold the target's mmap lock for reading, or the lock of the VMA, and
 * walk only to addresses inside it. Then the tables of levels 2 and up on the way
 * to the address stay: free_pgtables() spares what a remaining VMA needs, also
 * when munmap() has downgraded its lock; and what takes tables away from under a
 * VMA that remains (mremap(), khugepaged for anonymous memory), or takes the VMA
 * out of the tree, locks it for writing first.
 *
 * Processes that map the same hugetlb memory can share level 2 tables, and the
 * kernel takes a shared table out of a process with no mmap lock of its: on
 * truncation, migration, poison. huge_pmd_unshare() wants the lock of the mapping
 * (struct hugetlb_vma_lock) held for writing, so callers hold it for reading
 * while they walk: the rule of huge_pte_offset() in linux/hugetlb.h, (2.1). It
 * is taken after the mmap lock and before the lock of an entry, as the kernel
 * does, and never waited for.
 *
 * A level 1 table can vanish even so: since v6.6 khugepaged does not need the mmap
 * lock for files (retract_page_tables() and collapse_pte_mapped_thp() in
 * mm/khugepaged.c), and since v6.14 madvise() frees a table that it has emptied
 * (CONFIG_PT_RECLAIM, zap_pte_table_if_empty() in mm/memory.c). Both free the table
 * after an RCU grace period, and empty the level 2 entry under the lock of the
 * level 1 table. So: read the level 2 entry under RCU, lock the table,
 * read the entry again. pte_offset_map_lock() does the same but is not exported.
 *
 * ACCESSED is changed by atomic operations only, since hardware and other CPUs
 * write the same word; and only while the entry's lock is held and the entry
 * was seen present, since the bit means something else in a swap entry.
 */
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/page_idle.h>
#include <linux/pgtable.h>
#include <linux/rwsem.h>

#include "tierscope.h"

/* Levels of the running kernel's page tables: 4 or 5. */
int ts_top_level(void)
{
	return pgtable_l5_enabled() ? 5 : 4;
}

/* Page table isolation: user mode walks from a PGD of its own. */
bool ts_pti(void)
{
	return TS_PTI_BUILT && boot_cpu_has(X86_FEATURE_PTI);
}

/* log2 of the bytes that one entry of a level maps. */
unsigned int ts_level_shift(int level)
{
	return PAGE_SHIFT + (level - 1) * ilog2(PTRS_PER_PTE);
}

/* huge_pmd_share() lets processes share level 2 tables of such a mapping. */
static bool shares_tables(const struct vm_area_struct *vma)
{
	return (vma->vm_flags & VM_HUGETLB) && (vma->vm_flags & VM_MAYSHARE);
}

/**
 * ts_vma_lock() - keep the tables of a mapping in place
 * @vma: it, or the mmap lock, is locked for reading
 *
 * Return: false if the mapping has to be refused: its tables can be shared, and
 * it has no lock for them, or the lock is held for writing. Does not sleep.
 */
bool ts_vma_lock(struct vm_area_struct *vma)
{
	struct rw_semaphore *lock;

	if (!shares_tables(vma))
		return true;
	lock = ts_hugetlb_lock(vma);
	return lock && down_read_trylock(lock);
}

/* After ts_vma_lock() returned true, in the same hold. */
void ts_vma_unlock(struct vm_area_struct *vma)
{
	if (shares_tables(vma))
		up_read(ts_hugetlb_lock(vma));
}

static bool is_table(unsigned long entry)
{
	return (entry & (_PAGE_PRESENT | _PAGE_PSE)) == _PAGE_PRESENT;
}

static void stop_at(struct ts_walk *w, int level, void *slot, spinlock_t *ptl)
{
	w->level = level;
	w->slot = slot;
	w->ptl = ptl;
}

/*
 * Go down to @level, or to the first entry above it that points to no table.
 * Entries of levels 4 and 5 are written once, before they are used, and need
 * no lock of their own; they share that of level 3, so that every walk has one.
 */
static void find(struct ts_walk *w, struct mm_struct *mm, unsigned long addr,
		 int level)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d, p4dv;
	pud_t *pud, pudv;

	if (pgtable_l5_enabled() && (level == 5 || !is_table(pgd_val(*pgd))))
		return stop_at(w, 5, pgd, &mm->page_table_lock);

	p4d = p4d_offset(pgd, addr);
	p4dv = READ_ONCE(*p4d);
	if (level == 4 || !is_table(p4d_val(p4dv)))
		return stop_at(w, 4, p4d, &mm->page_table_lock);

	pud = pud_offset(&p4dv, addr);
	pudv = READ_ONCE(*pud);
	if (level == 3 || !is_table(pud_val(pudv)))
		return stop_at(w, 3, pud, pud_lockptr(mm, pud));

	w->pmd = pmd_offset(&pudv, addr);
	w->pmdv = READ_ONCE(*w->pmd);
	if (level == 2 || !is_table(pmd_val(w->pmdv)))
		return stop_at(w, 2, w->pmd, pmd_lockptr(mm, w->pmd));

	stop_at(w, 1, pte_offset_kernel(&w->pmdv, addr),
		pte_lockptr(mm, &w->pmdv));
}

/* Now that the lock is held: is this still where a walk to @level ends? */
static bool still_there(const struct ts_walk *w, int level)
{
	if (w->level == 1) {
		pmd_t pmd = READ_ONCE(*w->pmd);

		/* ACCESSED may come and go without anybody's lock. */
		return !((pmd_val(pmd) ^ pmd_val(w->pmdv)) & ~_PAGE_ACCESSED);
	}
	return w->level == level || !is_table(READ_ONCE(*w->slot));
}

/**
 * ts_walk_lock() - find the entry for an address and lock it
 * @w: out
 * @mm: its mmap lock, or the VMA, is locked for reading
 * @addr: inside a VMA of @mm that ts_vma_lock() has locked
 * @level: level whose entry is asked for; @w->level is greater if a leaf or an
 *	absent entry above it ends the walk
 */
void ts_walk_lock(struct ts_walk *w, struct mm_struct *mm, unsigned long addr,
		  int level)
	__acquires(RCU) __acquires(w->ptl)
{
	rcu_read_lock();
	for (;;) {
		find(w, mm, addr, level);
		spin_lock(w->ptl);
		if (still_there(w, level))
			return;
		spin_unlock(w->ptl);
	}
}

void ts_walk_unlock(struct ts_walk *w)
	__releases(w->ptl) __releases(RCU)
{
	spin_unlock(w->ptl);
	rcu_read_unlock();
}

/*
 * The kernel's idea of present: PROT_NONE and NUMA hinting entries hold a page
 * too. (native_make_*: without Xen PV an entry is what it reads as.)
 */
static inline bool is_present(unsigned long entry, int level)
{
	switch (level) {
	case 1:
	case 3:		/* a huge page of hugetlb can be PROT_NONE here */
		return pte_present(native_make_pte(entry));
	case 2:		/* PSE stays while a huge page is being split */
		return pmd_present(native_make_pmd(entry));
	default:
		return entry & _PAGE_PRESENT;
	}
}

static inline bool is_leaf(unsigned long entry, int level)
{
	return level == 1 || (entry & _PAGE_PSE);
}

/*
 * vm_normal_page_pmd() without its symbols. The huge zero page is known by
 * belonging to no mapping; a page that file truncation is taking away looks
 * the same, and deserves no better.
 */
static u8 pmd_leaf_kind(const struct vm_area_struct *vma, pmd_t pmd)
{
	if (pmd_devmap(pmd) || (vma->vm_flags & (VM_PFNMAP | VM_MIXEDMAP)))
		return TIERSCOPE_KIND_SPECIAL;
	if (!READ_ONCE(page_folio(pmd_page(pmd))->mapping))
		return TIERSCOPE_KIND_SPECIAL;
	return TIERSCOPE_KIND_PAGE;
}

/* vm_normal_page() on an architecture with a special bit in level 1 entries */
static u8 pte_leaf_kind(pte_t pte)
{
	if (pte_special(pte) || pte_devmap(pte))
		return TIERSCOPE_KIND_SPECIAL;
	return TIERSCOPE_KIND_PAGE;
}

static u8 kind_of(unsigned long entry, int level,
		  const struct vm_area_struct *vma)
{
	if (!is_leaf(entry, level))
		return TIERSCOPE_KIND_TABLE;
	if (vma->vm_flags & VM_HUGETLB)
		return TIERSCOPE_KIND_HUGETLB;
	if (level == 1)
		return pte_leaf_kind(native_make_pte(entry));
	if (level == 2)
		return pmd_leaf_kind(vma, native_make_pmd(entry));
	return TIERSCOPE_KIND_SPECIAL;	/* DAX or a PFN mapping of 1 GiB */
}

/*
 * Reclaim would have seen the bit that was just cleared; folio_set_young()
 * tells it by another way. Only pages that reclaim looks at matter: hugetlb
 * and special pages are on no LRU list.
 */
static void hand_back(unsigned long entry, int level,
		      const struct vm_area_struct *vma)
{
	struct page *page;

	if (!TS_HANDBACK || kind_of(entry, level, vma) != TIERSCOPE_KIND_PAGE)
		return;
	page = level == 1 ? pte_page(native_make_pte(entry)) :
			    pmd_page(native_make_pmd(entry));
	folio_set_young(page_folio(page));
}

/* ACCESSED of the entry that was read as @entry; no write if it is clear. */
static inline bool test_young(unsigned long *slot, unsigned long entry, bool clear)
{
	if (!(entry & _PAGE_ACCESSED))
		return false;
	return !clear || test_and_clear_bit(_PAGE_BIT_ACCESSED, slot);
}

/*
 * Under PTI the PGD exists twice: the CPU walks from one copy in user mode and
 * from the other in kernel mode, and sets ACCESSED there only. Both are the
 * process's doing, so that both are tested, and both are cleared. With 5 levels
 * the two copies share their level 4 tables, and the PGD is not judged.
 */
static bool test_young_user_copy(unsigned long *slot, int level, bool clear)
{
	if (pgtable_l5_enabled() || level != 4 || !ts_pti())
		return false;
	slot = (unsigned long *)kernel_to_user_pgdp((pgd_t *)slot);
	return test_young(slot, READ_ONCE(*slot), clear);
}

/* @entry: what *@slot was read as, and present */
static inline bool is_young(unsigned long *slot, unsigned long entry, int level,
			    const struct vm_area_struct *vma, bool clear)
{
	bool young = test_young(slot, entry, clear);

	if (level >= 4)
		young |= test_young_user_copy(slot, level, clear);
	else if (young && clear && is_leaf(entry, level))
		hand_back(entry, level, vma);
	return young;
}

/**
 * ts_judge() - test, or test and clear, the entry of a locked walk
 * @w: locked by ts_walk_lock(). An entry of level 5 can only be absent here:
 *	nobody asks for that level, see TS_JUDGED_TOP
 * @vma: the mapping that the walk's address lies in
 * @clear: clear ACCESSED if it is set. The TLB is not flushed: like the
 *	kernel's own aging on x86 (ptep_clear_flush_young()), a translation that
 *	stays cached is not seen to be used until it is walked again
 */
struct ts_verdict ts_judge(const struct ts_walk *w,
			   const struct vm_area_struct *vma, bool clear)
{
	struct ts_verdict v = { TIERSCOPE_STATE_ABSENT, TIERSCOPE_KIND_NONE };
	unsigned long entry = READ_ONCE(*w->slot);

	if (!is_present(entry, w->level))
		return v;
	v.kind = kind_of(entry, w->level, vma);
	v.state = is_young(w->slot, entry, w->level, vma, clear) ?
			TIERSCOPE_STATE_YOUNG : TIERSCOPE_STATE_OLD;
	return v;
}

/* @level is a constant where it matters: level 1 is the bulk of every scan. */
static __always_inline void judge_run(const struct ts_walk *w, int level,
				      const struct vm_area_struct *vma,
				      unsigned int n, bool clear,
				      struct ts_run *run)
{
	unsigned long *slot = w->slot;
	u64 bit;

	for (bit = 1; n--; bit <<= 1, slot++) {
		unsigned long entry = READ_ONCE(*slot);

		if (!is_present(entry, level))
			continue;
		run->present |= bit;
		if (is_leaf(entry, level))
			run->leaf |= bit;
		if (is_young(slot, entry, level, vma, clear))
			run->young |= bit;
	}
}

/**
 * ts_judge_run() - ts_judge() for neighbours in one table
 * @w: locked; its entry is the first
 * @vma: the mapping they all lie in
 * @n: entries, at most 64 and all in the table
 * @clear: as for ts_judge()
 * @run: out
 */
void ts_judge_run(const struct ts_walk *w, const struct vm_area_struct *vma,
		  unsigned int n, bool clear, struct ts_run *run)
{
	struct ts_run found = { 0 };

	if (w->level == 1)
		judge_run(w, 1, vma, n, clear, &found);
	else
		judge_run(w, w->level, vma, n, clear, &found);
	*run = found;
}
