// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ubuntu's kernel, from Ubuntu's own archive: a root in which its packages are installed has everything.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::apt::Apt;
use super::cache::{Entry, compare_versions};
use super::flavour::Flavour;
use super::stock_kernel::{Release, TOOLS, take_kernel};
use super::{debian, debian_root};
use crate::paths::Paths;
use crate::progress::Step;

/// The newest kernel of a release for virtual machines, and its headers.
const KERNEL: [&str; 2] = ["linux-image-virtual", "linux-headers-virtual"];
/// Packages of Debian that read Ubuntu's: its archives by default, its compression.
const PACKAGES: [&str; 2] = ["distro-info", "zstd"];
/// Debian's package of the keys of Ubuntu's archive.
const KEYS: &str = "ubuntu-keyring";

/// Makes the root and takes the kernel from it. Returns the kernel's release.
pub fn setup(paths: &Paths, flavour: Flavour, of: Release, apt: &Apt, step: &Step) -> Result<String> {
    let missing = debian::missing(&PACKAGES)?;
    if !missing.is_empty() {
        debian::install(&missing, step)?;
    }
    // The release is known only when the packages are there.
    let new = paths.cache.join(format!("{}-new", flavour.step()));
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("Cannot empty {}", new.display()))?;
    }
    let keys = new.join("keys");
    apt.unpack(KEYS, &apt.newest(KEYS, None)?, &keys, step)?;
    let root = new.join("root");
    step.note(&format!("making a root of {}", of.suite));
    let mut mmdebstrap = debian_root::mmdebstrap();
    mmdebstrap.arg(format!("--keyring={}", keys.join("usr/share/keyrings").display()));
    let packages: Vec<&str> = TOOLS.into_iter().chain([of.compiler]).chain(KERNEL).collect();
    mmdebstrap.arg(format!("--include={}", packages.join(","))).arg(of.suite);
    step.run(mmdebstrap.arg(&root))?;

    let release = release_in(&root, of)?;
    let entry = Entry::named(&paths.cache, &flavour.step(), &release);
    entry.begin_empty()?;
    fs::rename(&root, entry.path.join("root"))?;
    fs::remove_dir_all(&new)?;
    take_kernel(&entry.path.join("root"), &release, &entry.path, step)?;
    entry.complete()?;
    Ok(release)
}

/// The newest kernel that is installed in a root.
fn release_in(root: &Path, of: Release) -> Result<String> {
    let modules = root.join("lib/modules");
    let folders = fs::read_dir(&modules).with_context(|| format!("Cannot read {}", modules.display()))?;
    let names = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok());
    let of_series = names.filter(|name| name.starts_with(of.series));
    of_series
        .max_by(|a, b| compare_versions(a, b))
        .with_context(|| format!("{} has no kernel {}*", of.suite, of.series))
}
