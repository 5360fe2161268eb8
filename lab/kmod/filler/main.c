// SPDX-License-Identifier: GPL-2.0
/* The device /dev/tierscope_filler: opening, mapping, and the frame of every call. */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/uaccess.h>

#include "filler.h"

/* Filled or emptied under one hold of the mmap lock: some milliseconds. */
#define CHUNK		PUD_SIZE

/* Left to the rest of the machine. */
#define RESERVE_BYTES	(128ULL << 20)

/* filler_fill() or filler_empty() */
typedef int (*work_fn)(struct filler *filler, struct vm_area_struct *vma,
		       unsigned long *cursor, unsigned long end);

/* A touch fills nothing: it would hide that something was left out. */
static vm_fault_t filler_fault(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static const struct vm_operations_struct filler_vm_ops = {
	.fault = filler_fault,
};

static int filler_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED) ||
	    !IS_ALIGNED(vma->vm_start | vma->vm_end, PMD_SIZE))
		return -EINVAL;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTCOPY | VM_DONTEXPAND |
			  VM_DONTDUMP);
	/* vm_insert_page() goes by this: let entries begin old. */
	vma->vm_page_prot = __pgprot(pgprot_val(vma->vm_page_prot) &
				     ~_PAGE_ACCESSED);
	vma->vm_ops = &filler_vm_ops;
	return 0;
}

/* The mapping of @file that holds all of start..end, or NULL. */
static struct vm_area_struct *find_mapping(const struct file *file,
					   unsigned long start,
					   unsigned long end)
{
	struct vm_area_struct *vma = find_vma(current->mm, start);

	if (!vma || vma->vm_start > start || vma->vm_end < end ||
	    vma->vm_file != file)
		return NULL;
	return vma;
}

/* Work on the chunk at the cursor. */
static int work_on_chunk(struct file *file, struct tierscope_fill *arg,
			 work_fn work)
{
	struct filler *filler = file->private_data;
	unsigned long cursor = arg->cursor;
	unsigned long end = min_t(u64, arg->end, (cursor | (CHUNK - 1)) + 1);
	struct vm_area_struct *vma;
	int err = -EFAULT;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = find_mapping(file, cursor, end);
	if (vma)
		err = work(filler, vma, &cursor, end);
	mmap_read_unlock(current->mm);
	arg->cursor = cursor;
	return err;
}

static int work_on_all(struct file *file, struct tierscope_fill *arg,
		       work_fn work)
{
	u64 first = arg->cursor;
	int err = 0;

	while (!err && arg->cursor < arg->end) {
		err = work_on_chunk(file, arg, work);
		if (arg->budget && arg->cursor - first >= arg->budget)
			break;
		if (!err && arg->cursor < arg->end && signal_pending(current))
			err = -EINTR;
	}
	return err;
}

static int check(const struct tierscope_fill *arg)
{
	if (arg->size != sizeof(*arg) || arg->reserved ||
	    arg->start > arg->end || arg->end > TASK_SIZE_MAX ||
	    arg->cursor < arg->start || arg->cursor > arg->end ||
	    !IS_ALIGNED(arg->start | arg->end | arg->cursor, PMD_SIZE))
		return -EINVAL;
	return 0;
}

/* Bytes of page tables for @bytes, wherever they begin. */
static u64 table_bytes(u64 bytes)
{
	u64 pages = 0;
	int shift;

	for (shift = PMD_SHIFT; shift < PGDIR_SHIFT; shift += 9)
		pages += (bytes >> shift) + 1;
	return pages << PAGE_SHIFT;
}

/* Better now than with the OOM killer at three quarters. */
static int check_memory(struct tierscope_fill *arg)
{
	u64 available = (u64)max(si_mem_available(), 0L) << PAGE_SHIFT;

	arg->available = available - min(available, RESERVE_BYTES);
	arg->needed = table_bytes(arg->end - arg->cursor);
	return arg->needed <= arg->available ? 0 : -ENOMEM;
}

static int dispatch(struct file *file, unsigned int cmd,
		    struct tierscope_fill *arg)
{
	int err = check(arg);

	if (err)
		return err;
	if (cmd == TIERSCOPE_FILLER_IOC_EMPTY)
		return work_on_all(file, arg, filler_empty);
	return check_memory(arg) ?: work_on_all(file, arg, filler_fill);
}

static long filler_ioctl(struct file *file, unsigned int cmd,
			 unsigned long user)
{
	struct tierscope_fill arg;
	int err;

	if (cmd != TIERSCOPE_FILLER_IOC_FILL &&
	    cmd != TIERSCOPE_FILLER_IOC_EMPTY)
		return -ENOTTY;
	if (copy_from_user(&arg, (void __user *)user, sizeof(arg)))
		return -EFAULT;
	err = dispatch(file, cmd, &arg);
	if (copy_to_user((void __user *)user, &arg, sizeof(arg)))
		return -EFAULT;
	return err;
}

static int filler_open(struct inode *inode, struct file *file)
{
	struct filler *filler = kzalloc(sizeof(*filler), GFP_KERNEL);
	int err;

	if (!filler)
		return -ENOMEM;
	err = filler_get_pages(filler);
	if (err) {
		kfree(filler);
		return err;
	}
	file->private_data = filler;
	return 0;
}

/* Mappings hold the file: by now all of them are gone. */
static int filler_release(struct inode *inode, struct file *file)
{
	struct filler *filler = file->private_data;

	filler_put_pages(filler);
	kfree(filler);
	return 0;
}

static const struct file_operations filler_fops = {
	.owner = THIS_MODULE,
	.open = filler_open,
	.release = filler_release,
	.mmap = filler_mmap,
	.get_unmapped_area = thp_get_unmapped_area,	/* aligns to 2 MiB */
	.unlocked_ioctl = filler_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = TIERSCOPE_FILLER_NAME,
	.fops = &filler_fops,
	.mode = 0600,
};

module_misc_device(device);

MODULE_DESCRIPTION("Lab only: terabytes of real page tables in a small machine");
MODULE_AUTHOR("The tierscope developers");
MODULE_LICENSE("GPL");
