// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the suites: `tests/conformance/software.toml`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use regex::Regex;
use serde::Deserialize;

use crate::conformance::Way;

/// In the program, so that a bundle needs no sources.
const USUAL: &str = include_str!("../../../tests/conformance/software.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    suite: Vec<Suite>,
}

/// The test suite of one piece of software. A Rust one has `krate`, a Python one has `packages`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// The crate, in the version that our Cargo.lock has.
    #[serde(rename = "crate")]
    pub krate: Option<String>,
    /// The crate's features.
    pub features: Vec<String>,
    /// Tests that are ignored unless they run alone.
    pub alone: Vec<String>,
    /// Packages for pip.
    pub packages: Vec<String>,
    /// The plugin of pytest that it needs, in `tests/conformance/plugins`, if any.
    pub plugin: Option<String>,
    /// The repository of its tests, if they are not in one of the packages …
    pub repository: Option<String>,
    /// … and the version of them.
    pub tag: String,
    /// Files with tests, in the repository.
    pub files: Vec<PathBuf>,
    /// The package that has the tests, if one does.
    pub package: Option<String>,
    /// Folders with test files, in the package.
    pub folders: Vec<PathBuf>,
    /// The Python module that the folders belong to.
    pub module: String,
    /// Failures that are known.
    pub expected: Vec<Expected>,
}

/// Tests that are known to fail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Their names, as a regular expression for the whole name.
    pub test: String,
    /// The place in which they fail.
    pub on: Place,
    /// And why.
    pub why: String,
}

/// The place in which a test fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// With NVIDIA's driver as well.
    Everywhere,
    /// Through our libraries, on every device.
    Stack,
    /// On the emulator.
    Emulated,
}

impl Suite {
    /// Returns the reason for which a test is known to fail on `way`.
    pub fn why(&self, test: &str, way: Way, emulated: bool) -> Option<&str> {
        let holds = |place| match place {
            Place::Everywhere => true,
            Place::Stack => matches!(way, Way::VirtioUser | Way::Vm),
            Place::Emulated => way == Way::Emulator || (emulated && way != Way::Native),
        };
        let known = self.expected.iter().find(|known| {
            holds(known.on)
                && Regex::new(&format!("^(?:{})$", known.test)).is_ok_and(|names| names.is_match(test))
        });
        known.map(|known| known.why.as_str())
    }
}

/// All suites, or those with the names.
pub fn suites(only: &[String]) -> Result<Vec<Suite>> {
    let table: Table = toml::from_str(USUAL).context("tests/conformance/software.toml")?;
    if let Some(name) = only.iter().find(|name| table.suite.iter().all(|suite| suite.name != **name)) {
        let names: Vec<_> = table.suite.iter().map(|suite| suite.name.as_str()).collect();
        bail!("There is no suite {name}; there are {}", names.join(", "));
    }
    Ok(table.suite.into_iter().filter(|suite| only.is_empty() || only.contains(&suite.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete() {
        for suite in suites(&[]).unwrap() {
            assert!(suite.krate.is_some() == suite.packages.is_empty(), "{}", suite.name);
            for known in &suite.expected {
                Regex::new(&known.test).unwrap();
                assert!(!known.why.is_empty());
            }
        }
        assert!(suites(&["missing".to_owned()]).is_err());
    }

    #[test]
    fn failures_are_known_where_they_happen() {
        let known = |on| Expected { test: "a::.*".to_owned(), on, why: "because".to_owned() };
        let suite = Suite { expected: vec![known(Place::Emulated)], ..Suite::default() };
        assert_eq!(suite.why("a::b", Way::VirtioUser, true), Some("because"));
        assert_eq!(suite.why("ba::b", Way::VirtioUser, true), None);
        assert_eq!(suite.why("a::b", Way::VirtioUser, false), None);
        assert_eq!(suite.why("a::b", Way::Native, true), None);
        let suite = Suite { expected: vec![known(Place::Stack)], ..Suite::default() };
        assert_eq!(suite.why("a::b", Way::Native, false), None);
        assert!(suite.why("a::b", Way::Vm, false).is_some());
    }
}
