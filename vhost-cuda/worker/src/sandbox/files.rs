// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restricts the files that a worker can access (Landlock), with or without a root of its own. The kernel then also
//! denies it access to the memory of outside processes and signals to them.

use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use vhost_cuda_common::confine::{Folders, paths};

/// The rights that are restricted. Those that the kernel does not know are left out.
const KNOWN: ABI = ABI::V6;

/// Restricts the calling thread and those that it will start. Returns false if this kernel has no Landlock.
///
/// `own_root` is true if the root is a tree of the daemon's workers, with their own shared memory.
pub fn bound(folders: &Folders, own_root: bool) -> Result<bool, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    // The worker starts no programs.
    let read = AccessFs::from_read(KNOWN) & !AccessFs::Execute;
    let node = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::Signal)?
        .create()?;
    for path in paths::READ.iter().map(PathBuf::from).chain(paths::of_machine()).chain(of_workers()) {
        rules = allow(rules, &path, read)?;
    }
    // To list the workers of the namespace, but not to read their files.
    if own_root {
        rules = allow(rules, Path::new(paths::PROC), AccessFs::ReadDir.into())?;
    }
    rules = allow(rules, Path::new(paths::THREADS), read | AccessFs::WriteFile | AccessFs::Truncate)?;
    // The rule applies to the folder that exists now. It is kept open so that no other folder replaces it.
    std::mem::forget(PathFd::new(paths::THREADS));
    for folder in &folders.read {
        rules = allow(rules, folder, read)?;
    }
    for path in paths::nodes() {
        rules = allow(rules, &path, node)?;
    }
    let mut written: Vec<&Path> = folders.write.iter().map(AsRef::as_ref).collect();
    if own_root {
        written.push(Path::new(paths::SHM));
    }
    for folder in written {
        rules = allow(rules, folder, all & !AccessFs::Execute)?;
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the folders of `/proc` of which a worker reads processes: its own, and outside of a namespace the daemon's
/// threads, which list its workers ([`vhost_cuda_common::family`]).
fn of_workers() -> impl Iterator<Item = PathBuf> {
    let parent = Some(parent_id()).filter(|&parent| parent != 0);
    let threads = parent.map(|parent| Path::new(paths::PROC).join(parent.to_string()).join("task"));
    std::iter::once(PathBuf::from(paths::OWN)).chain(threads)
}

/// Allows `access` at `path` and below, if it exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(place) = PathFd::new(path) else { return Ok(rules) };
    // Rights of folders do not apply to files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
    rules.add_rule(PathBeneath::new(place, access))
}
