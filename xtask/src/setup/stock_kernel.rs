// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels of distributions, as they are, and roots with what a module for them is built with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::apt::Apt;
use super::cache::{Entry, compare_versions, newest_version};
use super::kernel::Flavour;
use super::{debian, debian_root, ubuntu};
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// Modules that the guest needs first. A kernel may have some of them built in.
const GUEST_MODULES: [&str; 6] =
    ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_balloon"];
/// The folder of modules in a cached kernel. A number before each name gives the order.
const MODULE_FOLDER: &str = "modules";
/// Packages for the host.
pub(super) const PACKAGES: [&str; 2] = ["mmdebstrap", "kmod"];
/// The tools that a guest needs to build the module with DKMS, besides the compiler and the headers.
pub(super) const TOOLS: [&str; 3] = ["make", "kmod", "dkms"];
/// Packages that build the Rust crates of Debian's kernel.
const RUST: [&str; 13] = [
    "bc",
    "bindgen",
    "bison",
    "flex",
    "libc6-dev",
    "libelf-dev",
    "libssl-dev",
    "openssl",
    "pahole",
    "python3-minimal",
    "rust-src",
    "rustc",
    "xz-utils",
];

/// A distribution, as far as its archive differs from the others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Debian,
    Ubuntu,
}

/// A release of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    distribution: Distribution,
    /// The last one has the kernel.
    pub(super) suites: &'static [&'static str],
    /// The release series of its kernel.
    pub(super) series: &'static str,
    /// The package of the compiler that built it.
    pub(super) compiler: &'static str,
    /// True for `CONFIG_RUST`.
    has_rust: bool,
}

impl Release {
    /// Debian 12.
    pub const BOOKWORM: Self = Self::new(Distribution::Debian, &["bookworm"], "6.1.", "gcc-12");
    /// Debian 13.
    pub const TRIXIE: Self = Self::new(Distribution::Debian, &["trixie"], "6.12.", "gcc-14");
    /// Debian 13 with the newest kernel.
    pub const BACKPORTS: Self = Self {
        has_rust: true,
        ..Self::new(Distribution::Debian, &["trixie", "trixie-backports"], "7.2.", "gcc-14")
    };
    /// Ubuntu 22.04.
    pub const JAMMY: Self = Self::new(Distribution::Ubuntu, &["jammy"], "5.15.", "gcc");
    /// Ubuntu 24.04.
    pub const NOBLE: Self = Self::new(Distribution::Ubuntu, &["noble"], "6.8.", "gcc");

    const fn new(
        distribution: Distribution,
        suites: &'static [&'static str],
        series: &'static str,
        compiler: &'static str,
    ) -> Self {
        Self { distribution, suites, series, compiler, has_rust: false }
    }

    /// Returns whether the kernel has `CONFIG_RUST`.
    pub fn has_rust(self) -> bool {
        self.has_rust
    }
}

/// A kernel and a root with its headers.
#[derive(Debug, Clone)]
pub struct StockKernel {
    /// Output of `uname -r`.
    pub release: String,
    folder: PathBuf,
}

impl StockKernel {
    /// Finds what [`setup`] made.
    pub fn find(paths: &Paths, flavour: Flavour) -> Result<Self> {
        let unknown = || format!("{} is not the kernel of a distribution", flavour.name());
        let (of, step) = (flavour.release().with_context(unknown)?, flavour.step());
        let hint = || format!("The kernel is not set up; run: cargo xtask setup --only {step}");
        let release = newest_version(&paths.cache, &thing(flavour), of.series).with_context(hint)?;
        Ok(Self { folder: entry(paths, flavour, &release).path, release })
    }

    /// Returns a root with everything that a guest needs to build the module.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A command in that root; the program follows.
    pub fn in_root(&self) -> Command {
        debian_root::command(&self.root())
    }

    /// The kernel image for QEMU.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Modules for the initramfs, in the order of loading.
    pub fn guest_modules(&self) -> Result<Vec<PathBuf>> {
        files_in_order(&self.folder.join(MODULE_FOLDER))
    }

    /// Builds the module, from its compiled core if that is given.
    pub fn build_module(&self, paths: &Paths, core: Option<&Path>) -> Result<PathBuf> {
        debian_root::build_module(paths, &self.root(), &self.release, core)
    }
}

