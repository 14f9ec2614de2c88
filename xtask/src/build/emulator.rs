// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulator in the stack. One that has passed its own tests is kept in the cache (`cargo xtask emulator`), and is compiled
//! again only when something that it is made of has changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cargo::{self, Artifacts, EMULATOR, Linkage, Selection};
use super::library::{self, Place};
use super::stack::{AUDITOR, Stack};
use crate::paths::Paths;
use crate::progress::output_of;
use crate::setup::cache::{self, Entry};
use crate::setup::inputs;

/// The beginning of the names of its folders in the cache.
const THING: &str = "emulator";
/// The maximum number of emulators in the cache.
const MAX_KEPT: usize = 3;
/// The file that names the kept emulator, in the stack's folder of it.
const MARK: &str = "kept";
const LIBCUDA: &str = "libcuda.so.1";
const LIBRARIES: &str = "libraries";
/// Its sources, and all that they use: their packages need not be named one by one, and build scripts read lists of names. Then
/// settings of the compiler and the linker.
const SOURCES: [&str; 8] = [
    "cuda-emulator",
    "protocol",
    "tests/fuzz",
    "Cargo.toml",
    ".cargo",
    "guest-lib/oldest_libc.c",
    "xtask/src/build",
    "xtask/src/emulator.rs",
];

/// The cache's folder for the emulator of these sources. It is complete if that has passed its tests.
pub fn entry(paths: &Paths) -> Result<Entry> {
    let (folders, others) = inputs::packages(&paths.root, &EMULATOR)?;
    let places: Vec<&str> = folders.iter().map(String::as_str).chain(SOURCES).collect();
    let others = others.into_iter().collect::<Vec<_>>().join("\n");
    let key = inputs::toolchain()?.input("profile", paths.profile).input("packages", &others);
    Ok(Entry::new(&paths.cache, THING, inputs::files(key, &paths.root, &places)?))
}

/// The same, if it is complete.
pub(super) fn kept(paths: &Paths) -> Option<Entry> {
    // Without git's list of files the emulator is compiled.
    entry(paths).ok().filter(Entry::is_complete)
}

/// Builds the emulator from its sources into the stack.
pub fn build(paths: &Paths) -> Result<()> {
    let stack = Stack::new(paths);
    let artifacts = cargo::compile(paths, Selection::Emulator, Linkage::Shared)?;
    link(paths, &stack, &artifacts)?;
    link_libraries(paths, &stack, &artifacts)
}

/// Keeps the stack's emulator in the cache.
pub fn keep(paths: &Paths, entry: &Entry) -> Result<()> {
    let folder = folder(&Stack::new(paths))?;
    entry.begin_empty()?;
    fs::create_dir(entry.path.join(LIBRARIES))?;
    copy(&folder.join(LIBCUDA), &entry.path)?;
    let of_guest: Vec<&str> = library::OF_EMULATOR.iter().flat_map(library::Library::file_names).collect();
    for file in fs::read_dir(folder.join(LIBRARIES))? {
        let file = file?;
        if !of_guest.iter().any(|name| file.file_name() == *name) {
            copy(&file.path(), &entry.path.join(LIBRARIES))?;
        }
    }
    entry.complete()?;
    let mut others = Vec::new();
    for other in fs::read_dir(&paths.cache)? {
        let other = other?;
        let name = other.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(THING).and_then(|rest| rest.strip_prefix('-')).is_some_and(cache::is_key) {
            others.push((other.metadata()?.modified()?, other.path()));
        }
    }
    others.sort();
    let too_many = others.len().saturating_sub(MAX_KEPT);
    others[..too_many].iter().try_for_each(|(_, path)| Ok(fs::remove_dir_all(path)?))
}

/// Puts the emulator of the cache into the stack.
pub(super) fn restore(stack: &Stack, entry: &Entry) -> Result<PathBuf> {
    let folder = folder(stack)?;
    let (mark, key) = (folder.join(MARK), entry.path.as_os_str().as_encoded_bytes());
    if fs::read(&mark).ok().as_deref() != Some(key) {
        fs::create_dir_all(folder.join(LIBRARIES))?;
        copy(&entry.path.join(LIBCUDA), &folder)?;
        copy(&entry.path.join(LIBRARIES), &folder)?;
        library::name_for_development(&folder, LIBCUDA, "libcuda.so")?;
        fs::write(mark, key)?;
    }
    link_runtimes(&folder)?;
    Ok(stack.emulator())
}

/// Links the emulator.
pub(super) fn link(paths: &Paths, stack: &Stack, artifacts: &Artifacts) -> Result<PathBuf> {
    let folder = folder(stack)?;
    if folder.join(MARK).exists() {
        // Its files are newer than archives of other sources.
        fs::remove_dir_all(&folder).with_context(|| format!("Cannot empty {}", folder.display()))?;
    }
    library::link(paths, &folder, &library::EMULATOR, artifacts)?;
    link_runtimes(&folder)?;
    Ok(stack.emulator())
}

/// Links NVIDIA's libraries on the CPU.
pub(super) fn link_libraries(paths: &Paths, stack: &Stack, artifacts: &Artifacts) -> Result<()> {
    let folder = folder(stack)?;
    library::link_vendor(paths, Place::Host, &folder.join(LIBRARIES), &folder.join("maps"), artifacts)
}

/// So that the emulator alone, too, serves programs with a static runtime: the auditor takes the libraries beside it.
fn link_runtimes(folder: &Path) -> Result<()> {
    for shared in ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", AUDITOR] {
        let link = folder.join(shared);
        if fs::read_link(&link).is_err() {
            let target = Path::new("../guest/lib").join(shared);
            symlink(target, &link).with_context(|| format!("Cannot create {}", link.display()))?;
        }
    }
    Ok(())
}

fn folder(stack: &Stack) -> Result<PathBuf> {
    Ok(stack.emulator().parent().context("The emulator has no folder")?.to_path_buf())
}

/// Copies with links. A library that a program runs is replaced, not overwritten.
fn copy(from: &Path, to: &Path) -> Result<()> {
    output_of(Command::new("cp").args(["-a", "--remove-destination"]).arg(from).arg(to)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::cache::Key;

    #[test]
    fn a_kept_emulator_comes_back_without_the_guests_libraries() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let paths = Paths { cache: at("cache"), stack: at("stack"), ..Paths::discover()? };
        fs::create_dir(&paths.cache)?;
        fs::create_dir_all(at("stack/emulator/libraries"))?;
        for file in ["libcuda.so.1", "libraries/libcublas.so.13", "libraries/libcufftw.so.12"] {
            fs::write(at("stack/emulator").join(file), file)?;
        }
        let entry = |value: &str| Entry::new(&paths.cache, THING, Key::default().input("a", value));
        keep(&paths, &entry("1"))?;
        let other = Stack::new(&Paths { stack: at("other"), ..paths.clone() });
        for _ in 0..2 {
            restore(&other, &entry("1"))?;
            assert_eq!(
                fs::read_to_string(at("other/emulator/libraries/libcublas.so.13"))?,
                "libraries/libcublas.so.13"
            );
            assert_eq!(fs::read_to_string(at("other/emulator/libcuda.so"))?, "libcuda.so.1");
            assert!(!at("other/emulator/libraries/libcufftw.so.12").exists());
        }
        for value in ["2", "3", "4"] {
            keep(&paths, &entry(value))?;
        }
        assert!(!entry("1").is_complete() && entry("2").is_complete() && entry("4").is_complete());
        Ok(())
    }
}
