// SPDX-License-Identifier: GPL-2.0-only
/* The module's parameters; limits/params.rs joins them with the device's limits. */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include "glue.h"

static struct virtio_cuda_params params = {
	.max_outstanding = 64,
	.max_shared_mib = 16,
	.pinned_per_user_percent = 50,
	.pinned_percent = 75,
};

#define PARAM(_name, _type, _text)                               \
	module_param_named(_name, params._name, _type, 0);       \
	MODULE_PARM_DESC(_name, _text)

PARAM(max_pinned_mib, ullong,
      "Memory that one open file may pin, in MiB (0: half of the memory)");
PARAM(max_outstanding, uint, "Calls that one open file may have outstanding");
PARAM(max_shared_mib, ullong,
      "Memory that one open file may share by mmap, in MiB");
PARAM(max_user_sessions, uint,
      "Open files of one user other than root (0: half of the device's sessions)");
PARAM(pinned_per_user_percent, uint,
      "Share of the memory that all files of one user together may have pinned");
PARAM(pinned_percent, uint,
      "Share of the memory that all users together may keep pinned");
PARAM(memlock_strict, uint,
      "1: a user may keep no more pinned than RLIMIT_MEMLOCK, whatever pinned_per_user_percent says");

const struct virtio_cuda_params *virtio_cuda_params(void)
{
	return &params;
}
