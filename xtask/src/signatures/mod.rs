// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask signatures`: the data by which the auditor recognises static runtimes without symbols, from NVIDIA's archives.

mod archive;
mod linked;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use cuda_runtime_signatures::{Function, Release};

use crate::paths::Paths;
use crate::progress::say;
use crate::setup;
use crate::setup::runtimes::StaticRuntime;

/// Where the releases' texts are, in the repository.
const FOLDER: &str = "guest-lib/signatures/releases";

/// The releases.
#[derive(Debug, Args)]
pub struct SignaturesArguments {
    /// Change nothing; fail if a release's text is not what its archive gives, or if a runtime is not found in programs that
    /// are linked with it
    #[arg(long)]
    check: bool,
    /// Download the archives of 11.8 and 12.4 as well, which only Debian's packages of 1.7 GB have
    #[arg(long)]
    all: bool,
    /// One more release: its version and its libcudart_static.a
    #[arg(long, value_name = "VERSION=FILE", value_parser = parse_extra)]
    archive: Vec<(String, PathBuf)>,
}

fn parse_extra(text: &str) -> Result<(String, PathBuf), String> {
    let (version, file) =
        text.split_once('=').ok_or("VERSION=FILE is expected, as 12.8.90=libcudart_static.a")?;
    Ok((version.to_owned(), file.into()))
}

/// Writes or checks the texts.
pub fn run(paths: &Paths, arguments: &SignaturesArguments) -> Result<()> {
    let mut runtimes = setup::runtimes::static_runtimes(paths, arguments.all)?;
    let extra = |(version, archive): &(String, PathBuf)| StaticRuntime {
        version: version.clone(),
        archive: archive.clone(),
    };
    runtimes.extend(arguments.archive.iter().map(extra));
    let releases = releases(&runtimes)?;
    let folder = paths.root.join(FOLDER);
    for (file, release) in &releases {
        let file = folder.join(file);
        let text = release.to_string();
        if arguments.check {
            let there = fs::read_to_string(&file).unwrap_or_default();
            ensure!(
                there == text,
                "{} is not what the archives give; run: cargo xtask signatures",
                file.display()
            );
        } else {
            fs::write(&file, text).with_context(|| format!("Cannot write {}", file.display()))?;
        }
        say(&format!("{}: {} functions", release.versions.join(", "), release.functions.len()));
    }
    if arguments.check { linked::check(&runtimes) } else { all_are_listed(&folder) }
}

/// Returns the releases by the names of their files. Versions with the same functions are one release.
fn releases(runtimes: &[StaticRuntime]) -> Result<BTreeMap<String, Release>> {
    let mut groups: Vec<(Vec<String>, Vec<archive::Public>)> = Vec::new();
    for StaticRuntime { version, archive } in runtimes {
        let functions =
            archive::public_functions(archive).with_context(|| format!("{}", archive.display()))?;
        let same = |known: &[archive::Public]| {
            known.iter().map(|public| &public.function).eq(functions.iter().map(|public| &public.function))
        };
        match groups.iter_mut().find(|(_, known)| same(known)) {
            Some((versions, _)) => versions.push(version.clone()),
            None => groups.push((vec![version.clone()], functions)),
        }
    }
    let anchors = archive::anchors(groups.iter().map(|(_, functions)| functions.as_slice()))?;
    let release = |((versions, functions), anchor): ((Vec<String>, Vec<archive::Public>), _)| {
        let file = format!("{}.txt", versions[0]);
        let functions: Vec<Function> = functions.into_iter().map(|public| public.function).collect();
        (file, Release { versions, anchor, functions })
    };
    Ok(groups.into_iter().zip(anchors).map(release).collect())
}

/// The crate includes the texts by name.
fn all_are_listed(folder: &Path) -> Result<()> {
    let known = cuda_runtime_signatures::all().len();
    let files = fs::read_dir(folder)?.count();
    if files != known {
        bail!(
            "{files} files are in {}, and {known} in the list of release.rs: add the new ones",
            folder.display()
        );
    }
    Ok(())
}
