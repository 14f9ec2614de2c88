/* SPDX-License-Identifier: GPL-2.0-only */
/* What the crate `kernel` beside this file asks of the kernel. kernel/src/glue.rs declares the same for Rust. */
#ifndef VIRTIO_CUDA_STOCK_GLUE_H
#define VIRTIO_CUDA_STOCK_GLUE_H

#include <linux/types.h>

struct device;
struct file;
struct lock_class_key;
struct mm_struct;
struct module;
struct mutex;
struct page;
struct poll_table_struct;
struct task_struct;
struct vm_area_struct;
struct wait_queue_entry;
struct wait_queue_head;
struct work_struct;
struct workqueue_struct;
struct xarray;

/* the module, in Rust */
int stock_module_init(struct module *module);
void stock_module_exit(void);

/* messages: the level is the kernel's digit; the text is not terminated */
void stock_print(unsigned int level, const u8 *text, size_t bytes);
void stock_print_dev(unsigned int level, struct device *dev, const u8 *text,
		     size_t bytes);
void stock_bug(const u8 *text, size_t bytes);

/* memory: flags 0 is GFP_KERNEL, 1 is GFP_KERNEL_ACCOUNT */
void *stock_kmalloc(size_t bytes, unsigned int flags);
void stock_kfree(const void *memory);
void *stock_kvmalloc(size_t bytes, unsigned int flags);
void stock_kvfree(const void *memory);
bool stock_copy_from_user(void *to, unsigned long from, size_t bytes);
bool stock_copy_to_user(unsigned long to, const void *from, size_t bytes);

/* locks and waiting */
void stock_mutex_init(struct mutex *lock, const char *name,
		      struct lock_class_key *key);
void stock_mutex_lock(struct mutex *lock);
bool stock_mutex_trylock(struct mutex *lock);
void stock_mutex_unlock(struct mutex *lock);
void stock_mutex_assert_is_held(struct mutex *lock);
void stock_wait_init(struct wait_queue_head *head, const char *name,
		     struct lock_class_key *key);
void stock_wait_prepare(struct wait_queue_head *head,
			struct wait_queue_entry *entry);
void stock_wait_finish(struct wait_queue_head *head,
		       struct wait_queue_entry *entry);
void stock_wake_all(struct wait_queue_head *head);
void stock_wake_pollfree(struct wait_queue_head *head);
void stock_poll_wait(struct file *file, struct wait_queue_head *head,
		     struct poll_table_struct *table);
long stock_schedule_timeout(long jiffies);
unsigned long stock_msecs_to_jiffies(unsigned int ms);
s64 stock_ktime_ns(void);

/* tasks, address spaces, devices */
struct task_struct *stock_current(void);
struct mm_struct *stock_current_mm(void);
struct task_struct *stock_task_leader(struct task_struct *task);
int stock_task_pid(struct task_struct *task);
bool stock_signal_pending(void);
void stock_task_get(struct task_struct *task);
void stock_task_put(struct task_struct *task);
void stock_mm_grab(struct mm_struct *mm);
void stock_mm_drop(struct mm_struct *mm);
void stock_device_get(struct device *dev);
void stock_device_put(struct device *dev);

/* work */
void stock_work_init(struct work_struct *work,
		     void (*run)(struct work_struct *work), const char *name,
		     struct lock_class_key *key);
bool stock_queue_work(struct workqueue_struct *queue, struct work_struct *work);

/* tables: store returns a negative error number or sets `old`; the lock is held for load, store and erase */
void stock_xa_init(struct xarray *xa, bool from_one);
void stock_xa_destroy(struct xarray *xa);
void stock_xa_lock(struct xarray *xa);
void stock_xa_unlock(struct xarray *xa);
void *stock_xa_load(struct xarray *xa, unsigned long index);
int stock_xa_store(struct xarray *xa, unsigned long index, void *value,
		   unsigned int flags, void **old);
void *stock_xa_erase(struct xarray *xa, unsigned long index);
void *stock_xa_take_first(struct xarray *xa);

/* mappings: numbers of kernel/src/mm/virt.rs */
#define STOCK_VMA_SHARED 1
#define STOCK_VMA_EXEC 2
#define STOCK_VMA_DONTEXPAND 4
#define STOCK_VMA_DONTCOPY 8
#define STOCK_VMA_MIXEDMAP 16

unsigned long stock_vma_start(const struct vm_area_struct *vma);
unsigned long stock_vma_end(const struct vm_area_struct *vma);
unsigned int stock_vma_flags(const struct vm_area_struct *vma);
void stock_vma_set(struct vm_area_struct *vma, unsigned int flag);
void stock_vma_clear_mayexec(struct vm_area_struct *vma);
int stock_vm_insert_page(struct vm_area_struct *vma, unsigned long address,
			 struct page *page);

#endif
