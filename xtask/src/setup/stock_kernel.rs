// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels of distributions, as their cloud images have them: without `CONFIG_RUST`, virtio as modules.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::{Entry, compare_versions, newest_version};
use super::kernel::Flavour;
use super::{debian, debian_kernel, debian_root, ubuntu};
use crate::paths::Paths;
use crate::progress::Step;

/// Modules that the guest needs first, each after those it depends on. A kernel may have some of them built in.
const GUEST_MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "virtiofs", "overlay", "virtio_balloon"];
/// The folder of modules in a cached kernel. A number before each name gives the order.
const MODULE_FOLDER: &str = "modules";
/// The tools that a guest needs to build the module with DKMS, besides the compiler and the headers.
pub(super) const TOOLS: [&str; 3] = ["make", "kmod", "dkms"];

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
    pub(super) suite: &'static str,
    /// The release series of its kernel.
    pub(super) series: &'static str,
    /// The package of the compiler that built it.
    pub(super) compiler: &'static str,
}

impl Release {
    /// Debian 12.
    pub const BOOKWORM: Self = Self::new(Distribution::Debian, "bookworm", "6.1.", "gcc-12");
    /// Debian 13.
    pub const TRIXIE: Self = Self::new(Distribution::Debian, "trixie", "6.12.", "gcc-14");
    /// Ubuntu 22.04.
    pub const JAMMY: Self = Self::new(Distribution::Ubuntu, "jammy", "5.15.", "gcc");
    /// Ubuntu 24.04.
    pub const NOBLE: Self = Self::new(Distribution::Ubuntu, "noble", "6.8.", "gcc");

