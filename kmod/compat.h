/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that tierscope is built for. No other file
 * of the module knows a kernel version or the name of a kernel option.
 */
#ifndef TIERSCOPE_COMPAT_H
#define TIERSCOPE_COMPAT_H

#include <linux/hugetlb.h>
#include <linux/kconfig.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/version.h>
#include <asm/cpufeature.h>

#ifndef CONFIG_X86_64
#error "tierscope knows the page tables of x86-64 only"
#endif

/* v6.1 is the oldest kernel of lab/kernels.toml: older ones were never tried. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "tierscope needs Linux 6.1 or later"
#endif

/*
 * ea4654e08853 ("x86/bugs: Rename CONFIG_PAGE_TABLE_ISOLATION =>
 * CONFIG_MITIGATION_PAGE_TABLE_ISOLATION"), v6.9
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
#define TS_PTI_BUILT	IS_ENABLED(CONFIG_MITIGATION_PAGE_TABLE_ISOLATION)
#else
#define TS_PTI_BUILT	IS_ENABLED(CONFIG_PAGE_TABLE_ISOLATION)
#endif

#if !TS_PTI_BUILT
#include <linux/pgtable.h>
#define X86_CR3_PTI_PCID_USER_BIT	11
static inline pgd_t *kernel_to_user_pgdp(pgd_t *pgdp)
{
	return pgdp;
}
#endif

/*
 * d438d2734170 ("mm: remove devmap related functions and page table bits"),
 * v6.17: pages of DAX are mapped like others, and the kernel takes their
 * ACCESSED bits like those of others
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define pte_devmap(pte)	false
#define pmd_devmap(pmd)	false
#endif

/*
 * 4afeb0ed1753 ("x86/mm: Enable broadcast TLB invalidation for multi-threaded
 * processes"), v6.15: INVLPGB drops translations on all CPUs at once, and an
 * address space has one ASID on all of them, 0 before it gets one;
 * mm_global_asid() is not for modules
 */
static inline unsigned long ts_global_asid(struct mm_struct *mm,
					   bool *transition)
{
#if IS_ENABLED(CONFIG_BROADCAST_TLB_FLUSH)
	if (boot_cpu_has(X86_FEATURE_INVLPGB)) {
		unsigned long asid = smp_load_acquire(&mm->context.global_asid);

		*transition = READ_ONCE(mm->context.asid_transition);
		return asid;
	}
#endif
	*transition = false;
	return 0;
}

/* Without CONFIG_PAGE_IDLE_FLAG folio_set_young() does nothing: Debian's 6.1 */
#define TS_HANDBACK	IS_ENABLED(CONFIG_PAGE_IDLE_FLAG)

/*
 * The lock of a shared hugetlb mapping's tables, or NULL: its allocation failed,
 * or the kernel has no hugetlb. 40549ba8f8e0 ("hugetlb: use new vma_lock for pmd
 * sharing synchronization"), v6.1; hugetlb_vma_lock_read() is not exported.
 */
static inline struct rw_semaphore *ts_hugetlb_lock(struct vm_area_struct *vma)
{
#if IS_ENABLED(CONFIG_HUGETLB_PAGE)
	struct hugetlb_vma_lock *lock = vma->vm_private_data;

	/* a copy of the mapping that has no lock of its own yet: hugetlb_vm_op_open() */
	return lock && lock->vma == vma ? &lock->rw_sema : NULL;
#else
	return NULL;
#endif
}

/*
 * The lock of a single mapping. lock_vma_under_rcu() is exported by patches of
 * distributions (Debian's since 6.16): Kbuild looks for it in Module.symvers.
 * The lock is a reference count since v6.15 ("mm: replace vm_lock and detached
 * flag with a reference count").
 */
#if TS_VMA_LOCK_EXPORTED && IS_ENABLED(CONFIG_PER_VMA_LOCK) && \
	LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define TS_MAPPING_LOCKS	1

/* The bit that a writer sets while it waits for readers. */
#ifdef VM_REFCNT_EXCLUDE_READERS_FLAG
#define TS_MAPPING_WRITER	VM_REFCNT_EXCLUDE_READERS_FLAG
#else
#define TS_MAPPING_WRITER	VMA_LOCK_OFFSET
#endif

/* The mapping that holds @addr, locked; NULL if there is none, or a writer is in it. */
static inline struct vm_area_struct *ts_mapping_lock(struct mm_struct *mm,
						     unsigned long addr)
{
	return lock_vma_under_rcu(mm, addr);
}

/* Lock a mapping that was found under the mmap lock. */
static inline bool ts_mapping_keep(struct vm_area_struct *vma)
{
	return vma_start_read_locked(vma);
}

static inline bool ts_mapping_contended(struct vm_area_struct *vma)
{
	return refcount_read(&vma->vm_refcnt) & TS_MAPPING_WRITER;
}
#else
#define TS_MAPPING_LOCKS	0

static inline struct vm_area_struct *ts_mapping_lock(struct mm_struct *mm,
						     unsigned long addr)
{
	return NULL;
}

static inline bool ts_mapping_keep(struct vm_area_struct *vma)
{
	return false;
}

static inline bool ts_mapping_contended(struct vm_area_struct *vma)
{
	return false;
}
#endif

/* v6.4 has it first, with the locks of single mappings */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
static inline void vma_end_read(struct vm_area_struct *vma)
{
}
#endif

#endif /* TIERSCOPE_COMPAT_H */
