// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A C compiler that links against the interface of an older glibc: zig's, from a Python wheel.

use std::process::Command;

use anyhow::{Result, bail};

use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::Step;

/// The version of the Python wheel.
const ZIG: &str = "0.17.1";

/// The compiler, for programs that need no glibc newer than `glibc`, a version as 2.27.
pub fn cc(paths: &Paths, glibc: &str) -> Result<Command> {
    let entry = entry(paths);
    if !entry.is_complete() {
        bail!("zig is missing; run: cargo xtask setup --only zig");
    }
    let mut cc = Command::new(entry.path.join("ziglang/zig"));
    cc.arg("cc").arg("-target").arg(format!("x86_64-linux-gnu.{glibc}"));
    // It builds the C library's interface once.
    for variable in ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"] {
        cc.env(variable, entry.path.join("cache"));
    }
    Ok(cc)
}

/// Installs it if it is missing.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("zig", &paths.setup_logs())?;
    let entry = entry(paths);
    entry.fill(step, ZIG, |step| pip::install(step, &entry.path, &[format!("ziglang=={ZIG}")]))
}

fn entry(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "zig", ZIG)
}
