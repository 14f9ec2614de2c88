// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Removes what earlier configurations, compilers and patches have left in the cache.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::cache::is_key;
use super::kernel::{self, Flavour};
use super::qemu;
use crate::build::before;
use crate::paths::Paths;

/// Things that earlier versions kept there.
const GONE: [&str; 3] = ["kernel-debian", "kernel-ubuntu", "virtiofsd-"];

/// Things that the next test or the next `.ci/run` makes again: compiled test programs, and what has passed there.
const QUICK_TO_MAKE: [&str; 3] = ["cuda-programs", "emulator-", "passed-"];

/// Removes all builds but those that [`super::run`] would use now.
pub fn prune(paths: &Paths) -> Result<()> {
    let current = [
        ("kernel-small", kernel::current_folder(paths, Flavour::Small)?),
        ("kernel-debug", kernel::current_folder(paths, Flavour::Debug)?),
        ("qemu", qemu::current_folder(paths)?),
    ];
    let entries =
        fs::read_dir(&paths.cache).with_context(|| format!("Cannot read {}", paths.cache.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_old = |(thing, current): &(&str, Option<PathBuf>)| {
            let key = name.strip_prefix(thing).and_then(|rest| rest.strip_prefix('-'));
            key.is_some_and(is_key) && current.as_ref() != Some(&path)
        };
        let is_gone = GONE.iter().chain(&QUICK_TO_MAKE).any(|thing| name.starts_with(thing));
        if is_gone || current.iter().any(is_old) || before::is_old(&paths.root, &name)? {
            fs::remove_dir_all(&path).with_context(|| format!("Cannot remove {}", path.display()))?;
            eprintln!("{:16} {}", "removed", path.display());
        }
    }
    Ok(())
}
