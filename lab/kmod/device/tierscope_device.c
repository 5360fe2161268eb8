// SPDX-License-Identifier: GPL-2.0
/*
 * Lab only: interrupts of the instrumented virtual machine's telemetry device.
 *
 * Registers and states need no driver: a program maps BAR 2 through sysfs.
 * What a program cannot have without one is an interrupt, and the address of
 * a process's page table, by which records of TLB misses name the process.
 *
 * /dev/tierscope_device:
 *	read	waits for an interrupt since the last read of this file;
 *		two u64: interrupts since the module was loaded, and the
 *		time of the last one (CLOCK_MONOTONIC, ns). EAGAIN with
 *		O_NONBLOCK.
 *	poll	readable once there was one
 *	ioctl	TIERSCOPE_DEVICE_ROOT, a pid in the first u64 of its
 *		argument: the physical address of the process's top table.
 *		ESRCH: no such process, or it has no address space.
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/mm_types.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <asm/io.h>

#define VECTORS			2
#define TIERSCOPE_DEVICE_ROOT	_IOWR('T', 0x80, __u64)

static DECLARE_WAIT_QUEUE_HEAD(interrupted);
static atomic64_t interrupts = ATOMIC64_INIT(0);
static atomic64_t last_time = ATOMIC64_INIT(0);

static irqreturn_t on_interrupt(int irq, void *unused)
{
	atomic64_set(&last_time, ktime_get_ns());
	atomic64_inc(&interrupts);
	wake_up_interruptible(&interrupted);
	return IRQ_HANDLED;
}

/**
 * struct listener - an open file
 * @seen: interrupts that it knows of
 */
struct listener {
	u64 seen;
};

static int device_open(struct inode *inode, struct file *file)
{
	struct listener *l = kzalloc(sizeof(*l), GFP_KERNEL);

	if (!l)
		return -ENOMEM;
	l->seen = atomic64_read(&interrupts);
	file->private_data = l;
	return 0;
}

static int device_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static bool news(const struct listener *l)
{
	return atomic64_read(&interrupts) != READ_ONCE(l->seen);
}

static ssize_t device_read(struct file *file, char __user *user, size_t size,
			   loff_t *pos)
{
	struct listener *l = file->private_data;
	u64 told[2];

	if (size < sizeof(told))
		return -EINVAL;
	if (!news(l) && (file->f_flags & O_NONBLOCK))
		return -EAGAIN;
	if (wait_event_interruptible(interrupted, news(l)))
		return -ERESTARTSYS;
	told[0] = atomic64_read(&interrupts);
	told[1] = atomic64_read(&last_time);
	WRITE_ONCE(l->seen, told[0]);
	if (copy_to_user(user, told, sizeof(told)))
		return -EFAULT;
	return sizeof(told);
}

static __poll_t device_poll(struct file *file, poll_table *wait)
{
	poll_wait(file, &interrupted, wait);
	return news(file->private_data) ? EPOLLIN | EPOLLRDNORM : 0;
}

static int root_of(pid_t nr, u64 *root)
{
	struct pid *pid = find_get_pid(nr);
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	struct mm_struct *mm = task ? get_task_mm(task) : NULL;

	if (mm) {
		*root = virt_to_phys(mm->pgd);
		mmput(mm);
	}
	if (task)
		put_task_struct(task);
	put_pid(pid);
	return mm ? 0 : -ESRCH;
}

static long device_ioctl(struct file *file, unsigned int command,
			 unsigned long argument)
{
	u64 __user *user = (u64 __user *)argument;
	u64 value;
	int err;

	if (command != TIERSCOPE_DEVICE_ROOT)
		return -ENOTTY;
	if (get_user(value, user))
		return -EFAULT;
	if (!value || value > INT_MAX)
		return -EINVAL;
	err = root_of(value, &value);
	return err ? err : put_user(value, user);
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.read = device_read,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
};

static struct miscdevice misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tierscope_device",
	.fops = &device_fops,
	.mode = 0600,
};

static void free_interrupts(struct pci_dev *dev, int count)
{
	while (count--)
		free_irq(pci_irq_vector(dev, count), dev);
	pci_free_irq_vectors(dev);
}

static int request_interrupts(struct pci_dev *dev)
{
	int err = pci_alloc_irq_vectors(dev, VECTORS, VECTORS, PCI_IRQ_MSIX);
	int i;

	if (err < 0)
		return err;
	for (i = 0; i < VECTORS; i++) {
		err = request_irq(pci_irq_vector(dev, i), on_interrupt, 0,
				  "tierscope_device", dev);
		if (err) {
			free_interrupts(dev, i);
			return err;
		}
	}
	return 0;
}

static int probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(dev);

	if (err)
		return err;
	pci_set_master(dev);	/* message-signalled interrupts are writes */
	err = request_interrupts(dev);
	if (err)
		return err;
	err = misc_register(&misc);
	if (err)
		free_interrupts(dev, VECTORS);
	return err;
}

static void remove(struct pci_dev *dev)
{
	misc_deregister(&misc);
	free_interrupts(dev, VECTORS);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver telemetry_driver = {
	.name = "tierscope_device",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};
module_pci_driver(telemetry_driver);

MODULE_DESCRIPTION("Lab only: interrupts of tierscope's telemetry device");
MODULE_LICENSE("GPL");
