// SPDX-License-Identifier: GPL-2.0
/*
 * SCAN: every entry of a level in a range, pruned by upper levels.
 *
 * The scan goes up in addresses, a chunk of TS_SCAN_CHUNK entries at a time:
 * judge under bounded holds of the mappings into the session's bitmaps, let
 * the locks go, copy them out. What lies between the end of a chunk and the next
 * address of interest (a gap between mappings, an absent or pruned subtree) is
 * zeroed without a look.
 *
 * An entry above the scanned level can be met many times: once per VMA beneath
 * it, per run of 64 entries, per hold, per call. It is judged at the first
 * meeting and remembered in tierscope_scan.judged, since a second look after a
 * clearing one would find it old. One memory a level is enough, as addresses
 * only rise.
 */
#include <linux/bitmap.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "tierscope.h"

/* as wide as an address, so that its complement keeps all of one */
#define JUDGED_FLAGS	((u64)(TIERSCOPE_JUDGED | TIERSCOPE_JUDGED_YOUNG | \
			       TIERSCOPE_JUDGED_LEAF))

#define ZERO_SLICE	(8U << 20)	/* entries zeroed between two looks for signals */

/**
 * struct scanner - a scan under way
 * @hold: of the target's mappings
 * @arg: the caller's struct, copied
 * @shift: log2 of the bytes that an entry of the scanned level maps
 * @clear: TIERSCOPE_SCAN_CLEAR
 * @cleared: bits found set and cleared
 * @pos: next address to look at
 * @limit: end of the chunk that starts at @arg->cursor
 */
struct scanner {
	struct ts_hold hold;
	struct tierscope_scan *arg;
	unsigned int shift;
	bool clear;
	u64 cleared;
	u64 pos;
	u64 limit;
};

/* End of what the entry of @level over @addr maps. */
static u64 entry_end(u64 addr, int level)
{
	return (addr | (BIT_ULL(ts_level_shift(level)) - 1)) + 1;
}

static u64 entry_base(u64 addr, int level)
{
	return addr & ~(BIT_ULL(ts_level_shift(level)) - 1);
}

/* Bit of @addr in the chunk's bitmaps. */
static unsigned int chunk_bit(const struct scanner *s, u64 addr)
{
	return (addr - s->arg->cursor) >> s->shift;
}

/* What is remembered of the entry of @level over the present address, or 0. */
static u64 recall(const struct scanner *s, int level)
{
	u64 memory = s->arg->judged[level - 1];

	if (!(memory & TIERSCOPE_JUDGED) ||
	    (memory & ~JUDGED_FLAGS) != entry_base(s->pos, level))
		return 0;
	return memory;
}

static u64 remember(struct scanner *s, int level, struct ts_verdict v)
{
	u64 memory = entry_base(s->pos, level) | TIERSCOPE_JUDGED;

	if (v.state == TIERSCOPE_STATE_YOUNG) {
		memory |= TIERSCOPE_JUDGED_YOUNG;
		s->cleared += s->clear;
	}
	if (v.kind != TIERSCOPE_KIND_TABLE) {
		memory |= TIERSCOPE_JUDGED_LEAF;
		s->arg->leaves[level - 1]++;
	} else if (v.state == TIERSCOPE_STATE_OLD) {
		s->arg->pruned++;
	}
	s->arg->visited++;
	return s->arg->judged[level - 1] = memory;
}

/* Judge the entry of an upper level once. 0: it is absent, or what is above it. */
static u64 judge_upper(struct scanner *s, struct vm_area_struct *vma, int level)
{
	struct ts_verdict v = { TIERSCOPE_STATE_ABSENT, TIERSCOPE_KIND_NONE };
	u64 memory = recall(s, level);
	struct ts_walk w;

	if (memory)
		return memory;
	ts_walk_lock(&w, vma->vm_mm, s->pos, level);
	if (w.level == level)
		v = ts_judge(&w, vma, s->clear);
	ts_walk_unlock(&w);
	return v.state == TIERSCOPE_STATE_ABSENT ? 0 : remember(s, level, v);
}

/*
 * Judge the upper levels from the top. At an old table go to its end, whatever
 * VMAs follow beneath it. A level that the self-test has not proven prunes
 * nothing.
 */
static bool pruned(struct scanner *s, struct vm_area_struct *vma)
{
	int level;
	u64 memory;

	for (level = TS_JUDGED_TOP; level > s->arg->level; level--) {
		if (!(s->hold.session->proven & BIT(level - 1)))
			continue;
		memory = judge_upper(s, vma, level);
		if (!memory || (memory & TIERSCOPE_JUDGED_LEAF))
			return false;	/* scan_above() is next */
		if (!(memory & TIERSCOPE_JUDGED_YOUNG)) {
			s->pos = entry_end(s->pos, level);
			return true;
		}
	}
	return false;
}

