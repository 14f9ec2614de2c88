// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the suites: `tests/conformance/suites.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// In the program, so that a bundle needs no sources.
const USUAL: &str = include_str!("../../../tests/conformance/suites.toml");

/// All suites.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    suite: Vec<Suite>,
}

/// A collection of programs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// A file below the suite's root that identifies the suite.
    marker: PathBuf,
    /// Folders with headers, below the root.
    #[serde(default)]
    pub include: Vec<PathBuf>,
    /// More arguments for the compiler.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Masks for all its programs; see [`Program::mask`].
    #[serde(default)]
    pub mask: Vec<String>,
    /// Patterns of lines that mean failure, whatever the exit status.
    #[serde(default)]
    pub fail: Vec<String>,
    /// Folders without programs for us, below the root, with the reason.
    #[serde(default)]
    pub skip: BTreeMap<PathBuf, String>,
    /// Exceptions per program.
    #[serde(default)]
    program: BTreeMap<String, Program>,
}

/// Exceptions of a program; all fields are optional.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Program {
    /// The reason for neither building nor running it.
    pub skip: Option<String>,
    /// The reason for which the emulator cannot run it.
    pub emulator: Option<String>,
    /// The reason for which it fails through our driver library on a GPU, where it does.
    pub gpu: Option<String>,
    /// Its sources, if not all in its folder; may lie elsewhere in the suite.
    pub sources: Vec<PathBuf>,
    /// Sources in its folder that are not linked.
    pub exclude: Vec<PathBuf>,
    /// More arguments for the compiler.
    pub flags: Vec<String>,
    /// Compiled apart; the program loads them when it runs: `X.fatbin`, `X.ptx` or `X.cubin` from a source.
    pub side: BTreeMap<String, PathBuf>,
    /// Files of its folder that the program reads, beside those in `data`.
    pub data: Vec<PathBuf>,
    /// Files and folders of the toolkit, below its home, that the program reads: headers for NVRTC.
    pub toolkit: Vec<PathBuf>,
    /// The arguments of each of its runs; without any, one run without arguments.
    pub runs: Vec<Vec<String>>,
    /// The same for the emulator, where the usual ones would take too long. Natively it runs with both.
    pub small: Vec<Vec<String>>,
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Seconds that a run may take, where that is more than usual.
    pub timeout: Option<u64>,
    /// Expected exit status where there is no native run to compare with.
    pub exit: i32,
    /// Patterns that are not compared: text that matches them, in any line, becomes `<masked>`.
    pub mask: Vec<String>,
    /// Lines in any order.
    pub unordered: bool,
    /// The reason for comparing the exit status only: the output describes the device, or is a matter of chance.
    pub status_only: Option<String>,
}

impl Table {
    /// The table of the repository, or that in `file`.
    pub fn load(file: Option<&Path>) -> Result<Self> {
        match file {
            None => toml::from_str(USUAL).context("tests/conformance/suites.toml"),
            Some(file) => {
                let text =
                    fs::read_to_string(file).with_context(|| format!("Cannot read {}", file.display()))?;
                toml::from_str(&text).with_context(|| file.display().to_string())
            }
        }
    }

    /// The suite that `folder` is or belongs to, with its root; an unknown one is a suite of its own.
    pub fn suite_of(&self, folder: &Path) -> (Suite, PathBuf) {
        for root in folder.ancestors() {
            if let Some(suite) = self.suite.iter().find(|suite| root.join(&suite.marker).is_file()) {
                return (suite.clone(), root.to_path_buf());
            }
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (Suite { name, ..Suite::default() }, folder.to_path_buf())
    }

    /// The suite of this name; an empty one if it is not in the table.
    pub fn suite(&self, name: &str) -> Suite {
        let known = self.suite.iter().find(|suite| suite.name == name);
        known.cloned().unwrap_or_else(|| Suite { name: name.to_owned(), ..Suite::default() })
    }
}

impl Suite {
    /// The exceptions of the program of this name.
    pub fn program(&self, name: &str) -> Program {
        self.program.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::mask::Mask;

    #[test]
    fn the_table_is_sound() {
        let table = Table::load(None).unwrap();
        for suite in &table.suite {
            for program in suite.program.values() {
                Mask::new(suite, program).unwrap();
            }
        }
    }

    #[test]
    fn a_suite_is_known_by_its_marker() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("Samples/0_Introduction/vectorAdd");
        fs::create_dir_all(&deep).unwrap();
        let table = Table::load(None).unwrap();
        assert_eq!(table.suite_of(&deep).0.name, "vectorAdd");
        fs::create_dir(folder.path().join("Common")).unwrap();
        fs::write(folder.path().join("Common/helper_cuda.h"), "").unwrap();
        let (suite, root) = table.suite_of(&deep);
        assert_eq!((suite.name.as_str(), root.as_path()), ("cuda-samples", folder.path()));
    }
}
