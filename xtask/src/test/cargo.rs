// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `cargo test`.

use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::TestArguments;
use crate::build::{Sanitized, Selection, Stack};
use crate::paths::Paths;
use crate::setup::kernel::Flavour;
use crate::setup::nvcc::Nvcc;

/// Runs `cargo test`, with the places of everything in the environment.
pub(super) fn cargo_test(
    paths: &Paths,
    stack: &Stack,
    selection: Selection<'_>,
    programs: &[&str],
    arguments: &TestArguments,
    sanitized: Option<&Sanitized>,
) -> Result<bool> {
    let mut cargo = command(paths, stack, selection, programs, arguments)?;
    if let Some(sanitized) = sanitized {
        sanitized.tell(&mut cargo);
    }
    Ok(cargo.status().context("Cannot start cargo")?.success())
}

/// The same call, to be started.
pub(super) fn command(
    paths: &Paths,
    stack: &Stack,
    selection: Selection<'_>,
    programs: &[&str],
    arguments: &TestArguments,
) -> Result<Command> {
    let nvcc = Nvcc::find(paths)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--release"]).args(selection.arguments()).args(programs).arg("--");
    cargo.current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    // Not `CUDA_HOME`: cudarc's build script reads it, and all that depends on it would be compiled again after each `cargo build`.
    cargo.env("NVCC", nvcc.program());
    tell_effort(&mut cargo, arguments);
    tell_places(&mut cargo, stack, arguments.kernel);
    cargo.args(&arguments.arguments);
    Ok(cargo)
}

/// Sets the order of the tests and their length in the environment of `command`.
pub(super) fn tell_effort(command: &mut Command, arguments: &TestArguments) {
    let numbers = [
        ("VHOST_CUDA_TEST_SEED", arguments.shuffle.flatten()),
        ("VHOST_CUDA_TEST_ROUNDS", arguments.rounds),
        ("VHOST_CUDA_TEST_SECONDS", arguments.seconds),
    ];
    for (variable, number) in numbers {
        if let Some(number) = number {
            command.env(variable, number.to_string());
        }
    }
}

/// Sets the path of the stack and the guest's kernel in the environment of `command`.
pub(super) fn tell_places(command: &mut Command, stack: &Stack, flavour: Flavour) {
    let flavour = flavour.to_possible_value().map(|value| value.get_name().to_owned());
    command
        .env("VHOST_CUDA_STACK", &stack.folder)
        .env("VHOST_CUDA_GUEST_KERNEL", flavour.unwrap_or_default());
}
