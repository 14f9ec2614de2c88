// SPDX-License-Identifier: GPL-2.0-only
/* The current task, and workqueues. */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>
#include "glue.h"

unsigned int virtio_cuda_processor(void)
{
	return raw_smp_processor_id();
}

bool virtio_cuda_current_exiting(void)
{
	return current->flags & PF_EXITING;
}

/* `name` has 16 bytes */
void virtio_cuda_current_name(u8 *name)
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

/*
 * The user to whom limits are charged. In a user namespace of its own a
 * process can become each of its subordinate users: they all are the owner of
 * the namespace. Namespaces of the administrator separate users, so that theirs
 * do not count.
 */
u32 virtio_cuda_charged_uid(void)
{
	struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_uid();

	for (; ns != &init_user_ns; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return from_kuid(&init_user_ns, uid);
}

u64 virtio_cuda_memlock_bytes(void)
{
	return rlimit(RLIMIT_MEMLOCK);
}

bool virtio_cuda_may_lock_memory(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK);
}

struct workqueue_struct *virtio_cuda_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}

void virtio_cuda_flush_workqueue(struct workqueue_struct *queue)
{
	flush_workqueue(queue);
}

void virtio_cuda_destroy_workqueue(struct workqueue_struct *queue)
{
	destroy_workqueue(queue);
}