/// The files of a folder by name.
pub fn files_in_order(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Creates the root and the kernel.
pub fn setup(paths: &Paths, flavour: Flavour, of: Release) -> Result<()> {
    let step = Step::new(&flavour.step(), &paths.setup_logs())?;
    if let Ok(kernel) = StockKernel::find(paths, flavour) {
        step.cached(&kernel.release);
        return Ok(());
    }
    debian::install_missing(&PACKAGES, &step)?;
    let apt = Apt::open(&paths.cache, &step)?;
    let release = match of.distribution {
        Distribution::Debian => from_debian(paths, flavour, of, &apt, &step)?,
        Distribution::Ubuntu => ubuntu::setup(paths, flavour, of, &apt, &step)?,
    };
    step.done(&release);
    Ok(())
}

/// The name of a kernel's folders in the cache, without the release.
fn thing(flavour: Flavour) -> String {
    format!("stock-{}", flavour.image().name())
}

/// The folder of a kernel in the cache.
pub(super) fn entry(paths: &Paths, flavour: Flavour, release: &str) -> Entry {
    Entry::named(&paths.cache, &thing(flavour), release)
}

fn from_debian(paths: &Paths, flavour: Flavour, of: Release, apt: &Apt, step: &Step) -> Result<String> {
    let suite = of.suites[of.suites.len() - 1];
    let release = newest_release(apt, of, suite)?;
    let entry = entry(paths, flavour, &release);
    entry.begin()?;
    let mut packages = TOOLS.map(str::to_owned).to_vec();
    packages.extend([of.compiler.to_owned(), format!("linux-headers-{release}")]);
    if of.has_rust {
        packages.extend(RUST.map(str::to_owned));
        packages.push(format!("linux-source-{}", of.series.trim_end_matches('.')));
    }
    debian_root::make(apt, &entry.path, of.suites, &packages, step)?;
    unpack_kernel(apt, &release, suite, &entry.path, step)?;
    if of.has_rust {
        build_crates(&release, &entry.path.join("root"), step)?;
    }
    entry.complete()?;
    Ok(release)
}

/// The newest release that the suite's index has: the flavour for all machines. That for clouds has no 9p.
fn newest_release(apt: &Apt, of: Release, suite: &str) -> Result<String> {
    let names = apt.names(&format!("linux-headers-{}", of.series))?;
    let is_for_all = |release: &&str| {
        release
            .strip_suffix("-amd64")
            .is_some_and(|version| !version.ends_with("-cloud") && !version.ends_with("-rt"))
    };
    let releases = names.iter().filter_map(|name| name.strip_prefix("linux-headers-")).filter(is_for_all);
    let in_suite = |release: &&str| apt.newest(&format!("linux-headers-{release}"), Some(suite)).is_ok();
    let newest = releases.filter(in_suite).max_by(|a, b| compare_versions(a, b));
    newest
        .map(str::to_owned)
        .with_context(|| format!("The package index of {suite} has no kernel {}*", of.series))
}

/// The kernel's image and some of its modules, without running the scripts of its packages. Newer releases have two packages for
/// both.
fn unpack_kernel(apt: &Apt, release: &str, suite: &str, folder: &Path, step: &Step) -> Result<()> {
    let unpacked = folder.join("packages");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    let version = |package: &str| apt.newest(package, Some(suite));
    let parts = ["linux-binary", "linux-modules"].map(|part| format!("{part}-{release}"));
    let whole = [format!("linux-image-{release}")];
    for package in if version(&parts[0]).is_ok() { &parts[..] } else { &whole } {
        apt.unpack(package, &version(package)?, &unpacked, step)?;
    }
    take_kernel(&unpacked, release, folder, step)?;
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Copies the image and the modules from below `root`, as its packages put them there, into `folder`.
pub(super) fn take_kernel(root: &Path, release: &str, folder: &Path, step: &Step) -> Result<()> {
    if !root.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", root.join("lib"))?;
    }
    let library = root.join("lib/modules").join(release);
    let images = [root.join(format!("boot/vmlinuz-{release}")), library.join("vmlinuz")];
    let image = images.iter().find(|image| image.exists()).context("The package has no vmlinuz")?;
    fs::copy(image, folder.join("vmlinuz"))?;
    let target = folder.join(MODULE_FOLDER);
    fs::create_dir_all(&target)?;
    for (number, file) in in_order(root, release, step)?.into_iter().enumerate() {
        let name = file.file_name().context("A module has no name")?.to_string_lossy().into_owned();
        let (name, unpacker) = match name.rsplit_once('.') {
            Some((name, "xz")) => (name, "xzcat"),
            Some((name, "zst")) => (name, "zstdcat"),
            _ => (name.as_str(), "cat"),
        };
        let module = File::create(target.join(format!("{:02}-{name}", number + 1)))?;
        output_of(Command::new(unpacker).arg(&file).stdout(module))?;
    }
    Ok(())
}

/// Returns [`GUEST_MODULES`] and their dependencies, in the order of loading.
fn in_order(root: &Path, release: &str, step: &Step) -> Result<Vec<PathBuf>> {
    step.run(Command::new("depmod").arg("--basedir").arg(root).arg(release))?;
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["--show-depends", "--all", "--set-version", release, "--dirname"]).arg(root);
    // Debian's newest packages have no list of what is built in, of which modprobe then knows nothing.
    let lines = modprobe.args(GUEST_MODULES).output().context("Cannot start modprobe")?.stdout;
    let mut files = Vec::new();
    // Lines are `insmod FILE` or `builtin NAME`.
    for line in String::from_utf8_lossy(&lines).lines() {
        let file = line.strip_prefix("insmod ").map(|file| PathBuf::from(file.trim()));
        files.extend(file.filter(|file| !files.contains(file)));
    }
    ensure!(!files.is_empty(), "modprobe knows no module of {release}");
    Ok(files)
}

/// Adds the kernel's Rust crates to the headers, which lack them.
fn build_crates(release: &str, root: &Path, step: &Step) -> Result<()> {
    step.note("building the kernel's Rust crates");
    fs::write(root.join("crates.sh"), include_str!("rust_crates.sh"))?;
    let version = release.split('+').next().unwrap_or_default();
    let mut script = debian_root::command(root);
    script.args(["env", &format!("RELEASE={release}"), &format!("VERSION={version}"), "sh", "/crates.sh"]);
    step.run(&mut script)
}
