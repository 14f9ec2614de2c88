# SPDX-License-Identifier: GPL-2.0-or-later
# What the project's QEMU can emulate: one machine, what its tests plug into it, nothing else.
# Goes into configs/devices/x86_64-softmmu/ of QEMU's source. A change rebuilds all of QEMU.
CONFIG_Q35=y
CONFIG_I440FX=n
CONFIG_ISAPC=n
CONFIG_MICROVM=n
CONFIG_PCI_DEVICES=n
CONFIG_TEST_DEVICES=n
CONFIG_HPET=y
# hotplug needs a root port
CONFIG_PCIE_PORT=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_9P=y
CONFIG_VIRTIO_BALLOON=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VHOST_USER_CUDA=y
CONFIG_VHOST_USER_FS=y
# q35 does not link without
CONFIG_PXB=y
CONFIG_CXL=y
CONFIG_CXL_MEM_DEVICE=y
