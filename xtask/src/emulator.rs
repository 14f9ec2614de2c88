// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask emulator`: the emulator's lints and its own tests, as a part of CI of its own.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::build::{Selection, emulator};
use crate::paths::Paths;
use crate::progress::say;

/// The condition of the check.
#[derive(Debug, Args)]
pub struct EmulatorArguments {
    /// Do nothing if the cache has an emulator of the same sources and compilers, which has passed
    #[arg(long)]
    if_changed: bool,
}

/// Lints, tests and builds the emulator, and keeps it in the cache.
pub fn run(paths: &Paths, arguments: &EmulatorArguments) -> Result<()> {
    let entry = emulator::entry(paths)?;
    if arguments.if_changed && entry.is_complete() {
        say(&format!("emulator         has passed with the same inputs: {}", entry.path.display()));
        return Ok(());
    }
    cargo(paths, &["clippy", "--all-targets"], &["--", "--deny", "warnings"])?;
    emulator::build(paths)?;
    cargo(paths, &["test", "--tests", "--no-fail-fast"], &[])?;
    ensure!(emulator::entry(paths)?.path == entry.path, "The emulator's sources changed meanwhile");
    emulator::keep(paths, &entry)
}

/// Returns whether the emulator's tests have passed with the same inputs.
pub fn has_passed(paths: &Paths) -> bool {
    emulator::entry(paths).is_ok_and(|entry| entry.is_complete())
}

fn cargo(paths: &Paths, command: &[&str], options: &[&str]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(command).arg("--release").args(Selection::Emulator.arguments()).args(options);
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    let status = cargo.status().context("Cannot start cargo")?;
    ensure!(status.success(), "cargo {} of the emulator failed", command[0]);
    Ok(())
}
