/* SPDX-License-Identifier: GPL-2.0 */
/*
 * tierscope: what the files of the module share. Read tierscope_abi.h first,
 * then walk.c, hold.c, claim.c, probe.c, scan.c, flush.c, attach.c, selftest.c and main.c.
 */
#ifndef TIERSCOPE_H
#define TIERSCOPE_H

#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/mutex.h>

#include "compat.h"
#include "tierscope_abi.h"

/*
 * A lock is let go at the first check after this time, and checks come every
 * TS_CHECK_ENTRIES entries. 64 probes scattered over a terabyte cost about
 * 100 us under emulation, a tenth of it on hardware, so that a hold stays far
 * below 1 ms. The lock itself costs 1 to 3 us a hold under emulation.
 */
#define TS_LOCK_BUDGET_US	100
#define TS_CHECK_ENTRIES	64

/* A flush costs the target an interrupt and walks: 200 a second at most. */
#define TS_FLUSH_INTERVAL_US	5000

/*
 * ACCESSED is never touched above this level: pgd_bad() in asm/pgtable.h takes a
 * PGD entry of 5-level paging without the bit for a broken one, and the next
 * munmap(), fork() or exit() would throw away all that lies beneath. The checks
 * of the levels below ask for no ACCESSED: pmd_bad() since v6.1 (eed9a328aa1a),
 * pud_bad() and p4d_bad() always; with 4 levels pgd_bad() asks for nothing.
 */
#define TS_JUDGED_TOP		4
#define TS_JUDGED_LEVELS	GENMASK(TS_JUDGED_TOP - 1, 0)

#define TS_MAX_PROBES		(1U << 20)
#define TS_PROBE_CHUNK		512	/* probes copied at a time */
#define TS_SCAN_CHUNK		32768	/* entries judged between two copies */

/**
 * struct ts_session - one open file: one watched address space
 * @lock: one call at a time
 * @mm: the target, NULL before ATTACH. Between calls only the struct is held
 *	(mm_count), never its memory (mm_users): the target dies when it wants to
 * @claim: the session's part in @mm, NULL before ATTACH
 * @others_before: bits that other sessions of @mm had cleared at ATTACH
 * @cleared: bits that this session has cleared
 * @proven: levels that the self-test has proven, bit (level - 1)
 * @stats: see tierscope_abi.h
 * @flush_due: before this time (ktime_get_ns()) no flush
 * @cpus: the CPUs that a flush asks
 * @probes: the chunk of probes being answered
 * @young: the chunk of bitmap being written by a scan
 * @present: likewise
 */
struct ts_session {
	struct mutex lock;
	struct mm_struct *mm;
	struct ts_claim *claim;
	u64 others_before;
	u64 cleared;
	u32 proven;
	struct tierscope_stats stats;
	u64 flush_due;
	struct cpumask cpus;
	union {
		struct tierscope_probe probes[TS_PROBE_CHUNK];
		struct {
			u64 young[TS_SCAN_CHUNK / 64];
			u64 present[TS_SCAN_CHUNK / 64];
		};
	};
};

/* walk.c: entries of page tables */

/**
 * struct ts_walk - one entry of a page table, its lock held
 * @slot: the entry
 * @ptl: the lock that its table is changed under
 * @level: level of @slot
 * @pmd: level 1 only: the entry that points to the table
 * @pmdv: level 1 only: its value when the table was found
 */
struct ts_walk {
	unsigned long *slot;
	spinlock_t *ptl;
	int level;
	pmd_t *pmd;
	pmd_t pmdv;
};

/**
 * struct ts_verdict - what is known of one entry
 * @state: TIERSCOPE_STATE_*
 * @kind: TIERSCOPE_KIND_*
 */
struct ts_verdict {
	u8 state;
	u8 kind;
};

/**
 * struct ts_run - verdicts on up to 64 entries in a row, bit i for entry i
 * @present: not absent
 * @young: ACCESSED was set
 * @leaf: present and no pointer to a table
 */
struct ts_run {
	u64 present;
	u64 young;
	u64 leaf;
};

int ts_top_level(void);
bool ts_pti(void);
unsigned int ts_level_shift(int level);
bool ts_vma_lock(struct vm_area_struct *vma);
void ts_vma_unlock(struct vm_area_struct *vma);
void ts_walk_lock(struct ts_walk *w, struct mm_struct *mm, unsigned long addr,
		  int level);
void ts_walk_unlock(struct ts_walk *w);
struct ts_verdict ts_judge(const struct ts_walk *w,
			   const struct vm_area_struct *vma, bool clear);
void ts_judge_run(const struct ts_walk *w, const struct vm_area_struct *vma,
		  unsigned int n, bool clear, struct ts_run *run);

/* hold.c: bounded holds of the target's mappings */

enum ts_lock {
	TS_LOCK_NONE,
	TS_LOCK_MMAP,		/* the mmap lock, for reading */
	TS_LOCK_MAPPING,	/* that of @vma, for reading */
};

/**
 * struct ts_hold - the holds of one call
 * @session: whose target is locked
 * @since: when the present hold began, ns
 * @locked_at: when @lock was taken, ns
 * @unchecked: entries since the clock was looked at
 * @lock: what is locked
 * @vma: the mapping found last in the present hold, or NULL
 * @count: holds of the mmap lock so far
 * @ns_max: the longest of them
 */
struct ts_hold {
	struct ts_session *session;
	u64 since;
	u64 locked_at;
	unsigned int unchecked;
	enum ts_lock lock;
	struct vm_area_struct *vma;
	u64 count;
	u64 ns_max;
};

bool ts_locks_mappings(void);
int ts_hold_begin(struct ts_hold *hold);
bool ts_hold_spent(struct ts_hold *hold, unsigned int entries);
void ts_hold_end(struct ts_hold *hold);
struct vm_area_struct *ts_hold_vma(struct ts_hold *hold, unsigned long addr);

/* claim.c: one clearing session for each address space */

int ts_claim(struct ts_session *session, struct mm_struct *mm, bool shared,
	     u32 *owner);
void ts_unclaim(struct ts_session *session);
void ts_count_cleared(struct ts_session *session, u64 bits);
u64 ts_cleared_by_others(const struct ts_session *session);

/* attach.c, selftest.c, probe.c, scan.c, flush.c: the calls, session->lock held */

int ts_attach(struct ts_session *session, struct tierscope_attach *arg);
int ts_selftest(unsigned long addr, u32 *proven);
int ts_probe(struct ts_session *session, struct tierscope_probes *arg);
int ts_scan(struct ts_session *session, struct tierscope_scan *arg);
int ts_flush(struct ts_session *session, struct tierscope_flush *arg);
void ts_flush_drain(void);	/* no lock needed */

#endif /* TIERSCOPE_H */
