// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian packages that the builds need.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// Required packages, and their purposes.
const PACKAGES: &[&str] = &[
    // Rust crates and CUDA programs
    "gcc",
    "g++",
    "libc6-dev",
    "binutils",
    "make",
    // the guest's initramfs
    "busybox-static",
    // Linux
    "flex",
    "bison",
    "bc",
    "libelf-dev",
    "xz-utils",
    // QEMU
    "ninja-build",
    "pkg-config",
    "libglib2.0-dev",
    "libattr1-dev",
    "patch",
    "perl",
    "python3",
    "python3-venv",
    // nvcc and libclang come as Python wheels
    "python3-pip",
];

/// Installs missing packages. Does not use the network if none is missing.
pub fn setup(paths: &Paths) -> Result<()> {
    setup_packages(paths, PACKAGES)
}

/// The same for other packages.
pub fn setup_packages(paths: &Paths, packages: &[&str]) -> Result<()> {
    let step = Step::new("debian", &paths.setup_logs())?;
    match install_missing(packages, &step)?.as_str() {
        "" => step.cached(&format!("{} packages", packages.len())),
        installed => step.done(&format!("installed {installed}")),
    }
    Ok(())
}

/// Installs those of `packages` that are missing, of the machine's own release. Returns their names.
pub fn install_missing(packages: &[&str], step: &Step) -> Result<String> {
    let packages = missing(packages)?;
    if packages.is_empty() {
        return Ok(String::new());
    }
    let user = output_of(Command::new("id").arg("-u"))?;
    if user != "0" {
        bail!(
            "Packages are missing; run as root: apt-get install --no-install-recommends {}",
            packages.join(" ")
        );
    }
    step.note("fetching the package lists");
    step.run(Command::new("apt-get").args(["update", "-q"]))?;
    step.note(&format!("installing {}", packages.join(" ")));
    let mut command = Command::new("apt-get");
    command.args(["install", "-q", "-y", "--no-install-recommends"]).args(&packages);
    step.run(command.env("DEBIAN_FRONTEND", "noninteractive"))?;
    Ok(packages.join(" "))
}

/// Returns those of `packages` that are not installed.
fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f=${db:Status-Status} ${Package}\n"]).args(packages);
    // It fails when it does not know a package at all, but the list is correct anyway.
    let output = query.output().context("Cannot start dpkg-query: this setup knows Debian 12 only")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let installed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    Ok(packages.iter().copied().filter(|package| !installed.contains(package)).collect())
}
