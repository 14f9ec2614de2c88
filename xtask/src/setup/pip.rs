// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tools that come as wheels.

use std::path::Path;
use std::process::Command;

/// `pip install` into a folder of its own.
pub fn install(target: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
    ]);
    pip.arg("--target").arg(target);
    pip
}
