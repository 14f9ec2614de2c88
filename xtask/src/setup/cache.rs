// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folders named after what went into them: `<cache>/<thing>-<key>`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::progress::{Step, output_of};

/// The file that marks a folder as complete.
const COMPLETE: &str = ".complete";
/// Hexadecimal digits of a key.
const KEY_DIGITS: usize = 16;

/// Collects the inputs of a cached part. Any change of them leads to another key.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    /// Adds an input.
    pub fn input(mut self, name: &str, value: &str) -> Self {
        for part in [name, value] {
            self.0.update(part.as_bytes());
            self.0.update([0]);
        }
        self
    }

    /// Adds the contents of a file.
    pub fn bytes(mut self, contents: &[u8]) -> Self {
        self.0.update((contents.len() as u64).to_le_bytes());
        self.0.update(contents);
        self
    }

    /// The key: 16 hexadecimal digits.
    pub fn finish(self) -> String {
        let digest = self.0.finalize();
        digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(KEY_DIGITS).map(hex_digit).collect()
    }
}

fn hex_digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0')
}

/// Returns whether `text` looks like a key, and not like a version.
pub fn is_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// One folder of the cache.
pub struct Entry {
    /// The folder; exists once [`Entry::begin`] was called.
    pub path: PathBuf,
}

impl Entry {
    /// The folder of `thing` made from the inputs of `key`.
    pub fn new(cache: &Path, thing: &str, key: Key) -> Self {
        Self { path: cache.join(format!("{thing}-{}", key.finish())) }
    }

    /// The folder of `thing` whose name identifies it completely: a version.
    pub fn named(cache: &Path, thing: &str, version: &str) -> Self {
        Self { path: cache.join(format!("{thing}-{version}")) }
    }

    /// Returns whether an earlier run finished it.
    pub fn is_complete(&self) -> bool {
        self.path.join(COMPLETE).exists()
    }

    /// Creates the folder; files of an interrupted run stay in it, because builds can continue from there.
    pub fn begin(&self) -> Result<()> {
        fs::create_dir_all(&self.path).with_context(|| format!("Cannot create {}", self.path.display()))
    }

    /// Creates the folder, empty.
    pub fn begin_empty(&self) -> Result<()> {
        if self.path.exists() {
            fs::remove_dir_all(&self.path)
                .with_context(|| format!("Cannot empty {}", self.path.display()))?;
        }
        self.begin()
    }

    /// Fills the folder by `fill`, unless an earlier run did. `step` shows it as `shown`.
    pub fn fill(&self, step: Step, shown: &str, fill: impl FnOnce(&Step) -> Result<()>) -> Result<()> {
        if self.is_complete() {
            step.cached(shown);
            return Ok(());
        }
        self.begin_empty()?;
        fill(&step)?;
        self.complete()?;
        step.done(shown);
        Ok(())
    }

    /// Marks the folder as finished.
    pub fn complete(&self) -> Result<()> {
        File::create(self.path.join(COMPLETE))?;
        Ok(())
    }
}

/// The newest complete `<thing>-<version>` in the cache whose version starts with `series`, so that a second run needs
/// no network.
pub fn newest_version(cache: &Path, thing: &str, series: &str) -> Option<String> {
    let prefix = format!("{thing}-");
    let mut versions: Vec<String> = fs::read_dir(cache)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(&prefix)?.to_owned();
            (version.starts_with(series) && entry.path().join(COMPLETE).exists()).then_some(version)
        })
        .collect();
    versions.sort_by(|a, b| compare_versions(a, b));
    versions.pop()
}

/// Compares two Debian versions the way people read them: runs of digits as numbers, the rest as text.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    version_parts(a).cmp(&version_parts(b))
}

fn version_parts(version: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = version;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let text = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |n| digits + n);
        parts.push((rest[..digits].parse().unwrap_or(0), rest[digits..text].to_owned()));
        rest = &rest[text..];
    }
    parts
}

/// The lines of a configuration file that mean something, so that a comment does not rebuild anything.
pub fn meaningful_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("CONFIG_"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The version line of the C compiler.
pub fn c_compiler_version() -> Result<String> {
    output_of(Command::new("gcc").arg("-dumpfullversion"))
}

/// Keeps a second `setup` out of the cache until dropped.
pub fn lock(cache: &Path) -> Result<File> {
    fs::create_dir_all(cache).with_context(|| format!("Cannot create {}", cache.display()))?;
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("Cannot write {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another setup to finish");
        file.lock().with_context(|| format!("Cannot lock {}", path.display()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn key_depends_on_name_value_and_order() {
        let key = |inputs: &[(&str, &str)]| {
            inputs.iter().fold(Key::default(), |key, (name, value)| key.input(name, value)).finish()
        };
        assert_eq!(key(&[("a", "b")]).len(), KEY_DIGITS);
        assert_ne!(key(&[("a", "b")]), key(&[("ab", "")]));
        assert_ne!(key(&[("a", "b"), ("c", "d")]), key(&[("c", "d"), ("a", "b")]));
    }

    #[test]
    fn a_key_is_no_version() {
        assert!(is_key(&Key::default().finish()));
        assert!(!is_key("7.2.12-1~bpo13+1"));
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(compare_versions("7.2.9-1~bpo13+1", "7.2.12-1~bpo13+1"), Ordering::Less);
        assert_eq!(compare_versions("10.0.13", "10.0.13"), Ordering::Equal);
        assert_eq!(compare_versions("7.3", "7.2.12"), Ordering::Greater);
    }

    #[test]
    fn comments_mean_nothing() {
        assert_eq!(meaningful_lines("# x\nCONFIG_A=y\n\n  CONFIG_B=n\n"), "CONFIG_A=y\nCONFIG_B=n");
    }
}
