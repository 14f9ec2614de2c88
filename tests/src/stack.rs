// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The built stack under test, and the paths of a program to a device with it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use libloading::os::unix::Library;
use tempfile::TempDir;

use crate::daemon::{Daemon, DaemonOptions, gpu_exists};
use crate::program::{Programs, bundle};
use crate::variant::Variant;

/// The variable with the path of the built stack; `cargo xtask test` sets it.
pub const STACK_VARIABLE: &str = "VHOST_CUDA_STACK";
/// The variable by which the guest library finds the daemon's socket.
pub const SOCKET_VARIABLE: &str = "VIRTIO_CUDA_SOCKET";
/// The daemon's option, and the guest library's variable, that turn off what makes calls faster.
const SPEED_OPTION: &str = "--speed";
const SPEED_VARIABLE: &str = "VIRTIO_CUDA_SPEED";
const OFF: &str = "off";

/// The auditor, which brings programs with a static runtime to the libraries beside it.
const AUDITOR: &str = "libvhost-cuda-audit.so";
/// The dynamic linker's list of auditors.
const AUDITORS_VARIABLE: &str = "LD_AUDIT";
/// Each piece of the emulator's work starts so much later, in microseconds, when programs go through the daemon. So a wait that
/// is missing shows itself as with a GPU.
const LATE: (&str, &str) = ("CUDA_EMULATOR_DELAY", "200");
/// The runtime libraries, the one that every program needs first.
const RUNTIMES: [&str; 3] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];

/// The built stack: `bin/vhost-user-cuda`, `bin/vhost-cuda-plugin`, `guest/lib/`, `emulator/libcuda.so.1`, `module/virtio_cuda.ko`.
#[derive(Clone, Debug)]
pub struct Stack {
    root: PathBuf,
    /// The stacks of the daemon and of the guest libraries, if they are of another release.
    daemon_of: Option<PathBuf>,
    guest_of: Option<PathBuf>,
}

impl Stack {
    /// The stack that `VHOST_CUDA_STACK` names.
    pub fn from_environment() -> Result<Self> {
        let Some(root) = env::var_os(STACK_VARIABLE).filter(|value| !value.is_empty()) else {
            bail!("{STACK_VARIABLE} is not set: run `cargo xtask test`, which builds the stack and sets it");
        };
        let stack = Self { root: root.into(), daemon_of: None, guest_of: None };
        stack.check()?;
        Ok(stack)
    }

    /// The same with daemon and guest libraries of the release before, which the level `pair` has built.
    pub fn before(&self) -> Result<Self> {
        let before = Some(self.root.join("before"));
        let stack = Self { daemon_of: before.clone(), guest_of: before, ..self.clone() };
        stack.check()?;
        Ok(stack)
    }

    /// The same with the daemon of `other`.
    pub fn with_daemon_of(&self, other: &Self) -> Self {
        Self { daemon_of: other.daemon_of.clone(), ..self.clone() }
    }

    /// The same with the guest libraries of `other`.
    pub fn with_guest_of(&self, other: &Self) -> Self {
        Self { guest_of: other.guest_of.clone(), ..self.clone() }
    }

    fn check(&self) -> Result<()> {
        for part in [self.daemon(), self.guest_libraries().join(RUNTIMES[0]), self.emulator()] {
            if !part.exists() {
                bail!("{STACK_VARIABLE}={} has no {}", self.root.display(), part.display());
            }
        }
        Ok(())
    }

    fn guest(&self) -> PathBuf {
        self.guest_of.as_ref().unwrap_or(&self.root).join("guest")
    }

    /// The daemon.
    pub fn daemon(&self) -> PathBuf {
        self.daemon_of.as_ref().unwrap_or(&self.root).join("bin/vhost-user-cuda")
    }

    /// The device plugin of Kubernetes.
    pub fn plugin(&self) -> PathBuf {
        self.root.join("bin/vhost-cuda-plugin")
    }

