// SPDX-License-Identifier: GPL-2.0-only
/* What the crate `kernel` asks of the kernel. VIRTIO_CUDA_HAVE_*: see ../Kbuild. */
#include <linux/bug.h>
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "glue.h"

/* Rust holds these by value: the words of kernel/src/bindings.rs */
#define CHECK_ROOM(_type, _words)                                     \
	static_assert(sizeof(_type) <= (_words) * 8,                  \
		      "kernel/src/bindings.rs has too little room");  \
	static_assert(__alignof__(_type) <= 8,                        \
		      "kernel/src/bindings.rs aligns to 8 bytes only")

CHECK_ROOM(struct lock_class_key, 4);
CHECK_ROOM(struct mutex, 24);
CHECK_ROOM(spinlock_t, 12);
CHECK_ROOM(struct wait_queue_entry, 8);
CHECK_ROOM(struct wait_queue_head, 16);
CHECK_ROOM(struct work_struct, 14);
CHECK_ROOM(struct xarray, 16);
static_assert(PAGE_SIZE == 4096, "the driver knows pages of 4 KiB only");
static_assert(ARCH_KMALLOC_MINALIGN >= 8, "Rust relies on kmalloc's alignment");

static int __init stock_init(void)
{
	return stock_module_init(THIS_MODULE);
}

static void __exit stock_exit(void)
{
	stock_module_exit();
}

module_init(stock_init);
module_exit(stock_exit);

void stock_print(unsigned int level, const u8 *text, size_t bytes)
{
	if (level <= 4)
		pr_warn("%.*s", (int)bytes, text);
	else
		pr_info("%.*s", (int)bytes, text);
}

void stock_print_dev(unsigned int level, struct device *dev, const u8 *text,
		     size_t bytes)
{
	if (level <= 3)
		dev_err(dev, "%.*s", (int)bytes, text);
	else if (level == 4)
		dev_warn(dev, "%.*s", (int)bytes, text);
	else
		dev_info(dev, "%.*s", (int)bytes, text);
}

void stock_bug(const u8 *text, size_t bytes)
{
	pr_emerg("%.*s\n", (int)bytes, text);
	BUG();
}

static gfp_t gfp_of(unsigned int flags)
{
	return flags == 1 ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;
}

void *stock_kmalloc(size_t bytes, unsigned int flags)
{
	return kmalloc(bytes, gfp_of(flags));
}

void stock_kfree(const void *memory)
{
	kfree(memory);
}

void *stock_kvmalloc(size_t bytes, unsigned int flags)
{
	return kvmalloc(bytes, gfp_of(flags));
}

void stock_kvfree(const void *memory)
{
	kvfree(memory);
}

bool stock_copy_from_user(void *to, unsigned long from, size_t bytes)
{
	return !copy_from_user(to, (const void __user *)from, bytes);
}

bool stock_copy_to_user(unsigned long to, const void *from, size_t bytes)
{
	return !copy_to_user((void __user *)to, from, bytes);
}

void stock_mutex_init(struct mutex *lock, const char *name,
		      struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	__mutex_init(lock, name, key);
#else
	mutex_init(lock);
#endif
}

void stock_mutex_lock(struct mutex *lock)
{
	mutex_lock(lock);
}

bool stock_mutex_trylock(struct mutex *lock)
{
	return mutex_trylock(lock);
}

void stock_mutex_unlock(struct mutex *lock)
{
	mutex_unlock(lock);
}

void stock_mutex_assert_is_held(struct mutex *lock)
{
	lockdep_assert_held(lock);
}

void stock_wait_init(struct wait_queue_head *head, const char *name,
		     struct lock_class_key *key)
{
	__init_waitqueue_head(head, name, key);
}

void stock_wait_prepare(struct wait_queue_head *head,
			struct wait_queue_entry *entry)
{
	init_wait(entry);
	prepare_to_wait(head, entry, TASK_INTERRUPTIBLE);
}

void stock_wait_finish(struct wait_queue_head *head,
		       struct wait_queue_entry *entry)
{
	finish_wait(head, entry);
}

void stock_wake_all(struct wait_queue_head *head)
{
	wake_up_all(head);
}

void stock_wake_pollfree(struct wait_queue_head *head)
{
#ifdef VIRTIO_CUDA_HAVE_POLLFREE
	wake_up_pollfree(head);
#else
	wake_up_poll(head, EPOLLHUP | POLLFREE);
#endif
	synchronize_rcu();
}

void stock_poll_wait(struct file *file, struct wait_queue_head *head,
		     struct poll_table_struct *table)
{
	poll_wait(file, head, table);
}

