// SPDX-License-Identifier: GPL-2.0
/* PROBE: single entries, in batches. */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "tierscope.h"

static int probe_one(struct ts_hold *hold, struct tierscope_probe *p)
{
	struct vm_area_struct *vma = ts_hold_vma(hold, p->addr);
	struct ts_verdict v;
	struct ts_walk w;

	if (IS_ERR(vma))
		return PTR_ERR(vma);
	p->reached = 0;
	p->kind = TIERSCOPE_KIND_NONE;
	p->state = TIERSCOPE_STATE_UNMAPPED;
	if (!vma || p->addr < vma->vm_start)
		return 0;
	p->state = TIERSCOPE_STATE_REFUSED;
	if (!ts_vma_lock(vma))
		return 0;

	ts_walk_lock(&w, vma->vm_mm, p->addr, p->level);
	v = ts_judge(&w, vma, p->op == TIERSCOPE_OP_TEST_AND_CLEAR);
	ts_walk_unlock(&w);
	ts_vma_unlock(vma);
	p->state = v.state;
	p->kind = v.kind;
	p->reached = w.level;
	return 0;
}

static int check_one(const struct ts_session *session,
		     const struct tierscope_probe *p)
{
	if (p->op > TIERSCOPE_OP_TEST_AND_CLEAR ||
	    memchr_inv(p->reserved, 0, sizeof(p->reserved)) ||
	    p->level < 1 || p->level > TIERSCOPE_MAX_LEVELS)
		return -EINVAL;
	if (!(session->proven & BIT(p->level - 1)))
		return -EOPNOTSUPP;
	return 0;
}

/* How many of the first @n probes are well formed; @err says what the next one lacks. */
static unsigned int count_valid(const struct ts_session *session,
				unsigned int n, int *err)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		*err = check_one(session, &session->probes[i]);
		if (*err)
			break;
	}
	return i;
}

/* How many of the first @n probes, answered, have cleared a bit. */
static u64 count_cleared(const struct tierscope_probe *probes, unsigned int n)
{
	u64 cleared = 0;

	for (; n--; probes++)
		cleared += probes->op == TIERSCOPE_OP_TEST_AND_CLEAR &&
			   probes->state == TIERSCOPE_STATE_YOUNG;
	return cleared;
}

/* Answer @n probes of the session's chunk; @done says how many, also on error. */
static int probe_chunk(struct ts_hold *hold, unsigned int n, unsigned int *done)
{
	struct tierscope_probe *probes = hold->session->probes;
	int err;

	*done = 0;
	while (*done < n) {
		err = ts_hold_begin(hold);
		if (err)
			return err;
		do {
			err = probe_one(hold, &probes[*done]);
			*done += !err;
		} while (!err && *done < n && !ts_hold_spent(hold, 1));
		ts_hold_end(hold);
		if (err)
			return err;
		cond_resched();
	}
	return 0;
}

/* One chunk: fetch, check, answer, write back. */
static int probe_next(struct ts_hold *hold, struct tierscope_probes *arg)
{
	struct ts_session *session = hold->session;
	struct tierscope_probe __user *user =
		(struct tierscope_probe __user *)u64_to_user_ptr(arg->probes) +
		arg->done;
	unsigned int n = min_t(u32, arg->count - arg->done, TS_PROBE_CHUNK);
	unsigned int done;
	int err, invalid = 0;

	if (copy_from_user(session->probes, user, n * sizeof(*user)))
		return -EFAULT;
	n = count_valid(session, n, &invalid);
	err = probe_chunk(hold, n, &done);
	session->stats.probes += done;
	ts_count_cleared(session, count_cleared(session->probes, done));
	if (copy_to_user(user, session->probes, done * sizeof(*user)))
		return -EFAULT;
	arg->done += done;
	return err ?: invalid;
}

/* TIERSCOPE_IOC_PROBE; @arg comes back filled in also on error. */
int ts_probe(struct ts_session *session, struct tierscope_probes *arg)
{
	struct ts_hold hold = { .session = session };
	int err = 0;

	arg->done = 0;
	if (arg->count > TS_MAX_PROBES)
		return -EINVAL;
	while (!err && arg->done < arg->count) {
		err = probe_next(&hold, arg);
		if (!err && arg->done < arg->count && signal_pending(current))
			err = -EINTR;
	}
	arg->lock_holds = hold.count;
	arg->lock_ns_max = hold.ns_max;
	arg->cleared_by_others = ts_cleared_by_others(session);
	return err;
}
