// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask package --check`: installs the packages in copies of Debian 12 roots, and uses them there.

mod host;
mod libvirt;
mod machine;
mod packages;
mod slurm;
mod subject;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;

use crate::paths::Paths;
use crate::{program, setup};
use subject::Subject;

/// The program of the trials.
const PROGRAM: &str = "tests/cuda/add_one.cu";

/// A way to try the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Trial {
    /// Install them, use them with systemd, remove them.
    Packages,
    /// Boot a virtual machine with the installed guest package; remove the package there.
    Vm,
    /// Attach the device to a domain of a real libvirt, boot it, detach the device.
    Libvirt,
    /// Run jobs of a real Slurm.
    Slurm,
}

/// Does the trials with `packages`, all of them, which lie in `folder`.
pub fn run(paths: &Paths, trials: &[Trial], packages: &[PathBuf], folder: &Path) -> Result<()> {
    setup::run(paths, &[setup::Part::Nvcc])?;
    let program = program::compile(paths, &paths.root.join(PROGRAM))?;
    let subject = Subject { paths, packages, folder, program, has_image: Cell::new(false) };
    for trial in trials {
        match trial {
            Trial::Packages => packages::run(&subject)?,
            Trial::Vm => machine::run(&subject)?,
            Trial::Libvirt => libvirt::run(&subject)?,
            Trial::Slurm => slurm::run(&subject)?,
        }
    }
    Ok(())
}
