// SPDX-License-Identifier: GPL-2.0
/* ATTACH: from a pid to an address space. */
#include <linux/err.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "tierscope.h"

/*
 * The address space of any living thread: the first thread may have ended by
 * pthread_exit() while the others run on.
 */
static struct mm_struct *group_mm(struct task_struct *leader)
{
	struct mm_struct *mm = NULL;
	struct task_struct *t;

	rcu_read_lock();
	for_each_thread(leader, t) {
		mm = get_task_mm(t);
		if (mm)
			break;
	}
	rcu_read_unlock();
	return mm;
}

/* Struct only (mm_count) of the thread group's address space. */
static struct mm_struct *grab_mm(pid_t nr)
{
	struct pid *pid = find_get_pid(nr);
	struct task_struct *leader = get_pid_task(pid, PIDTYPE_TGID);
	struct mm_struct *mm;

	put_pid(pid);
	if (!leader)
		return ERR_PTR(-ESRCH);
	if (leader->flags & PF_KTHREAD) {
		put_task_struct(leader);
		return ERR_PTR(-EINVAL);
	}
	mm = group_mm(leader);
	put_task_struct(leader);
	if (!mm)
		return ERR_PTR(-ESRCH);
	mmgrab(mm);
	mmput_async(mm);
	return mm;
}

/* TIERSCOPE_IOC_ATTACH */
int ts_attach(struct ts_session *session, struct tierscope_attach *arg)
{
	struct mm_struct *mm;
	int err;

	arg->owner = 0;
	if ((arg->flags & ~TIERSCOPE_ATTACH_SHARED) || arg->reserved ||
	    arg->pid <= 0)
		return -EINVAL;
	if (session->mm)
		return -EALREADY;
	err = ts_selftest(arg->selftest_addr, &arg->proven_levels);
	if (err)
		return err;
	mm = grab_mm(arg->pid);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	err = ts_claim(session, mm, arg->flags & TIERSCOPE_ATTACH_SHARED,
		       &arg->owner);
	if (err) {
		mmdrop(mm);
		return err;
	}
	session->proven = arg->proven_levels;
	session->mm = mm;
	return 0;
}
