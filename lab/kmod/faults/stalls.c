// SPDX-License-Identifier: GPL-2.0
/* Faults of code that keeps a CPU or itself from running. */
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "faults.h"

#define SECONDS	15	/* the job sets all time limits lower */

static void spin(void)
{
	int i;

	for (i = 0; i < 10 * SECONDS; i++)
		mdelay(100);
}

void fault_stall(void)
{
	preempt_disable();
	spin();
	preempt_enable();
}

void fault_irqs_off(void)
{
	local_irq_disable();
	spin();
	local_irq_enable();
}

static void ended(struct rcu_head *unused)
{
}

/* A reader that sleeps: other CPUs see that the grace period does not end. */
void fault_reader(void)
{
	static struct rcu_head waiting;

	rcu_read_lock();
	call_rcu(&waiting, ended);
	schedule_timeout_uninterruptible(SECONDS * HZ);
	rcu_read_unlock();
	rcu_barrier();
}

void fault_hung(void)
{
	schedule_timeout_uninterruptible(SECONDS * HZ);
}
