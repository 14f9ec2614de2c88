// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paths of the parts of the stack.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths::Paths;
use crate::setup::kernel::Flavour;

/// The auditor's file.
pub const AUDITOR: &str = "libvhost-cuda-audit.so";
/// The dynamic linker's list of auditors (ld.so(8)).
pub const AUDITORS_VARIABLE: &str = "LD_AUDIT";

/// Files for people who compile in the guest, which are installed as they are.
pub(super) const GUEST_SETTINGS: [&str; 2] =
    ["guest-lib/etc/vhost-cuda.sh", "guest-lib/etc/libcudart_static.a"];

/// The files of a built stack.
#[derive(Debug, Clone)]
pub struct Stack {
    /// `target/stack`.
    pub folder: PathBuf,
}

impl Stack {
    /// The stack that `build` makes for `paths`.
    pub fn new(paths: &Paths) -> Self {
        Self { folder: paths.stack.clone() }
    }

    /// The daemon.
    pub fn daemon(&self) -> PathBuf {
        self.folder.join("bin/vhost-user-cuda")
    }

    /// The device plugin of Kubernetes.
    pub fn plugin(&self) -> PathBuf {
        self.folder.join("bin/vhost-cuda-plugin")
    }

    /// The folder of the guest's libcudart and libcuda.
    pub fn guest_libraries(&self) -> PathBuf {
        self.folder.join("guest/lib")
    }

    /// The auditor that brings programs with a static runtime to the libraries beside it.
    pub fn auditor(&self) -> PathBuf {
        self.guest_libraries().join(AUDITOR)
    }

    /// The program that starts others so that they use the guest's libraries.
    pub fn launcher(&self) -> PathBuf {
        self.folder.join("guest/bin/vhost-cuda-run")
    }

    /// The program that runs others and prints tables of what they did.
    pub fn profiler(&self) -> PathBuf {
        self.folder.join("guest/bin/vhost-cuda-prof")
    }

    /// The folder of the settings for people who compile in the guest.
    pub fn guest_settings(&self) -> PathBuf {
        self.folder.join("guest/etc")
    }

    /// The emulated GPU.
    pub fn emulator(&self) -> PathBuf {
        self.folder.join("emulator/libcuda.so.1")
    }

    /// The folder of the CPU versions of NVIDIA's libraries.
    pub fn emulator_libraries(&self) -> PathBuf {
        self.folder.join("emulator/libraries")
    }

    /// The folder of the libraries in front of NVIDIA's compilers at run time, for programs on an emulated GPU.
    pub fn compilers(&self) -> PathBuf {
        self.folder.join("nvrtc")
    }

    /// The first process of the test guests.
    pub fn agent(&self) -> PathBuf {
        self.folder.join("guest/init")
    }

    /// The kernel module for a kernel.
    pub fn module(&self, flavour: Flavour) -> PathBuf {
        self.folder.join(Self::module_folder(flavour)).join("virtio_cuda.ko")
    }

    /// The driver's Rust part, compiled for kernels without `CONFIG_RUST`.
    pub fn core(&self) -> PathBuf {
        self.folder.join("core/virtio_cuda_core.o")
    }

    fn module_folder(flavour: Flavour) -> String {
        match flavour {
            Flavour::Small => "module".to_owned(),
            other => format!("module-{}", other.name()),
        }
    }
}

/// Copies `from` to `to` unless they are the same; a program that runs is replaced, not overwritten.
pub(super) fn install(from: &Path, to: &Path) -> Result<PathBuf> {
    let bytes = fs::read(from).with_context(|| format!("Cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(to.to_path_buf());
    }
    let folder = to.parent().context("No folder to install into")?;
    fs::create_dir_all(folder)?;
    let new = tempfile::NamedTempFile::new_in(folder)?;
    fs::copy(from, new.path()).with_context(|| format!("Cannot copy {}", from.display()))?;
    new.persist(to).with_context(|| format!("Cannot write {}", to.display()))?;
    Ok(to.to_path_buf())
}
