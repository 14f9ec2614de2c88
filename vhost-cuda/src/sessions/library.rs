// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Selects the libcuda that the workers load.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The variable with the path of the emulator's file.
pub const EMULATOR_VARIABLE: &str = "VHOST_CUDA_EMULATOR";
/// The node that exists where NVIDIA's kernel driver is loaded.
const NVIDIA_NODE: &str = "/dev/nvidiactl";
/// The paths where distributions and NVIDIA's own installer install the driver's library.
const NVIDIA_LIBRARIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
];

/// Returns the library for `--device CHOICE`.
///
/// Errors: it does not exist; the message contains advice.
pub fn find(choice: &str) -> anyhow::Result<PathBuf> {
    match choice {
        "auto" if Path::new(NVIDIA_NODE).exists() => nvidia(),
        "auto" => emulator().context("There is no GPU here (no /dev/nvidiactl) and no emulator either"),
        "emulated" => emulator(),
        path => existing(Path::new(path))
            .context("--device is neither `auto`, `emulated` nor the path of a libcuda.so.1"),
    }
}

fn nvidia() -> anyhow::Result<PathBuf> {
    let found = NVIDIA_LIBRARIES.iter().map(Path::new).find(|path| path.exists());
    // The dynamic linker may know another path.
    Ok(found.unwrap_or(Path::new("libcuda.so.1")).to_owned())
}

fn emulator() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(EMULATOR_VARIABLE) {
        return existing(Path::new(&path)).with_context(|| format!("{EMULATOR_VARIABLE} names no file"));
    }
    let program = std::env::current_exe().context("Cannot find out where this program lies")?;
    let beside = program.parent().unwrap_or(Path::new("/")).join("../emulator/libcuda.so.1");
    existing(&beside).with_context(|| format!("Build the emulator, or name its file in {EMULATOR_VARIABLE}"))
}

/// Returns the folders that are searched first for NVIDIA's libraries: those of `--libraries` or, with the emulator,
/// the folder of the CPU's versions beside it.
///
/// Errors: a folder does not exist.
pub fn vendor_folders(named: &[PathBuf], emulated: bool) -> anyhow::Result<Vec<PathBuf>> {
    if named.is_empty() && emulated {
        let beside = emulator()?.with_file_name("libraries");
        return Ok(beside.canonicalize().into_iter().collect());
    }
    let real = |folder: &PathBuf| {
        folder.canonicalize().with_context(|| format!("--libraries {} cannot be used", folder.display()))
    };
    named.iter().map(real).collect()
}

/// Returns whether a library that [`find`] has found is the emulator.
pub fn is_emulator(library: &Path) -> bool {
    emulator().is_ok_and(|emulator| emulator == library)
}

fn existing(path: &Path) -> anyhow::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        Ok(path) => bail!("{} is not a file", path.display()),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}
