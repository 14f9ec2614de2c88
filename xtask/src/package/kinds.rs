// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packages, and how each is built.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::archive::{self, EPOCH};
use super::{guest, host, plugin, qemu};
use crate::dkms;
use crate::paths::Paths;

/// A package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `vhost-user-cuda`: the daemon with its emulator.
    Host,
    /// `vhost-cuda-guest`: the module's sources and the guest's libraries.
    Guest,
    /// `vhost-cuda-plugin`: fractions of GPUs for Kubernetes.
    Plugin,
    /// `vhost-cuda-qemu`: QEMU with our device.
    Qemu,
}

/// All of them.
pub const ALL: [Kind; 4] = [Kind::Host, Kind::Guest, Kind::Plugin, Kind::Qemu];

/// Builds the contents of the packages, and the packages. Returns their paths.
pub fn build(paths: &Paths, kinds: &[Kind], folder: &Path) -> Result<Vec<PathBuf>> {
    let time = time()?;
    let mut packages = Vec::new();
    for kind in kinds {
        let (package, tree) = match kind {
            Kind::Host => host::stage(paths, folder)?,
            Kind::Guest => guest::stage(paths, folder)?,
            Kind::Plugin => plugin::stage(paths, folder)?,
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
