// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask dkms`: the driver as a source tree for DKMS, with the compiled Rust part in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::inputs;
use crate::setup::kernel::Flavour;
use crate::setup::stock_kernel::StockKernel;
use crate::{build, setup};

/// The folder of the sources in a guest.
const SOURCES: &str = "usr/src";
/// The time of all files in the archive: 2026-01-01. The bytes must not depend on the time of packing.
pub const TIME: u64 = 1_767_225_600;

/// The archive to pack, and the place to try it.
#[derive(Debug, Args)]
pub struct DkmsArguments {
    /// Also compile the core again, from a copy of the sources, and fail unless the bytes are the same
    #[arg(long)]
    check: bool,
    /// Do nothing if the same command has passed on this machine with the same sources and compilers
    #[arg(long)]
    if_changed: bool,
    /// Afterwards, build, install and remove the module with DKMS in a root of this kernel's release, as debian12
    #[arg(long = "try", value_enum, value_name = "KERNEL")]
    kernel: Vec<Flavour>,
}

/// All that the archive is made of, and what makes it.
const INPUTS: [&str; 5] = [
    "guest-driver",
    "protocol/src",
    "xtask/src/dkms.rs",
    "xtask/src/build/core.rs",
    "xtask/src/setup/rust.rs",
];

/// Packs the archive; tries it.
pub fn run(paths: &Paths, arguments: &DkmsArguments) -> Result<()> {
    let kernels = arguments.kernel.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(" ");
    let what = format!("check {} try {kernels}", arguments.check);
    let inputs = || inputs::files(inputs::toolchain()?.input("arguments", &what), &paths.root, &INPUTS);
    inputs::unless_passed(paths, "dkms", arguments.if_changed, inputs, || make(paths, arguments))
}

fn make(paths: &Paths, arguments: &DkmsArguments) -> Result<()> {
    let folder = paths.target.join("dkms");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let tree = tree(paths, &folder)?;
    let archive = pack(&folder, &tree)?;
    println!("{}  {} kB", archive.display(), fs::metadata(&archive)?.len() / 1000);
    if arguments.check {
        build::check_core(paths)?;
        println!("The core has the same bytes when it is compiled elsewhere");
    }
    arguments.kernel.iter().try_for_each(|flavour| try_in(paths, *flavour, &tree))
}

/// Installs the sources and the compiled core for DKMS below `folder`; the tree's path.
pub fn tree(paths: &Paths, folder: &Path) -> Result<PathBuf> {
    setup::run(paths, &[setup::Part::Rust])?;
    fs::create_dir_all(folder)?;
    let mut make = Command::new("make");
    make.args(["-s", "dkms-tree"]).current_dir(paths.root.join("guest-driver"));
    make.arg(format!("CORE={}", build::core(paths)?.display()));
    output_of(make.arg(format!("DESTDIR={}", folder.display())))?;
    only_entry(&folder.join(SOURCES))
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.next().with_context(|| format!("{} is empty", folder.display()))?;
    Ok(entry?.path())
}

/// An archive whose bytes depend on the files only.
fn pack(folder: &Path, tree: &Path) -> Result<PathBuf> {
    let name = tree.file_name().context("The tree has no name")?.to_string_lossy().into_owned();
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.args(["--use-compress-program=gzip -n", &format!("--mtime=@{TIME}"), "-cf"]).arg(&archive);
    output_of(tar.arg("-C").arg(folder.join(SOURCES)).arg(name))?;
    Ok(archive)
}

/// Executes the steps of a user in a guest.
fn try_in(paths: &Paths, flavour: Flavour, tree: &Path) -> Result<()> {
    setup::run(paths, setup::kernel_part(flavour).as_slice())?;
    let kernel = StockKernel::find(paths, flavour)?;
    let name = tree.file_name().context("The tree has no name")?.to_string_lossy().into_owned();
    let (package, version) = name.rsplit_once('-').context("The tree's name has no version")?;
    let inside = kernel.root().join(SOURCES).join(&name);
    if inside.exists() {
        fs::remove_dir_all(&inside)?;
    }
    output_of(Command::new("cp").arg("-a").arg(tree).arg(&inside))?;
    let module = format!("{package}/{version}");
    let dkms = |arguments: &[&str]| output_of(kernel.in_root().arg("dkms").args(arguments));
    // An earlier try may have left it.
    let _ = dkms(&["remove", &module, "--all"]);
    dkms(&["install", &module, "-k", &kernel.release])?;
    println!("{}", dkms(&["status"])?);
    println!("{}", output_of(kernel.in_root().args(["modinfo", "-k", &kernel.release, "virtio_cuda"]))?);
    dkms(&["remove", &module, "--all"])?;
    Ok(fs::remove_dir_all(inside)?)
}
