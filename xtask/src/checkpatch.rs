// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask checkpatch`: QEMU's own style check of our patches.

use std::process::Command;

use anyhow::Result;

use crate::paths::Paths;
use crate::progress::Step;
use crate::setup::qemu::{patches, unpack_source};

const SCRIPT: &str = "scripts/checkpatch.pl";

/// Checks each patch; an error if the script finds one.
pub fn run(paths: &Paths) -> Result<()> {
    let step = Step::new("checkpatch", &paths.setup_logs())?;
    let source = tempfile::tempdir()?;
    unpack_source(paths, source.path(), &format!("*/{SCRIPT}"), &step)?;
    let patches = patches(paths)?;
    for patch in &patches {
        let mut perl = Command::new("perl");
        perl.arg(source.path().join(SCRIPT)).args(["--no-tree", "--terse"]).arg(patch);
        step.run(&mut perl)?;
    }
    step.done(&format!("{} patches", patches.len()));
    Ok(())
}
