// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses the files of a folder of compiled programs for an archive.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::built::{self, Built, State};
use super::compile::copy;

/// Copies list and compiled programs from `folder` to `to`.
pub fn collect(folder: &Path, to: &Path) -> Result<()> {
    let list = built::load(folder, &[])?;
    if !list.iter().any(|program| program.state == State::Built) {
        bail!("{} has no compiled programs", folder.display());
    }
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("Cannot empty {}", to.display()))?;
    }
    fs::create_dir_all(to)?;
    let here: Vec<Built> = list.into_iter().filter(|program| program.state == State::Built).collect();
    for program in &here {
        let target = program.folder(to);
        fs::create_dir_all(target.parent().context("A program has no folder")?)?;
        copy(&program.folder(folder), &target)?;
    }
    built::save(to, &built::load(folder, &[])?)
}
