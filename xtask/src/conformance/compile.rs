// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles one program, without its makefile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use walkdir::{DirEntry, WalkDir};

use super::built::{Built, State};
use super::discover::Found;
use super::toolkit::Toolkit;
use crate::progress::output_of;
use crate::setup::cache::Key;

/// Reports what a program's folder was made from.
const KEY: &str = ".key";
/// Parts of lines with the reason why a compiler or linker failed.
const TELLING: [&str; 4] = ["error:", "fatal", "undefined reference", "multiple definition"];
/// The maximum number of lines of the compiler's messages that are stored.
const KEPT_LINES: usize = 3;

/// Compiles `found` into its folder below `output`, unless that was made from the same before.
pub fn compile(toolkit: &Toolkit, found: &Found, output: &Path) -> Result<Built> {
    let mut built = Built { suite: found.suite.name.clone(), name: found.name.clone(), state: State::Built };
    if let Some(reason) = &found.program.skip {
        built.state = State::Skipped(reason.clone());
        return Ok(built);
    }
    let folder = built.folder(output);
    let key = key(toolkit, found)?;
    if fs::read_to_string(folder.join(KEY)).is_ok_and(|old| old == key) {
        return Ok(built);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("Cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    if let Err(error) = build(toolkit, found, &folder) {
        built.state = State::Failed(format!("{error:#}"));
        return Ok(built);
    }
    fs::write(folder.join(KEY), key)?;
    Ok(built)
}

fn build(toolkit: &Toolkit, found: &Found, folder: &Path) -> Result<()> {
    let program = folder.join(&found.name);
    let mut command = toolkit.compiler();
    include(&mut command, found);
    command.arg("-o").arg(&program).args(&found.sources);
    toolkit.link(&mut command);
    // Last, for options of the linker come in order.
    command.args(&found.suite.flags).args(&found.program.flags);
    run(command.current_dir(&found.folder))?;
    run(Command::new("strip").arg(toolkit.strip_option()).arg(&program))?;
    for (name, source) in &found.program.side {
        let kind = name.rsplit('.').next().unwrap_or_default();
        let mut command = toolkit.device_compiler(kind);
        include(&mut command, found);
        command.arg(format!("-{kind}")).arg("-o").arg(folder.join(name)).arg(found.folder.join(source));
        run(&mut command)?;
    }
    let data = found.folder.join("data");
    if data.is_dir() {
        copy(&data, &folder.join("data"))?;
    }
    for file in &found.program.data {
        let name = file.file_name().context("A data file has no name")?;
        copy(&found.folder.join(file), &folder.join(name))?;
    }
    for path in &found.program.toolkit {
        let Some(from) = toolkit.file(path) else { bail!("The toolkit has no {}", path.display()) };
        copy(&from, &folder.join(path.file_name().context("A file of the toolkit has no name")?))?;
    }
    Ok(())
}

fn include(command: &mut Command, found: &Found) {
    command.arg("-I").arg(&found.folder);
    for inner in ["inc", "include"].map(|name| found.folder.join(name)) {
        if inner.is_dir() {
            command.arg("-I").arg(inner);
        }
    }
    for folder in &found.suite.include {
        command.arg("-I").arg(found.root.join(folder));
    }
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("Cannot start {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let telling = |line: &&str| TELLING.iter().any(|word| line.contains(word));
    let mut lines: Vec<&str> = text.lines().filter(telling).take(KEPT_LINES).collect();
    if lines.is_empty() {
        lines = text.lines().take(KEPT_LINES).collect();
    }
    bail!("{}", lines.join("; "))
}

/// Copies a file or a folder.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("A copy has no folder")?)?;
    output_of(Command::new("cp").args(["-rL", "--no-target-directory"]).arg(from).arg(to)).map(drop)
}

/// Returns a key that changes with every input of the program.
fn key(toolkit: &Toolkit, found: &Found) -> Result<String> {
    let mut key = Key::default().input("nvcc", &toolkit.version());
    key = key.input("program", &format!("{:?} {:?}", found.program.flags, found.program.side));
    key = key.input("more", &format!("{:?} {:?}", found.program.data, found.program.toolkit));
    key = key.input("suite", &format!("{:?}", found.suite.flags));
    let mut files = found.sources.clone();
    for folder in found.suite.include.iter().map(|folder| found.root.join(folder)) {
        let is_header = |file: &PathBuf| {
            file.extension().is_some_and(|e| ["h", "hpp", "cuh"].iter().any(|known| e == *known))
        };
        files.extend(files_below(&folder, 1)?.into_iter().filter(is_header));
    }
    files.extend(files_below(&found.folder, usize::MAX)?);
    files.sort();
    files.dedup();
    for file in files {
        let text = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
        key = key.input(&file.to_string_lossy(), &String::from_utf8_lossy(&text));
    }
    Ok(key.finish())
}

fn files_below(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let entries = WalkDir::new(folder).max_depth(depth).into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(entries.into_iter().map(DirEntry::into_path).filter(|path| path.is_file()).collect())
}
