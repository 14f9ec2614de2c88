// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stack of `cargo xtask demo` on a machine that has built nothing yet. It is compiled together and without
//! optimisation, and without the parts that the demo's program does not use.

use anyhow::{Context, Result};

use super::cargo::{self, Artifacts, Linkage, Selection};
use super::library;
use super::parts::{AGENT, DAEMON};
use super::stack::{Stack, install};
use super::{core, module};
use crate::paths::Paths;
use crate::progress::{Step, side_by_side};
use crate::setup::kernel::Flavour;

/// The guest's kernel: one that need not be built.
pub const KERNEL: Flavour = Flavour::Debian12;

/// The packages for a program without a virtual machine, compiled but not linked yet.
pub struct Compiled(Artifacts);

/// Compiles the packages. Needs neither nvcc nor zig, so that their downloads can go on at the same time.
pub fn compile(paths: &Paths) -> Result<Compiled> {
    let step = Step::new("build", &paths.build_logs())?;
    step.note("compiling the daemon, the guest's libraries and the emulator, a minute or two on 2 cores");
    let libraries = [library::GUEST_LIBCUDA, library::GUEST_LIBCUDART, library::EMULATOR];
    let packages = [&[DAEMON], &libraries.map(|library| library.package)[..]].concat();
    let artifacts = cargo::compile_in(&step, paths, Selection::Packages(&packages), Linkage::Shared)?;
    step.done("daemon, libraries, emulator");
    Ok(Compiled(artifacts))
}

impl Compiled {
    /// Puts the parts into the stack.
    pub fn link(&self, paths: &Paths) -> Result<()> {
        let stack = Stack::new(paths);
        install(&self.0.executable(DAEMON)?, &stack.daemon())?;
        let guest = stack.guest_libraries();
        let emulator = stack.emulator();
        let emulator = emulator.parent().context("The emulator has no folder")?;
        side_by_side(vec![
            Box::new(|| library::link(paths, emulator, &library::EMULATOR, &self.0)),
            Box::new(|| {
                library::link(paths, &guest, &library::GUEST_LIBCUDA, &self.0)?;
                library::link(paths, &guest, &library::GUEST_LIBCUDART, &self.0)
            }),
        ])
    }
}

/// Compiles the test guest's first process, and the Rust part of the module. They need nothing of the kernel, but rust-src.
pub fn compile_for_guest(paths: &Paths) -> Result<()> {
    let agent = cargo::compile(paths, Selection::Packages(&[AGENT]), Linkage::Static)?;
    install(&agent.executable(AGENT)?, &Stack::new(paths).agent())?;
    core(paths).map(drop)
}

/// Builds the module for [`KERNEL`], which must be set up.
pub fn build_module(paths: &Paths) -> Result<()> {
    module::build(paths, &Stack::new(paths), KERNEL).map(drop)
}
