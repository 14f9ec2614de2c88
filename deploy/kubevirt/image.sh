#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Makes an image in buildah's storage: KubeVirt's sidecar-shim with vhost-cuda-libvirt as its hook. Needs cargo and buildah.
# Usage: image.sh SHIM NAME, for example registry.example/kubevirt/sidecar-shim:v1.6.0 registry.example/vhost-cuda-kubevirt:latest
# SHIM has the version of the cluster's KubeVirt. Then: buildah push NAME
set -eu
shim=${1:?names no image of sidecar-shim}
name=${2:?names no image to make}
root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

# Without shared libraries: the shim's image may have none.
RUSTFLAGS='-C target-feature=+crt-static -C strip=symbols' cargo build --release --quiet \
    --manifest-path "$root/Cargo.toml" --target x86_64-unknown-linux-gnu --package vhost-cuda-libvirt
container=$(buildah from "$shim")
buildah copy --quiet --chmod 0755 "$container" "$target/x86_64-unknown-linux-gnu/release/vhost-cuda-libvirt" \
    /usr/bin/onDefineDomain
buildah commit --rm "$container" "$name"
