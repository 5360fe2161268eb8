// SPDX-License-Identifier: GPL-2.0
/* The device /dev/tierscope: loading, opening, and the frame of every call. */
#include <linux/capability.h>
#include <linux/cpufeature.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "tierscope.h"

static int ts_open(struct inode *inode, struct file *file)
{
	struct ts_session *session;

	if (!capable(CAP_SYS_PTRACE) || !capable(CAP_SYS_ADMIN))
		return -EPERM;
	session = kvzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT);
	if (!session)
		return -ENOMEM;
	mutex_init(&session->lock);
	file->private_data = session;
	return 0;
}

static int ts_release(struct inode *inode, struct file *file)
{
	struct ts_session *session = file->private_data;

	ts_unclaim(session);
	if (session->mm)
		mmdrop(session->mm);
	mutex_destroy(&session->lock);
	kvfree(session);
	return 0;
}

static long ioctl_info(void __user *user)
{
	struct tierscope_info info = {
		.size = sizeof(info),
		.abi = TIERSCOPE_ABI_VERSION,
		.levels = ts_top_level(),
		.hardware_levels = TS_JUDGED_LEVELS,
		.max_probes = TS_MAX_PROBES,
		.lock_budget_us = TS_LOCK_BUDGET_US,
		.flush_interval_us = TS_FLUSH_INTERVAL_US,
	};
	size_t fixed = offsetofend(struct tierscope_info, abi);
	u32 size;

	if (ts_pti())
		info.features |= TIERSCOPE_FEATURE_PTI;
	if (pgtable_l5_enabled())
		info.features |= TIERSCOPE_FEATURE_LA57;
	if (TS_HANDBACK)
		info.features |= TIERSCOPE_FEATURE_HANDBACK;
	if (ts_locks_mappings())
		info.features |= TIERSCOPE_FEATURE_MAPPING_LOCKS;

	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < fixed)
		return -EINVAL;
	if (size != sizeof(info))
		return copy_to_user(user, &info, fixed) ? -EFAULT : -EPROTO;
	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

/* Fetch the struct of a call; its own idea of its size must be ours. */
static int fetch(void *arg, const void __user *user, u32 size)
{
	if (copy_from_user(arg, user, size))
		return -EFAULT;
	return *(u32 *)arg == size ? 0 : -EINVAL;
}

static long ioctl_attach(struct ts_session *session, void __user *user)
{
	struct tierscope_attach arg;
	int err = fetch(&arg, user, sizeof(arg));

	if (err)
		return err;
	err = ts_attach(session, &arg);
	if (err && err != -EBUSY)
		return err;
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : err;
}

/* ENXIO before ATTACH, ESRCH when the last user of the address space is gone. */
static int target_alive(const struct ts_session *session)
{
	if (!session->mm)
		return -ENXIO;
	return atomic_read(&session->mm->mm_users) ? 0 : -ESRCH;
}

static long ioctl_probe(struct ts_session *session, void __user *user)
{
	struct tierscope_probes arg;
	int err = fetch(&arg, user, sizeof(arg)) ?: target_alive(session);

	if (err)
		return err;
	err = ts_probe(session, &arg);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : err;
}

static long ioctl_scan(struct ts_session *session, void __user *user)
{
	struct tierscope_scan arg;
	int err = fetch(&arg, user, sizeof(arg)) ?: target_alive(session);

	if (err)
		return err;
	err = ts_scan(session, &arg);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : err;
}

static long ioctl_flush(struct ts_session *session, void __user *user)
{
	struct tierscope_flush arg;
	int err = fetch(&arg, user, sizeof(arg)) ?: target_alive(session);

	if (!err)
		err = ts_flush(session, &arg);
	if (err)
		return err;
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static long ioctl_stats(struct ts_session *session, void __user *user)
{
	struct tierscope_stats *stats = &session->stats;
	u32 head[2];	/* size, reserved */

	BUILD_BUG_ON(offsetof(struct tierscope_stats, probes) != sizeof(head));
	if (copy_from_user(head, user, sizeof(head)))
		return -EFAULT;
	if (head[0] != sizeof(*stats) || head[1])
		return -EINVAL;
	if (!session->mm)
		return -ENXIO;
	stats->size = sizeof(*stats);
	return copy_to_user(user, stats, sizeof(*stats)) ? -EFAULT : 0;
}

static long call(struct ts_session *session, unsigned int cmd,
		 void __user *user)
{
	switch (cmd) {
	case TIERSCOPE_IOC_ATTACH:
		return ioctl_attach(session, user);
	case TIERSCOPE_IOC_PROBE:
		return ioctl_probe(session, user);
	case TIERSCOPE_IOC_SCAN:
		return ioctl_scan(session, user);
	case TIERSCOPE_IOC_STATS:
		return ioctl_stats(session, user);
	case TIERSCOPE_IOC_FLUSH:
		return ioctl_flush(session, user);
	}
	/* A call of ours with a struct of another size is another ABI's. */
	if (_IOC_TYPE(cmd) == TIERSCOPE_IOC_MAGIC &&
	    _IOC_NR(cmd) <= _IOC_NR(TIERSCOPE_IOC_FLUSH))
		return -EINVAL;
	return -ENOTTY;
}

static long ts_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ts_session *session = file->private_data;
	void __user *user = (void __user *)arg;
	long ret;

	if (cmd == TIERSCOPE_IOC_INFO)
		return ioctl_info(user);
	if (mutex_lock_killable(&session->lock))
		return -EINTR;
	ret = call(session, cmd, user);
	mutex_unlock(&session->lock);
	return ret;
}

static const struct file_operations ts_fops = {
	.owner = THIS_MODULE,
	.open = ts_open,
	.release = ts_release,
	.unlocked_ioctl = ts_ioctl,
};

static struct miscdevice ts_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = TIERSCOPE_DEVICE_NAME,
	.fops = &ts_fops,
	.mode = 0600,
};

static int __init ts_init(void)
{
	/*
	 * A Xen PV guest's tables are the hypervisor's: writing an entry traps,
	 * and what the hypervisor does with ACCESSED is its own affair.
	 */
	if (boot_cpu_has(X86_FEATURE_XENPV)) {
		pr_err("tierscope: not for Xen PV guests: the hypervisor owns their page tables; use a PVH or HVM guest\n");
		return -ENODEV;
	}
	return misc_register(&ts_device);
}

static void __exit ts_exit(void)
{
	misc_deregister(&ts_device);
	ts_flush_drain();
}

module_init(ts_init);
module_exit(ts_exit);

MODULE_DESCRIPTION("Test and clear ACCESSED bits at every level of a process's page tables");
MODULE_AUTHOR("The tierscope developers");
MODULE_LICENSE("GPL");