    const fn new(
        distribution: Distribution,
        suite: &'static str,
        series: &'static str,
        compiler: &'static str,
    ) -> Self {
        Self { distribution, suite, series, compiler }
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
        let unknown = || format!("{} is not the kernel of a release without CONFIG_RUST", flavour.name());
        let (of, step) = (flavour.release().with_context(unknown)?, flavour.step());
        let hint = || format!("The kernel is not set up; run: cargo xtask setup --only {step}");
        let release = newest_version(&paths.cache, &step, of.series).with_context(hint)?;
        Ok(Self { folder: Entry::named(&paths.cache, &step, &release).path, release })
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

    /// Builds the module from its compiled core.
    pub fn build_module(&self, paths: &Paths, core: &Path) -> Result<PathBuf> {
        debian_root::build_module(paths, &self.root(), &self.release, Some(core))
    }
}

/// The files of a folder by name.
pub fn files_in_order(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder).with_context(|| format!("Cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Creates the root, the kernel and the file server.
pub fn setup(paths: &Paths, flavour: Flavour, of: Release) -> Result<()> {
    let step = Step::new(&flavour.step(), &paths.setup_logs())?;
    if let Ok(kernel) = StockKernel::find(paths, flavour) {
        step.cached(&kernel.release);
        return debian_kernel::file_server(paths);
    }
    let missing = debian::missing(&debian_kernel::PACKAGES)?;
    if !missing.is_empty() {
        debian::install(&missing, &step)?;
    }
    let apt = Apt::open(&paths.cache, &step)?;
    let release = match of.distribution {
        Distribution::Debian => from_debian(paths, flavour, of, &apt, &step)?,
        Distribution::Ubuntu => ubuntu::setup(paths, flavour, of, &apt, &step)?,
    };
    step.done(&release);
    debian_kernel::file_server(paths)
}

fn from_debian(paths: &Paths, flavour: Flavour, of: Release, apt: &Apt, step: &Step) -> Result<String> {
    let release = newest_release(apt, of)?;
    let entry = Entry::named(&paths.cache, &flavour.step(), &release);
    entry.begin()?;
    let headers = format!("linux-headers-{release}");
    let packages = TOOLS.into_iter().chain([of.compiler, &headers]).map(str::to_owned).collect::<Vec<_>>();
    debian_root::make(apt, &entry.path, &[of.suite], &packages, step)?;
    unpack_kernel(apt, &release, of, &entry.path, step)?;
    entry.complete()?;
    Ok(release)
}

/// The newest release that the suite's index has.
fn newest_release(apt: &Apt, of: Release) -> Result<String> {
    let names = apt.names(&format!("linux-headers-{}", of.series))?;
    let releases = names.iter().filter_map(|name| name.strip_prefix("linux-headers-"));
    let of_flavour = releases.filter(|release| release.ends_with(debian_kernel::FLAVOUR));
    let in_suite = |release: &&str| apt.newest(&format!("linux-headers-{release}"), Some(of.suite)).is_ok();
    let newest = of_flavour.filter(in_suite).max_by(|a, b| compare_versions(a, b));
    newest.map(str::to_owned).with_context(|| {
        format!(
            "The package index of {} has no kernel {}* for {}",
            of.suite,
            of.series,
            debian_kernel::FLAVOUR
        )
    })
}

/// The kernel's image and some of its modules, without running the scripts of its packages.
fn unpack_kernel(apt: &Apt, release: &str, of: Release, folder: &Path, step: &Step) -> Result<()> {
    let unpacked = folder.join("packages");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked)?;
    }
    let package = format!("linux-image-{release}");
    apt.unpack(&package, &apt.newest(&package, Some(of.suite))?, &unpacked, step)?;
    take_kernel(&unpacked, release, folder, step)?;
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Copies the image and the modules from below `root`, as its packages put them there, into `folder`.
pub(super) fn take_kernel(root: &Path, release: &str, folder: &Path, step: &Step) -> Result<()> {
    let image = root.join(format!("boot/vmlinuz-{release}"));
    fs::copy(image, folder.join("vmlinuz")).context("The package has no vmlinuz")?;
    let libraries = ["lib/modules", "usr/lib/modules"].map(|path| root.join(path).join(release));
    let library = libraries.iter().find(|path| path.is_dir()).context("The package has no modules")?;
    let target = folder.join(MODULE_FOLDER);
    fs::create_dir_all(&target)?;
    for (number, file) in in_order(library, step)?.into_iter().enumerate() {
        let name = file.file_name().context("A module has no name")?.to_string_lossy().into_owned();
        fs::copy(&file, target.join(format!("{:02}-{name}", number + 1)))?;
    }
    Ok(())
}

/// Returns [`GUEST_MODULES`] and their dependencies, in the order of loading.
fn in_order(library: &Path, step: &Step) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect_files(library, &mut files)?;
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for name in GUEST_MODULES {
        add_module(name, &files, &mut seen, &mut order, step)?;
    }
    Ok(order)
}

fn add_module(
    name: &str,
    files: &[PathBuf],
    seen: &mut BTreeSet<String>,
    order: &mut Vec<PathBuf>,
    step: &Step,
) -> Result<()> {
    // A module is called with - or _, as its author liked.
    let plain = |text: &str| text.replace('-', "_");
    if !seen.insert(plain(name)) {
        return Ok(());
    }
    let is_it = |file: &&PathBuf| {
        let stem = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        stem.split_once(".ko").is_some_and(|(stem, _)| plain(stem) == plain(name))
    };
    // Without the file it is built in.
    let Some(file) = files.iter().find(is_it) else { return Ok(()) };
    let mut file = file.clone();
    let unpacker = match file.extension().and_then(OsStr::to_str) {
        Some("xz") => Some("xz"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    if let Some(unpacker) = unpacker {
        let unpacked = file.with_extension("");
        if !unpacked.exists() {
            step.run(Command::new(unpacker).args(["-q", "-d", "-k"]).arg(&file))?;
        }
        file = unpacked;
    }
    for needed in dependencies(&fs::read(&file)?) {
        add_module(&needed, files, seen, order, step)?;
    }
    order.push(file);
    Ok(())
}

/// Returns the names after `depends=` in a module's `.modinfo`.
fn dependencies(module: &[u8]) -> Vec<String> {
    let tag = b"\0depends=";
    let Some(at) = module.windows(tag.len()).position(|window| window == tag) else { return Vec::new() };
    let rest = &module[at + tag.len()..];
    let value = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::dependencies;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        let module = b"\x7fELF..license=GPL\0depends=virtio,virtio_ring\0retpoline=Y\0";
        assert_eq!(dependencies(module), ["virtio", "virtio_ring"]);
        assert!(dependencies(b"license=GPL\0depends=\0").is_empty());
        assert!(dependencies(b"no module").is_empty());
    }
}
