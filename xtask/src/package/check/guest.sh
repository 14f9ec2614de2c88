#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The first process of the virtual machine, in which the guest package is installed. $1: `purge` removes the package afterwards,
# `stay` waits to be switched off. Without systemd, whose start takes minutes on a loaded machine with TCG.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive

use() {
    modprobe virtio_cuda &&
        stat -c 'node: %a %F' /dev/virtio-cuda &&
        vhost-cuda-run /opt/program
}

purge() {
    dpkg --purge vhost-cuda-guest && rmmod virtio_cuda || return 1
    if modprobe virtio_cuda 2> /dev/null; then
        echo "check: the module is still there"
        return 1
    fi
    for left in /usr/lib/vhost-cuda /usr/bin/vhost-cuda-run /usr/src/virtio-cuda-* /var/lib/dkms/virtio-cuda \
        $(find /lib/modules -name 'virtio_cuda*'); do
        if [ -e "$left" ]; then
            echo "check: $left is still there"
            return 1
        fi
    done
}

if use && { [ "$1" = stay ] || purge; }; then
    echo "check: passed"
else
    echo "check: failed"
fi
if [ "$1" = stay ]; then
    sleep infinity
fi
sync
echo o > /proc/sysrq-trigger
sleep infinity
