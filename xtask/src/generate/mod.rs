// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask generate`: plain Rust from the rows of the call table (`protocol/calls`), of NVIDIA's libraries
//! (`protocol/libraries/rows`), and from cudarc's declarations of the driver API. The sources are checked in, with
//! one function per call, so that a reader finds each by its name, and no build parses rows.

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
use clap::Args;

use crate::paths::Paths;
use bindings::Bindings;
pub use cuda_api_description::calls::{Area, Effect, Field, Row, areas};
use cuda_api_description::getters::getters;
pub use file::File;
pub use libraries::descriptions;

/// Whether files are written.
#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// Only fail if a file is not up to date
    #[arg(long)]
    check: bool,
}

/// Writes the generated files, or compares them.
pub fn run(paths: &Paths, arguments: &GenerateArguments) -> Result<()> {
    let stale: Vec<File> = files(&paths.root)?
        .into_iter()
        .filter(|file| fs::read_to_string(paths.root.join(&file.path)).ok().as_ref() != Some(&file.text))
        .collect();
    for file in &stale {
        println!("{}", file.path.display());
    }
    if arguments.check {
        ensure!(stale.is_empty(), "These files do not follow from their rows: run `cargo xtask generate`");
        return Ok(());
    }
    for File { path, text } in stale {
        let path = paths.root.join(path);
        fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns all generated files of the repository.
pub fn files(root: &Path) -> Result<Vec<File>> {
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
