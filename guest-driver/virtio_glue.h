/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What Rust cannot call: static inline functions and macros of the kernel, one thin wrapper each.
 * bindgen reads this header (see bindgen.mk).
 */
#ifndef VIRTIO_CUDA_GLUE_H
#define VIRTIO_CUDA_GLUE_H

#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/workqueue.h>

/* virtio */
void virtio_cuda_config_read(struct virtio_device *vdev, unsigned int offset,
			     void *buf, unsigned int bytes);
void virtio_cuda_config_write_le32(struct virtio_device *vdev,
				   unsigned int offset, u32 value);
int virtio_cuda_find_vqs(struct virtio_device *vdev, unsigned int count,
			 struct virtqueue **vqs, struct virtqueue_info *infos);
void virtio_cuda_del_vqs(struct virtio_device *vdev);
void virtio_cuda_device_ready(struct virtio_device *vdev);
void virtio_cuda_clear_feature(struct virtio_device *vdev, unsigned int bit);
void virtio_cuda_spread_queue(struct virtqueue *vq, unsigned int queues);
void virtio_cuda_sg_set(struct scatterlist *sg, const void *buf,
			unsigned int bytes);

/* memory */
unsigned long virtio_cuda_page_to_pfn(const struct page *page);
struct page *virtio_cuda_pfn_to_page(unsigned long pfn);
struct page *virtio_cuda_alloc_pages(unsigned int order);
u64 virtio_cuda_ram_bytes(void);
void virtio_cuda_count_pins(struct mm_struct *mm, s64 pages);

/* watches over mappings of the current process; changed() must not sleep */
struct virtio_cuda_watch;
int virtio_cuda_watch_new(struct virtio_cuda_watch **made, unsigned long start,
			  unsigned long bytes, void (*changed)(void *cookie),
			  void *cookie);
void virtio_cuda_watch_free(struct virtio_cuda_watch *watch);
bool virtio_cuda_watch_is_stale(const struct virtio_cuda_watch *watch);
void virtio_cuda_watch_reset(struct virtio_cuda_watch *watch);

/* statistics (statistics.c) */
enum virtio_cuda_statistic {
	VIRTIO_CUDA_REQUESTS,
	VIRTIO_CUDA_KICKS,
	VIRTIO_CUDA_INTERRUPTS,
	VIRTIO_CUDA_PINNED_PAGES,
	VIRTIO_CUDA_PIN_NS,
	VIRTIO_CUDA_UNPIN_NS,
	VIRTIO_CUDA_BULK_WAIT_NS,
};

struct attribute_group;
const struct attribute_group **virtio_cuda_groups(void);
void virtio_cuda_count(enum virtio_cuda_statistic which, u64 more);

/* tasks, locks, work */
unsigned long virtio_cuda_spin_lock_irqsave(spinlock_t *lock);
bool virtio_cuda_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags);
void virtio_cuda_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
bool virtio_cuda_fatal_signal_pending(void);
bool virtio_cuda_current_exiting(void);
void virtio_cuda_current_name(u8 name[16]);
u32 virtio_cuda_current_uid(void);
u64 virtio_cuda_memlock_bytes(void);
bool virtio_cuda_may_lock_memory(void);
struct workqueue_struct *virtio_cuda_alloc_workqueue(const char *name);

#endif
