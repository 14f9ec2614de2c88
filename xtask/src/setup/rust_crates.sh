# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs in a Debian 13 root that has linux-headers-$RELEASE and the source of the same version. Debian's headers lack
# what rustc needs of the kernel's own crates; building the same source with the same configuration and compiler makes
# the very same crates. Adds them to the headers.
set -eu
headers=/usr/src/linux-headers-$RELEASE
rm -rf /build
mkdir -p /build/output
cd /build
tar -xJf /usr/src/linux-source-*.tar.xz
source=$(echo /build/linux-source-*)
build() {
    make -s -C "$source" O=/build/output -j"$(nproc)" CC=x86_64-linux-gnu-gcc-14 LOCALVERSION="${RELEASE#"$VERSION"}" "$@"
}
cp "$headers/.config" output/.config
build rustavailable
build olddefconfig
# A compiler other than Debian's would show here.
cmp "$headers/.config" output/.config
build prepare
test "$(cat output/include/config/kernel.release)" = "$RELEASE"

# Every Rust symbol that Debian's kernel exports must be one of ours: the names contain a hash of compiler and crate.
awk '$3 == "vmlinux" { print $2 }' "$headers/Module.symvers" | grep -E '^_R|^rust_helper_' | sort -u > exported
grep -ohE '\(\w+\)' output/rust/exports_*_generated.h | tr -d '()' | sort -u > ours
missing=$(comm -23 exported ours | wc -l)
echo "$(wc -l < exported) Rust symbols in Debian's kernel, $missing of them not in ours"
test "$missing" = 0

cd output
tar -cf - rust/*.rmeta rust/*.so scripts/target.json | tar -xf - -C "$headers" --keep-directory-symlink
rm -rf /build
