// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian 12 roots in which packages are tried.

use std::path::PathBuf;

use anyhow::Result;

use super::apt::Apt;
use super::cache::Entry;
use super::{debian, debian_root};
use crate::paths::Paths;
use crate::progress::Step;

const SUITE: &str = "bookworm";

/// The use of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// All packages: systemd, DKMS and the headers of the suite's current cloud kernel.
    Packages,
    /// A virtual machine: the same, with that kernel.
    Guest,
    /// A host with libvirt.
    Libvirt,
    /// A host with Slurm.
    Slurm,
}

impl RootKind {
    fn name(self) -> &'static str {
        match self {
            Self::Packages => "package-root",
            Self::Guest => "guest-root",
            Self::Libvirt => "libvirt-root",
            Self::Slurm => "slurm-root",
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Packages => &["systemd", "dkms", "gcc", "make", "kmod", "linux-headers-cloud-amd64"],
            Self::Guest => &[
                "systemd-sysv",
                "udev",
                "dkms",
                "gcc",
                "make",
                "kmod",
                "linux-headers-cloud-amd64",
                "linux-image-cloud-amd64",
                "initramfs-tools",
            ],
            Self::Libvirt => &[
                "systemd",
                "dbus",
                "libvirt-daemon-system",
                "libvirt-clients",
                "qemu-system-x86",
                "apparmor",
            ],
            Self::Slurm => &["systemd", "dbus", "udev", "slurmctld", "slurmd", "slurm-client", "munge"],
        }
    }
}

/// Creates a root once. Returns its path, whose contents must not be changed.
pub fn setup(paths: &Paths, kind: RootKind) -> Result<PathBuf> {
    let step = Step::new(kind.name(), &paths.setup_logs())?;
    let entry = Entry::named(&paths.cache, kind.name(), SUITE);
    entry.fill(step, SUITE, |step| {
        debian::install_missing(&["mmdebstrap"], step)?;
        let apt = Apt::open(&paths.cache, step)?;
        let packages: Vec<String> = kind.packages().iter().map(|name| (*name).to_owned()).collect();
        debian_root::make(&apt, &entry.path, &[SUITE], &packages, step)
    })?;
    Ok(entry.path.join("root"))
}
