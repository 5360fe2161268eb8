// SPDX-License-Identifier: GPL-2.0
/*
 * Lab only: flush the TLB of chosen processes at a chosen period.
 *
 * Hardware sets ACCESSED when it walks the page table, and it walks on a TLB
 * miss. A real TLB forgets a translation within milliseconds; the one that
 * QEMU's TCG keeps can hold a whole hot set for good, so that a bit once
 * cleared is never set again. This module makes it forget, for every
 * instrument under comparison alike. The period bounds how finely a bit can
 * tell time: record it with every result.
 *
 * /dev/tierscope_flusher:
 *	write "PID PERIOD_US"	flush this process, or change its period
 *				(PERIOD_MIN_US to PERIOD_MAX_US, else ERANGE)
 *	write "PID 0"		stop flushing it (ESRCH: it is not being flushed)
 *	write "0"		stop all
 *	read			one line each: pid, period in us, flushes so far
 * One command a write. ESRCH: no such process, or it has no address space;
 * EINVAL: no such command; ENOSPC: TARGETS_MAX processes already.
 *
 * A process that exits or executes another program drops out by itself.
 * The flush is asynchronous: nobody waits for the other CPUs.
 */
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm_types.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/uaccess.h>
#include <asm/special_insns.h>

#define PERIOD_MIN_US	500	/* below, the flusher is the load */
#define PERIOD_MAX_US	(60 * USEC_PER_SEC)
#define TARGETS_MAX	256

/**
 * struct target - a process being flushed
 * @list: in targets
 * @pid: as the caller named it
 * @mm: struct only (mm_count): the target may die
 * @period: between flushes
 * @due: next flush
 * @flushes: so far
 */
struct target {
	struct list_head list;
	pid_t pid;
	struct mm_struct *mm;
	ktime_t period;
	ktime_t due;
	u64 flushes;
};

static LIST_HEAD(targets);
static unsigned int target_count;
static DEFINE_MUTEX(targets_lock);	/* list and contents */
static struct task_struct *worker;
static bool changed;	/* somebody wrote since the worker looked */

/*
 * TCG empties its TLB, global and paging-structure entries included, whenever
 * CR3 is written. (Hardware with PCIDs would keep other processes' entries, and
 * under PTI user mode's: this module is no measure there.)
 */
static void flush_this_cpu(void *unused)
{
	write_cr3(__read_cr3());
}

static bool gone(const struct target *t)
{
	return !atomic_read(&t->mm->mm_users);
}

static void drop(struct target *t)
{
	list_del(&t->list);
	target_count--;
	mmdrop(t->mm);
	kfree(t);
}

static void drop_all(void)
{
	struct target *t, *next;

	list_for_each_entry_safe(t, next, &targets, list)
		drop(t);
}

/* Flush if it is time; a flush that is late is not made up for. */
static void serve(struct target *t, ktime_t now)
{
	if (ktime_before(now, t->due))
		return;
	on_each_cpu_mask(mm_cpumask(t->mm), flush_this_cpu, NULL, false);
	t->flushes++;
	t->due = ktime_add(t->due, t->period);
	if (ktime_before(t->due, now))
		t->due = ktime_add(now, t->period);
}

/* Serve everybody; returns when the next one is due. */
static ktime_t serve_all(void)
{
	struct target *t, *next;
	ktime_t first = KTIME_MAX;

	mutex_lock(&targets_lock);
	list_for_each_entry_safe(t, next, &targets, list) {
		if (gone(t)) {
			drop(t);
			continue;
		}
		serve(t, ktime_get());
		first = min(first, t->due);
	}
	mutex_unlock(&targets_lock);
	return first;
}

