// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask generate`: plain Rust from the rows of the call table (`protocol/calls`), of NVIDIA's libraries
//! (`protocol/libraries/rows`), and from cudarc's declarations of the driver API. The sources are checked in, with
//! one function per call, so that a reader finds each by its name, and no build parses rows.
//!
//! The crate depends on no generated source, so that it compiles whatever the rows and the types of the tables say.

#![forbid(unsafe_code)]

mod bindings;
mod dispatch;
mod driver;
mod entries;
mod exports;
mod file;
mod getters;
mod libraries;
mod names;
mod prototypes;
mod stubs;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cuda_api_description::calls::areas;
use cuda_api_description::getters::getters;

use bindings::Bindings;
pub use file::File;
use libraries::descriptions;

/// Writes the files of the repository at `root` that do not follow from their rows. If `is_check`, it only fails for them.
pub fn run(root: &Path, is_check: bool) -> Result<()> {
    let stale = stale(root)?;
    for file in &stale {
        println!("{}", file.path.display());
    }
    if is_check {
        ensure!(stale.is_empty(), "These files do not follow from their rows: run `cargo xtask generate`");
        return Ok(());
    }
    for File { path, text } in stale {
        let path = root.join(path);
        fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the generated files of the repository that do not follow from their rows.
pub fn stale(root: &Path) -> Result<Vec<File>> {
    let is_stale = |file: &File| fs::read_to_string(root.join(&file.path)).ok().as_ref() != Some(&file.text);
    Ok(files(root)?.into_iter().filter(is_stale).collect())
}

/// Returns all generated files of the repository.
fn files(root: &Path) -> Result<Vec<File>> {
    let areas = areas(root)?;
    let bindings = Bindings::read(root)?;
    let mut files = vec![entries::entries(&areas)?, prototypes::file(root, &bindings)?];
    files.push(driver::file(root, &areas, &bindings)?);
    files.extend(names::files(root, &areas, &bindings)?);
    files.extend(table::files(&areas)?);
    files.extend(stubs::files(&areas)?);
    files.extend(dispatch::files(&areas)?);
    files.extend(getters::files(&getters(root)?)?);
    let all = descriptions(root)?;
    files.extend(libraries::files(root, &all)?);
    files.extend(exports::files(&all)?);
    Ok(files)
}