/* The walk ended above the scanned level: a leaf answers for all its bits. */
static void scan_above(struct scanner *s, const struct vm_area_struct *vma,
		       const struct ts_walk *w)
{
	u64 end = entry_end(s->pos, w->level);
	u64 memory = recall(s, w->level);
	struct ts_verdict v = ts_judge(w, vma, s->clear && !memory);
	unsigned int first, n;

	if (v.state == TIERSCOPE_STATE_ABSENT) {
		s->arg->visited++;
		s->pos = end;
		return;
	}
	if (!memory)
		memory = remember(s, w->level, v);
	end = min3(end, (u64)vma->vm_end, s->limit);
	first = chunk_bit(s, s->pos);
	n = chunk_bit(s, end - 1) - first + 1;
	bitmap_set((unsigned long *)s->hold.session->present, first, n);
	if (memory & TIERSCOPE_JUDGED_YOUNG)
		bitmap_set((unsigned long *)s->hold.session->young, first, n);
	s->pos = entry_end(end - 1, s->arg->level);
}

/* Neighbours in one table, as many as share a word of the bitmap. */
static unsigned int scan_run(struct scanner *s, const struct vm_area_struct *vma,
			     const struct ts_walk *w)
{
	struct ts_session *session = s->hold.session;
	unsigned int first = chunk_bit(s, s->pos);
	u64 end = min3((u64)vma->vm_end, s->limit,
		       entry_end(s->pos, w->level + 1));
	unsigned int n = min(chunk_bit(s, end - 1) - first + 1, 64 - first % 64);
	struct ts_run run;

	ts_judge_run(w, vma, n, s->clear, &run);
	session->present[first / 64] |= run.present << first % 64;
	session->young[first / 64] |= run.young << first % 64;
	s->arg->leaves[w->level - 1] += hweight64(run.leaf);
	s->arg->visited += n;
	if (s->clear)
		s->cleared += hweight64(run.young);
	s->pos = s->arg->cursor + ((u64)(first + n) << s->shift);
	return n;
}

/* One step inside a mapping whose tables stay; returns the entries it looked at. */
static unsigned int scan_vma(struct scanner *s, struct vm_area_struct *vma)
{
	unsigned int n = 1;
	struct ts_walk w;

	if ((s->arg->flags & TIERSCOPE_SCAN_PRUNE) && pruned(s, vma))
		return n;
	ts_walk_lock(&w, vma->vm_mm, s->pos, s->arg->level);
	if (w.level > s->arg->level)
		scan_above(s, vma, &w);
	else
		n = scan_run(s, vma, &w);
	ts_walk_unlock(&w);
	return n;
}

/* One step up the address space; returns the entries it looked at, or an error. */
static int scan_step(struct scanner *s)
{
	struct vm_area_struct *vma = ts_hold_vma(&s->hold, s->pos);
	int n = 1;

	if (IS_ERR(vma))
		return PTR_ERR(vma);
	if (!vma) {
		s->pos = s->arg->end;
		return n;
	}
	if (s->pos < vma->vm_start) {
		s->pos = vma->vm_start;
		return n;
	}
	if (!ts_vma_lock(vma)) {
		s->pos = vma->vm_end;
		return n;
	}
	n = scan_vma(s, vma);
	ts_vma_unlock(vma);
	return n;
}

static int scan_chunk(struct scanner *s)
{
	int n, err;

	while (s->pos < s->limit) {
		err = ts_hold_begin(&s->hold);
		if (err)
			return err;
		do {
			n = scan_step(s);
		} while (n >= 0 && s->pos < s->limit &&
			 !ts_hold_spent(&s->hold, n));
		ts_hold_end(&s->hold);
		if (n < 0)
			return n;
		cond_resched();
	}
	return 0;
}

/* Where the word of the next address of interest begins, or the end. */
static u64 next_word(const struct scanner *s)
{
	u64 word = BIT_ULL(s->shift + 6);

	if (s->pos >= s->arg->end)
		return s->arg->end;
	return s->arg->start + ((s->pos - s->arg->start) & ~(word - 1));
}

/* @end, or the address @entries behind the cursor if that comes first. */
static u64 at_most(const struct scanner *s, u64 end, u64 entries)
{
	if ((end - s->arg->cursor) >> s->shift <= entries)
		return end;
	return s->arg->cursor + (entries << s->shift);
}

/* Bytes of bitmap for the addresses from the cursor to @end. */
static u64 bitmap_bytes(const struct scanner *s, u64 end)
{
	return DIV_ROUND_UP_ULL((end - s->arg->cursor) >> s->shift, 64) *
	       sizeof(u64);
}

