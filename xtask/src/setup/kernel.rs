// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest kernels that we build ourselves: Debian's newest Linux 7 source, our own configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};

use super::apt::Apt;
use super::cache::{Entry, Key, c_compiler_version, compare_versions, meaningful_lines, newest_version};
use super::debian_root;
pub use super::flavour::Flavour;
use super::rust::{self, BINDGEN, LIBCLANG, RustTools};
use super::stock_kernel::{self, StockKernel};
use crate::build;
use crate::paths::Paths;
use crate::progress::{Step, output_of};

/// The release series that is taken if it is to be had.
const PREFERRED: &str = "7.2";
/// Versions that may be used instead.
const MAJOR: &str = "7.";

/// A kernel, and how to build a module for it.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Debian's version of it.
    pub version: String,
    /// The kernel image for QEMU.
    pub image: PathBuf,
    /// Modules that a guest with it must load first, in this order.
    pub guest_modules: Vec<PathBuf>,
    tree: Tree,
    has_core: bool,
}

#[derive(Debug, Clone)]
enum Tree {
    Own {
        build: PathBuf,
        tools: RustTools,
    },
    Stock(StockKernel),
    /// A bundle has the module ready-made.
    Bundled,
}

impl Kernel {
    /// Finds what [`setup`] made.
    pub fn find(paths: &Paths, flavour: Flavour) -> Result<Self> {
        if let Some(bundle) = &paths.bundle {
            return Self::bundled(bundle, flavour);
        }
        let has_core = flavour.has_core();
        if flavour.release().is_some() {
            let kernel = StockKernel::find(paths, flavour)?;
            let (version, image) = (kernel.release.clone(), kernel.image());
            let guest_modules = kernel.guest_modules()?;
            return Ok(Self { version, image, guest_modules, tree: Tree::Stock(kernel), has_core });
        }
        let hint = || format!("run: cargo xtask setup --only {}", flavour.step());
        let version = cached_source(&paths.cache).with_context(hint)?;
        let tools = RustTools::find(paths)?;
        let entry = entry(paths, flavour, &version, &tools)?;
        if !entry.is_complete() {
            bail!("The {} is not built for this configuration and compiler; {}", flavour.step(), hint());
        }
        let build = entry.path.join("build");
        let image = build.join("arch/x86/boot/bzImage");
        let tree = Tree::Own { build, tools };
        Ok(Self { version, image, guest_modules: Vec::new(), tree, has_core })
    }

    fn bundled(bundle: &Path, flavour: Flavour) -> Result<Self> {
        let folder = bundle.join("kernel");
        let (image, guest_modules) = match flavour {
            Flavour::Small => (folder.join("bzImage"), Vec::new()),
            other => {
                let of_flavour = folder.join(other.name());
                if !of_flavour.is_dir() {
                    bail!("This bundle lacks the kernel {0}; pack it with --kernel {0}", other.name());
                }
                let modules = stock_kernel::files_in_order(&of_flavour.join("modules"))?;
                (of_flavour.join("vmlinuz"), modules)
            }
        };
        let (version, has_core) = ("bundled".to_owned(), flavour.has_core());
        Ok(Self { version, image, guest_modules, tree: Tree::Bundled, has_core })
    }

    /// Builds the module of `guest-driver`, with `output` for the build files. Returns the module.
    pub fn build_module(&self, paths: &Paths, output: &Path) -> Result<PathBuf> {
        let core = if self.has_core { Some(build::core(paths)?) } else { None };
        let (build, tools) = match &self.tree {
            Tree::Bundled => bail!("A bundle has no sources to build the module from"),
            Tree::Stock(kernel) => return kernel.build_module(paths, core.as_deref()),
            Tree::Own { build, tools } => (build, tools),
        };
        fs::create_dir_all(output)?;
        if core.is_some() {
            let driver = build::driver_sources(paths, output, core.as_deref())?;
            let mut make = tools.make();
            make.arg("-s").arg("-C").arg(build).arg("modules");
            debian_root::without_warnings(make.arg(format!("M={}", driver.display())))?;
            return Ok(driver.join("virtio_cuda.ko"));
        }
        let mut make = tools.make();
        make.arg("-s").arg("-C").arg(build).arg("modules");
        make.arg(format!("M={}", paths.root.join("guest-driver").display()));
        output_of(make.arg(format!("MO={}", output.display())))?;
        Ok(output.join("virtio_cuda.ko"))
    }
}

/// Makes sure that the kernel is built.
pub fn setup(paths: &Paths, flavour: Flavour) -> Result<()> {
    if let Some(release) = flavour.release() {
        rust::source(paths)?;
        return stock_kernel::setup(paths, flavour, release);
    }
    let version = source(paths)?;
    let step = Step::new(&flavour.step(), &paths.setup_logs())?;
    let tools = RustTools::find(paths)?;
    let entry = entry(paths, flavour, &version, &tools)?;
    if entry.is_complete() {
        step.cached(&version);
        return Ok(());
    }
    entry.begin()?;
    let build = entry.path.join("build");
    fs::create_dir_all(&build)?;
    let make = || {
        let mut make = tools.make();
        make.arg("-C").arg(Entry::named(&paths.cache, "linux-source", &version).path);
        make.arg(format!("O={}", build.display()));
        make
    };
    step.note("configuring");
    step.run(make().args(["-s", "rustavailable"]))?;
    let wanted = entry.path.join("wanted.config");
    fs::write(&wanted, wanted_options(paths, flavour)?)?;
    step.run(make().arg("-s").arg(format!("KCONFIG_ALLCONFIG={}", wanted.display())).arg("allnoconfig"))?;
    check_configuration(&fs::read_to_string(&wanted)?, &fs::read_to_string(build.join(".config"))?)?;
    step.note(&format!("building {version}, 6 to 12 minutes on 2 cores"));
    step.run(make().arg(format!("-j{}", jobs())).args(["bzImage", "modules"]))?;
    entry.complete()?;
    step.done(&version);
    Ok(())
}

