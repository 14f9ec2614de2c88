// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways from a program to a device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::execute::{Outcome, execute};
use crate::build::{AUDITOR, AUDITORS_VARIABLE, Stack};
use crate::daemon::{DaemonConfig, Device, has_gpu};
use crate::paths::Paths;
use crate::run::passed_environment;
use crate::virtio_user::VirtioUser;
use crate::vm::{GuestCommand, Vm, VmConfig, with_libraries};

/// Maximum number of the guest's processors; each adds a GiB of memory.
const MAX_CPUS: usize = 16;

/// A way from a program to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// NVIDIA's runtime and driver.
    Native,
    /// Our runtime, NVIDIA's driver.
    Runtime,
    /// Our runtime, the emulator in the program's process.
    Emulator,
    /// Our runtime and driver, and the daemon, without a guest.
    VirtioUser,
    /// In a guest.
    Vm,
}

impl Way {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Runtime => "runtime",
            Self::Emulator => "emulator",
            Self::VirtioUser => "virtio-user",
            Self::Vm => "vm",
        }
    }

    /// All ways that this machine allows, except the slow one.
    pub fn usual() -> Vec<Self> {
        let own = [Self::Emulator, Self::VirtioUser];
        if has_gpu() { [Self::Native, Self::Runtime].into_iter().chain(own).collect() } else { own.to_vec() }
    }
}

/// One run of a program.
pub struct Invocation<'a> {
    /// Its name in `folder`, where it starts.
    pub program: &'a str,
    /// The folder of the program and its inputs; its outputs may stay there.
    pub folder: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// More environment variables.
    pub environment: &'a BTreeMap<String, String>,
    /// The time limit.
    pub limit: Duration,
}

/// Daemon, guest and folders of libraries, made ready for some ways.
pub struct Ready {
    paths: Paths,
    /// NVIDIA's libcudart.
    native: Option<PathBuf>,
    /// NVRTC and similar libraries.
    extras: Vec<PathBuf>,
    /// Our libraries in front of them, if there are any: they do nothing where there is a GPU.
    compilers: Option<PathBuf>,
    /// Contains a folder `runtime` with only our libcudart, and a folder `emulator` that also has the emulator.
    libraries: tempfile::TempDir,
    beside: Option<VirtioUser>,
    vm: Option<Vm>,
}

impl Ready {
    /// Starts what `ways` need, for `jobs` programs at a time. The logs go to `logs`.
    pub fn new(
        paths: &Paths,
        ways: &[Way],
        device: &str,
        extras: Vec<PathBuf>,
        jobs: usize,
        logs: &Path,
    ) -> Result<Self> {
        let stack = Stack::new(paths);
        let libraries = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let runtime = stack.guest_libraries().join("libcudart.so.13");
        let emulator = stack.emulator();
        for (folder, name, file) in [
            ("runtime", "libcudart.so.13", &runtime),
            ("runtime", AUDITOR, &stack.auditor()),
            ("emulator", "libcudart.so.13", &runtime),
            ("emulator", AUDITOR, &stack.auditor()),
            ("emulator", "libcuda.so.1", &emulator),
            ("emulator", "libcuda.so", &emulator),
        ] {
            let folder = libraries.path().join(folder);
            fs::create_dir_all(&folder)?;
            symlink(file, folder.join(name))?;
        }
        let versions = stack.emulator_libraries();
        for library in fs::read_dir(&versions).into_iter().flatten() {
            let library = library?;
            symlink(library.path(), libraries.path().join("emulator").join(library.file_name()))?;
        }
        let mut config = DaemonConfig::new(Device(device.to_owned()));
        config.add_libraries(&extras);
        let for_daemon = config.arguments.clone();
        let beside = ways.contains(&Way::VirtioUser).then(|| VirtioUser::start(paths, config, logs));
        let vm = ways.contains(&Way::Vm).then(|| {
            let mut config = VmConfig::new(Device(device.to_owned()));
            config.cpus = jobs.clamp(2, MAX_CPUS) as u32;
            config.daemon.queues = config.cpus;
            config.memory = format!("{}G", config.cpus.max(4));
            config.daemon.arguments = for_daemon;
            Vm::boot(paths, config, logs)
        });
        let (beside, vm) = (beside.transpose()?, vm.transpose()?);
        if let Some(problems) = vm.as_ref().map(Vm::problems).filter(|problems| !problems.is_empty()) {
            bail!("The guest is not complete: {}", problems.join("; "));
        }
        let behind = |name: &str| extras.iter().any(|folder| folder.join(name).exists());
        let all = ["libnvrtc.so.13", "libnvJitLink.so.13"].into_iter().all(behind);
        let compilers = all.then(|| stack.compilers());
        Ok(Self {
            paths: paths.clone(),
            native: native_runtime(paths),
            extras,
            compilers,
            libraries,
            beside,
            vm,
        })
    }

