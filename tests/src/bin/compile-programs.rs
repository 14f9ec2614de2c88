// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `compile-programs FOLDER`: puts every CUDA program of the table, compiled, into the folder, for
//! `VHOST_CUDA_PROGRAMS` on a machine without a compiler.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vhost_cuda_tests::program::Programs;

fn main() -> Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("usage: compile-programs FOLDER")?);
    fs::create_dir_all(&folder)?;
    let programs = Programs::from_environment()?;
    for name in Programs::names()? {
        let program = programs.get(&name)?;
        fs::copy(&program, folder.join(&name))
            .with_context(|| format!("Cannot copy {}", program.display()))?;
    }
    Ok(())
}
