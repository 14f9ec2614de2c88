// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-user-cuda`: the daemon, the emulator, and units of systemd.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Package;
use super::copyright::{self, OWN};
use super::tree::{FILE, Tree};
use crate::build::{self, Part};
use crate::paths::Paths;
use crate::setup::kernel::Flavour;

const PACKAGE: Package = Package {
    name: "vhost-user-cuda",
    summary: "CUDA for QEMU virtual machines without a GPU: daemon for the host",
    description: "A vhost-user backend that executes the CUDA calls of virtual machines on this\n\
                  host's GPU with NVIDIA's driver, or on its CPU with the emulator in this package.",
    fields: &[
        ("Section", "admin"),
        ("Depends", "libc6 (>= 2.36), libgcc-s1"),
        ("Recommends", "systemd"),
        ("Suggests", "vhost-cuda-qemu"),
    ],
    scripts: &[
        ("postinst", include_str!("scripts/host.postinst")),
        ("prerm", include_str!("scripts/host.prerm")),
        ("postrm", include_str!("scripts/host.postrm")),
    ],
    settings: &[],
};

/// The daemon looks for the emulator in `../emulator` from here.
const PROGRAMS: &str = "usr/lib/vhost-cuda/bin";
const EMULATOR: &str = "usr/lib/vhost-cuda/emulator";
const UNITS: &str = "usr/lib/systemd/system";
const DOCS: &str = "usr/share/doc/vhost-user-cuda";

/// Builds and collects the package's files below `folder`.
pub fn stage(paths: &Paths, folder: &Path) -> Result<(Package, Tree)> {
    let parts = [Part::Daemon, Part::Emulator, Part::EmulatorLibraries];
    let stack = build::run(paths, &parts, Flavour::Small)?;
    let tree = Tree::new(folder.join(PACKAGE.name))?;
    tree.stripped(&stack.daemon(), &format!("{PROGRAMS}/vhost-user-cuda"))?;
    tree.link("../lib/vhost-cuda/bin/vhost-user-cuda", "usr/bin/vhost-user-cuda")?;
    let emulator = stack.emulator();
    tree.stripped(&emulator, &format!("{EMULATOR}/libcuda.so.1"))?;
    tree.libraries(&emulator.with_file_name("libraries"), &format!("{EMULATOR}/libraries"))?;

    let dist = paths.root.join("vhost-cuda/dist");
    for unit in ["vhost-user-cuda@.service", "vhost-user-cuda@.socket"] {
        tree.file(&dist.join(unit), &format!("{UNITS}/{unit}"), FILE)?;
    }
    let descriptor = "50-vhost-user-cuda.json";
    tree.file(&dist.join(descriptor), &format!("usr/share/qemu/vhost-user/{descriptor}"), FILE)?;
    tree.file(&dist.join("example.toml"), &format!("{DOCS}/examples/example.toml"), FILE)?;
    tree.folder("etc/vhost-user-cuda")?;
    manual(paths, &tree, folder)?;
    let crates = ["vhost-cuda", "cuda-emulator", "cuda-emulator-libraries"];
    copyright::write(paths, &tree, PACKAGE.name, &[("*", OWN)], &crates)?;
    Ok((PACKAGE, tree))
}

/// The man page, and completions where each shell looks for those of packages.
fn manual(paths: &Paths, tree: &Tree, folder: &Path) -> Result<()> {
    let made = folder.join("manual");
    build::manual(paths, &made)?;
    let page = made.join("vhost-user-cuda.1");
    let page = fs::read(&page).with_context(|| format!("Cannot read {}", page.display()))?;
    tree.compressed(&page, "usr/share/man/man1/vhost-user-cuda.1")?;
    for (file, path) in [
        ("vhost-user-cuda.bash", "usr/share/bash-completion/completions/vhost-user-cuda"),
        ("_vhost-user-cuda", "usr/share/zsh/vendor-completions/_vhost-user-cuda"),
        ("vhost-user-cuda.fish", "usr/share/fish/vendor_completions.d/vhost-user-cuda.fish"),
    ] {
        tree.file(&made.join(file), path, FILE)?;
    }
    Ok(())
}
