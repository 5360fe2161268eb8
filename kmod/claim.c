// SPDX-License-Identifier: GPL-2.0
/*
 * One session clears the ACCESSED bits of an address space: two would each see
 * the accesses only that fell between the other's clear and its own. A second
 * session is refused, or admitted on request; then the calls of each return how
 * many bits the others have cleared.
 */
#include <linux/atomic.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "tierscope.h"

/**
 * struct ts_claim - the sessions of an address space
 * @node: in ts_claims
 * @mm: the key; each session holds its struct, so that no other can have its address
 * @owner: thread group that attached first
 * @sessions: how many there are
 * @cleared: bits that they found set and cleared
 */
struct ts_claim {
	struct hlist_node node;
	struct mm_struct *mm;
	struct pid *owner;
	unsigned int sessions;
	atomic64_t cleared;
};

static DEFINE_HASHTABLE(ts_claims, 10);
static DEFINE_MUTEX(ts_claims_lock);

static struct ts_claim *find_claim(const struct mm_struct *mm)
{
	struct ts_claim *claim;

	hash_for_each_possible(ts_claims, claim, node, (unsigned long)mm)
		if (claim->mm == mm)
			return claim;
	return NULL;
}

static struct ts_claim *new_claim(struct mm_struct *mm)
{
	struct ts_claim *claim = kzalloc(sizeof(*claim), GFP_KERNEL_ACCOUNT);

	if (!claim)
		return NULL;
	claim->mm = mm;
	claim->owner = get_pid(task_tgid(current));
	hash_add(ts_claims, &claim->node, (unsigned long)mm);
	return claim;
}

static int claim_locked(struct ts_session *session, struct mm_struct *mm,
			bool shared, u32 *owner)
{
	struct ts_claim *claim = find_claim(mm);

	if (claim && !shared) {
		*owner = pid_vnr(claim->owner);
		return -EBUSY;
	}
	claim = claim ?: new_claim(mm);
	if (!claim)
		return -ENOMEM;
	claim->sessions++;
	session->claim = claim;
	session->others_before = atomic64_read(&claim->cleared);
	return 0;
}

/**
 * ts_claim() - become the session of an address space, or one of them
 * @session: has no claim yet
 * @mm: its struct is held as long as the claim is
 * @shared: also if there is another one
 * @owner: out, with EBUSY only: pid of that one's opener as the caller sees it, or 0
 *
 * Return: 0, EBUSY, ENOMEM
 */
int ts_claim(struct ts_session *session, struct mm_struct *mm, bool shared,
	     u32 *owner)
{
	int err;

	mutex_lock(&ts_claims_lock);
	err = claim_locked(session, mm, shared, owner);
	mutex_unlock(&ts_claims_lock);
	return err;
}

/* Give the claim back, if there is one. */
void ts_unclaim(struct ts_session *session)
{
	struct ts_claim *claim = session->claim;

	if (!claim)
		return;
	mutex_lock(&ts_claims_lock);
	if (--claim->sessions == 0) {
		hash_del(&claim->node);
		put_pid(claim->owner);
		kfree(claim);
	}
	mutex_unlock(&ts_claims_lock);
	session->claim = NULL;
}

/* The session has found @bits set and cleared them. */
void ts_count_cleared(struct ts_session *session, u64 bits)
{
	session->cleared += bits;
	atomic64_add(bits, &session->claim->cleared);
}

/* Bits that other sessions of the address space have cleared since ATTACH. */
u64 ts_cleared_by_others(const struct ts_session *session)
{
	return atomic64_read(&session->claim->cleared) -
	       session->others_before - session->cleared;
}
