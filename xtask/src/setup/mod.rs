// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask setup`: everything the other commands need, each part once.

mod apt;
pub mod cache;
mod cargo_tool;
mod debian;
mod debian_kernel;
mod debian_root;
pub mod kernel;
pub mod nvcc;
pub mod nvcc_12;
mod package_root;
mod prune;
pub mod qemu;
pub mod rust;
pub mod stock_kernel;
pub mod zig;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::paths::Paths;
use cargo_tool::CargoTool;
use kernel::Flavour;
pub use prune::prune;

/// A part of the setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Debian packages: compilers and libraries for the builds.
    Debian,
    /// NVIDIA's compiler.
    Nvcc,
    /// NVIDIA's compiler of CUDA 12, for tests of programs that it compiled; only on request.
    Nvcc12,
    /// rust-src, bindgen and libclang, for the kernel.
    Rust,
    /// The small guest kernel.
    Kernel,
    /// The guest kernel that checks locks and memory; only on request.
    KernelDebug,
    /// Debian's kernel, with a Debian 13 root to build a module for it; only on request.
    KernelDebian,
    /// Debian 12's kernel, with a Debian 12 root to build a module for it; only on request.
    #[value(name = "kernel-debian12")]
    KernelDebian12,
    /// Debian 13's kernel, with a Debian 13 root to build a module for it; only on request.
    #[value(name = "kernel-debian13")]
    KernelDebian13,
    /// QEMU with our device.
    Qemu,
    /// zig's C compiler, which links the guest's libraries for older C libraries.
    Zig,
}

/// The parts of a plain `setup`, in this order.
const USUAL: [Part; 6] = [Part::Debian, Part::Nvcc, Part::Rust, Part::Kernel, Part::Qemu, Part::Zig];

/// Sets up `parts`, or the usual ones if the list is empty.
pub fn run(paths: &Paths, parts: &[Part]) -> Result<()> {
    if paths.bundle.is_some() {
        return Ok(());
    }
    let _lock = cache::lock(&paths.cache)?;
    let parts = if parts.is_empty() { &USUAL[..] } else { parts };
    for part in parts {
        match part {
            Part::Debian => debian::setup(paths)?,
            Part::Nvcc => nvcc::setup(paths)?,
            Part::Nvcc12 => nvcc_12::setup(paths)?,
            Part::Rust => rust::setup(paths)?,
            Part::Kernel => kernel::setup(paths, Flavour::Small)?,
            Part::KernelDebug => kernel::setup(paths, Flavour::Debug)?,
            Part::KernelDebian => kernel::setup(paths, Flavour::Debian)?,
            Part::KernelDebian12 => kernel::setup(paths, Flavour::Debian12)?,
            Part::KernelDebian13 => kernel::setup(paths, Flavour::Debian13)?,
            Part::Qemu => qemu::setup(paths)?,
            Part::Zig => zig::setup(paths)?,
        }
    }
    Ok(())
}

/// cargo-deny, for the rules of `deny.toml`. Returns the path of the executable.
pub fn deny(paths: &Paths) -> Result<PathBuf> {
    let _lock = cache::lock(&paths.cache)?;
    let tool = CargoTool { package: "cargo-deny", program: "cargo-deny", version: "0.20.2", profile: "dev" };
    tool.setup(paths)
}

/// Valgrind, for counting instructions.
pub fn valgrind(paths: &Paths) -> Result<()> {
    let _lock = cache::lock(&paths.cache)?;
    debian::setup_packages(paths, &["valgrind"])
}

/// A root in which packages are tried. Returns its path; it must be copied, not changed.
pub fn package_root(paths: &Paths) -> Result<PathBuf> {
    let _lock = cache::lock(&paths.cache)?;
    package_root::setup(paths)
}

/// The part that a plain `setup` leaves out and a guest with this kernel needs.
pub fn kernel_part(flavour: Flavour) -> Option<Part> {
    match flavour {
        Flavour::Small | Flavour::SmallCore => None,
        Flavour::Debug => Some(Part::KernelDebug),
        Flavour::Debian | Flavour::DebianCore => Some(Part::KernelDebian),
        Flavour::Debian12 => Some(Part::KernelDebian12),
        Flavour::Debian13 => Some(Part::KernelDebian13),
    }
}

/// `pip install` into a folder of its own.
fn pip_install(target: &Path) -> Command {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--disable-pip-version-check",
        "--root-user-action=ignore",
    ]);
    pip.arg("--target").arg(target);
    pip
}