long stock_schedule_timeout(long jiffies)
{
	return schedule_timeout(jiffies);
}

unsigned long stock_msecs_to_jiffies(unsigned int ms)
{
	return msecs_to_jiffies(ms);
}

s64 stock_ktime_ns(void)
{
	return ktime_get_ns();
}

struct task_struct *stock_current(void)
{
	return current;
}

struct mm_struct *stock_current_mm(void)
{
	return current->mm;
}

struct task_struct *stock_task_leader(struct task_struct *task)
{
	return task->group_leader;
}

int stock_task_pid(struct task_struct *task)
{
	return task->pid;
}

bool stock_signal_pending(void)
{
	return signal_pending(current);
}

void stock_task_get(struct task_struct *task)
{
	get_task_struct(task);
}

void stock_task_put(struct task_struct *task)
{
	put_task_struct(task);
}

void stock_mm_grab(struct mm_struct *mm)
{
	mmgrab(mm);
}

void stock_mm_drop(struct mm_struct *mm)
{
	mmdrop(mm);
}

void stock_device_get(struct device *dev)
{
	get_device(dev);
}

void stock_device_put(struct device *dev)
{
	put_device(dev);
}

void stock_work_init(struct work_struct *work,
		     void (*run)(struct work_struct *work), const char *name,
		     struct lock_class_key *key)
{
	INIT_WORK(work, run);
#ifdef CONFIG_LOCKDEP
	lockdep_init_map(&work->lockdep_map, name, key, 0);
#endif
}

bool stock_queue_work(struct workqueue_struct *queue, struct work_struct *work)
{
	return queue_work(queue, work);
}

void stock_xa_init(struct xarray *xa, bool from_one)
{
	xa_init_flags(xa, from_one ? XA_FLAGS_ALLOC1 : XA_FLAGS_ALLOC);
}

void stock_xa_destroy(struct xarray *xa)
{
	xa_destroy(xa);
}

void stock_xa_lock(struct xarray *xa) __acquires(&xa->xa_lock)
{
	xa_lock(xa);
}

void stock_xa_unlock(struct xarray *xa) __releases(&xa->xa_lock)
{
	xa_unlock(xa);
}

void *stock_xa_load(struct xarray *xa, unsigned long index)
{
	return xa_load(xa, index);
}

int stock_xa_store(struct xarray *xa, unsigned long index, void *value,
		   unsigned int flags, void **old)
{
	void *before = __xa_store(xa, index, value, gfp_of(flags));

	if (xa_is_err(before))
		return xa_err(before);
	*old = before;
	return 0;
}

void *stock_xa_erase(struct xarray *xa, unsigned long index)
{
	return __xa_erase(xa, index);
}

/* for a table that nobody else uses any more */
void *stock_xa_take_first(struct xarray *xa)
{
	unsigned long index = 0;

	return xa_find(xa, &index, ULONG_MAX, XA_PRESENT) ?
		       xa_erase(xa, index) : NULL;
}

unsigned long stock_vma_start(const struct vm_area_struct *vma)
{
	return vma->vm_start;
}

unsigned long stock_vma_end(const struct vm_area_struct *vma)
{
	return vma->vm_end;
}

unsigned int stock_vma_flags(const struct vm_area_struct *vma)
{
	return (vma->vm_flags & VM_SHARED ? STOCK_VMA_SHARED : 0) |
	       (vma->vm_flags & VM_EXEC ? STOCK_VMA_EXEC : 0);
}

void stock_vma_set(struct vm_area_struct *vma, unsigned int flag)
{
	unsigned long set = 0;

	if (flag & STOCK_VMA_DONTEXPAND)
		set |= VM_DONTEXPAND;
	if (flag & STOCK_VMA_DONTCOPY)
		set |= VM_DONTCOPY;
	if (flag & STOCK_VMA_MIXEDMAP)
		set |= VM_MIXEDMAP;
#ifdef VIRTIO_CUDA_HAVE_VM_FLAGS_SET
	vm_flags_set(vma, set);
#else
	vma->vm_flags |= set;
#endif
}

void stock_vma_clear_mayexec(struct vm_area_struct *vma)
{
#ifdef VIRTIO_CUDA_HAVE_VM_FLAGS_SET
	vm_flags_clear(vma, VM_MAYEXEC);
#else
	vma->vm_flags &= ~VM_MAYEXEC;
#endif
}

int stock_vm_insert_page(struct vm_area_struct *vma, unsigned long address,
			 struct page *page)
{
	return vm_insert_page(vma, address, page);
}
