// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-plugin`: fractions of GPUs for Kubernetes, with the libraries for containers.

use std::path::Path;

use anyhow::Result;

use super::archive::Package;
use super::copyright::{self, OWN};
use super::guest;
use super::tree::{FILE, Tree};
use crate::build::{self, Part};
use crate::paths::Paths;
use crate::setup::kernel::Flavour;

const PACKAGE: Package = Package {
    name: "vhost-cuda-plugin",
    summary: "CUDA for containers without a GPU: device plugin for Kubernetes",
    description: "Gives fractions of this host's GPUs to pods of Kubernetes, as a device plugin of\n\
                  the kubelet or as a driver of dynamic resource allocation, and makes daemons\n\
                  devices for Podman and other container runtimes.",
    fields: &[
        ("Section", "admin"),
        ("Depends", "libc6 (>= 2.36), libgcc-s1, vhost-user-cuda (= @VERSION@)"),
        ("Recommends", "systemd"),
        ("Suggests", "kubernetes-client"),
    ],
    scripts: &[
        ("postinst", include_str!("scripts/plugin.postinst")),
        ("prerm", include_str!("scripts/plugin.prerm")),
        ("postrm", include_str!("scripts/plugin.postrm")),
    ],
    settings: &["/etc/vhost-cuda-plugin/daemon.toml"],
};

/// The libraries for containers. Those of the package vhost-cuda-guest are for the programs of a machine itself, which on a host
/// with a GPU has NVIDIA's.
const LIBRARIES: &str = "usr/lib/vhost-cuda-plugin/guest";
const UNIT: &str = "vhost-cuda-plugin.service";

/// Builds and collects the package's files below `folder`.
pub fn stage(paths: &Paths, folder: &Path) -> Result<(Package, Tree)> {
    let stack = build::run(paths, &[Part::Plugin, Part::GuestLib], Flavour::Small)?;
    let tree = Tree::new(folder.join(PACKAGE.name))?;
    tree.stripped(&stack.plugin(), "usr/bin/vhost-cuda-plugin")?;
    tree.libraries(&stack.guest_libraries(), LIBRARIES)?;
    let unit = paths.root.join("vhost-cuda/kubernetes/dist").join(UNIT);
    tree.file(&unit, &format!("usr/lib/systemd/system/{UNIT}"), FILE)?;
    let options = paths.root.join("deploy/kubernetes/daemon.toml");
    tree.file(&options, "etc/vhost-cuda-plugin/daemon.toml", FILE)?;
    let page = paths.root.join("docs/kubernetes.md");
    tree.file(&page, "usr/share/doc/vhost-cuda-plugin/kubernetes.md", FILE)?;
    let crates = [&["vhost-cuda-plugin"], &guest::LIBRARY_CRATES[..]].concat();
    copyright::write(paths, &tree, PACKAGE.name, &[("*", OWN)], &crates)?;
    Ok((PACKAGE, tree))
}
