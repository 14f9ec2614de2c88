// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that `cargo install` builds, each once for all checkouts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::cache::Entry;
use crate::paths::Paths;
use crate::progress::Step;

/// A program of the package registry.
pub struct CargoTool {
    /// The package.
    pub package: &'static str,
    /// The executable. Its name is also that of the tool's folder in the cache.
    pub program: &'static str,
    /// The version.
    pub version: &'static str,
    /// cargo's profile: `dev` where the time to build the program is longer than the time that it saves.
    pub profile: &'static str,
}

impl CargoTool {
    /// Its folder in the cache.
    pub fn entry(&self, paths: &Paths) -> Entry {
        Entry::named(&paths.cache, self.program, self.version)
    }

    /// Builds it, unless that was done before. Returns the path of the executable.
    pub fn setup(&self, paths: &Paths) -> Result<PathBuf> {
        let step = Step::new(self.program, &paths.setup_logs())?;
        let entry = self.entry(paths);
        let program = entry.path.join("bin").join(self.program);
        entry.fill(step, self.version, |step| {
            step.note("building");
            let build = entry.path.join("build");
            let mut cargo = Command::new("cargo");
            cargo.args(["install", self.package, "--locked", "--version", self.version, "--root"]);
            cargo.arg(&entry.path).arg("--target-dir").arg(&build);
            cargo.args(["--profile", self.profile]).env("CARGO_PROFILE_DEV_DEBUG", "0");
            step.run(&mut cargo)?;
            std::fs::remove_dir_all(&build).with_context(|| format!("Cannot remove {}", build.display()))
        })?;
        Ok(program)
    }
}
