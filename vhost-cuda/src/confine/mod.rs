// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's part of the confinement of workers. `worker::sandbox` has the other part.
//!
//! * [`own`] changes the daemon itself: other processes cannot read its memory, and it may create namespaces.
//! * [`namespaces`] gives all workers of a daemon PID, mount, network and IPC namespaces of their own, and with
//!   [`tree`] a root with only the files that libcuda needs.
//! * [`threads`] confines the daemon's threads that read the bytes of guests and workers.
//! * [`paths`] lists these files. The worker's Landlock rules use the same list.
//!
//! The workers of one daemon share their namespaces, because CUDA's IPC between processes of a guest needs that:
//! libcuda finds the other process by its process id and by an abstract socket.

pub mod calls;
pub mod keeper;
pub mod listener;
mod loopback;
pub mod namespaces;
pub mod own;
pub mod paths;
pub mod threads;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

/// NVIDIA's library caches compiled code in this folder, if the operator sets it.
pub const CACHE_VARIABLE: &str = "CUDA_CACHE_PATH";
/// Disables that cache.
const NO_CACHE_VARIABLE: &str = "CUDA_CACHE_DISABLE";

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

/// Disables the cache of NVIDIA's library, which all sessions would share: code that one session writes there would
/// run in another. An operator who sets a folder accepts that.
pub fn environment(command: &mut Command) {
    if std::env::var_os(CACHE_VARIABLE).is_none() {
        command.env(NO_CACHE_VARIABLE, "1");
    }
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
