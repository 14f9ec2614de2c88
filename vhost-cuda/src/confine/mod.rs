// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Walls around workers, as far as the daemon builds them; `worker::sandbox` has the rest.
//!
//! * [`own`] changes the daemon itself: nobody reads its memory, and it may make namespaces.
//! * [`namespaces`] gives all workers of a daemon PID, mount, network and IPC namespaces of their own, and with
//!   [`tree`] a root with only the files that libcuda needs.
//! * [`paths`] says which files these are; the worker's Landlock rules have the same list.
//!
//! The workers of one daemon share their namespaces, because CUDA's IPC between processes of a guest needs that:
//! libcuda finds the other process by its number and by an abstract socket.

pub mod keeper;
mod loopback;
pub mod namespaces;
pub mod own;
pub mod paths;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

/// NVIDIA's library keeps code that it has compiled in this folder, if the operator names one.
pub const CACHE_VARIABLE: &str = "CUDA_CACHE_PATH";
/// Turns that cache off.
const NO_CACHE_VARIABLE: &str = "CUDA_CACHE_DISABLE";

/// Folders that workers need besides the system's.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// To read: the folder of the device's library, those that the dynamic linker was told of, and
    /// those of `--libraries`.
    pub read: Vec<PathBuf>,
    /// To write: the cache of compiled code.
    pub write: Vec<PathBuf>,
}

impl Folders {
    /// The folders for workers that load `library`, and NVIDIA's libraries from `libraries`.
    pub fn of(library: &Path, libraries: &[PathBuf]) -> Self {
        let linker = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let beside = library.parent().map(Path::to_owned);
        let read = beside.into_iter().chain(std::env::split_paths(&linker)).chain(libraries.iter().cloned());
        let cache = std::env::var_os(CACHE_VARIABLE).map(PathBuf::from);
        Self { read: existing(read), write: existing(cache.into_iter()) }
    }
}

/// Returns the folders that exist, by their real names. Never the root: a library named without a folder has an empty
/// one.
fn existing(folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let named = folders.filter(|folder| !folder.as_os_str().is_empty());
    let real = named.filter_map(|folder| folder.canonicalize().ok());
    real.filter(|folder| folder.is_dir() && folder != Path::new("/")).collect()
}

/// Keeps NVIDIA's library from a cache that all sessions would share: code that one session plants there would run in
/// another. An operator who names a folder wants it.
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
