// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The confinement of workers, as far as the daemon and the workers both know it.
//!
//! * [`calls`] lists system calls that threads may make which read foreign bytes.
//! * [`paths`] lists the files that workers need.
//! * [`listener`] has the commands by which one process decides over calls of another one.
//! * [`rights`] drops the rights of a process.

pub mod calls;
pub mod listener;
pub mod paths;
pub mod rights;

use std::path::{Path, PathBuf};

/// NVIDIA's library caches compiled code in this folder, if the operator sets it.
pub const CACHE_VARIABLE: &str = "CUDA_CACHE_PATH";
/// Folders that workers need besides the system's.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// Readable folders: that of the device's library, those configured for the dynamic linker, and those of
    /// `--libraries`.
    pub read: Vec<PathBuf>,
    /// Writable folders: the cache of compiled code.
    pub write: Vec<PathBuf>,
}

impl Folders {
    /// Returns the folders for workers that load `library`, and NVIDIA's libraries from `libraries`.
    pub fn of(library: &Path, libraries: &[PathBuf]) -> Self {
        let linker = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let beside = library.parent().map(Path::to_owned);
        let read = beside.into_iter().chain(std::env::split_paths(&linker)).chain(libraries.iter().cloned());
        let cache = std::env::var_os(CACHE_VARIABLE).map(PathBuf::from);
        Self { read: existing(read), write: existing(cache.into_iter()) }
    }
}

/// Returns the folders that exist, by their canonical paths, except the root: a library that was given without a
/// folder has an empty one.
fn existing(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let named = folders.filter(|folder| !folder.as_os_str().is_empty());
    let real = named.filter_map(|folder| folder.canonicalize().ok());
    real.filter(|folder| folder.is_dir() && folder != Path::new("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_and_are_not_the_root() {
        let folders = ["", "/", "/usr/../usr/lib", "/nowhere/at/all", "/etc/passwd"].map(PathBuf::from);
        let found = existing(folders.into_iter());
        assert_eq!(found, [Path::new("/usr/lib").canonicalize().unwrap()]);
    }
}
