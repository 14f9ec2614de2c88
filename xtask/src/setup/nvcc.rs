// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's compiler: the installed one, or Python wheels of it.

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// The release series that the project's tables were measured with.
const SERIES: &str = "13.0";
const WHEELS: [&str; 6] = [
    "nvidia-cuda-nvcc",
    "nvidia-cuda-runtime",
    "nvidia-nvvm",
    "nvidia-cuda-crt",
    "nvidia-cuda-cccl",
    "nvidia-nvtx",
];

/// Libraries and headers that some programs need; none of them embeds a static runtime.
const EXTRA_WHEELS: [&str; 5] = [
    "nvidia-cuda-nvrtc==13.0.*",
    "nvidia-cuda-profiler-api==13.0.*",
    "nvidia-nvtx==13.0.*",
    // Those before embed a static runtime.
    "nvidia-curand==10.4.5.*",
    "nvidia-nvjitlink==13.0.*",
];

/// A CUDA toolkit.
#[derive(Debug, Clone)]
pub struct Nvcc {
    /// The value for `CUDA_HOME`: has `bin/nvcc` and `include`.
    pub home: PathBuf,
}

impl Nvcc {
    /// The toolkit of this machine if it is of release 13, else the one that `setup` made.
    pub fn find(paths: &Paths) -> Result<Self> {
        if let Some(home) = installed() {
            return Ok(Self { home });
        }
        let entry = entry(paths);
        if !entry.is_complete() {
            bail!("There is no nvcc 13; run: cargo xtask setup --only nvcc");
        }
        Ok(Self { home: home_in(&entry) })
    }

    /// The compiler.
    pub fn program(&self) -> PathBuf {
        self.home.join("bin/nvcc")
    }

    /// The folder of libcudart.so, for the linker.
    pub fn libraries(&self) -> PathBuf {
        let folders = ["lib", "lib64", "targets/x86_64-linux/lib"].map(|name| self.home.join(name));
        folders
            .into_iter()
            .find(|folder| folder.join("libcudart.so").exists())
            .unwrap_or_else(|| self.home.join("lib"))
    }
}

/// Makes sure that there is an nvcc.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("nvcc", &paths.setup_logs())?;
    if let Some(home) = installed() {
        step.cached(&format!("13 in {}", home.display()));
        return Ok(());
    }
    let entry = entry(paths);
    entry.fill(step, SERIES, |step| {
        pip::install(step, &entry.path, &WHEELS.map(|wheel| format!("{wheel}=={SERIES}.*")))?;
        let home = home_in(&entry);
        symlink("libcudart.so.13", home.join("lib/libcudart.so")).context("The wheels have no lib folder")?;
        release_of(&home.join("bin/nvcc")).context("The wheels hold no nvcc that runs").map(drop)
    })
}

/// Installs NVRTC, cuRAND and similar libraries if they are missing. Returns the folder above their `include` and
/// `lib`.
pub fn setup_extras(paths: &Paths) -> Result<PathBuf> {
    let step = Step::new("cuda libraries", &paths.setup_logs())?;
    let entry = Entry::named(&paths.cache, "cuda-libraries", SERIES);
    entry.fill(step, SERIES, |step| pip::install(step, &entry.path, &EXTRA_WHEELS))?;
    Ok(home_in(&entry))
}

/// Its name says what it has: earlier ones had no NVTX.
fn entry(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "nvcc-nvtx", SERIES)
}

fn home_in(entry: &Entry) -> PathBuf {
    entry.path.join("nvidia/cu13")
}

/// `CUDA_HOME`, or the folder above the nvcc in `PATH`, if that is of release 13.
fn installed() -> Option<PathBuf> {
    let by_variable = env::var_os("CUDA_HOME").map(PathBuf::from);
    let by_path = env::split_paths(&env::var_os("PATH")?).find(|folder| folder.join("nvcc").is_file());
    let by_path = by_path.and_then(|folder| Some(folder.parent()?.to_path_buf()));
    [by_variable, by_path]
        .into_iter()
        .flatten()
        .find(|home| release_of(&home.join("bin/nvcc")).is_ok_and(|release| release.starts_with("13.")))
}

/// The `13.0` in `release 13.0, V13.0.88`.
fn release_of(nvcc: &Path) -> Result<String> {
    let text = output_of(Command::new(nvcc).arg("--version"))?;
    let (_, release) = text.split_once("release ").context("nvcc --version names no release")?;
    Ok(release.split(',').next().unwrap_or_default().to_owned())
}
