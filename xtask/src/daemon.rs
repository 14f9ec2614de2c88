// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon beside a guest or a program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::build::Stack;
use crate::process::{Process, read_lossy, wait_for_socket};

/// Time limit for the daemon to listen.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for the daemon to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Further arguments of all daemons that tests and other commands start, as `--guest-pages named`.
pub const ARGUMENTS_VARIABLE: &str = "VHOST_CUDA_DAEMON_ARGUMENTS";

/// The GPU that executes the calls: `auto`, `emulated` or the path of a libcuda.so.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device(pub String);

impl Device {
    /// The real GPU if there is one, else the emulator.
    pub fn auto() -> Self {
        Self("auto".to_owned())
    }

    /// The emulator.
    pub fn emulated() -> Self {
        Self("emulated".to_owned())
    }

    /// Returns whether the emulator executes the calls.
    pub fn is_emulated(&self) -> bool {
        self.0 == "emulated" || (self.0 == "auto" && !has_gpu())
    }
}

/// Returns whether NVIDIA's driver is installed.
pub fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// Options of a daemon.
#[derive(Debug, Clone)]
pub struct DaemonConfig {
    /// The GPU.
    pub device: Device,
    /// Request queues.
    pub queues: u32,
    /// More arguments.
    pub arguments: Vec<String>,
    /// More environment variables.
    pub environment: Vec<(String, String)>,
}

impl DaemonConfig {
    /// A daemon with 2 request queues, and the arguments of [`ARGUMENTS_VARIABLE`].
    pub fn new(device: Device) -> Self {
        let arguments = std::env::var(ARGUMENTS_VARIABLE).unwrap_or_default();
        let arguments = arguments.split_whitespace().map(str::to_owned).collect();
        Self { device, queues: 2, arguments, environment: Vec::new() }
    }

    /// Adds those folders of NVIDIA's libraries that exist. With the emulator they would replace the CPU's versions.
    pub fn add_libraries(&mut self, folders: &[PathBuf]) {
        if self.device.is_emulated() {
            return;
        }
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            self.arguments.extend(["--libraries".to_owned(), folder.display().to_string()]);
        }
    }
}

/// A daemon, running or dead.
pub struct Daemon {
    program: PathBuf,
    emulator: PathBuf,
    config: DaemonConfig,
    socket: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

impl Daemon {
    /// Starts the daemon of `stack`; returns when it listens on `socket`.
    pub fn start(stack: &Stack, config: DaemonConfig, socket: &Path, log: &Path) -> Result<Self> {
        let program = stack.daemon();
        if !program.exists() {
            bail!("{} is not there; run: cargo xtask build", program.display());
        }
        let (socket, log) = (socket.to_path_buf(), log.to_path_buf());
        let mut daemon = Self { program, emulator: stack.emulator(), config, socket, log, process: None };
        daemon.restart()?;
        Ok(daemon)
    }

    /// Starts it again, with the same socket and log; kills the one that runs.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        // The socket of a daemon that was killed is still there.
        if self.socket.exists() {
            std::fs::remove_file(&self.socket)?;
        }
        let mut command = Command::new(&self.program);
        // Containers have no other user, and the daemon serves this command's own machine only.
        command.arg("--allow-root").arg("--socket-path").arg(&self.socket);
        command.args(["--device", &self.config.device.0, "--num-queues", &self.config.queues.to_string()]);
        command.args(&self.config.arguments).env("VHOST_CUDA_EMULATOR", &self.emulator);
        // The program follows them itself, among all devices of the daemon.
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER");
        command.envs(self.config.environment.iter().map(|(name, value)| (name, value)));
        let process = self.process.insert(Process::start("vhost-user-cuda", command, &self.log)?);
        wait_for_socket(process, &self.socket, START_LIMIT)
    }

    /// Kills it without warning, as a crash would.
    pub fn kill(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.kill(),
            None => Ok(()),
        }
    }

    /// Ends it as a service manager would.
    pub fn stop(&mut self) -> Result<()> {
        match self.process.take() {
            Some(mut process) => process.terminate(STOP_LIMIT),
            None => Ok(()),
        }
    }

    /// Returns an error if it has ended unexpectedly.
    pub fn check(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.status()? {
            Some(status) => bail!("{}", process.obituary(status)),
            None => Ok(()),
        }
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The socket on which it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// All that it has written, over restarts.
    pub fn log(&self) -> Result<String> {
        read_lossy(&self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_there_are_named_but_to_the_emulator() {
        let folders = ["/usr", "/no/such/folder"].map(PathBuf::from);
        let mut emulated = DaemonConfig::new(Device::emulated());
        let before = emulated.arguments.clone();
        emulated.add_libraries(&folders);
        assert_eq!(emulated.arguments, before);
        let mut other = DaemonConfig::new(Device("/usr/lib/libcuda.so.1".to_owned()));
        other.add_libraries(&folders);
        assert_eq!(other.arguments[before.len()..], ["--libraries", "/usr"]);
    }
}
