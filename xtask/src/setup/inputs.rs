// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inputs of checks. A check that has passed with the same inputs on this machine need not run again; one that has failed
//! always runs again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use super::cache::{Entry, Key, c_compiler_version};
use crate::paths::Paths;
use crate::progress::{output_of, say};

/// Beginnings of the names of environment variables that change what is compiled, or how the emulator or loom behaves.
const VARIABLES: [&str; 8] = [
    "CARGO_PROFILE_",
    "CARGO_BUILD_",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC",
    "CUDA_EMULATOR_",
    "LOOM_",
    "VHOST_CUDA_TEST_",
];

/// Runs `check`, unless it has passed on this machine with these inputs and `if_changed` is set.
pub fn unless_passed(
    paths: &Paths,
    name: &str,
    if_changed: bool,
    inputs: impl FnOnce() -> Result<Key>,
    check: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !if_changed {
        return check();
    }
    let entry = Entry::new(&paths.cache, &format!("passed-{name}"), inputs()?);
    if entry.is_complete() {
        say(&format!("{name:16} has passed with the same inputs: {}", entry.path.display()));
        return Ok(());
    }
    check()?;
    entry.begin()?;
    entry.complete()
}

/// The compilers, the processor's features, and the variables that change what they do.
pub fn toolchain() -> Result<Key> {
    let compiler = output_of(Command::new("rustc").arg("-vV"))?;
    let processor = fs::read_to_string("/proc/cpuinfo").context("Cannot read /proc/cpuinfo")?;
    let features = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let mut variables: Vec<String> = env::vars()
        .filter(|(name, _)| VARIABLES.iter().any(|start| name.starts_with(start)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    variables.sort();
    Ok(Key::default()
        .input("rustc", &compiler)
        .input("cc", &c_compiler_version()?)
        .input("processor", features)
        .input("variables", &variables.join("\n")))
}

/// Adds the files of the repository below `places`, also those that git does not know yet; ignored ones are left out.
pub fn files<T: AsRef<str>>(key: Key, root: &Path, places: &[T]) -> Result<Key> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]);
    let listed = output_of(git.args(places.iter().map(AsRef::as_ref)))?;
    let names: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    names.into_iter().try_fold(key, |key, name| {
        // A file that was removed is still in git's list.
        let path = root.join(name);
        let bytes = if path.is_file() { fs::read(&path)? } else { Vec::new() };
        Ok(key.input(name, "").bytes(&bytes))
    })
}

/// The packages that `packages` are made of, with the features that these need: folders below the repository, and the names,
/// versions and features of all. Their own tests count, those of their dependencies do not.
pub fn packages(root: &Path, packages: &[&str]) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--prefix=none", "--format={p}|{f}"]).current_dir(root);
    cargo.args(packages.iter().flat_map(|package| ["--package", package]));
    let (mut folders, mut others) = (BTreeSet::new(), BTreeSet::new());
    for line in output_of(&mut cargo)?.lines().filter(|line| !line.is_empty()) {
        // A package that was listed before ends with a mark.
        let line = line.trim_end_matches(" (*)");
        match line.split_once(" (/") {
            None => drop(others.insert(line.to_owned())),
            Some((name, rest)) => {
                let (folder, features) = rest.split_once(")|").context("cargo tree prints no features")?;
                let folder = Path::new("/").join(folder);
                let folder = folder.strip_prefix(root.canonicalize()?).unwrap_or(&folder).to_owned();
                folders.insert(folder.to_string_lossy().into_owned());
                others.insert(format!("{name}|{features}"));
            }
        }
    }
    Ok((folders, others))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        output_of(Command::new("git").args(["init", "--quiet"]).current_dir(folder.path())).unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/x"), "1").unwrap();
        folder
    }

    #[test]
    fn each_file_counts_whether_git_knows_it_or_not() {
        let folder = repository();
        let key = || files(Key::default(), folder.path(), &["a"]).unwrap().finish();
        let first = key();
        output_of(Command::new("git").args(["add", "a"]).current_dir(folder.path())).unwrap();
        assert_eq!(key(), first);
        fs::write(folder.path().join("b"), "elsewhere").unwrap();
        assert_eq!(key(), first);
        fs::write(folder.path().join("a/new"), "").unwrap();
        let second = key();
        assert_ne!(second, first);
        fs::remove_file(folder.path().join("a/x")).unwrap();
        let third = key();
        assert!(third != first && third != second);
        fs::write(folder.path().join("a/x"), "2").unwrap();
        assert!(![first, second, third].contains(&key()));
    }

    #[test]
    fn only_success_is_remembered() {
        let cache = tempfile::tempdir().unwrap();
        let paths = Paths { cache: cache.path().to_path_buf(), ..Paths::discover().unwrap() };
        let key = |value: &'static str| move || Ok(Key::default().input("a", value));
        let run = |if_changed, value, passes: bool| {
            let mut ran = false;
            let result = unless_passed(&paths, "check", if_changed, key(value), || {
                ran = true;
                if passes { Ok(()) } else { bail!("it failed") }
            });
            (ran, result.is_ok())
        };
        assert_eq!(run(true, "1", false), (true, false));
        assert_eq!(run(true, "1", false), (true, false));
        assert_eq!(run(true, "1", true), (true, true));
        assert_eq!(run(true, "1", false), (false, true));
        assert_eq!(run(true, "2", true), (true, true));
        assert_eq!(run(false, "1", false), (true, false));
    }

    /// The wall around the emulator: its tests depend on these folders only, and count as passed while these stay.
    #[test]
    fn the_emulator_stands_alone() -> Result<()> {
        let root = Paths::discover()?.root;
        let (folders, others) = packages(&root, &crate::build::EMULATOR)?;
        let is_allowed = |folder: &&String| {
            ["protocol/", "cuda-emulator"].iter().any(|start| folder.starts_with(start))
                || *folder == "tests/fuzz"
        };
        assert_eq!(folders.iter().filter(|folder| !is_allowed(folder)).collect::<Vec<_>>(), [""; 0]);
        assert!(folders.contains("cuda-emulator/libraries") && folders.contains("protocol/cuda-abi"));
        assert!(others.iter().any(|package| package.contains("cranelift-codegen")));
        Ok(())
    }
}
