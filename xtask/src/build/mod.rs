// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask build`: builds the daemon, the libraries and the kernel module into `target/stack`.

pub mod before;
mod cargo;
mod compiled;
mod core;
pub mod emulator;
mod library;
mod module;
mod part;
mod parts;
pub mod quick;
mod sanitized;
mod stack;
mod symbol_versions;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

pub use self::core::{build as core, check as check_core, driver_sources};
use crate::paths::Paths;
use crate::progress::{duration, output_of};
use crate::setup::{self, kernel::Flavour};
use cargo::{Artifacts, Linkage};
pub use cargo::{EMULATOR, Selection};
use compiled::{Compiled, Scope};
use parts::{AGENT, DAEMON, LAUNCHER, PLUGIN, PROFILER};
pub use parts::{ALL, FIRST, Part, WITHOUT_GUEST};
pub use sanitized::Sanitized;
use stack::install;
pub use stack::{AUDITOR, AUDITORS_VARIABLE, Stack};
pub use symbol_versions::OLDEST_GLIBC;

/// Builds what programs need; for a guest with the kernel of a flavour, also sets up what that needs.
pub fn for_programs(paths: &Paths, guest: Option<Flavour>) -> Result<()> {
    let Some(flavour) = guest else { return run(paths, &WITHOUT_GUEST, Flavour::Small).map(drop) };
    setup::run(paths, &[])?;
    if let Some(kernel) = setup::kernel_part(flavour) {
        setup::run(paths, &[kernel])?;
    }
    run(paths, &[], flavour).map(drop)
}

/// Builds `parts`, or all parts if the list is empty; the module for the kernel of `flavour`. Compiles the whole workspace for it, but
/// for parts that need nothing of it.
pub fn run(paths: &Paths, parts: &[Part], flavour: Flavour) -> Result<Stack> {
    make(paths, parts, flavour, Scope::Workspace)
}

/// Builds only `parts`, or all parts if the list is empty.
pub fn only(paths: &Paths, parts: &[Part], flavour: Flavour) -> Result<Stack> {
    make(paths, parts, flavour, if parts.is_empty() { Scope::Workspace } else { Scope::Parts })
}

fn make(paths: &Paths, parts: &[Part], flavour: Flavour, scope: Scope) -> Result<Stack> {
    let stack = Stack::new(paths);
    if paths.bundle.is_some() {
        return Ok(stack);
    }
    let parts = if parts.is_empty() { &ALL[..] } else { parts };
    let kept = parts.iter().any(|part| part.is_of_emulator()).then(|| emulator::kept(paths)).flatten();
    let compiled = Compiled::of(paths, parts, scope, kept.is_none())?;
    for part in parts {
        let started = Instant::now();
        let (name, built) = match part {
            Part::Daemon => ("daemon", install(&compiled.shared.executable(DAEMON)?, &stack.daemon())?),
            Part::GuestLib => ("guest-lib", guest_libraries(paths, &stack, &compiled)?),
            Part::Emulator => match &kept {
                Some(entry) => ("cuda-emulator", emulator::restore(&stack, entry)?),
                None => ("cuda-emulator", emulator::link(paths, &stack, &compiled.shared)?),
            },
            Part::EmulatorLibraries => {
                match &kept {
                    Some(entry) => drop(emulator::restore(&stack, entry)?),
                    None => emulator::link_libraries(paths, &stack, &compiled.shared)?,
                }
                ("cpu-libraries", libraries_beside_emulator(paths, &stack, &compiled.shared)?)
            }
            Part::Module => ("module", module::build(paths, &stack, flavour)?),
            Part::Agent => ("guest-agent", install(&compiled.programs.executable(AGENT)?, &stack.agent())?),
            Part::Plugin => ("plugin", install(&compiled.shared.executable(PLUGIN)?, &stack.plugin())?),
            Part::Core => ("core", core(paths)?),
        };
        eprintln!("{name:16} {}  {}", built.display(), duration(started.elapsed()));
    }
    Ok(stack)
}

/// Builds a program of the workspace that is no part of the stack.
pub fn program(paths: &Paths, package: &str) -> Result<PathBuf> {
    cargo::compile(paths, Selection::Workspace, Linkage::Shared)?.executable(package)
}

/// Writes the daemon's man page and shell completions into `folder`.
pub fn manual(paths: &Paths, folder: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "vhost-user-cuda", "--example", "manual", "--"]);
    cargo.arg(folder).current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    output_of(&mut cargo).map(drop)
}

fn guest_libraries(paths: &Paths, stack: &Stack, compiled: &Compiled) -> Result<PathBuf> {
    let folder = stack.guest_libraries();
    for library in &library::OF_GUEST {
        library::link(paths, &folder, library, &compiled.shared)?;
    }
    let maps = folder.with_file_name("maps");
    library::link_vendor(paths, library::Place::Guest, &folder, &maps, &compiled.shared)?;
    install(&compiled.programs.executable(LAUNCHER)?, &stack.launcher())?;
    install(&compiled.programs.executable(PROFILER)?, &stack.profiler())?;
    for file in stack::GUEST_SETTINGS {
        let name = Path::new(file).file_name().context("A file of settings has no name")?;
        install(&paths.root.join(file), &stack.guest_settings().join(name))?;
    }
    Ok(folder)
}

/// Links what the emulator has of the guest's libraries.
fn libraries_beside_emulator(paths: &Paths, stack: &Stack, artifacts: &Artifacts) -> Result<PathBuf> {
    let folder = stack.emulator_libraries();
    for library in &library::OF_EMULATOR {
        library::link(paths, &folder, library, artifacts)?;
    }
    for compiler in &library::COMPILERS {
        library::link(paths, &stack.compilers(), compiler, artifacts)?;
    }
    Ok(folder)
}
