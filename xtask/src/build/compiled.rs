// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packages of parts, compiled by as few calls of cargo as possible.

use std::time::Instant;

use anyhow::Result;

use super::cargo::{self, Artifacts, Linkage, Selection};
use super::library::{self, COMPILERS, GUEST_VENDOR, Library, OF_EMULATOR, OF_GUEST};
use super::parts::{AGENT, DAEMON, LAUNCHER, PLUGIN, PROFILER, Part};
use crate::paths::Paths;
use crate::progress::duration;

/// The packages that are compiled beside those of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// None: it takes the least time once.
    Parts,
    /// All of the workspace, so that tests and programs, too, have the same dependencies with the same features.
    Workspace,
}

/// The files of the packages of parts.
#[derive(Debug, Default)]
pub(super) struct Compiled {
    /// Linked as usual.
    pub shared: Artifacts,
    /// Static programs.
    pub programs: Artifacts,
}

impl Compiled {
    /// Compiles the packages of `parts`; those of the emulator only if `with_emulator`.
    pub fn of(paths: &Paths, parts: &[Part], scope: Scope, with_emulator: bool) -> Result<Self> {
        let started = Instant::now();
        let mut compiled = Self::default();
        let mut compile = |packages: &[&str], all: Selection<'_>| -> Result<()> {
            if !packages.is_empty() {
                let selection = if scope == Scope::Parts { Selection::Packages(packages) } else { all };
                let more = cargo::compile(paths, selection, Linkage::Shared)?;
                compiled.shared = std::mem::take(&mut compiled.shared).and(more);
            }
            Ok(())
        };
        compile(&packages(parts, usual), Selection::Workspace)?;
        if with_emulator {
            compile(&packages(parts, of_emulator), Selection::Emulator)?;
        }
        let programs = packages(parts, for_any_system);
        if !programs.is_empty() {
            compiled.programs = cargo::compile(paths, Selection::Packages(&programs), Linkage::Static)?;
        }
        eprintln!("{:16} {} parts  {}", "compiled", parts.len(), duration(started.elapsed()));
        Ok(compiled)
    }
}

fn packages(parts: &[Part], of: fn(Part) -> Vec<&'static str>) -> Vec<&'static str> {
    let mut packages: Vec<_> = parts.iter().flat_map(|part| of(*part)).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// The packages of a part that are linked as usual, without the emulator's.
fn usual(part: Part) -> Vec<&'static str> {
    let of = |libraries: &[Library]| libraries.iter().map(|library| library.package).collect::<Vec<_>>();
    match part {
        Part::Daemon => vec![DAEMON],
        Part::Plugin => vec![PLUGIN],
        Part::GuestLib => [of(&OF_GUEST), vec![GUEST_VENDOR]].concat(),
        Part::EmulatorLibraries => [of(&OF_EMULATOR), of(&COMPILERS)].concat(),
        Part::Emulator | Part::Module | Part::Agent | Part::Core => Vec::new(),
    }
}

/// The packages of the emulator.
fn of_emulator(part: Part) -> Vec<&'static str> {
    match part {
        Part::Emulator => vec![library::EMULATOR.package],
        Part::EmulatorLibraries => vec![library::EMULATOR_VENDOR],
        _ => Vec::new(),
    }
}

/// Static programs: they run in the initramfs, and in containers with any C library.
fn for_any_system(part: Part) -> Vec<&'static str> {
    match part {
        Part::GuestLib => vec![LAUNCHER, PROFILER],
        Part::Agent => vec![AGENT],
        _ => Vec::new(),
    }
}
