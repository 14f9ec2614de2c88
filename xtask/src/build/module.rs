// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel module, by the kernel's own build system.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::stack::{Stack, install};
use crate::paths::Paths;
use crate::setup::kernel::{Flavour, Kernel};

/// Builds the module for the kernel of `flavour`.
pub fn build(paths: &Paths, stack: &Stack, flavour: Flavour) -> Result<PathBuf> {
    if !paths.root.join("guest-driver/Kbuild").exists() {
        bail!("guest-driver has no Kbuild file yet");
    }
    let target = stack.module(flavour);
    let built = Kernel::find(paths, flavour)?.build_module(paths, &target.with_file_name("build"))?;
    install(&built, &target)
}
