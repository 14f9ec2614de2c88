// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the whole repository: its documents, its tables, and what is written twice in it.

mod ci;
mod docs;
mod explain;
mod glue;
mod threat_model;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The repository's files whose names match one of the patterns, relative to its root.
fn files(patterns: &[&str]) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "--"]).args(patterns);
    let output = git.current_dir(root()).output().context("Cannot start git")?;
    ensure!(output.status.success(), "git failed: {}", String::from_utf8_lossy(&output.stderr));
    let files = String::from_utf8(output.stdout)?;
    Ok(files.lines().filter(|file| root().join(file).exists()).map(str::to_owned).collect())
}
