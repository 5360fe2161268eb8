// SPDX-License-Identifier: GPL-2.0
/* Faults of code that locks, sleeps or races. */
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "faults.h"

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spin);

void fault_lock_order(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);

	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

void fault_sleep(void)
{
	spin_lock(&spin);
	might_sleep();
	spin_unlock(&spin);
}

/* The scheduler sets the count right that preempt_disable() raised. */
void fault_schedule(void)
{
	preempt_disable();
	schedule();
}

static int raced;

static noinline void race_once(void)
{
	raced++;
}

static int race(void *unused)
{
	while (!kthread_should_stop()) {
		race_once();
		cond_resched();
	}
	return 0;
}

void fault_race(void)
{
	struct task_struct *other = kthread_run(race, NULL, "ts_race");
	unsigned long end = jiffies + 10 * HZ;

	if (IS_ERR(other))
		return;
	while (time_before(jiffies, end)) {
		race_once();
		cond_resched();
	}
	kthread_stop(other);
}
