// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CUDA programs, compiled as a person would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::nvcc::Nvcc;

/// Compiles `source` with the unmodified nvcc, for the GPU and with PTX for the emulator.
pub fn compile(paths: &Paths, source: &Path) -> Result<PathBuf> {
    let name = source.file_stem().context("The program has no name")?;
    if let Some(bundle) = &paths.bundle {
        return Ok(bundle.join("programs").join(name));
    }
    let nvcc = Nvcc::find(paths)?;
    let folder = paths.stack.join("programs");
    fs::create_dir_all(&folder)?;
    let program = folder.join(name);
    let mut command = Command::new(nvcc.program());
    command.args([
        "-std=c++17",
        "-O2",
        "--cudart=shared",
        "-gencode",
        "arch=compute_90,code=[sm_90,compute_90]",
    ]);
    command.arg("-L").arg(nvcc.libraries()).arg("-o").arg(&program).arg(source).env("CUDA_HOME", &nvcc.home);
    output_of(&mut command)?;
    Ok(program)
}