static int work(void *unused)
{
	while (!kthread_should_stop()) {
		ktime_t due;

		WRITE_ONCE(changed, false);
		due = serve_all();
		set_current_state(TASK_INTERRUPTIBLE);
		if (!READ_ONCE(changed) && !kthread_should_stop())
			schedule_hrtimeout(&due, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

static void rouse(void)
{
	WRITE_ONCE(changed, true);
	wake_up_process(worker);
}

static struct target *lookup(pid_t pid)
{
	struct target *t;

	list_for_each_entry(t, &targets, list)
		if (t->pid == pid)
			return t;
	return NULL;
}

/* Struct only (mm_count) of the process's address space, or NULL. */
static struct mm_struct *grab_mm(pid_t nr)
{
	struct pid *pid = find_get_pid(nr);
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	struct mm_struct *mm = task ? get_task_mm(task) : NULL;

	if (mm) {
		mmgrab(mm);
		mmput_async(mm);
	}
	if (task)
		put_task_struct(task);
	put_pid(pid);
	return mm;
}

static int add(pid_t pid, unsigned long period_us)
{
	struct target *t;

	if (target_count == TARGETS_MAX)
		return -ENOSPC;
	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	t->mm = grab_mm(pid);
	if (!t->mm) {
		kfree(t);
		return -ESRCH;
	}
	t->pid = pid;
	t->period = ns_to_ktime(period_us * NSEC_PER_USEC);
	t->due = ktime_get();
	list_add_tail(&t->list, &targets);
	target_count++;
	return 0;
}

static int start(pid_t pid, unsigned long period_us)
{
	struct target *t = lookup(pid);

	if (period_us < PERIOD_MIN_US || period_us > PERIOD_MAX_US)
		return -ERANGE;
	if (t && gone(t)) {	/* it executed another program, or the pid is reused */
		drop(t);
		t = NULL;
	}
	if (!t)
		return add(pid, period_us);
	t->period = ns_to_ktime(period_us * NSEC_PER_USEC);
	t->due = ktime_get();
	return 0;
}

static int stop(pid_t pid)
{
	struct target *t = lookup(pid);

	if (!t)
		return -ESRCH;
	drop(t);
	return 0;
}

static int obey(const char *command)
{
	unsigned long period_us;
	int pid, words;
	char rest;

	words = sscanf(command, "%d %lu %c", &pid, &period_us, &rest);
	if (words == 1 && pid == 0) {
		drop_all();
		return 0;
	}
	if (words != 2 || pid <= 0)
		return -EINVAL;
	return period_us ? start(pid, period_us) : stop(pid);
}

static ssize_t flusher_write(struct file *file, const char __user *user,
			     size_t size, loff_t *pos)
{
	char command[64] = "";
	int err;

	if (size >= sizeof(command))
		return -EINVAL;
	if (copy_from_user(command, user, size))
		return -EFAULT;
	mutex_lock(&targets_lock);
	err = obey(command);
	mutex_unlock(&targets_lock);
	if (err)
		return err;
	rouse();
	return size;
}

static int show(struct seq_file *m, void *unused)
{
	struct target *t;

	mutex_lock(&targets_lock);
	list_for_each_entry(t, &targets, list)
		if (!gone(t))
			seq_printf(m, "%d %lld %llu\n", t->pid,
				   ktime_to_us(t->period), t->flushes);
	mutex_unlock(&targets_lock);
	return 0;
}

static int flusher_open(struct inode *inode, struct file *file)
{
	/* misc_open() leaves the device here; seq_open() warns of what it finds. */
	file->private_data = NULL;
	return single_open(file, show, NULL);
}

static const struct file_operations flusher_fops = {
	.owner = THIS_MODULE,
	.open = flusher_open,
	.read = seq_read,
	.write = flusher_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tierscope_flusher",
	.fops = &flusher_fops,
	.mode = 0600,
};

static int __init flusher_init(void)
{
	int err;

	worker = kthread_create(work, NULL, "ts_flusher");
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	sched_set_fifo_low(worker);	/* the period is the resolution */
	wake_up_process(worker);
	err = misc_register(&device);
	if (err)
		kthread_stop(worker);
	return err;
}

static void __exit flusher_exit(void)
{
	misc_deregister(&device);
	kthread_stop(worker);
	drop_all();
	/*
	 * A flush that nobody waited for may still be on its way. A CPU answers
	 * those who wait first, so that only the second answer comes after it.
	 */
	on_each_cpu(flush_this_cpu, NULL, true);
	on_each_cpu(flush_this_cpu, NULL, true);
}

module_init(flusher_init);
module_exit(flusher_exit);

MODULE_DESCRIPTION("Lab only: flush the TLB of chosen processes at a chosen period");
MODULE_AUTHOR("The tierscope developers");
MODULE_LICENSE("GPL");
