// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tools that come as wheels.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::progress::Step;

/// Downloads `wheels` into a folder of their own.
pub fn install(step: &Step, target: &Path, wheels: &[impl AsRef<OsStr>]) -> Result<()> {
    step.note("downloading");
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
    ]);
    step.run(pip.arg("--target").arg(target).args(wheels))
}
