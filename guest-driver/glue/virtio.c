// SPDX-License-Identifier: GPL-2.0-only
/* The virtio driver API. VIRTIO_CUDA_HAVE_*: see Kbuild. */
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include "glue.h"

/* there is one driver */
static const struct virtio_cuda_driver *entry;
static struct virtio_device_id id_table[2];

static int validate(struct virtio_device *vdev)
{
	/* requests name guest-physical addresses, not those of an IOMMU */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static int probe(struct virtio_device *vdev)
{
	return entry->probe(vdev);
}

static void remove(struct virtio_device *vdev)
{
	entry->remove(vdev);
}

static void config_changed(struct virtio_device *vdev)
{
	entry->config_interrupt(vdev->priv);
}

static void queue_used(struct virtqueue *vq)
{
	entry->queue_interrupt(vq->vdev->priv, vq->index);
}

#ifdef CONFIG_PM_SLEEP
/* what sessions have in the device's memory would be lost */
static int freeze(struct virtio_device *vdev)
{
	return -EBUSY;
}
#endif

static struct virtio_driver driver = {
	.id_table = id_table,
	.validate = validate,
	.probe = probe,
	.remove = remove,
	.config_changed = config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze = freeze,
#endif
};

int virtio_cuda_register_driver(const struct virtio_cuda_driver *wanted,
				struct module *owner)
{
	entry = wanted;
	id_table[0].device = wanted->device_id;
	id_table[0].vendor = VIRTIO_DEV_ANY_ID;
	driver.driver.name = wanted->name;
	driver.driver.owner = owner;
	return register_virtio_driver(&driver);
}

void virtio_cuda_unregister_driver(void)
{
	unregister_virtio_driver(&driver);
}

struct device *virtio_cuda_device(struct virtio_device *vdev)
{
	return &vdev->dev;
}

void *virtio_cuda_state(const struct virtio_device *vdev)
{
	return vdev->priv;
}

void virtio_cuda_set_state(struct virtio_device *vdev, void *state)
{
	vdev->priv = state;
}

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
			 struct virtqueue **vqs, const char *const *names)
{
#ifdef VIRTIO_CUDA_HAVE_VIRTQUEUE_INFO
	struct virtqueue_info *infos;
#else
	vq_callback_t **callbacks;
#endif
	unsigned int i;
	int error;

#ifdef VIRTIO_CUDA_HAVE_VIRTQUEUE_INFO
	infos = kcalloc(count, sizeof(*infos), GFP_KERNEL);
	if (!infos)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		infos[i].name = names[i];
		infos[i].callback = queue_used;
	}
	error = virtio_find_vqs(vdev, count, vqs, infos, NULL);
	kfree(infos);
#else
	callbacks = kcalloc(count, sizeof(*callbacks), GFP_KERNEL);
	if (!callbacks)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		callbacks[i] = queue_used;
	/* the core does not write to names, whatever the prototype says */
	error = virtio_find_vqs(vdev, count, vqs, callbacks,
				(const char **)names, NULL);
	kfree(callbacks);
#endif
	return error;
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

/* no callback runs after this */
void virtio_cuda_reset(struct virtio_device *vdev)
{
#ifdef VIRTIO_CUDA_HAVE_RESET_DEVICE
	virtio_reset_device(vdev);
#else
	vdev->config->reset(vdev);
#endif
}

int virtio_cuda_add(struct virtqueue *vq, struct scatterlist *list,
		    unsigned int readable, void *token)
{
	/* the writable part begins behind the readable one, if there is one */
	struct scatterlist *lists[2] = { list, list + readable };

	return virtqueue_add_sgs(vq, readable ? lists : lists + 1,
				 readable ? 1 : 0, 1, token, GFP_ATOMIC);
}

bool virtio_cuda_kick_prepare(struct virtqueue *vq)
{
	return virtqueue_kick_prepare(vq);
}

bool virtio_cuda_notify(struct virtqueue *vq)
{
	return virtqueue_notify(vq);
}

void *virtio_cuda_get_buf(struct virtqueue *vq, u32 *bytes)
{
	return virtqueue_get_buf(vq, bytes);
}

void *virtio_cuda_detach_unused_buf(struct virtqueue *vq)
{
	return virtqueue_detach_unused_buf(vq);
}

void virtio_cuda_disable_cb(struct virtqueue *vq)
{
	virtqueue_disable_cb(vq);
}

bool virtio_cuda_enable_cb(struct virtqueue *vq)
{
	return virtqueue_enable_cb(vq);
}

bool virtio_cuda_is_broken(const struct virtqueue *vq)
{
	return virtqueue_is_broken((struct virtqueue *)vq);
}

unsigned int virtio_cuda_vring_size(const struct virtqueue *vq)
{
	return virtqueue_get_vring_size((struct virtqueue *)vq);
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

/* two lists in one piece of memory */
struct scatterlist *virtio_cuda_sg_alloc(unsigned int readable,
					 unsigned int writable)
{
	struct scatterlist *list =
		kmalloc_array(readable + writable, sizeof(*list), GFP_KERNEL);

	if (!list)
		return NULL;
	if (readable)
		sg_init_table(list, readable);
	if (writable)
		sg_init_table(list + readable, writable);
	return list;
}

/* `buf` lies in the kernel's linear mapping: it is from kmalloc */
void virtio_cuda_sg_set(struct scatterlist *list, unsigned int index,
			const void *buf, unsigned int bytes)
{
	sg_set_buf(list + index, buf, bytes);
}

void virtio_cuda_sg_free(struct scatterlist *list)
{
	kfree(list);
}
