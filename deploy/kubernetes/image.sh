#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Makes the image of deploy/kubernetes in buildah's storage: the plugin, the daemon, the guest's libraries and kubectl, on Debian 12.
# Needs cargo, mmdebstrap, buildah, root (or subordinate users), and the packages of `cargo xtask package`.
# Usage: image.sh NAME, for example registry.example/vhost-cuda:latest. Then: buildah push NAME
set -eu
name=${1:?names no image, as registry.example/vhost-cuda:latest}
root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --release --quiet --manifest-path "$root/Cargo.toml" --package vhost-cuda-plugin
mmdebstrap --quiet --variant=minbase --include=libgcc-s1,kubernetes-client bookworm "$work/debian.tar"
for package in vhost-user-cuda vhost-cuda-guest; do
    dpkg-deb --extract "$target/package/$package"_*.deb "$work/files"
done
install -D "$target/release/vhost-cuda-plugin" "$work/files/usr/bin/vhost-cuda-plugin"

container=$(buildah from scratch)
buildah add --quiet "$container" "$work/debian.tar" /
buildah copy --quiet "$container" "$work/files" /
buildah commit --rm "$container" "$name"
