// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of the guest kernels.

use clap::ValueEnum;

use super::stock_kernel::Release;

/// Which kernel a guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Flavour {
    /// Our own: small, boots in about a second.
    #[default]
    Small,
    /// Our own with the checks for locks and memory; slow.
    Debug,
    /// Debian's newest, as it is.
    Debian,
    /// The small one, with the driver built as for kernels without `CONFIG_RUST`.
    SmallCore,
    /// Debian's newest, with the driver built as for kernels without `CONFIG_RUST`.
    DebianCore,
    /// Debian 12's, as it is.
    #[value(name = "debian12")]
    Debian12,
    /// Debian 13's, as it is.
    #[value(name = "debian13")]
    Debian13,
    /// Ubuntu 22.04's, as it is.
    #[value(name = "ubuntu22.04")]
    Ubuntu2204,
    /// Ubuntu 24.04's, as it is.
    #[value(name = "ubuntu24.04")]
    Ubuntu2404,
}

impl Flavour {
    /// As people write it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Debug => "debug",
            Self::Debian => "debian",
            Self::SmallCore => "small-core",
            Self::DebianCore => "debian-core",
            Self::Debian12 => "debian12",
            Self::Debian13 => "debian13",
            Self::Ubuntu2204 => "ubuntu22.04",
            Self::Ubuntu2404 => "ubuntu24.04",
        }
    }

    /// The release of a distribution whose kernel it is.
    pub fn release(self) -> Option<Release> {
        match self {
            Self::Debian | Self::DebianCore => Some(Release::BACKPORTS),
            Self::Debian12 => Some(Release::BOOKWORM),
            Self::Debian13 => Some(Release::TRIXIE),
            Self::Ubuntu2204 => Some(Release::JAMMY),
            Self::Ubuntu2404 => Some(Release::NOBLE),
            _ => None,
        }
    }

    /// Returns whether the driver's Rust part is compiled apart from the kernel's build system.
    pub fn has_core(self) -> bool {
        matches!(self, Self::SmallCore | Self::DebianCore) || self.release().is_some_and(|of| !of.has_rust())
    }

    /// Returns the kernel of the same name whose files the driver's other build uses as well, otherwise itself.
    pub fn image(self) -> Self {
        match self {
            Self::SmallCore => Self::Small,
            Self::DebianCore => Self::Debian,
            other => other,
        }
    }

    /// Returns the name of its part of `setup`, and of its folders in the cache.
    pub fn step(self) -> String {
        match self.image() {
            Self::Small => "kernel".to_owned(),
            other => format!("kernel-{}", other.name()),
        }
    }
}
