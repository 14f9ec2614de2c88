// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `.ci/run` and xtask compile the same packages together.

use std::fs;

use anyhow::{Context, Result};
use xtask::build::Selection;

use crate::root;

#[test]
fn all_calls_compile_the_same_packages() -> Result<()> {
    let script = fs::read_to_string(root().join(".ci/run"))?;
    let list = script.lines().find_map(|line| line.strip_prefix("packages=(")?.strip_suffix(')'));
    let words: Vec<&str> = list.context("There is no list of packages")?.split_whitespace().collect();
    assert_eq!(words, Selection::Workspace.arguments());
    Ok(())
}