/* The cursor's word in one of the caller's bitmaps. */
static void __user *user_word(const struct scanner *s, u64 bitmap)
{
	u64 bit = (s->arg->cursor - s->arg->start) >> s->shift;

	return u64_to_user_ptr(bitmap + bit / 64 * sizeof(u64));
}

static u64 count_bits(const u64 *words, u64 bytes)
{
	u64 i, count = 0;

	for (i = 0; i < bytes / sizeof(u64); i++)
		count += hweight64(words[i]);
	return count;
}

/* Copy the chunk out and move the cursor behind it. */
static int flush_chunk(struct scanner *s)
{
	const struct ts_session *session = s->hold.session;
	struct tierscope_scan *arg = s->arg;
	u64 bytes = bitmap_bytes(s, s->limit);

	if (copy_to_user(user_word(s, arg->young), session->young, bytes))
		return -EFAULT;
	if (arg->present &&
	    copy_to_user(user_word(s, arg->present), session->present, bytes))
		return -EFAULT;
	arg->found_young += count_bits(session->young, bytes);
	arg->found_present += count_bits(session->present, bytes);
	arg->cursor = s->limit;
	return 0;
}

/* Zero the words that the scan has passed without a look, a slice at a time. */
static int zero_slice(struct scanner *s)
{
	struct tierscope_scan *arg = s->arg;
	u64 end = at_most(s, next_word(s), ZERO_SLICE);
	u64 bytes = bitmap_bytes(s, end);

	if (clear_user(user_word(s, arg->young), bytes))
		return -EFAULT;
	if (arg->present && clear_user(user_word(s, arg->present), bytes))
		return -EFAULT;
	arg->cursor = end;
	cond_resched();
	return 0;
}

/* Judge the chunk at the cursor. */
static int judge_chunk(struct scanner *s)
{
	struct ts_session *session = s->hold.session;
	int err;

	s->limit = at_most(s, s->arg->end, TS_SCAN_CHUNK);
	memset(session->young, 0, bitmap_bytes(s, s->limit));
	memset(session->present, 0, bitmap_bytes(s, s->limit));
	err = scan_chunk(s);
	return err ?: flush_chunk(s);
}

static int scan(struct scanner *s)
{
	int err = 0;

	while (!err && s->arg->cursor < s->arg->end) {
		if (s->arg->cursor < next_word(s))
			err = zero_slice(s);
		else
			err = judge_chunk(s);
		if (!err && s->arg->cursor < s->arg->end &&
		    signal_pending(current))
			err = -EINTR;
	}
	return err;
}

static bool bitmap_ok(u64 addr, u64 bytes)
{
	return IS_ALIGNED(addr, sizeof(u64)) &&
	       access_ok(u64_to_user_ptr(addr), bytes);
}

static int check(const struct ts_session *session,
		 const struct tierscope_scan *arg)
{
	const u32 flags = TIERSCOPE_SCAN_CLEAR | TIERSCOPE_SCAN_PRUNE;
	unsigned int shift;
	u64 bytes;

	if (arg->level < 1 || arg->level > TIERSCOPE_MAX_LEVELS ||
	    (arg->flags & ~flags) || arg->reserved)
		return -EINVAL;
	if (!(session->proven & BIT(arg->level - 1)))
		return -EOPNOTSUPP;
	shift = ts_level_shift(arg->level);
	if (arg->start > arg->end || arg->end > BIT_ULL(__VIRTUAL_MASK_SHIFT) ||
	    !IS_ALIGNED(arg->start | arg->end, BIT_ULL(shift)))
		return -EINVAL;
	if (arg->cursor < arg->start || arg->cursor > arg->end ||
	    (arg->cursor < arg->end &&
	     !IS_ALIGNED(arg->cursor - arg->start, BIT_ULL(shift + 6))))
		return -EINVAL;
	bytes = DIV_ROUND_UP_ULL((arg->end - arg->start) >> shift, 64) *
		sizeof(u64);
	if (!bitmap_ok(arg->young, bytes) || !bitmap_ok(arg->present, bytes))
		return -EFAULT;
	return 0;
}

/* TIERSCOPE_IOC_SCAN; @arg comes back filled in also on error. */
int ts_scan(struct ts_session *session, struct tierscope_scan *arg)
{
	struct scanner s = {
		.hold.session = session,
		.arg = arg,
		.clear = arg->flags & TIERSCOPE_SCAN_CLEAR,
		.pos = arg->cursor,
	};
	u64 visited = arg->visited;
	int err;

	err = check(session, arg);
	if (err)
		return err;
	s.shift = ts_level_shift(arg->level);
	err = scan(&s);
	session->stats.scanned += arg->visited - visited;
	ts_count_cleared(session, s.cleared);
	arg->cleared_by_others = ts_cleared_by_others(session);
	arg->lock_holds += s.hold.count;
	arg->lock_ns_max = max(arg->lock_ns_max, s.hold.ns_max);
	return err;
}
