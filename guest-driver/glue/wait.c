// SPDX-License-Identifier: GPL-2.0-only
/* Locks that interrupts take, and wait queues. */
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include "glue.h"

void virtio_cuda_spin_lock_init(struct spinlock *lock, const char *name,
				struct lock_class_key *key)
{
#if defined(CONFIG_DEBUG_SPINLOCK) && !defined(CONFIG_PREEMPT_RT)
	__raw_spin_lock_init(spinlock_check(lock), name, key, LD_WAIT_CONFIG);
#else
	spin_lock_init(lock);
#endif
}

unsigned long virtio_cuda_spin_lock_irqsave(struct spinlock *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

bool virtio_cuda_spin_trylock_irqsave(struct spinlock *lock,
				      unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

void virtio_cuda_spin_unlock_irqrestore(struct spinlock *lock,
					unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

void virtio_cuda_spin_assert_is_held(struct spinlock *lock)
{
	lockdep_assert_held(lock);
}

void virtio_cuda_wait_init(struct wait_queue_head *head, const char *name,
			   struct lock_class_key *key)
{
	__init_waitqueue_head(head, name, key);
}

void virtio_cuda_wait_wake_all(struct wait_queue_head *head)
{
	wake_up_all(head);
}

void virtio_cuda_wait_entry_init(struct wait_queue_entry *entry)
{
	init_wait(entry);
}

void virtio_cuda_wait_prepare(struct wait_queue_head *head,
			      struct wait_queue_entry *entry, bool killable)
{
	prepare_to_wait(head, entry,
			killable ? TASK_KILLABLE : TASK_INTERRUPTIBLE);
}

void virtio_cuda_wait_finish(struct wait_queue_head *head,
			     struct wait_queue_entry *entry)
{
	finish_wait(head, entry);
}

/* returns what is left; LONG_MAX is no limit */
long virtio_cuda_schedule_timeout(long jiffies)
{
	return schedule_timeout(jiffies);
}

bool virtio_cuda_signalled(bool killable)
{
	return killable ? fatal_signal_pending(current) : signal_pending(current);
}
