// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ubuntu's kernels, from Ubuntu's own archive: a root in which their packages are installed has everything. And a root of
//! an old release.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::apt::Apt;
use super::cache::{Entry, compare_versions};
use super::flavour::Flavour;
use super::stock_kernel::{self, Release, TOOLS, take_kernel};
use super::{debian, debian_root};
use crate::build::OLDEST_GLIBC;
use crate::paths::Paths;
use crate::progress::Step;

/// The newest kernel of a release for virtual machines, and its headers.
const KERNEL: [&str; 2] = ["linux-image-virtual", "linux-headers-virtual"];
/// Packages of Debian that read Ubuntu's: its archives by default, its compression.
const PACKAGES: [&str; 2] = ["distro-info", "zstd"];
/// The release with the oldest C library that guests may have, [`OLDEST_GLIBC`].
const OLD_SUITE: &str = "bionic";
/// The name of its folder in the cache.
const OLD_ROOT: &str = "old-root";
/// The folder of a root in a folder of the cache.
const ROOT: &str = "root";
/// Debian's package of the keys of Ubuntu's archive.
const KEYS: &str = "ubuntu-keyring";

/// Creates the root and takes the kernel from it. Returns the kernel's release.
pub fn setup(paths: &Paths, flavour: Flavour, of: Release, apt: &Apt, step: &Step) -> Result<String> {
    // The release is known only when the packages are installed.
    let new = paths.cache.join(format!("{}-new", flavour.step()));
    let packages: Vec<&str> = TOOLS.into_iter().chain([of.compiler]).chain(KERNEL).collect();
    make_root(apt, of.suites[0], &packages, &new, step)?;
    let release = release_in(&new.join(ROOT), of)?;
    let entry = stock_kernel::entry(paths, flavour, &release);
    entry.begin_empty()?;
    fs::rename(new.join(ROOT), entry.path.join(ROOT))?;
    fs::remove_dir_all(&new)?;
    take_kernel(&entry.path.join(ROOT), &release, &entry.path, step)?;
    entry.complete()?;
    Ok(release)
}

/// Creates a root in the folder `root` of `folder`, which is emptied.
fn make_root(apt: &Apt, suite: &str, packages: &[&str], folder: &Path, step: &Step) -> Result<()> {
    debian::install_missing(&PACKAGES, step)?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("Cannot empty {}", folder.display()))?;
    }
    let keys = folder.join("keys");
    apt.unpack(KEYS, &apt.newest(KEYS, None)?, &keys, step)?;
    step.note(&format!("making a root of {suite}"));
    let mut mmdebstrap = debian_root::mmdebstrap();
    mmdebstrap.arg(format!("--keyring={}", keys.join("usr/share/keyrings").display()));
    mmdebstrap.arg(format!("--include={}", packages.join(","))).arg(suite);
    step.run(mmdebstrap.arg(folder.join(ROOT)))
}

/// The root in which programs meet an old C library, if [`setup_old_root`] has made it.
pub fn old_root(paths: &Paths) -> Option<PathBuf> {
    let entry = Entry::named(&paths.cache, OLD_ROOT, OLD_SUITE);
    entry.is_complete().then(|| entry.path.join(ROOT))
}

/// Makes that root.
pub fn setup_old_root(paths: &Paths) -> Result<()> {
    let step = Step::new(OLD_ROOT, &paths.setup_logs())?;
    let entry = Entry::named(&paths.cache, OLD_ROOT, OLD_SUITE);
    entry.fill(step, OLD_SUITE, |step| {
        debian::install_missing(&stock_kernel::PACKAGES, step)?;
        make_root(&Apt::open(&paths.cache, step)?, OLD_SUITE, &["python3"], &entry.path, step)?;
        let library = entry.path.join(ROOT).join(format!("lib/x86_64-linux-gnu/libc-{OLDEST_GLIBC}.so"));
        ensure!(
            library.exists(),
            "The root of {OLD_SUITE} has another glibc: {} is missing",
            library.display()
        );
        Ok(())
    })
}

/// The newest kernel that is installed in a root.
fn release_in(root: &Path, of: Release) -> Result<String> {
    let modules = root.join("lib/modules");
    let folders = fs::read_dir(&modules).with_context(|| format!("Cannot read {}", modules.display()))?;
    let names = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok());
    let of_series = names.filter(|name| name.starts_with(of.series));
    of_series
        .max_by(|a, b| compare_versions(a, b))
        .with_context(|| format!("{} has no kernel {}*", of.suites[0], of.series))
}
