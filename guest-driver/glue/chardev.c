// SPDX-License-Identifier: GPL-2.0-only
/* The device file. */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include "glue.h"

/* there is one device file */
static const struct virtio_cuda_file_operations *entry;

static int chardev_open(struct inode *inode, struct file *file)
{
	int error = nonseekable_open(inode, file);

	return error ? error : entry->open(&file->private_data);
}

static int chardev_release(struct inode *inode, struct file *file)
{
	entry->release(file->private_data);
	return 0;
}

static int chardev_flush(struct file *file, fl_owner_t id)
{
	entry->flush(file->private_data);
	return 0;
}

static long chardev_ioctl(struct file *file, unsigned int command,
			  unsigned long arg)
{
	return entry->ioctl(file->private_data, command, arg);
}

static int chardev_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (vma->vm_pgoff > (U64_MAX >> PAGE_SHIFT))
		return -EOVERFLOW;
	return entry->mmap(file->private_data, vma,
			   (u64)vma->vm_pgoff << PAGE_SHIFT);
}

static __poll_t chardev_poll(struct file *file, struct poll_table_struct *table)
{
	u32 ready = entry->poll(file->private_data, file, table);
	__poll_t mask = 0;

	if (ready & VIRTIO_CUDA_READABLE)
		mask |= EPOLLIN | EPOLLRDNORM;
	if (ready & VIRTIO_CUDA_HUNG_UP)
		mask |= EPOLLHUP | EPOLLERR;
	return mask;
}

static ssize_t chardev_read(struct file *file, char __user *buffer,
			    size_t bytes, loff_t *position)
{
	return entry->read(file->private_data, (__force void *)buffer, bytes,
			   !(file->f_flags & O_NONBLOCK));
}

static struct file_operations operations = {
	.open = chardev_open,
	.release = chardev_release,
	.flush = chardev_flush,
	.unlocked_ioctl = chardev_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = chardev_mmap,
	.poll = chardev_poll,
	.read = chardev_read,
};

static struct miscdevice chardev = {
	.minor = MISC_DYNAMIC_MINOR,
	.fops = &operations,
};

int virtio_cuda_register_chardev(const struct virtio_cuda_file_operations *wanted,
				 const char *name, u32 mode,
				 struct module *owner)
{
	entry = wanted;
	operations.owner = owner;
	chardev.name = name;
	chardev.mode = mode;
	chardev.groups = virtio_cuda_groups();
	return misc_register(&chardev);
}

void virtio_cuda_deregister_chardev(void)
{
	misc_deregister(&chardev);
}
