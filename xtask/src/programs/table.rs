// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of the programs: `tests/programs/programs.toml`. It is part of this binary, so that a bundle needs no
//! sources.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use include_dir::{Dir, File, include_dir};
use serde::Deserialize;

const TABLE: &str = include_str!("../../../tests/programs/programs.toml");
static SOURCES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../tests/programs");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    program: Vec<Program>,
}

/// A program. It prints `same NAME: VALUE` for what must be as natively, and `time NAME: NUMBER ms`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its file, a Python program.
    pub file: String,
    /// Its own arguments, before those of the command.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// A description.
    pub what: String,
    /// The Python module that it tests. Without it, the program is left out unless it is named.
    pub module: Option<String>,
    /// A description of the file or folder that it takes as `--input PATH`. It is left out if nobody names one.
    pub input: Option<String>,
    /// It takes `--write FILE` on the first way and `--compare FILE` on the others.
    #[serde(default)]
    pub reference: bool,
    /// It knows failures of some places, and takes `--place PLACE`.
    #[serde(default)]
    pub known: bool,
}

/// Returns the programs with these names, or all if no name is given.
pub fn programs(only: &[String]) -> Result<Vec<Program>> {
    let Table { program: mut programs } = toml::from_str(TABLE).context("programs.toml cannot be read")?;
    if let Some(unknown) = only.iter().find(|name| !programs.iter().any(|program| program.name == **name)) {
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        bail!("There is no program {unknown}, only {}", names.join(", "));
    }
    programs.retain(|program| only.is_empty() || only.contains(&program.name));
    Ok(programs)
}

/// Writes all programs into `folder`, side by side, because they import each other.
pub fn unpack(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    for file in files(&SOURCES) {
        let to = folder.join(file.path().file_name().unwrap_or_default());
        fs::write(&to, file.contents()).with_context(|| format!("Cannot write {}", to.display()))?;
    }
    Ok(())
}

/// The programs and their tables in a folder and below it, without what Python leaves there.
fn files(folder: &'static Dir<'static>) -> Vec<&'static File<'static>> {
    let is_source =
        |file: &&File<'_>| file.path().extension().is_some_and(|kind| kind == "py" || kind == "toml");
    folder.files().filter(is_source).chain(folder.dirs().flat_map(files)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_its_source() {
        let programs = programs(&[]).expect("the table can be read");
        let names: Vec<_> = files(&SOURCES).iter().filter_map(|file| file.path().file_name()).collect();
        assert!(programs.iter().all(|program| names.contains(&program.file.as_ref())));
        assert!(super::programs(&["none".to_owned()]).is_err());
    }
}
