/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that depends on the kernel's version or on the layout of its structures lies behind these functions: Rust sees
 * opaque pointers only. linux/bindings.rs declares the same for Rust; keep the two in step.
 */
#ifndef VIRTIO_CUDA_GLUE_H
#define VIRTIO_CUDA_GLUE_H

#include <linux/types.h>

struct attribute_group;
struct device;
struct file;
struct lock_class_key;
struct mm_struct;
struct module;
struct page;
struct poll_table_struct;
struct scatterlist;
struct spinlock;
struct virtio_device;
struct virtqueue;
struct vm_area_struct;
struct wait_queue_entry;
struct wait_queue_head;
struct workqueue_struct;

/* virtio: the driver's entry points; `state` is what probe has stored, NULL before that */
struct virtio_cuda_driver {
	const char *name;
	unsigned int device_id;
	int (*probe)(struct virtio_device *vdev);
	void (*remove)(struct virtio_device *vdev);
	void (*queue_interrupt)(void *state, unsigned int queue);
	void (*config_interrupt)(void *state);
};

int virtio_cuda_register_driver(const struct virtio_cuda_driver *driver,
				struct module *owner);
void virtio_cuda_unregister_driver(void);
struct device *virtio_cuda_device(struct virtio_device *vdev);
void *virtio_cuda_state(const struct virtio_device *vdev);
void virtio_cuda_set_state(struct virtio_device *vdev, void *state);
void virtio_cuda_config_read(struct virtio_device *vdev, unsigned int offset,
			     void *buf, unsigned int bytes);
void virtio_cuda_config_write_le32(struct virtio_device *vdev,
				   unsigned int offset, u32 value);
int virtio_cuda_find_vqs(struct virtio_device *vdev, unsigned int count,
			 struct virtqueue **vqs, const char *const *names);
void virtio_cuda_del_vqs(struct virtio_device *vdev);
void virtio_cuda_device_ready(struct virtio_device *vdev);
void virtio_cuda_reset(struct virtio_device *vdev);

/* virtqueues */
int virtio_cuda_add(struct virtqueue *vq, struct scatterlist *list,
		    unsigned int readable, void *token);
bool virtio_cuda_kick_prepare(struct virtqueue *vq);
bool virtio_cuda_notify(struct virtqueue *vq);
void *virtio_cuda_get_buf(struct virtqueue *vq, u32 *bytes);
void *virtio_cuda_detach_unused_buf(struct virtqueue *vq);
void virtio_cuda_disable_cb(struct virtqueue *vq);
bool virtio_cuda_enable_cb(struct virtqueue *vq);
bool virtio_cuda_is_broken(const struct virtqueue *vq);
unsigned int virtio_cuda_vring_size(const struct virtqueue *vq);
void virtio_cuda_spread_queue(struct virtqueue *vq, unsigned int queues);
struct scatterlist *virtio_cuda_sg_alloc(unsigned int readable,
					 unsigned int writable);
void virtio_cuda_sg_set(struct scatterlist *list, unsigned int index,
			const void *buf, unsigned int bytes);
void virtio_cuda_sg_free(struct scatterlist *list);

/* memory */
enum virtio_cuda_access {
	VIRTIO_CUDA_READ,
	VIRTIO_CUDA_WRITE,
	VIRTIO_CUDA_KEEP,
	VIRTIO_CUDA_KEEP_READ,
};

int virtio_cuda_pin_pages(unsigned long start, int count,
			  enum virtio_cuda_access access, struct page **pages);
void virtio_cuda_unpin_pages(struct page *page, unsigned long count,
			     bool dirty);
void virtio_cuda_free_page(struct page *page);
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

const struct attribute_group **virtio_cuda_groups(void);
void virtio_cuda_count(enum virtio_cuda_statistic which, u64 more);

/* module parameters (params.c) */
struct virtio_cuda_params {
	u64 max_pinned_mib;
	u64 max_shared_mib;
	u32 max_outstanding;
	u32 max_user_sessions;
	u32 pinned_per_user_percent;
	u32 pinned_percent;
	u32 memlock_strict;
};

const struct virtio_cuda_params *virtio_cuda_params(void);

/* the device file (chardev.c): `value` is what open has made */
#define VIRTIO_CUDA_READABLE 1
#define VIRTIO_CUDA_HUNG_UP 2

struct virtio_cuda_file_operations {
	int (*open)(void **value);
	void (*release)(void *value);
	void (*flush)(void *value);
	long (*ioctl)(void *value, unsigned int command, unsigned long arg);
	int (*mmap)(void *value, struct vm_area_struct *vma, u64 offset);
	u32 (*poll)(void *value, struct file *file,
		    struct poll_table_struct *table);
	ssize_t (*read)(void *value, void *buffer, size_t bytes, bool block);
};

int virtio_cuda_register_chardev(const struct virtio_cuda_file_operations *operations,
				 const char *name, u32 mode,
				 struct module *owner);
void virtio_cuda_deregister_chardev(void);

/* locks and waiting */
void virtio_cuda_spin_lock_init(struct spinlock *lock, const char *name,
				struct lock_class_key *key);
unsigned long virtio_cuda_spin_lock_irqsave(struct spinlock *lock);
bool virtio_cuda_spin_trylock_irqsave(struct spinlock *lock,
				      unsigned long *flags);
void virtio_cuda_spin_unlock_irqrestore(struct spinlock *lock,
					unsigned long flags);
void virtio_cuda_spin_assert_is_held(struct spinlock *lock);
void virtio_cuda_wait_init(struct wait_queue_head *head, const char *name,
			   struct lock_class_key *key);
void virtio_cuda_wait_wake_all(struct wait_queue_head *head);
void virtio_cuda_wait_entry_init(struct wait_queue_entry *entry);
void virtio_cuda_wait_prepare(struct wait_queue_head *head,
			      struct wait_queue_entry *entry, bool killable);
void virtio_cuda_wait_finish(struct wait_queue_head *head,
			     struct wait_queue_entry *entry);
long virtio_cuda_schedule_timeout(long jiffies);
bool virtio_cuda_signalled(bool killable);

/* tasks, work */
unsigned int virtio_cuda_processor(void);
bool virtio_cuda_current_exiting(void);
void virtio_cuda_current_name(u8 *name);
u32 virtio_cuda_current_uid(void);
u32 virtio_cuda_charged_uid(void);
u64 virtio_cuda_memlock_bytes(void);
bool virtio_cuda_may_lock_memory(void);
struct workqueue_struct *virtio_cuda_alloc_workqueue(const char *name);
void virtio_cuda_flush_workqueue(struct workqueue_struct *queue);
void virtio_cuda_destroy_workqueue(struct workqueue_struct *queue);

#endif
