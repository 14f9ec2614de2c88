// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask build`: builds the daemon, the libraries and the kernel module into `target/stack`.

pub mod before;
mod cargo;
mod core;
mod library;
mod module;
mod part;
pub mod quick;
mod sanitized;
mod stack;
mod symbol_versions;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

pub use self::core::{build as core, check as check_core, driver_sources};
use crate::paths::Paths;
use crate::progress::{duration, output_of};
use crate::setup::{self, kernel::Flavour};
use cargo::Linkage;
pub use sanitized::Sanitized;
use stack::install;
pub use stack::{AUDITOR, AUDITORS_VARIABLE, Stack};
pub use symbol_versions::OLDEST_GLIBC;

/// A part of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// `bin/vhost-user-cuda`.
    Daemon,
    /// `guest/lib/libcuda.so.1`, `libcudart.so.13`, `libcudart.so.12`, `libcudart.so.11.0`, `libnvidia-ml.so.1`, `libcupti.so.13`,
    /// `libcupti.so.12`, `libcufftw.so.12`, `libcufftw.so.11` and `libvhost-cuda-audit.so`;
    /// `guest/bin/vhost-cuda-run`; `guest/etc/` for people who compile in the guest.
    GuestLib,
    /// `emulator/libcuda.so.1`.
    Emulator,
    /// `emulator/libraries/` with the CPU versions of NVIDIA's libraries, CUPTI and cuFFTW, and `nvrtc/` with the fronts of NVIDIA's compilers.
    EmulatorLibraries,
    /// `module/virtio_cuda.ko`.
    Module,
    /// `guest/init`, the first process of the test guests.
    Agent,
    /// `bin/vhost-cuda-plugin`, for Kubernetes.
    Plugin,
    /// `core/virtio_cuda_core.o`, the module's Rust part for kernels without `CONFIG_RUST`; only on request.
    Core,
}

/// All of them, in an order in which each finds the libraries that it links against.
pub const ALL: [Part; 7] = [
    Part::Daemon,
    Part::Plugin,
    Part::GuestLib,
    Part::Emulator,
    Part::EmulatorLibraries,
    Part::Agent,
    Part::Module,
];

/// The parts for programs that run beside the daemon, without a guest.
pub const WITHOUT_GUEST: [Part; 4] = [Part::Daemon, Part::GuestLib, Part::Emulator, Part::EmulatorLibraries];

/// The parts for programs without NVIDIA's libraries that run beside the daemon.
pub const FIRST: [Part; 3] = [Part::Daemon, Part::GuestLib, Part::Emulator];

/// Builds what programs need; for a guest with the kernel of a flavour, also sets up what that needs.
pub fn for_programs(paths: &Paths, guest: Option<Flavour>) -> Result<()> {
    let Some(flavour) = guest else { return run(paths, &WITHOUT_GUEST, Flavour::Small).map(drop) };
    setup::run(paths, &[])?;
    if let Some(kernel) = setup::kernel_part(flavour) {
        setup::run(paths, &[kernel])?;
    }
    run(paths, &[], flavour).map(drop)
}

/// Builds `parts`, or all parts if the list is empty; the module for the kernel of `flavour`.
pub fn run(paths: &Paths, parts: &[Part], flavour: Flavour) -> Result<Stack> {
    let stack = Stack::new(paths);
    if paths.bundle.is_some() {
        return Ok(stack);
    }
    let parts = if parts.is_empty() { &ALL[..] } else { parts };
    for part in parts {
        let started = Instant::now();
        let (name, built) = match part {
            Part::Daemon => ("daemon", daemon(paths, &stack)?),
            Part::GuestLib => ("guest-lib", guest_libraries(paths, &stack)?),
            Part::Emulator => ("cuda-emulator", emulator(paths, &stack)?),
            Part::EmulatorLibraries => ("cpu-libraries", emulator_libraries(paths, &stack)?),
            Part::Module => ("module", module::build(paths, &stack, flavour)?),
            Part::Agent => ("guest-agent", agent(paths, &stack)?),
            Part::Plugin => ("plugin", plugin(paths, &stack)?),
            Part::Core => ("core", core(paths)?),
        };
        eprintln!("{name:16} {}  {}", built.display(), duration(started.elapsed()));
    }
    Ok(stack)
}

/// Builds a program that is no part of the stack.
pub fn program(paths: &Paths, package: &str) -> Result<PathBuf> {
    cargo::executable(paths, package, Linkage::Shared)
}

/// Writes the daemon's man page and shell completions into `folder`.
pub fn manual(paths: &Paths, folder: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--release", "--quiet", "--package", "vhost-user-cuda", "--example", "manual", "--"]);
    cargo.arg(folder).current_dir(&paths.root).env("CARGO_TARGET_DIR", &paths.target);
    output_of(&mut cargo).map(drop)
}

fn daemon(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let program = cargo::executable(paths, "vhost-user-cuda", Linkage::Shared)?;
    install(&program, &stack.daemon())
}

fn plugin(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let program = cargo::executable(paths, "vhost-cuda-plugin", Linkage::Shared)?;
    install(&program, &stack.plugin())
}

fn agent(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let program = cargo::executable(paths, "guest-agent", Linkage::Static)?;
    install(&program, &stack.agent())
}

fn guest_libraries(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let folder = stack.guest_libraries();
    for library in &library::OF_GUEST {
        library::link(paths, &folder, library)?;
    }
    library::link_vendor(paths, library::Place::Guest, &folder, &folder.with_file_name("maps"))?;
    // Static: it starts programs in containers with any C library.
    let launcher = cargo::executable(paths, "vhost-cuda-run", Linkage::Static)?;
    install(&launcher, &stack.launcher())?;
    let profiler = cargo::executable(paths, "vhost-cuda-prof", Linkage::Static)?;
    install(&profiler, &stack.profiler())?;
    for file in stack::GUEST_SETTINGS {
        let name = Path::new(file).file_name().context("A file of settings has no name")?;
        install(&paths.root.join(file), &stack.guest_settings().join(name))?;
    }
    Ok(folder)
}

fn emulator(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let library = stack.emulator();
    let folder = library.parent().context("The emulator has no folder")?;
    library::link(paths, folder, &library::EMULATOR)?;
    // So that the emulator alone, too, serves programs with a static runtime: the auditor takes the libraries beside it.
    for shared in ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", AUDITOR] {
        let link = folder.join(shared);
        if fs::read_link(&link).is_err() {
            let target = Path::new("../guest/lib").join(shared);
            symlink(target, &link).with_context(|| format!("Cannot create {}", link.display()))?;
        }
    }
    Ok(library)
}

fn emulator_libraries(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let emulator = stack.emulator();
    let folder = emulator.parent().context("The emulator has no folder")?;
    let vendor = folder.join("libraries");
    library::link_vendor(paths, library::Place::Host, &vendor, &folder.join("maps"))?;
    for library in &library::OF_EMULATOR {
        library::link(paths, &vendor, library)?;
    }
    for compiler in &library::COMPILERS {
        library::link(paths, &stack.compilers(), compiler)?;
    }
    Ok(vendor)
}
