// SPDX-License-Identifier: GPL-2.0-only
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/mmu_notifier.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include "virtio_glue.h"

void virtio_cuda_config_read(struct virtio_device *vdev, unsigned int offset,
			     void *buf, unsigned int bytes)
{
	virtio_cread_bytes(vdev, offset, buf, bytes);
}

void virtio_cuda_config_write_le32(struct virtio_device *vdev,
				   unsigned int offset, u32 value)
{
	__le32 raw = cpu_to_le32(value);

	vdev->config->set(vdev, offset, &raw, sizeof(raw));
}

int virtio_cuda_find_vqs(struct virtio_device *vdev, unsigned int count,
			 struct virtqueue **vqs, struct virtqueue_info *infos)
{
	return virtio_find_vqs(vdev, count, vqs, infos, NULL);
}

void virtio_cuda_del_vqs(struct virtio_device *vdev)
{
	/* a probe that failed before it found the queues has none */
	if (!list_empty(&vdev->vqs))
		vdev->config->del_vqs(vdev);
}

void virtio_cuda_device_ready(struct virtio_device *vdev)
{
	virtio_device_ready(vdev);
}

void virtio_cuda_clear_feature(struct virtio_device *vdev, unsigned int bit)
{
	__virtio_clear_bit(vdev, bit);
}

/* a hint, so that an answer arrives where somebody waits for it; failing is fine */
void virtio_cuda_spread_queue(struct virtqueue *vq, unsigned int queues)
{
	cpumask_var_t mask;
	unsigned int cpu;

	if (!queues || !zalloc_cpumask_var(&mask, GFP_KERNEL))
		return;
	for_each_online_cpu(cpu) {
		if (cpu % queues == vq->index)
			cpumask_set_cpu(cpu, mask);
	}
	if (!cpumask_empty(mask))
		virtqueue_set_affinity(vq, mask);
	free_cpumask_var(mask);
}

void virtio_cuda_sg_set(struct scatterlist *sg, const void *buf,
			unsigned int bytes)
{
	sg_set_buf(sg, buf, bytes);
}

unsigned long virtio_cuda_page_to_pfn(const struct page *page)
{
	return page_to_pfn(page);
}

struct page *virtio_cuda_pfn_to_page(unsigned long pfn)
{
	return pfn_to_page(pfn);
}

/* 1 << order zeroed pages in a row, each with a reference of its own */
struct page *virtio_cuda_alloc_pages(unsigned int order)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
	struct page *page;

	/* a large block is a gift, not a need */
	if (order)
		gfp |= __GFP_NORETRY | __GFP_NOWARN;
	page = alloc_pages(gfp, order);
	if (page && order)
		split_page(page, order);
	return page;
}

u64 virtio_cuda_ram_bytes(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

/* VmPin of /proc/PID/status */
void virtio_cuda_count_pins(struct mm_struct *mm, s64 pages)
{
	atomic64_add(pages, &mm->pinned_vm);
}

unsigned long virtio_cuda_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool virtio_cuda_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

void virtio_cuda_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool virtio_cuda_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

bool virtio_cuda_current_exiting(void)
{
	return current->flags & PF_EXITING;
}

void virtio_cuda_current_name(u8 name[16])
{
	BUILD_BUG_ON(TASK_COMM_LEN != 16);
	strscpy_pad((char *)name, current->comm, TASK_COMM_LEN);
}

/*
 * The real user, as the initial user namespace has it: in a namespace of its
 * own a process can be any number.
 */
u32 virtio_cuda_current_uid(void)
{
	return from_kuid(&init_user_ns, current_uid());
}

u64 virtio_cuda_memlock_bytes(void)
{
	return rlimit(RLIMIT_MEMLOCK);
}

bool virtio_cuda_may_lock_memory(void)
{
	return has_capability_noaudit(current, CAP_IPC_LOCK);
}

struct workqueue_struct *virtio_cuda_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}

struct virtio_cuda_watch {
	struct mmu_interval_notifier notifier;
	bool stale;
	void (*changed)(void *cookie);
	void *cookie;
};

#ifdef CONFIG_MMU_NOTIFIER
/*
 * Nobody looks at page tables under a sequence: pages whose mapping changes are pinned, hence stay what they are
 * until they are given back, and are used for no copy that begins after this.
 */
static bool virtio_cuda_watch_invalidate(struct mmu_interval_notifier *notifier,
					 const struct mmu_notifier_range *range,
					 unsigned long sequence)
{
	struct virtio_cuda_watch *watch =
		container_of(notifier, struct virtio_cuda_watch, notifier);

	/* the same pages, and the same rights to them */
	if (range->event == MMU_NOTIFY_SOFT_DIRTY)
		return true;
	if (!xchg(&watch->stale, true))
		watch->changed(watch->cookie);
	return true;
}

static const struct mmu_interval_notifier_ops virtio_cuda_watch_ops = {
	.invalidate = virtio_cuda_watch_invalidate,
};

int virtio_cuda_watch_new(struct virtio_cuda_watch **made, unsigned long start,
			  unsigned long bytes, void (*changed)(void *cookie),
			  void *cookie)
{
	struct virtio_cuda_watch *watch;
	int error;

	watch = kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT);
	if (!watch)
		return -ENOMEM;
	watch->changed = changed;
	watch->cookie = cookie;
	error = mmu_interval_notifier_insert(&watch->notifier, current->mm,
					     start, bytes,
					     &virtio_cuda_watch_ops);
	if (error)
		kfree(watch);
	else
		*made = watch;
	return error;
}

/* waits for callbacks under way */
void virtio_cuda_watch_free(struct virtio_cuda_watch *watch)
{
	mmu_interval_notifier_remove(&watch->notifier);
	kfree(watch);
}
#else
int virtio_cuda_watch_new(struct virtio_cuda_watch **made, unsigned long start,
			  unsigned long bytes, void (*changed)(void *cookie),
			  void *cookie)
{
	return -EOPNOTSUPP;
}

void virtio_cuda_watch_free(struct virtio_cuda_watch *watch)
{
}
#endif

bool virtio_cuda_watch_is_stale(const struct virtio_cuda_watch *watch)
{
	return READ_ONCE(watch->stale);
}

void virtio_cuda_watch_reset(struct virtio_cuda_watch *watch)
{
	xchg(&watch->stale, false);
}
