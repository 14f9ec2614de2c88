// SPDX-License-Identifier: GPL-2.0-only
/* What the driver counts, as files of /sys/class/misc/virtio-cuda/statistics. */
#include <linux/atomic.h>
#include <linux/device.h>
#include <linux/sysfs.h>
#include "glue.h"

struct statistic {
	struct device_attribute attribute;
	atomic64_t value;
};

static ssize_t statistic_show(struct device *dev, struct device_attribute *attr,
			      char *text)
{
	struct statistic *statistic =
		container_of(attr, struct statistic, attribute);

	return sysfs_emit(text, "%lld\n", atomic64_read(&statistic->value));
}

#define STATISTIC(_name) { .attribute = __ATTR(_name, 0400, statistic_show, NULL) }

static struct statistic statistics[] = {
	[VIRTIO_CUDA_REQUESTS] = STATISTIC(requests),
	[VIRTIO_CUDA_KICKS] = STATISTIC(kicks),
	[VIRTIO_CUDA_INTERRUPTS] = STATISTIC(interrupts),
	[VIRTIO_CUDA_PINNED_PAGES] = STATISTIC(pinned_pages),
	[VIRTIO_CUDA_PIN_NS] = STATISTIC(pin_ns),
	[VIRTIO_CUDA_UNPIN_NS] = STATISTIC(unpin_ns),
	[VIRTIO_CUDA_BULK_WAIT_NS] = STATISTIC(bulk_wait_ns),
};

static struct attribute *attributes[] = {
	&statistics[VIRTIO_CUDA_REQUESTS].attribute.attr,
	&statistics[VIRTIO_CUDA_KICKS].attribute.attr,
	&statistics[VIRTIO_CUDA_INTERRUPTS].attribute.attr,
	&statistics[VIRTIO_CUDA_PINNED_PAGES].attribute.attr,
	&statistics[VIRTIO_CUDA_PIN_NS].attribute.attr,
	&statistics[VIRTIO_CUDA_UNPIN_NS].attribute.attr,
	&statistics[VIRTIO_CUDA_BULK_WAIT_NS].attribute.attr,
	NULL
};

static const struct attribute_group group = {
	.name = "statistics",
	.attrs = attributes,
};

static const struct attribute_group *groups[] = { &group, NULL };

const struct attribute_group **virtio_cuda_groups(void)
{
	return groups;
}

void virtio_cuda_count(enum virtio_cuda_statistic which, u64 more)
{
	if (which < ARRAY_SIZE(statistics))
		atomic64_add(more, &statistics[which].value);
}
