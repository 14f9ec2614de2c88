# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs systemd as the first process of its namespaces in a layer of memory over the root $0; $1 is an empty folder for it.
# $2 becomes /srv.
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs dev
for node in null zero full random urandom tty; do
    touch dev/$node
    mount --bind /dev/$node dev/$node
done
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
mount --bind "$2" srv
pivot_root . mnt
umount -l /mnt
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=check \
    /usr/lib/systemd/systemd --log-target=console --unit=basic.target
