// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's Rust part as one object, for modules of kernels without `CONFIG_RUST`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::stack::{Stack, install};
use crate::paths::Paths;
use crate::progress::output_of;

/// Compiler options for kernel code. The mitigations are those of the kernel's own Rust code;
/// `guest-driver/stock/thunks.S` serves kernels without them.
const FLAGS: [&str; 11] = [
    "-Ccode-model=kernel",
    "-Crelocation-model=static",
    "-Cno-redzone=y",
    "-Cforce-frame-pointers=y",
    "-Cjump-tables=no",
    "-Zfunction-sections=no",
    "-Zretpoline-external-thunk",
    "-Zindirect-branch-cs-prefix",
    "-Zfunction-return=thunk-extern",
    "-Zcf-protection=branch",
    "-Zplt=yes",
];
/// Attributes of the crate that the kernel's build system adds, too.
const CRATE_ATTRIBUTES: [&str; 2] = ["no_std", "feature(arbitrary_self_types, used_with_arg)"];
const TARGET: &str = "x86_64-unknown-none";
/// The prefix of the name that cargo gives to the object.
const OBJECT: &str = "virtio_cuda_core-";
/// The prefix of its record of the object's sources.
const FINGERPRINT: &str = "virtio-cuda-core-";
/// Only the compiler needs these.
const NOT_SHIPPED: [&str; 5] = ["kernel", "macros", "Cargo.toml", "Cargo.lock", "target"];

/// The driver, and the ABI of its sister folder, which it compiles, too.
const SOURCES: [&str; 2] = ["guest-driver", "protocol/src"];

/// Builds the object with the stable compiler; its path. The bytes depend on the sources and the compiler only.
pub fn build(paths: &Paths) -> Result<PathBuf> {
    install(&compile(&paths.root, &paths.target.join("core"))?, &Stack::new(paths).core())
}

/// Builds the object, and again from a copy of the sources, into an empty folder; an error if the bytes differ.
pub fn check(paths: &Paths) -> Result<()> {
    let first = build(paths)?;
    let elsewhere = tempfile::Builder::new().prefix("vhost-cuda-core-").tempdir()?;
    copy_sources(&paths.root, elsewhere.path())?;
    let second = compile(elsewhere.path(), &elsewhere.path().join("target"))?;
    let [one, other] = [&first, &second].map(fs::read);
    let (one, other) = (one?, other?);
    if one != other {
        let kept = first.with_extension("again.o");
        fs::copy(&second, &kept).with_context(|| format!("Cannot write {}", kept.display()))?;
        let at = one.iter().zip(&other).position(|(one, other)| one != other);
        bail!(
            "The driver's core is not reproducible: {} ({} bytes) and {} ({} bytes) differ from byte {} on",
            first.display(),
            one.len(),
            kept.display(),
            other.len(),
            at.unwrap_or(one.len().min(other.len()))
        );
    }
    Ok(())
}

/// Compiles the sources below `root`; the object's path in `target`.
fn compile(root: &Path, target: &Path) -> Result<PathBuf> {
    let release = target.join(TARGET).join("release");
    let folder = release.join("deps");
    // Cargo does not know the object: remove the last crate, whose objects of all versions are in one folder.
    for (of, name) in [(&folder, OBJECT), (&release.join(".fingerprint"), FINGERPRINT)] {
        for old in entries(of, name)? {
            if old.is_dir() { fs::remove_dir_all(old)? } else { fs::remove_file(old)? }
        }
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--release", "--locked", "--quiet", "--target", TARGET, "-Zbuild-std=core", "--"]);
    cargo.arg("--emit=obj");
    cargo.args(CRATE_ATTRIBUTES.map(|attribute| format!("-Zcrate-attr={attribute}")));
    cargo.current_dir(root.join("guest-driver/stock")).env("CARGO_TARGET_DIR", target);
    // As the kernel's build system does: its options are not stable, the compiler is.
    cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", flags(root)?.join("\u{1f}"));
    output_of(&mut cargo)?;
    let is_object = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "o");
    let objects = entries(&folder, OBJECT)?;
    objects.into_iter().find(is_object).context("Cargo has built no object of the driver's core")
}

/// [`FLAGS`], and the removal of this machine's folders from messages.
fn flags(root: &Path) -> Result<Vec<String>> {
    let sysroot = output_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
    let mut flags = FLAGS.map(str::to_owned).to_vec();
    for (from, to) in [
        (root.join("guest-driver").display().to_string(), "guest-driver"),
        (sysroot, "rust"),
        (home.context("Neither CARGO_HOME nor HOME is set")?, "cargo"),
    ] {
        flags.push(format!("--remap-path-prefix={from}={to}"));
    }
    Ok(flags)
}

/// Files in `folder`, if it exists, whose names begin with `prefix`.
fn entries(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wanted =
        |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().starts_with(prefix);
    Ok(files.filter(is_wanted).collect())
}

fn copy_sources(root: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("protocol"))?;
    for source in SOURCES {
        output_of(Command::new("cp").arg("-a").arg(root.join(source)).arg(folder.join(source)))?;
    }
    Ok(())
}

/// Copies the files that the kernel's build system needs into `folder`: the driver and the ABI next to it. With
/// `core`, the module is built from it. Returns the driver's folder.
pub fn driver_sources(paths: &Paths, folder: &Path, core: Option<&Path>) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    copy_sources(&paths.root, folder)?;
    let driver = folder.join("guest-driver");
    for name in NOT_SHIPPED {
        let path = driver.join("stock").join(name);
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else if path.exists() {
            fs::remove_file(path)?;
        }
    }
    if let Some(core) = core {
        fs::copy(core, driver.join("stock/core.o_shipped"))
            .with_context(|| format!("Cannot copy {}", core.display()))?;
    }
    Ok(driver)
}
