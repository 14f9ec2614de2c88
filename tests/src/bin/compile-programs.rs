// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `compile-programs FOLDER`: puts every CUDA program of the table, compiled, into the folder, for the bundle of a machine
//! without a compiler.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vhost_cuda_tests::cases::CASES;
use vhost_cuda_tests::program::Programs;

fn main() -> Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("usage: compile-programs FOLDER")?);
    fs::create_dir_all(&folder)?;
    let programs = Programs::from_environment()?;
    let variants = CASES.iter().map(|case| case.program).filter(|program| program.contains('@'));
    let variants = variants.filter(|program| programs.missing(program).is_none()).map(str::to_owned);
    for name in Programs::names()?.into_iter().chain(variants) {
        let program = programs.get(&name)?;
        fs::copy(&program, folder.join(&name))
            .with_context(|| format!("Cannot copy {}", program.display()))?;
    }
    Ok(())
}