    /// Runs a program.
    pub fn run(&self, way: Way, invocation: &Invocation<'_>) -> Result<Outcome> {
        let program = invocation.folder.join(invocation.program);
        let mut command = match way {
            Way::Vm => return self.in_guest(invocation),
            Way::VirtioUser => {
                let beside = self.beside.as_ref().context("The daemon was not started")?;
                let mut command = beside.command(&self.paths, &program);
                let path = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
                let path = path.and_then(|(_, value)| value).map(OsString::from);
                command.env("LD_LIBRARY_PATH", self.search_path(way, path.as_deref().map(Path::new)));
                command.env(AUDITORS_VARIABLE, Stack::new(&self.paths).auditor());
                command
            }
            Way::Native => {
                let native =
                    self.native.as_deref().context("There is no libcudart.so.13 of NVIDIA's here")?;
                self.local(way, &program, native)
            }
            Way::Runtime => self.local(way, &program, &self.libraries.path().join("runtime")),
            Way::Emulator => self.local(way, &program, &self.libraries.path().join("emulator")),
        };
        command.arg0(format!("./{}", invocation.program));
        command.args(invocation.arguments).envs(invocation.environment).current_dir(invocation.folder);
        execute(command, invocation.limit)
    }

    /// Ends daemon and guest.
    pub fn stop(self) -> Result<()> {
        if let Some(vm) = self.vm {
            vm.shut_down()?;
        }
        self.beside.map_or(Ok(()), VirtioUser::stop)
    }

    fn local(&self, way: Way, program: &Path, libraries: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(passed_environment(&self.paths));
        command.env("LD_LIBRARY_PATH", self.search_path(way, Some(libraries)));
        if way != Way::Native {
            // It takes the libraries beside it.
            command.env(AUDITORS_VARIABLE, libraries.join(AUDITOR));
        }
        command
    }

    fn search_path(&self, way: Way, first: Option<&Path>) -> OsString {
        // From the last to the first; `first` may be several folders already.
        let compilers = self.compilers.as_deref().filter(|_| way != Way::Native);
        let folders = first.into_iter().chain(compilers).chain(self.extras.iter().map(PathBuf::as_path));
        let folders: Vec<&Path> = folders.collect();
        folders.iter().rev().fold(OsString::new(), |path, folder| with_libraries(folder, Some(&path)))
    }

    fn in_guest(&self, invocation: &Invocation<'_>) -> Result<Outcome> {
        let vm = self.vm.as_ref().context("The guest was not started")?;
        let mut command = GuestCommand::new(format!("./{}", invocation.program))
            .arguments(invocation.arguments)
            .environment("LD_LIBRARY_PATH", self.search_path(Way::Vm, None))
            .environment(AUDITORS_VARIABLE, Stack::new(&self.paths).auditor())
            .directory(invocation.folder)
            .limit(invocation.limit);
        for (name, value) in invocation.environment {
            command = command.environment(name, value);
        }
        let started = Instant::now();
        let result = vm.run(&command);
        let milliseconds = started.elapsed().as_millis() as u64;
        match result {
            Ok(output) => {
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                let (stdout, stderr) = (text(output.stdout), text(output.stderr));
                Ok(Outcome { status: Some(output.status), stdout, stderr, milliseconds })
            }
            Err(_) if started.elapsed() >= invocation.limit && vm.is_running()? => {
                Ok(Outcome { milliseconds, ..Outcome::default() })
            }
            Err(error) => Err(error),
        }
    }
}

/// The folder with NVIDIA's libcudart: in the bundle, or the compiler's.
fn native_runtime(paths: &Paths) -> Option<PathBuf> {
    let bundled = paths.bundle.as_ref().map(|bundle| bundle.join("nvidia"));
    let compilers = || crate::setup::nvcc::Nvcc::find(paths).ok().map(|nvcc| nvcc.libraries());
    bundled.or_else(compilers).filter(|folder| folder.join("libcudart.so.13").exists())
}
