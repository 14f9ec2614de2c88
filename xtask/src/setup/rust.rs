// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust parts that the kernel's build needs: the source of the standard library, bindgen, libclang.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cache::Entry;
use super::cargo_tool::CargoTool;
use super::pip;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// The version that Linux asks for.
pub const BINDGEN: CargoTool =
    CargoTool { package: "bindgen-cli", program: "bindgen", version: "0.71.1", profile: "release" };
/// The version of the Python wheel.
pub const LIBCLANG: &str = "18.1.1";

/// The tools, as the kernel's Makefile wants to know them.
#[derive(Debug, Clone)]
pub struct RustTools {
    /// `rustc -vV`.
    pub version: String,
    /// The folder of libclang.so.
    pub libclang: PathBuf,
    /// `RUSTC=…` and the like, for the command line of make.
    pub make_variables: Vec<String>,
}

impl RustTools {
    /// Finds what [`setup`] made.
    pub fn find(paths: &Paths) -> Result<Self> {
        let bindgen = bindgen(paths);
        let libclang = libclang(paths);
        if !bindgen.is_complete() || !libclang.is_complete() {
            bail!("bindgen or libclang is missing; run: cargo xtask setup --only rust");
        }
        let sysroot = PathBuf::from(output_of(Command::new("rustc").args(["--print", "sysroot"]))?);
        let tools = [
            ("RUSTC", "rustc"),
            ("RUSTDOC", "rustdoc"),
            ("RUSTFMT", "rustfmt"),
            ("CLIPPY_DRIVER", "clippy-driver"),
        ];
        let mut make_variables: Vec<String> = tools
            .iter()
            .map(|(variable, tool)| format!("{variable}={}", sysroot.join("bin").join(tool).display()))
            .collect();
        make_variables.push(format!("BINDGEN={}", bindgen.path.join("bin/bindgen").display()));
        let version = output_of(Command::new("rustc").arg("-vV"))?;
        Ok(Self { version, libclang: libclang.path.join("clang/native"), make_variables })
    }

    /// A make that has these tools.
    pub fn make(&self) -> Command {
        let mut make = Command::new("make");
        make.env("LIBCLANG_PATH", &self.libclang).args(&self.make_variables);
        // Paths and names of this machine must not be part of a kernel.
        make.args(["KBUILD_BUILD_USER=vhost-cuda", "KBUILD_BUILD_HOST=localhost"]);
        // Cargo's own jobserver is not for this make.
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("CARGO_MAKEFLAGS");
        make
    }
}

/// Installs rust-src, bindgen and libclang if they are missing.
pub fn setup(paths: &Paths) -> Result<()> {
    source(paths)?;
    BINDGEN.setup(paths)?;
    let step = Step::new("libclang", &paths.setup_logs())?;
    let entry = libclang(paths);
    let wheel = [format!("libclang=={LIBCLANG}")];
    entry.fill(step, LIBCLANG, |step| pip::install(step, &entry.path, &wheel))
}

/// Installs rust-src if it is missing, which also the driver's core is compiled with.
pub fn source(paths: &Paths) -> Result<()> {
    let step = Step::new("rust-src", &paths.setup_logs())?;
    let sysroot = PathBuf::from(output_of(Command::new("rustc").args(["--print", "sysroot"]))?);
    let release = output_of(Command::new("rustc").arg("--version"))?;
    if sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").exists() {
        step.cached(&release);
        return Ok(());
    }
    step.note("downloading");
    step.run(Command::new("rustup").args(["component", "add", "rust-src"]))
        .context("rust-src can only be added to a toolchain of rustup")?;
    step.done(&release);
    Ok(())
}

fn bindgen(paths: &Paths) -> Entry {
    BINDGEN.entry(paths)
}

fn libclang(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "libclang", LIBCLANG)
}
