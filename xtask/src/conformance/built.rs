// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A folder of compiled programs: `built.json`, and a folder with the input files of each program.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const LIST: &str = "built.json";

/// A compiled program, or the reason for its absence.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Built {
    /// Its suite.
    pub suite: String,
    /// Its name in the suite.
    pub name: String,
    /// The result of the build.
    pub state: State,
}

/// The result of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The program exists.
    Built,
    /// The compiler's message.
    Failed(String),
    /// Not tried, and why.
    Skipped(String),
}

impl Built {
    /// The folder of the program in `programs`.
    pub fn folder(&self, programs: &Path) -> PathBuf {
        programs.join("programs").join(&self.suite).join(&self.name)
    }
}

/// Writes the list of the programs in `folder`.
pub fn save(folder: &Path, programs: &[Built]) -> Result<()> {
    let file = folder.join(LIST);
    fs::write(&file, serde_json::to_string_pretty(programs)?)
        .with_context(|| format!("Cannot write {}", file.display()))
}

/// Adds `programs` to the list in `folder`, and replaces those with the same names.
pub fn merge(folder: &Path, programs: &[Built]) -> Result<()> {
    let mut all = if folder.join(LIST).exists() { load(folder, &[])? } else { Vec::new() };
    all.retain(|old| !programs.iter().any(|new| (&new.suite, &new.name) == (&old.suite, &old.name)));
    all.extend_from_slice(programs);
    all.sort_by(|a, b| (&a.suite, &a.name).cmp(&(&b.suite, &b.name)));
    save(folder, &all)
}

/// The programs in `folder`; those of `only`, or all if that is empty.
pub fn load(folder: &Path, only: &[String]) -> Result<Vec<Built>> {
    let file = folder.join(LIST);
    let text = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
    let mut programs: Vec<Built> =
        serde_json::from_slice(&text).with_context(|| format!("Cannot use {}", file.display()))?;
    programs.retain(|program| only.is_empty() || only.contains(&program.name));
    Ok(programs)
}
