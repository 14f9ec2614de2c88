#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# A job of the trial `slurm`. It ends when it may.
echo "socket: ${VIRTIO_CUDA_SOCKET-none}"
echo "visible: ${CUDA_VISIBLE_DEVICES-none}"
if [ -n "${VIRTIO_CUDA_SOCKET-}" ]; then
    export LD_LIBRARY_PATH=/opt/vhost-cuda/usr/lib/vhost-cuda
    /srv/program
    /srv/allocate 48 80
fi
echo "job: ready"
while [ ! -e "/srv/end-$SLURM_JOB_ID" ]; do
    sleep 0.2
done