    /// The folder of the libcudart and `libcuda.so.1` for guests.
    pub fn guest_libraries(&self) -> PathBuf {
        self.guest().join("lib")
    }

    /// The program that starts others so that they use the guest's libraries.
    pub fn launcher(&self) -> PathBuf {
        self.guest().join("bin/vhost-cuda-run")
    }

    /// The program that runs others and prints tables of what they did.
    pub fn profiler(&self) -> PathBuf {
        self.guest().join("bin/vhost-cuda-prof")
    }

    /// The folder of settings for people who compile in a guest.
    pub fn guest_settings(&self) -> PathBuf {
        self.guest().join("etc")
    }

    /// Perfetto's user interface.
    pub fn perfetto(&self) -> PathBuf {
        self.root.join("perfetto")
    }

    /// The programs of a cluster of Kubernetes.
    pub fn kubernetes(&self) -> PathBuf {
        self.root.join("kubernetes")
    }

    /// The emulator.
    pub fn emulator(&self) -> PathBuf {
        self.root.join("emulator/libcuda.so.1")
    }

    /// The kernel module.
    pub fn module(&self) -> PathBuf {
        self.root.join("module/virtio_cuda.ko")
    }
}

/// The device that executes the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The emulator.
    Emulated,
    /// An NVIDIA GPU.
    Native,
}

/// A way from a program to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Our runtime over the emulator's driver library, in the program's own process.
    Emulator,
    /// Our runtime and driver library, over virtio-user, through the daemon.
    VirtioUser(Device),
    /// The same to the emulator, with all that makes calls faster turned off on both sides.
    Plain,
    /// NVIDIA's runtime and driver: the reference.
    Native,
    /// Our runtime over NVIDIA's driver.
    RuntimeOnNative,
}

impl Way {
    /// Every way, the reference first.
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::RuntimeOnNative,
        Self::Emulator,
        Self::VirtioUser(Device::Emulated),
        Self::Plain,
        Self::VirtioUser(Device::Native),
    ];

    /// Returns the name, for names of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Emulator => "emulator",
            Self::VirtioUser(Device::Emulated) => "virtio_user_emulator",
            Self::Plain => "virtio_user_emulator_plain",
            Self::VirtioUser(Device::Native) => "virtio_user_gpu",
            Self::Native => "native",
            Self::RuntimeOnNative => "runtime_on_native",
        }
    }

    /// The device that executes the kernels.
    pub fn device(self) -> Device {
        match self {
            Self::Emulator | Self::VirtioUser(Device::Emulated) | Self::Plain => Device::Emulated,
            _ => Device::Native,
        }
    }

    /// Returns the reason for which this machine cannot go this way, if it cannot.
    pub fn missing(self, programs: &Programs) -> Option<String> {
        if self.device() == Device::Native && !gpu_exists() {
            return Some("there is no NVIDIA GPU here (/dev/nvidiactl)".into());
        }
        if self == Self::Native && native_runtimes(programs).is_empty() {
            return Some("NVIDIA's libcudart.so.13 is neither beside nvcc nor in a bundle".into());
        }
        None
    }
}

/// A way made ready: what must live while programs go it.
#[derive(Debug)]
pub struct Route {
    libraries: Vec<PathBuf>,
    /// For programs with a static runtime.
    auditor: Option<PathBuf>,
    /// The daemon in between, if there is one.
    pub daemon: Option<Daemon>,
    /// True if programs turn off what makes their calls faster.
    plain: bool,
    _links: Option<TempDir>,
}

