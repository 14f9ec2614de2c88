// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Debian 12 root in which packages are tried: systemd, DKMS and a kernel's headers.

use std::path::PathBuf;

use anyhow::Result;

use super::apt::Apt;
use super::cache::Entry;
use super::{debian, debian_root};
use crate::paths::Paths;
use crate::progress::Step;

const SUITE: &str = "bookworm";
/// The headers are those of the suite's current cloud kernel.
const PACKAGES: [&str; 6] = ["systemd", "dkms", "gcc", "make", "kmod", "linux-headers-cloud-amd64"];

/// Makes the root, once. Returns its path; nobody may change what lies there.
pub fn setup(paths: &Paths) -> Result<PathBuf> {
    let step = Step::new("package-root", &paths.setup_logs())?;
    let entry = Entry::named(&paths.cache, "package-root", SUITE);
    if entry.is_complete() {
        step.cached(SUITE);
        return Ok(entry.path.join("root"));
    }
    let missing = debian::missing(&["mmdebstrap"])?;
    if !missing.is_empty() {
        debian::install(&missing, &step)?;
    }
    entry.begin()?;
    let apt = Apt::open(&paths.cache, &step)?;
    debian_root::make(&apt, &entry.path, &[SUITE], &PACKAGES.map(str::to_owned), &step)?;
    entry.complete()?;
    step.done(SUITE);
    Ok(entry.path.join("root"))
}
