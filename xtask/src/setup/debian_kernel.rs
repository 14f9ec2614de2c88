// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's own kernel as a guest: nothing of it is built, but a Debian 13 root is needed to build a module for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::cache::{Entry, compare_versions, newest_version};
use super::{debian, debian_root};
use crate::paths::Paths;
use crate::progress::Step;

/// The flavour for virtual machines.
pub(super) const FLAVOUR: &str = "cloud-amd64";
/// The release series; see the kernel that we build ourselves.
const SERIES: &str = "7.2.";
/// The virtiofs daemon that serves the host's files to a kernel without 9p.
const VIRTIOFSD: &str = "1.14.0";
/// Additional packages for the host.
pub(super) const PACKAGES: [&str; 3] = ["mmdebstrap", "libcap-ng-dev", "libseccomp-dev"];
/// Packages for the root: Debian's own compilers, which built Debian's kernel.
const ROOT_PACKAGES: [&str; 15] = [
    "gcc-14",
    "libc6-dev",
    "make",
    "flex",
    "bison",
    "bc",
    "libelf-dev",
    "libssl-dev",
    "openssl",
    "pahole",
    "kmod",
    "xz-utils",
    "python3-minimal",
    "rustc",
    "rust-src",
];
/// Modules that the guest loads first: Debian has them, but not built in.
const GUEST_MODULES: [&str; 1] = ["overlayfs/overlay.ko"];

/// Debian's kernel, its headers with the Rust crates, and the files that a guest with it needs.
#[derive(Debug, Clone)]
pub struct DebianKernel {
    /// Output of `uname -r`.
    pub release: String,
    folder: PathBuf,
}

impl DebianKernel {
    /// Finds what [`setup`] made.
    pub fn find(paths: &Paths) -> Result<Self> {
        let hint = "Debian's kernel is not set up; run: cargo xtask setup --only kernel-debian";
        let release = newest_version(&paths.cache, "kernel-debian", SERIES).context(hint)?;
        Ok(Self { folder: entry(paths, &release).path, release })
    }

    /// The kernel image for QEMU.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Modules for the initramfs, in the order of loading.
    pub fn guest_modules(&self) -> Vec<PathBuf> {
        GUEST_MODULES.iter().filter_map(|name| Some(self.folder.join(Path::new(name).file_name()?))).collect()
    }

    /// The program that serves the host's files.
    pub fn virtiofsd(paths: &Paths) -> PathBuf {
        virtiofsd(paths).path.join("bin/virtiofsd")
    }

    /// Builds the module, from its compiled core if that is given; the result.
    pub fn build_module(&self, paths: &Paths, core: Option<&Path>) -> Result<PathBuf> {
        debian_root::build_module(paths, &self.folder.join("root"), &self.release, core)
    }
}

/// Creates the root, the kernel and the file server.
pub fn setup(paths: &Paths) -> Result<()> {
    let step = Step::new("kernel-debian", &paths.setup_logs())?;
    if let Ok(kernel) = DebianKernel::find(paths) {
        step.cached(&kernel.release);
        return file_server(paths);
    }
    let missing = debian::missing(&PACKAGES)?;
    if !missing.is_empty() {
        debian::install(&missing, &step)?;
    }
    let apt = Apt::open(&paths.cache, &step)?;
    let release = newest_release(&apt)?;
    let entry = entry(paths, &release);
    entry.begin()?;
    make_root(&apt, &release, &entry.path, &step)?;
    unpack_kernel(&apt, &release, &entry.path, &step)?;
    build_crates(&release, &entry.path.join("root"), &step)?;
    entry.complete()?;
    step.done(&release);
    file_server(paths)
}

fn entry(paths: &Paths, release: &str) -> Entry {
    Entry::named(&paths.cache, "kernel-debian", release)
}

fn virtiofsd(paths: &Paths) -> Entry {
    Entry::named(&paths.cache, "virtiofsd", VIRTIOFSD)
}

/// The newest release of the series that the index has.
fn newest_release(apt: &Apt) -> Result<String> {
    let names = apt.names(&format!("linux-headers-{SERIES}"))?;
    let releases = names.iter().filter_map(|name| name.strip_prefix("linux-headers-"));
    let newest = releases.filter(|release| release.ends_with(FLAVOUR)).max_by(|a, b| compare_versions(a, b));
    newest
        .map(str::to_owned)
        .with_context(|| format!("The package index has no kernel {SERIES}* for {FLAVOUR}"))
}

fn make_root(apt: &Apt, release: &str, folder: &Path, step: &Step) -> Result<()> {
    let series: Vec<&str> = release.split('.').take(2).collect();
    let of_kernel = [format!("linux-headers-{release}"), format!("linux-source-{}", series.join("."))];
    let mut packages: Vec<String> = ROOT_PACKAGES.map(str::to_owned).into();
    packages.extend(of_kernel);
    packages.push("bindgen".to_owned());
    debian_root::make(apt, folder, &["trixie", "trixie-backports"], &packages, step)
}

/// The kernel's image and some of its modules, without running the scripts of its packages.
fn unpack_kernel(apt: &Apt, release: &str, folder: &Path, step: &Step) -> Result<()> {
    let unpacked = folder.join("packages");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    for package in ["linux-binary", "linux-modules"] {
        let package = format!("{package}-{release}");
        apt.unpack(&package, &apt.newest(&package, None)?, &unpacked, step)?;
    }
    let library = unpacked.join("usr/lib/modules").join(release);
    fs::copy(library.join("vmlinuz"), folder.join("vmlinuz")).context("The package has no vmlinuz")?;
    for module in GUEST_MODULES {
        let packed = library.join("kernel/fs").join(format!("{module}.xz"));
        step.run(Command::new("xz").arg("-d").arg(&packed))?;
        let name = Path::new(module).file_name().context("A module has no name")?;
        fs::copy(packed.with_extension(""), folder.join(name))?;
    }
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Adds the kernel's Rust crates to the headers.
fn build_crates(release: &str, root: &Path, step: &Step) -> Result<()> {
    step.note("building the kernel's Rust crates");
    fs::write(root.join("crates.sh"), include_str!("debian_kernel.sh"))?;
    let version = release.split('+').next().unwrap_or_default();
    let mut script = debian_root::command(root);
    script.args(["env", &format!("RELEASE={release}"), &format!("VERSION={version}"), "sh", "/crates.sh"]);
    step.run(&mut script)
}

pub(super) fn file_server(paths: &Paths) -> Result<()> {
    let step = Step::new("virtiofsd", &paths.setup_logs())?;
    let entry = virtiofsd(paths);
    if entry.is_complete() {
        step.cached(VIRTIOFSD);
        return Ok(());
    }
    entry.begin()?;
    step.note("building");
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "virtiofsd", "--locked", "--version", VIRTIOFSD, "--root"]).arg(&entry.path);
    step.run(cargo.arg("--target-dir").arg(entry.path.join("build")))?;
    fs::remove_dir_all(entry.path.join("build")).context("Cannot remove the build folder of virtiofsd")?;
    if !DebianKernel::virtiofsd(paths).exists() {
        bail!("cargo has installed no virtiofsd");
    }
    entry.complete()?;
    step.done(VIRTIOFSD);
    Ok(())
}
