// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the programs in a folder of sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;

use super::table::{Program, Suite, Table};

/// Folders that have no programs of their own.
const NOT_SEARCHED: [&str; 6] = ["data", "doc", "build", "bin", "cmake", "extras"];
/// Folders inside a program's that belong to it.
const INNER: [&str; 3] = ["src", "inc", "include"];

/// A program before it is compiled.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its suite.
    pub suite: Suite,
    /// The suite's root.
    pub root: PathBuf,
    /// Unique within the suite: the name of its folder, or of its source.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The linked sources.
    pub sources: Vec<PathBuf>,
    /// The program's row in the table.
    pub program: Program,
}

/// The programs in `folders`, sorted by folder; those of `only`, or all if that is empty.
pub fn programs(table: &Table, folders: &[PathBuf], only: &[String]) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for folder in folders {
        let folder = folder.canonicalize().with_context(|| format!("Cannot open {}", folder.display()))?;
        let (suite, root) = table.suite_of(&folder);
        search(&suite, &root, &folder, &mut found)?;
    }
    found.retain(|program| only.is_empty() || only.contains(&program.name));
    found.sort_by(|a, b| (&a.suite.name, &a.folder, &a.name).cmp(&(&b.suite.name, &b.folder, &b.name)));
    let mut names = BTreeSet::new();
    for program in &found {
        if !names.insert((&program.suite.name, &program.name)) {
            bail!("There are two programs {} in {}", program.name, program.suite.name);
        }
    }
    Ok(found)
}

fn search(suite: &Suite, root: &Path, folder: &Path, found: &mut Vec<Found>) -> Result<()> {
    if folder.strip_prefix(root).is_ok_and(|path| suite.skip.contains_key(path)) {
        return Ok(());
    }
    let here = programs_in(suite, root, folder)?;
    let is_program = !here.is_empty();
    found.extend(here);
    for inner in folders_in(folder)? {
        let name = inner.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let own = is_program && INNER.contains(&name.as_str());
        if !own && !NOT_SEARCHED.contains(&name.as_str()) && !name.starts_with('.') {
            search(suite, root, &inner, found)?;
        }
    }
    Ok(())
}

/// One program of all sources, or one for each source that has a `main` if there are several.
fn programs_in(suite: &Suite, root: &Path, folder: &Path) -> Result<Vec<Found>> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = suite.program(&name);
    let make = |name: String, sources: Vec<PathBuf>, program: Program| {
        let (suite, root, folder) = (suite.clone(), root.to_path_buf(), folder.to_path_buf());
        Found { suite, root, name, folder, sources, program }
    };
    if !program.sources.is_empty() || program.skip.is_some() {
        let sources = program.sources.iter().map(|source| folder.join(source)).collect();
        return Ok(vec![make(name, sources, program)]);
    }
    let mut sources = sources_in(folder)?;
    if folder.join("src").is_dir() {
        sources.extend(sources_in(&folder.join("src"))?);
    }
    let apart: Vec<PathBuf> = program.side.values().chain(&program.exclude).map(|f| folder.join(f)).collect();
    sources.retain(|source| !apart.contains(source));
    let main = Regex::new(r"(?m)^(extern \S+ )?(int|void|auto)?[ \t]*\bmain\s*\(")?;
    let (mains, parts): (Vec<_>, Vec<_>) = {
        let mut mains = Vec::new();
        let mut parts = Vec::new();
        for source in sources {
            let text = String::from_utf8_lossy(&fs::read(&source)?).into_owned();
            if main.is_match(&text) { mains.push(source) } else { parts.push(source) }
        }
        (mains, parts)
    };
    // Shaders in strings have mains, too, but not at the beginning of a line.
    let is_cuda = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "cu");
    // Host code alone may use the driver API, but only a known suite is known to.
    let cuda = !suite.include.is_empty() || mains.iter().chain(&parts).any(is_cuda);
    match mains.len() {
        _ if !cuda => Ok(Vec::new()),
        0 => Ok(Vec::new()),
        1 => Ok(vec![make(name, mains.into_iter().chain(parts).collect(), program)]),
        _ => Ok(mains
            .into_iter()
            .map(|source| {
                let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let program = suite.program(&name);
                make(name, vec![source], program)
            })
            .collect()),
    }
}

fn sources_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_source = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| ["cu", "cpp", "cc", "c"].iter().any(|known| extension == *known))
    };
    Ok(entries(folder)?.into_iter().filter(|path| path.is_file() && is_source(path)).collect())
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir() && !path.is_symlink()).collect())
}

/// Sorted, so that a build is the same everywhere.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    let mut entries: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let table = Table::load(None).unwrap();
        let programs = programs(&table, &[folder.path().to_path_buf()], &[]).unwrap();
        programs.into_iter().map(|program| (program.name, program.sources.len())).collect()
    }

    #[test]
    fn sources_of_a_folder_are_one_program() {
        let files =
            [("a/one.cu", "int main() {}"), ("a/two.cpp", "int two;"), ("a/data/no.cu", "int main() {}")];
        assert_eq!(found(&files), [("a".to_owned(), 2)]);
    }

    #[test]
    fn several_mains_are_several_programs() {
        let files = [("a/one.cu", "int main() {}"), ("a/two.cu", "void\nmain (void) {}"), ("a/three.cu", "")];
        assert_eq!(found(&files), [("one".to_owned(), 1), ("two".to_owned(), 1)]);
    }

    #[test]
    fn host_programs_are_not_ours() {
        assert!(found(&[("a/one.c", "int main() {}"), ("b/two.cu", "// main()")]).is_empty());
    }
}
