// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask package`: Debian packages of the daemon, of QEMU with our device, for guests, and for
//! Kubernetes.

mod archive;
mod booted;
mod check;
mod copyright;
mod guest;
mod host;
mod kinds;
mod plugin;
mod qemu;
mod root;
mod tree;

use std::fs;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use check::Trial;
use kinds::{ALL, Kind, build};

/// The packages to build, and whether to try them.
#[derive(Debug, Args)]
pub struct PackageArguments {
    /// Only these packages, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "check")]
    only: Vec<Kind>,
    /// Afterwards, try the packages in copies of Debian 12 roots (needs root): all trials, or these, with a comma between them
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., require_equals = true, value_name = "TRIAL",
        default_missing_value = "packages,vm,libvirt,slurm")]
    check: Vec<Trial>,
}

/// Builds packages into `target/package`; tries them.
pub fn run(paths: &Paths, arguments: &PackageArguments) -> Result<()> {
    let kinds = if arguments.only.is_empty() { &ALL[..] } else { &arguments.only };
    let folder = paths.target.join("package");
    let packages = build(paths, kinds, &folder)?;
    for package in &packages {
        println!("{}  {} kB", package.display(), fs::metadata(package)?.len() / 1000);
    }
    if !arguments.check.is_empty() {
        check::run(paths, &arguments.check, &packages, &folder)?;
    }
    Ok(())
}
