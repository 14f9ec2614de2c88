// SPDX-License-Identifier: GPL-2.0-only
/* Pages of processes and of the driver, and watches over mappings. */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include "glue.h"

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

void virtio_cuda_free_page(struct page *page)
{
	__free_pages(page, 0);
}

int virtio_cuda_pin_pages(unsigned long start, int count,
			  enum virtio_cuda_access access, struct page **pages)
{
	unsigned int flags = 0;

	if (access == VIRTIO_CUDA_WRITE || access == VIRTIO_CUDA_KEEP)
		flags |= FOLL_WRITE;
	if (access == VIRTIO_CUDA_KEEP || access == VIRTIO_CUDA_KEEP_READ)
		flags |= FOLL_LONGTERM;
	return pin_user_pages_fast(start, count, flags, pages);
}

void virtio_cuda_unpin_pages(struct page *page, unsigned long count, bool dirty)
{
	unpin_user_page_range_dirty_lock(page, count, dirty);
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
