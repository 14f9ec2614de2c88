// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-qemu`: QEMU with our device, beside the distribution's.

use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Package;
use super::copyright::{self, QEMU};
use super::tree::{FILE, PROGRAM, Tree};
use crate::paths::Paths;
use crate::setup::{self, qemu};

const PACKAGE: Package = Package {
    name: "vhost-cuda-qemu",
    summary: "QEMU with the device vhost-user-cuda-pci",
    description: "A QEMU for x86-64 in a folder of its own, beside the distribution's. It has few\n\
                  other devices: q35 with virtio-blk, -net, -rng, -serial, -balloon, -9p and\n\
                  vhost-user-fs, and no graphics.",
    fields: &[("Section", "admin"), ("Suggests", "vhost-user-cuda")],
    scripts: &[],
    settings: &[],
};

/// QEMU looks for its firmware in `../share/qemu` from its program.
const FOLDER: &str = "usr/lib/vhost-cuda/qemu";

/// Builds and collects the package's files below `folder`.
pub fn stage(paths: &Paths, folder: &Path) -> Result<(Package, Tree)> {
    setup::run(paths, &[setup::Part::Qemu])?;
    let built = qemu::Qemu::find(paths)?;
    let tree = Tree::new(folder.join(PACKAGE.name))?;
    let name = built.binary.file_name().context("QEMU has no name")?.to_string_lossy().into_owned();
    tree.file(&built.binary, &format!("{FOLDER}/bin/{name}"), PROGRAM)?;
    for file in std::fs::read_dir(&built.data)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        tree.file(&file.path(), &format!("{FOLDER}/share/qemu/{name}"), FILE)?;
    }
    // The changes to QEMU: its source is Debian's.
    let docs = format!("usr/share/doc/{}", PACKAGE.name);
    for patch in qemu::patches(paths)? {
        let name = patch.file_name().context("A patch has no name")?.to_string_lossy().into_owned();
        tree.file(&patch, &format!("{docs}/patches/{name}"), FILE)?;
    }
    for file in ["devices.mak", "README.md"] {
        tree.file(&paths.root.join("qemu-patches").join(file), &format!("{docs}/patches/{file}"), FILE)?;
    }
    copyright::write(paths, &tree, PACKAGE.name, &[("*", QEMU)], &[])?;
    Ok((PACKAGE, tree))
}