/// Returns the folder of the kernel that we build, even if it is not built yet; none without a source.
pub fn current_folder(paths: &Paths, flavour: Flavour) -> Result<Option<PathBuf>> {
    let Some(version) = cached_source(&paths.cache) else { return Ok(None) };
    Ok(Some(entry(paths, flavour, &version, &RustTools::find(paths)?)?.path))
}

/// Number of parallel commands in a build.
pub fn jobs() -> usize {
    available_parallelism().map_or(2, usize::from)
}

/// Unpacks the kernel's source into the cache; returns its version.
pub fn source(paths: &Paths) -> Result<String> {
    let step = Step::new("linux-source", &paths.setup_logs())?;
    if let Some(version) = cached_source(&paths.cache) {
        step.cached(&version);
        return Ok(version);
    }
    let apt = Apt::open(&paths.cache, &step)?;
    let package = newest_source_package(&apt)?;
    let version = apt.newest(&package, None)?;
    let entry = Entry::named(&paths.cache, "linux-source", &version);
    entry.begin_empty()?;
    let unpacked = entry.path.join(".deb");
    apt.unpack(&package, &version, &unpacked, &step)?;
    // QEMU's source can be downloaded meanwhile.
    drop(apt);
    step.note("unpacking");
    let archive = unpacked.join(format!("usr/src/{package}.tar.xz"));
    step.run(
        Command::new("tar").arg("-xJf").arg(archive).args(["--strip-components=1", "-C"]).arg(&entry.path),
    )?;
    fs::remove_dir_all(unpacked)?;
    entry.complete()?;
    step.done(&version);
    Ok(version)
}

fn newest_source_package(apt: &Apt) -> Result<String> {
    let names = apt.names("linux-source-")?;
    let preferred = format!("linux-source-{PREFERRED}");
    if names.contains(&preferred) {
        return Ok(preferred);
    }
    let prefix = format!("linux-source-{MAJOR}");
    let newest =
        names.into_iter().filter(|name| name.starts_with(&prefix)).max_by(|a, b| compare_versions(a, b));
    let newest = newest.with_context(|| format!("The package index has no {prefix}x"))?;
    eprintln!(
        "warning: {preferred} is not to be had any more; taking {newest}, with which nothing was tested"
    );
    Ok(newest)
}

/// A cached source of the preferred series, else of any.
fn cached_source(cache: &Path) -> Option<String> {
    let of_series = |series: &str| newest_version(cache, "linux-source", series);
    of_series(&format!("{PREFERRED}.")).or_else(|| of_series(MAJOR))
}

fn entry(paths: &Paths, flavour: Flavour, version: &str, tools: &RustTools) -> Result<Entry> {
    let series: Vec<&str> = version.split('.').take(2).collect();
    let key = Key::default()
        .input("source", &format!("linux-source-{} {version}", series.join(".")))
        .input("config", &meaningful_lines(&wanted_options(paths, flavour)?))
        .input("rustc", &tools.version)
        .input("bindgen", BINDGEN.version)
        .input("libclang", LIBCLANG)
        .input("cc", &c_compiler_version()?);
    let thing = match flavour {
        Flavour::Debug => "kernel-debug",
        _ => "kernel-small",
    };
    Ok(Entry::new(&paths.cache, thing, key))
}

fn fragments(flavour: Flavour, root: &Path) -> Vec<PathBuf> {
    let names: &[&str] = match flavour {
        Flavour::Debug => &["small.config", "debug.config"],
        _ => &["small.config"],
    };
    names.iter().map(|name| root.join("guest-driver/kernel").join(name)).collect()
}

/// The fragments, one after the other; a later one wins.
fn wanted_options(paths: &Paths, flavour: Flavour) -> Result<String> {
    let mut options: Vec<(String, String)> = Vec::new();
    for fragment in fragments(flavour, &paths.root) {
        let text =
            fs::read_to_string(&fragment).with_context(|| format!("Cannot read {}", fragment.display()))?;
        for line in meaningful_lines(&text).lines() {
            let (name, value) = line.split_once('=').with_context(|| format!("{line}: not an option"))?;
            options.retain(|(earlier, _)| earlier != name);
            options.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(options.iter().map(|(name, value)| format!("{name}={value}\n")).collect())
}

/// Kconfig silently drops options that it cannot satisfy, so the result is compared with the request.
fn check_configuration(wanted: &str, result: &str) -> Result<()> {
    let is_lost = |line: &&str| match line.strip_suffix("=n") {
        Some(name) => result.lines().any(|have| have.starts_with(&format!("{name}="))),
        None => !result.lines().any(|have| have == *line),
    };
    let lost: Vec<&str> = wanted.lines().filter(is_lost).collect();
    if !lost.is_empty() {
        bail!("The kernel's configuration lost {}: a dependency is missing in the fragment", lost.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_options_are_found() {
        let result = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_S=\"x\"\nCONFIG_C=y\n";
        assert!(check_configuration("CONFIG_A=y\nCONFIG_B=n\nCONFIG_S=\"x\"", result).is_ok());
        for lost in ["CONFIG_B=y", "CONFIG_C=n", "CONFIG_S=\"y\"", "CONFIG_MISSING=y"] {
            assert!(check_configuration(lost, result).is_err(), "{lost}");
        }
    }
}
