// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program beside the daemon, without a guest: it speaks vhost-user itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::build::Stack;
use crate::daemon::{Daemon, DaemonConfig};
use crate::paths::Paths;
use crate::run::passed_environment;
use crate::vm::with_libraries;

/// The variable with the daemon's socket for our libcuda.
const SOCKET: &str = "VIRTIO_CUDA_SOCKET";

/// A daemon, and how programs reach it.
pub struct VirtioUser {
    daemon: Daemon,
    libraries: PathBuf,
    // The socket's; removed last.
    _folder: tempfile::TempDir,
}

impl VirtioUser {
    /// Starts a daemon; its log is `daemon.log` in `logs`.
    pub fn start(paths: &Paths, mut config: DaemonConfig, logs: &Path) -> Result<Self> {
        // Each process of a program is a front-end.
        config.arguments.insert(0, "--single=false".to_owned());
        let stack = Stack::new(paths);
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let daemon = Daemon::start(&stack, config, &folder.path().join("daemon"), &logs.join("daemon.log"))?;
        Ok(Self { daemon, libraries: stack.guest_libraries(), _folder: folder })
    }

    /// A command that runs `program` with our environment and our libraries.
    pub fn command(&self, paths: &Paths, program: impl AsRef<OsStr>) -> Command {
        let environment = passed_environment(paths);
        let libraries =
            environment.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").map(|(_, value)| value);
        let mut command = Command::new(program);
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        command.env("LD_LIBRARY_PATH", with_libraries(&self.libraries, libraries));
        command.env(SOCKET, self.daemon.socket());
        command
    }

    /// The daemon's process id.
    pub fn daemon_id(&self) -> Option<u32> {
        self.daemon.id()
    }

    /// The daemon's output so far.
    pub fn log(&self) -> Result<String> {
        self.daemon.log()
    }

    /// Ends the daemon.
    pub fn stop(mut self) -> Result<()> {
        self.daemon.stop()
    }
}
