// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-user-cuda`: the daemon, the emulator, and units of systemd.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Package;
use super::copyright::{self, OWN};
use super::tree::{FILE, PROGRAM, Tree};
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
const SLURM: &str = "usr/lib/vhost-cuda/slurm";
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
    for unit in ["vhost-user-cuda@.service", "vhost-user-cuda@.socket", "vhost-user-cuda-arbiter.service"] {
        tree.file(&dist.join(unit), &format!("{UNITS}/{unit}"), FILE)?;
    }
    let descriptor = "50-vhost-user-cuda.json";
    tree.file(&dist.join(descriptor), &format!("usr/share/qemu/vhost-user/{descriptor}"), FILE)?;
    tree.file(&dist.join("example.toml"), &format!("{DOCS}/examples/example.toml"), FILE)?;
    tree.folder("etc/vhost-user-cuda")?;
    let old_jobs = dist.join("vhost-user-cuda.tmpfiles");
    tree.file(&old_jobs, "usr/lib/tmpfiles.d/vhost-user-cuda.conf", FILE)?;
    libvirt(paths, &tree)?;
    slurm(paths, &tree)?;
    manual(paths, &tree, folder)?;
    let crates = ["vhost-user-cuda", "vhost-cuda-libvirt", "cuda-emulator", "cuda-emulator-libraries"];
    copyright::write(paths, &tree, PACKAGE.name, &[("*", OWN)], &crates)?;
    Ok((PACKAGE, tree))
}

/// The tool for domains, and the files for AppArmor.
fn libvirt(paths: &Paths, tree: &Tree) -> Result<()> {
    tree.stripped(&build::program(paths, "vhost-cuda-libvirt")?, "usr/bin/vhost-cuda-libvirt")?;
    let rules = paths.root.join("vhost-cuda/libvirt/apparmor");
    for file in ["libvirt-qemu", "usr.sbin.libvirtd"] {
        tree.file(&rules.join(file), &format!("{DOCS}/examples/apparmor/{file}"), FILE)?;
    }
    Ok(())
}

/// Scripts for Slurm, and examples of its configuration.
fn slurm(paths: &Paths, tree: &Tree) -> Result<()> {
    let folder = paths.root.join("vhost-cuda/slurm");
    for script in ["prolog", "epilog", "task-prolog"] {
        tree.file(&folder.join(script), &format!("{SLURM}/{script}"), PROGRAM)?;
    }
    tree.file(&folder.join("common.sh"), &format!("{SLURM}/common.sh"), FILE)?;
    for example in ["slurm.conf", "gres.conf", "vhost-cuda.conf"] {
        tree.file(&folder.join(example), &format!("{DOCS}/examples/slurm/{example}"), FILE)?;
    }
    Ok(())
}

/// Man pages, and completions where each shell looks for those of packages.
fn manual(paths: &Paths, tree: &Tree, folder: &Path) -> Result<()> {
    let made = folder.join("manual");
    if made.exists() {
        fs::remove_dir_all(&made)?;
    }
    build::manual(paths, &made)?;
    for file in fs::read_dir(&made)? {
        let file = file?.path();
        let name = file.file_name().context("A manual has no name")?.to_string_lossy().into_owned();
        if name.ends_with(".1") {
            let page = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
            tree.compressed(&page, &format!("usr/share/man/man1/{name}"))?;
        } else if let Some(program) = name.strip_suffix(".bash") {
            tree.file(&file, &format!("usr/share/bash-completion/completions/{program}"), FILE)?;
        } else if name.ends_with(".fish") {
            tree.file(&file, &format!("usr/share/fish/vendor_completions.d/{name}"), FILE)?;
        } else {
            tree.file(&file, &format!("usr/share/zsh/vendor-completions/{name}"), FILE)?;
        }
    }
    Ok(())
}
