// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask build`: the daemon, the libraries and the kernel module, side by side in `target/stack`.

mod cargo;
mod library;
mod module;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::paths::Paths;
use crate::progress::duration;
use crate::setup::kernel::Flavour;
use cargo::Profile;

/// A part of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// `bin/vhost-user-cuda`.
    Daemon,
    /// `guest/lib/libcuda.so.1` and `libcudart.so.13`.
    GuestLib,
    /// `emulator/libcuda.so.1`.
    Emulator,
    /// `module/virtio_cuda.ko`.
    Module,
    /// `guest/init`, the first process of the test guests.
    Agent,
}

/// All of them, in an order in which each finds what it links against.
pub const ALL: [Part; 5] = [Part::Daemon, Part::GuestLib, Part::Emulator, Part::Agent, Part::Module];

/// The files of a built stack.
#[derive(Debug, Clone)]
pub struct Stack {
    /// `target/stack`.
    pub folder: PathBuf,
}

impl Stack {
    /// The stack that `build` makes for `paths`.
    pub fn new(paths: &Paths) -> Self {
        Self { folder: paths.stack.clone() }
    }

    /// The daemon.
    pub fn daemon(&self) -> PathBuf {
        self.folder.join("bin/vhost-user-cuda")
    }

    /// The folder of the guest's libcudart and libcuda.
    pub fn guest_libraries(&self) -> PathBuf {
        self.folder.join("guest/lib")
    }

    /// The emulated GPU.
    pub fn emulator(&self) -> PathBuf {
        self.folder.join("emulator/libcuda.so.1")
    }

    /// The first process of the test guests.
    pub fn agent(&self) -> PathBuf {
        self.folder.join("guest/init")
    }

    /// The kernel module for a kernel.
    pub fn module(&self, flavour: Flavour) -> PathBuf {
        self.folder.join(Self::module_folder(flavour)).join("virtio_cuda.ko")
    }

    fn module_folder(flavour: Flavour) -> &'static str {
        match flavour {
            Flavour::Small => "module",
            Flavour::Debug => "module-debug",
            Flavour::Debian => "module-debian",
        }
    }
}

/// Builds `parts`, or all if there are none; the module for the kernel of `flavour`.
pub fn run(paths: &Paths, parts: &[Part], flavour: Flavour) -> Result<Stack> {
    let stack = Stack::new(paths);
    let parts = if parts.is_empty() { &ALL[..] } else { parts };
    for part in parts {
        let started = Instant::now();
        let (name, built) = match part {
            Part::Daemon => ("daemon", daemon(paths, &stack)?),
            Part::GuestLib => ("guest-lib", guest_libraries(paths, &stack)?),
            Part::Emulator => ("cuda-emulator", emulator(paths, &stack)?),
            Part::Module => ("module", module::build(paths, &stack, flavour)?),
            Part::Agent => ("guest-agent", agent(paths, &stack)?),
        };
        eprintln!("{name:16} {}  {}", built.display(), duration(started.elapsed()));
    }
    Ok(stack)
}

fn daemon(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let program = cargo::executable(paths, "vhost-cuda", Profile::Shared)?;
    install(&program, &stack.daemon())
}

fn agent(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let program = cargo::executable(paths, "guest-agent", Profile::Static)?;
    install(&program, &stack.agent())
}

fn guest_libraries(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let folder = stack.guest_libraries();
    library::link(paths, &folder, &library::GUEST_LIBCUDA)?;
    library::link(paths, &folder, &library::GUEST_LIBCUDART)?;
    Ok(folder)
}

fn emulator(paths: &Paths, stack: &Stack) -> Result<PathBuf> {
    let library = stack.emulator();
    let folder = library.parent().context("The emulator has no folder")?;
    library::link(paths, folder, &library::EMULATOR)?;
    Ok(library)
}

/// Copies `from` to `to` unless they are the same; a program that runs is replaced, not overwritten.
fn install(from: &Path, to: &Path) -> Result<PathBuf> {
    let bytes = fs::read(from).with_context(|| format!("Cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(to.to_path_buf());
    }
    let folder = to.parent().context("No folder to install into")?;
    fs::create_dir_all(folder)?;
    let new = tempfile::NamedTempFile::new_in(folder)?;
    fs::copy(from, new.path()).with_context(|| format!("Cannot copy {}", from.display()))?;
    new.persist(to).with_context(|| format!("Cannot write {}", to.display()))?;
    Ok(to.to_path_buf())
}
