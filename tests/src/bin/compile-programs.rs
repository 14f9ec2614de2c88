// SPDX-License-Identifier: Apache-2.0 OR MIT

//! `compile-programs FOLDER`: puts every CUDA program of the table, compiled, into the folder, for
//! `VHOST_CUDA_PROGRAMS` on a machine without a compiler.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vhost_cuda_tests::cases::CASES;
use vhost_cuda_tests::program::{Programs, WITH_12};

fn main() -> Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).context("usage: compile-programs FOLDER")?);
    fs::create_dir_all(&folder)?;
    let programs = Programs::from_environment()?;
    let of_12 = CASES.iter().map(|case| case.program).filter(|program| program.ends_with(WITH_12));
    let of_12 = of_12.filter(|program| programs.missing(program).is_none()).map(str::to_owned);
    for name in Programs::names()?.into_iter().chain(of_12) {
        let program = programs.get(&name)?;
        fs::copy(&program, folder.join(&name))
            .with_context(|| format!("Cannot copy {}", program.display()))?;
    }
    Ok(())
}