impl Route {
    /// Prepares the way, and starts a daemon if it needs one.
    pub fn open(way: Way, stack: &Stack, programs: &Programs) -> Result<Self> {
        let mut route = Self {
            libraries: Vec::new(),
            auditor: None,
            daemon: None,
            plain: way == Way::Plain,
            _links: None,
        };
        match way {
            Way::Emulator => {
                let emulator = stack.emulator();
                let folder = emulator.parent().context("The emulator is in no folder")?;
                route.auditor = Some(folder.join(AUDITOR));
                route.libraries.push(folder.into());
                // NVIDIA's libraries on the CPU, before the guest's, which need a daemon.
                route.libraries.push(folder.join("libraries"));
                route.libraries.push(stack.guest_libraries());
            }
            Way::VirtioUser(_) | Way::Plain => {
                route.libraries.push(stack.guest_libraries());
                route.auditor = Some(stack.guest_libraries().join(AUDITOR));
                let device = if way.device() == Device::Emulated { "emulated" } else { "auto" }.into();
                let plain = [SPEED_OPTION, OFF].map(String::from);
                let arguments = if route.plain { plain.into() } else { Vec::new() };
                let environment = vec![(LATE.0.into(), LATE.1.into())];
                let options = DaemonOptions { device, arguments, environment, ..Default::default() };
                route.daemon = Some(Daemon::start(stack, &options)?);
            }
            Way::Native => route.libraries.extend(native_runtimes(programs)),
            Way::RuntimeOnNative => {
                // Only our runtime: the folder also has our libcuda.
                let links = tempfile::tempdir()?;
                for library in RUNTIMES.into_iter().chain([AUDITOR]) {
                    symlink(stack.guest_libraries().join(library), links.path().join(library))?;
                }
                route.auditor = Some(links.path().join(AUDITOR));
                route.libraries.push(links.path().into());
                route._links = Some(links);
            }
        }
        Ok(route)
    }

    /// A way over virtio-user to a daemon that the caller started.
    pub fn through(stack: &Stack, daemon: Daemon) -> Self {
        Self { daemon: Some(daemon), ..Self::to(stack) }
    }

    /// A way over virtio-user to a socket that the caller names.
    pub fn to(stack: &Stack) -> Self {
        let libraries = stack.guest_libraries();
        let auditor = Some(libraries.join(AUDITOR));
        Self { libraries: vec![libraries], auditor, daemon: None, plain: false, _links: None }
    }

    /// `program`, set up to go this way.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let mut path: Vec<OsString> = self.libraries.iter().map(|folder| folder.clone().into()).collect();
        path.extend(env::var_os("LD_LIBRARY_PATH").filter(|value| !value.is_empty()));
        command.env("LD_LIBRARY_PATH", path.join(":".as_ref())).env_remove(SOCKET_VARIABLE);
        let is_static = program.file_name().and_then(OsStr::to_str).is_some_and(Variant::is_static);
        if let Some(auditor) = self.auditor.as_ref().filter(|_| is_static) {
            command.env(AUDITORS_VARIABLE, auditor);
        }
        if let Some(daemon) = &self.daemon {
            command.env(SOCKET_VARIABLE, daemon.socket());
        }
        if self.plain {
            command.env(SPEED_VARIABLE, OFF);
        }
        command
    }
}

/// Why a program cannot use a library of NVIDIA's on a GPU of this machine, if so: none of `names` is where the dynamic linker
/// looks.
pub fn missing_library(names: &[&str]) -> Option<String> {
    let is_found = |name: &&str| {
        // SAFETY: it is a library of NVIDIA's, whose constructors expect nothing of us. It stays loaded.
        unsafe { Library::new(*name) }.map(std::mem::forget).is_ok()
    };
    if names.is_empty() || names.iter().any(is_found) {
        return None;
    }
    Some(format!("{} is not installed here: name its folder in LD_LIBRARY_PATH", names.join(" or ")))
}

/// Folders with NVIDIA's runtimes; none if the one for 13 is missing.
pub fn native_runtimes(programs: &Programs) -> Vec<PathBuf> {
    let bundled = bundle().map(|bundle| vec![bundle.join("nvidia")]);
    let folders = bundled.unwrap_or_else(|| programs.toolkit_libraries());
    let usable = folders.iter().any(|folder| folder.join(RUNTIMES[0]).exists());
    if usable { folders } else { Vec::new() }
}
