// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask package`: Debian packages of the daemon, of QEMU with our device, and of what a guest needs.

mod archive;
mod booted;
mod check;
mod copyright;
mod guest;
mod host;
mod qemu;
mod root;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::dkms;
use crate::paths::Paths;

/// The version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The variable that reproducible builds take their time from (reproducible-builds.org), in seconds since 1970.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Which packages to build, and whether to try them.
#[derive(Debug, Args)]
pub struct PackageArguments {
    /// Only these packages, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "check")]
    only: Vec<Kind>,
    /// Afterwards, install, use and remove the packages in a copy of a Debian 12 root (needs root)
    #[arg(long)]
    check: bool,
}

/// A package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `vhost-user-cuda`: the daemon with its emulator.
    Host,
    /// `vhost-cuda-guest`: the module's sources and the guest's libraries.
    Guest,
    /// `vhost-cuda-qemu`: QEMU with our device.
    Qemu,
}

const ALL: [Kind; 3] = [Kind::Host, Kind::Guest, Kind::Qemu];

/// Builds packages into `target/package`; tries them.
pub fn run(paths: &Paths, arguments: &PackageArguments) -> Result<()> {
    let kinds = if arguments.only.is_empty() { &ALL[..] } else { &arguments.only };
    let folder = paths.target.join("package");
    let packages = build(paths, kinds, &folder)?;
    for package in &packages {
        println!("{}  {} kB", package.display(), fs::metadata(package)?.len() / 1000);
    }
    if arguments.check {
        check::run(paths, &packages, &folder)?;
    }
    Ok(())
}

/// Builds what goes into the packages, and the packages; their paths.
fn build(paths: &Paths, kinds: &[Kind], folder: &Path) -> Result<Vec<PathBuf>> {
    let time = time()?;
    let mut packages = Vec::new();
    for kind in kinds {
        let (package, tree) = match kind {
            Kind::Host => host::stage(paths, folder)?,
            Kind::Guest => guest::stage(paths, folder)?,
            Kind::Qemu => qemu::stage(paths, folder)?,
        };
        packages.push(archive::build(&package, &tree, folder, time)?);
    }
    Ok(packages)
}

/// The time of all files in packages.
fn time() -> Result<u64> {
    match std::env::var(EPOCH) {
        Ok(text) => text.parse().with_context(|| format!("{EPOCH}={text} is not a number of seconds")),
        Err(_) => Ok(dkms::TIME),
    }
}
