// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module, by the kernel's own build system.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{Stack, install};
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::kernel::{Flavour, Kernel};

/// Builds the module for the kernel of `flavour`.
pub fn build(paths: &Paths, stack: &Stack, flavour: Flavour) -> Result<PathBuf> {
    let source = paths.root.join("guest-driver");
    if !source.join("Kbuild").exists() {
        bail!("guest-driver has no Kbuild file yet");
    }
    let kernel = Kernel::find(paths, flavour)?;
    let target = stack.module(flavour);
    let output = target.with_file_name("build");
    fs::create_dir_all(&output)?;
    let mut make = kernel.make();
    make.arg("-s").arg(format!("M={}", source.display())).arg(format!("MO={}", output.display()));
    output_of(make.arg("modules"))?;
    install(&output.join("virtio_cuda.ko"), &target)
}
