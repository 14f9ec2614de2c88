// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vhost-cuda-guest`: the module's sources for DKMS, the libraries, the launcher.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Package;
use super::copyright::{self, DRIVER, OWN, PROTOCOL};
use super::tree::{FILE, PROGRAM, Tree};
use crate::build::{self, Part};
use crate::dkms;
use crate::paths::Paths;
use crate::setup::kernel::Flavour;

const PACKAGE: Package = Package {
    name: "vhost-cuda-guest",
    summary: "CUDA for QEMU virtual machines without a GPU: driver and libraries for the guest",
    description: "The kernel module virtio_cuda, which DKMS builds, the libraries that stand for\n\
                  NVIDIA's in the guest, and the programs vhost-cuda-run and vhost-cuda-prof.",
    fields: &[
        ("Section", "admin"),
        ("Depends", "libc6 (>= @GLIBC@), libgcc-s1, dkms"),
        ("Recommends", "linux-headers-amd64"),
        // Libraries of the same names, for a GPU that the guest does not have.
        ("Conflicts", "libcuda1, libnvidia-ml1"),
    ],
    scripts: &[
        ("postinst", include_str!("scripts/guest.postinst")),
        ("prerm", include_str!("scripts/guest.prerm")),
        ("postrm", include_str!("scripts/guest.postrm")),
        // The dynamic linker's cache lists the libraries.
        ("triggers", "activate-noawait ldconfig\n"),
    ],
    settings: &["/etc/ld.so.conf.d/vhost-cuda.conf"],
};

/// The launcher looks for the auditor in `../lib/vhost-cuda`, and the auditor for libraries beside itself.
const LIBRARIES: &str = "usr/lib/vhost-cuda";
const DOCS: &str = "usr/share/doc/vhost-cuda-guest";
/// The crates of the libraries.
pub const LIBRARY_CRATES: [&str; 10] = [
    "cufftw",
    "cupti",
    "libcuda",
    "libcudart",
    "libcudart11",
    "libcudart12",
    "nvml",
    "vendor-libraries",
    "vhost-cuda-audit",
    "vhost-cuda-injection",
];
/// The folder that `guest-lib/etc/vhost-cuda.sh` names, for an installation by hand.
const BY_HAND: &str = "/usr/local/lib/vhost-cuda";

/// Builds and collects the package's files below `folder`.
pub fn stage(paths: &Paths, folder: &Path) -> Result<(Package, Tree)> {
    let stack = build::run(paths, &[Part::GuestLib, Part::EmulatorLibraries], Flavour::Small)?;
    let tree = Tree::new(folder.join(PACKAGE.name))?;
    tree.libraries(&stack.guest_libraries(), LIBRARIES)?;
    tree.libraries(&stack.compilers(), &format!("{LIBRARIES}/nvrtc"))?;
    tree.file(&stack.launcher(), "usr/bin/vhost-cuda-run", PROGRAM)?;
    tree.file(&stack.profiler(), "usr/bin/vhost-cuda-prof", PROGRAM)?;
    tree.bytes(format!("/{LIBRARIES}\n").as_bytes(), "etc/ld.so.conf.d/vhost-cuda.conf", FILE)?;

    // Not in /etc/profile.d: it concerns all programs, so that an administrator decides.
    let settings = stack.guest_settings();
    let profile = settings.join("vhost-cuda.sh");
    let profile =
        fs::read_to_string(&profile).with_context(|| format!("Cannot read {}", profile.display()))?;
    let profile = profile.replace(BY_HAND, &format!("/{LIBRARIES}"));
    tree.bytes(profile.as_bytes(), "usr/share/vhost-cuda/vhost-cuda.sh", FILE)?;
    let script = "libcudart_static.a";
    tree.file(&settings.join(script), &format!("{LIBRARIES}/link/{script}"), FILE)?;

    dkms::tree(paths, tree.root())?;
    let rules = "99-virtio-cuda.rules";
    let from = paths.root.join("guest-driver").join(rules);
    tree.file(&from, &format!("usr/lib/udev/rules.d/{rules}"), FILE)?;
    for page in ["guests.md", "programs.md", "profiling.md", "libraries.md", "environment.md"] {
        tree.file(&paths.root.join("docs").join(page), &format!("{DOCS}/{page}"), FILE)?;
    }
    let licences =
        [("*", OWN), ("usr/src/*/guest-driver/* usr/lib/udev/*", DRIVER), ("usr/src/*/protocol/*", PROTOCOL)];
    let crates = [&LIBRARY_CRATES[..], &["nvrtc", "vhost-cuda-prof", "vhost-cuda-run"]].concat();
    copyright::write(paths, &tree, PACKAGE.name, &licences, &crates)?;
    Ok((PACKAGE, tree))
}
