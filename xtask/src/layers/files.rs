// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The source files of the repository, by crate and by folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::progress::output_of;

/// The one crate that a foreign build system builds: its root, and a folder in it with crates of their own.
const DRIVER: (&str, &str) = ("guest-driver", "stock");

/// The end of the first lines of a file that is not written by hand.
pub const GENERATED: &str = "do not edit.\n\n";

/// The module path of each file, below the crate's root.
pub type Modules = BTreeMap<Vec<String>, PathBuf>;

/// The folder of the CUDA programs that the levels run: a corpus, of which no file depends on another one beside it but headers.
const CORPUS: &str = "tests/cuda";

/// All Rust sources of the repository, relative to `root`.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    listed(root, &["*.rs"])
}

/// All sources in C, C++ and CUDA, relative to `root`, but those of the corpus.
pub fn c_sources(root: &Path) -> Result<Vec<PathBuf>> {
    let sources = listed(root, &["*.c", "*.h", "*.cpp", "*.cu", "*.cuh", "*.S"])?;
    Ok(sources.into_iter().filter(|file| file.parent() != Some(Path::new(CORPUS))).collect())
}

/// All files of the repository that contain a text, relative to `root`.
pub fn with_text(root: &Path, text: &str) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args([
        "grep",
        "--untracked",
        "--files-with-matches",
        "--fixed-strings",
        "-I",
        "-e",
        text,
    ]);
    // It fails if no file has the text.
    let files = git.output()?.stdout;
    Ok(String::from_utf8_lossy(&files).lines().map(PathBuf::from).collect())
}

fn listed(root: &Path, patterns: &[&str]) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard"]).args(patterns);
    let files = output_of(&mut git)?;
    Ok(files.lines().map(PathBuf::from).filter(|file| root.join(file).exists()).collect())
}

/// The crates among `sources`, by folder.
pub fn crates(sources: &[PathBuf]) -> BTreeMap<String, Modules> {
    let mut crates = BTreeMap::<String, Modules>::new();
    for file in sources {
        let Some((name, inside)) = place(file) else { continue };
        if let Some(module) = module(&inside) {
            crates.entry(name).or_default().insert(module, file.clone());
        }
    }
    crates
}

/// Returns whether `file` says of itself that `cargo xtask generate` writes it.
pub fn is_generated(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains(GENERATED))
}

/// The number of lines of a crate, tests in its files included.
pub fn lines(root: &Path, modules: &Modules) -> Result<usize> {
    let count = |file: &PathBuf| Ok(fs::read_to_string(root.join(file))?.lines().count());
    modules.values().map(count).sum()
}

/// The folders of `sources` with the number of files in each.
pub fn side_by_side<'a>(sources: impl IntoIterator<Item = &'a PathBuf>) -> BTreeMap<&'a Path, usize> {
    let mut folders = BTreeMap::new();
    for folder in sources.into_iter().filter_map(|file| file.parent()) {
        *folders.entry(folder).or_default() += 1;
    }
    folders
}

/// The crate's folder, and the file's path from its root.
fn place(file: &Path) -> Option<(String, Vec<String>)> {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts[0] == DRIVER.0 && parts[1] != DRIVER.1 {
        return Some((DRIVER.0.to_owned(), parts[1..].to_vec()));
    }
    let at = parts.iter().position(|part| part == "src")?;
    Some((parts[..at].join("/"), parts[at + 1..].to_vec()))
}

/// Returns `None` for a crate of its own: a binary or a part of one.
fn module(inside: &[String]) -> Option<Vec<String>> {
    let (last, folders) = inside.split_last()?;
    let mut module = folders.to_vec();
    match last.strip_suffix(".rs")? {
        "mod" => {}
        "lib" | "main" | "virtio_cuda_main" if folders.is_empty() => {}
        name => module.push(name.to_owned()),
    }
    (module.first().is_none_or(|first| first != "bin")).then_some(module)
}
