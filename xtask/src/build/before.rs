// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The release before this one: its daemon and its guest libraries, for the tests of both releases together
//! (`cargo xtask test --level pair`). They are built once per commit, and kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::progress::{Step, output_of};
use crate::setup::cache::{self, Entry};

/// The file with the commit of the release before, relative to the repository. Lines with `#` are comments.
const FILE: &str = "tests/release-before";
/// The name of its folder in the cache, before its commit.
const THING: &str = "release";
/// The parts that are taken from it, as its `cargo xtask build` calls them, and the one of its setup that they need. The emulator
/// stands for NVIDIA's driver, which is of no release of ours.
const PARTS: &str = "daemon,guest-lib";
const SETUP: &str = "zig";
/// Cargo's profile, which is quick to compile, in variables that each release knows.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"),
];

/// The release before, or the reason for which it cannot be built here.
pub enum Before {
    /// The folder with its `bin` and `guest`.
    Built(PathBuf),
    /// The clone does not have its sources.
    Missing(String),
}

/// Returns the commit that the repository names.
///
/// Errors: the file cannot be read, or has not one line with a full commit.
pub fn commit(root: &Path) -> Result<String> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{FILE} must have one line with the 40 digits of a commit"))
}

fn parse(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let commit = lines.next()?;
    (is_commit(commit) && lines.next().is_none()).then(|| commit.to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether a folder of the cache is a release, but not the one that the repository at `root` names.
pub fn is_old(root: &Path, folder: &str) -> Result<bool> {
    let Some(of) = folder.strip_prefix(THING).and_then(|rest| rest.strip_prefix('-')) else {
        return Ok(false);
    };
    Ok(is_commit(of) && of != commit(root)?)
}

/// Builds the release of `commit`, which has all its digits, unless the cache has it.
pub fn build(paths: &Paths, commit: &str) -> Result<Before> {
    let step = Step::new("release-before", &paths.build_logs())?;
    let entry = Entry::named(&paths.cache, THING, commit);
    if entry.is_complete() {
        step.cached(commit);
        return Ok(Before::Built(entry.path));
    }
    if let Some(why) = missing(&paths.root, commit)? {
        return Ok(Before::Missing(why));
    }
    // Sources and objects take 1.3 GB, which nobody needs afterwards.
    let work = paths.target.join("release-before");
    let source = work.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&source).with_context(|| format!("Cannot create {}", source.display()))?;
    let archive = work.join("source.tar");
    let mut git = Command::new("git");
    git.current_dir(&paths.root).args(["archive", "--format=tar", "--output"]).arg(&archive).arg(commit);
    step.run(&mut git)?;
    step.run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    step.note(
        "compiling the daemon and the guest's libraries of the release before, three minutes on 2 cores",
    );
    // That release's own commands know the names of its functions and files.
    let xtask = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(["run", "--release", "--package", "xtask", "--"]).args(arguments);
        cargo.current_dir(&source).envs(PROFILE).env("CARGO_TARGET_DIR", work.join("target"));
        step.run(cargo.env("VHOST_CUDA_STACK", &entry.path))
    };
    xtask(&["setup", "--only", SETUP])?;
    let _lock = cache::lock(&paths.cache)?;
    if !entry.is_complete() {
        entry.begin_empty()?;
        xtask(&["build", "--only", PARTS])?;
        entry.complete()?;
    }
    fs::remove_dir_all(&work).with_context(|| format!("Cannot remove {}", work.display()))?;
    step.done(commit);
    Ok(Before::Built(entry.path))
}

/// The reason for which the clone at `root` does not have `commit`, if it does not.
///
/// Errors: it should have it, because it is not shallow.
fn missing(root: &Path, commit: &str) -> Result<Option<String>> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        output_of(git.current_dir(root).args(arguments))
    };
    if git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_ok() {
        return Ok(None);
    }
    if git(&["rev-parse", "--is-shallow-repository"])? == "true" {
        return Ok(Some(format!("this clone is shallow and has no {commit}: git fetch --unshallow")));
    }
    bail!("{FILE} names {commit}, which this clone does not have: fetch the branch that has it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn one_full_commit_is_read() {
        assert_eq!(parse(&format!("# why\n\n{COMMIT}\n")).as_deref(), Some(COMMIT));
        for text in ["", "# why\n", "main\n", "0123456\n", &format!("{COMMIT}\n{COMMIT}\n")] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn other_releases_are_old() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join(FILE), COMMIT).unwrap();
        let other = COMMIT.replace('0', "f");
        let names = [format!("release-{COMMIT}"), "release-notes".to_owned(), format!("release-{other}")];
        let old = names.map(|name| is_old(folder.path(), &name).unwrap());
        assert_eq!(old, [false, false, true]);
    }

    #[test]
    fn a_clone_without_the_commit() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str], at: &Path| {
            let mut git = Command::new("git");
            git.current_dir(at).args(["-c", "user.name=a", "-c", "user.email=a@example.invalid"]);
            output_of(git.args(arguments)).unwrap()
        };
        let (full, shallow) = (folder.path().join("full"), folder.path().join("shallow"));
        fs::create_dir(&full).unwrap();
        git(&["init", "--quiet"], &full);
        for message in ["first", "second"] {
            git(&["commit", "--quiet", "--allow-empty", "-m", message], &full);
        }
        let first = git(&["rev-parse", "HEAD~1"], &full);
        let url = format!("file://{}", full.display());
        git(&["clone", "--quiet", "--depth", "1", &url, "shallow"], folder.path());
        assert!(missing(&full, &first).unwrap().is_none());
        assert!(missing(&full, COMMIT).is_err());
        assert!(missing(&shallow, &first).unwrap().is_some_and(|why| why.contains("shallow")));
    }
}
