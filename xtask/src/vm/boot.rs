// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the processes of a machine and waits until its guest is up.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::VmConfig;
use super::accelerator::Accelerator;
use super::agent::Agent;
use super::initramfs::{self, Contents};
use super::machine::Survivor;
use super::qemu_command::{self, Files};
use super::qmp::Qmp;
use crate::build::Stack;
use crate::daemon::Daemon;
use crate::paths::Paths;
use crate::process::{Process, last_lines, read_lossy};
use crate::setup::kernel::Kernel;
use crate::setup::qemu::Qemu;

/// Time limit for a guest to boot; a loaded machine with TCG is slow.
pub const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// Sockets of a machine, in its folder.
const AGENT: &str = "agent";
const MONITOR: &str = "monitor";

/// The parts of a machine that is up.
pub struct Booted {
    /// The way to the guest.
    pub agent: Agent,
    /// The failed steps of the agent's setup.
    pub problems: Vec<String>,
    /// The guest's accelerator.
    pub accelerator: Accelerator,
    /// QEMU's monitor.
    pub qmp: Qmp,
    /// QEMU.
    pub qemu: Process,
    /// The daemon.
    pub daemon: Daemon,
    /// The folder with the sockets.
    pub folder: tempfile::TempDir,
}

/// Boots the machine of `config`, with its logs in `logs`, at the daemon that another one has left, if there is one.
pub fn boot(paths: &Paths, config: &VmConfig, logs: &Path, survivor: Option<Survivor>) -> Result<Booted> {
    let Started { agent, accelerator, qmp, qemu, daemon, folder, console } =
        Started::new(paths, config, logs, survivor)?;
    let mut starting = Starting { qemu, daemon, console };
    let (agent, problems) = starting.explain(Agent::new(agent, BOOT_LIMIT))?;
    let Starting { qemu, daemon, .. } = starting;
    Ok(Booted { agent, problems, accelerator, qmp, qemu, daemon, folder })
}

/// The parts of a machine whose guest is not up yet.
pub struct Started {
    /// The agent's port.
    pub agent: UnixStream,
    /// The guest's accelerator.
    pub accelerator: Accelerator,
    /// QEMU's monitor.
    pub qmp: Qmp,
    /// QEMU.
    pub qemu: Process,
    /// The daemon.
    pub daemon: Daemon,
    /// The folder with the sockets.
    pub folder: tempfile::TempDir,
    console: PathBuf,
}

impl Started {
    /// Starts the processes of a machine, as [`boot`].
    pub fn new(paths: &Paths, config: &VmConfig, logs: &Path, survivor: Option<Survivor>) -> Result<Self> {
        let stack = Stack::new(paths);
        let qemu = Qemu::find(paths)?;
        let kernel = Kernel::find(paths, config.kernel)?;
        let accelerator = Accelerator::choose(paths, &qemu, &kernel)?;
        remove_old_logs(logs, survivor.is_some())?;
        let (left, folder) = match survivor {
            Some(Survivor { daemon, folder }) => (Some(daemon), folder),
            None => (None, tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?),
        };
        for old in [AGENT, MONITOR].map(|name| folder.path().join(name)) {
            if old.exists() {
                std::fs::remove_file(old)?;
            }
        }
        let file = |name: &str| folder.path().join(name);
        let files = Files {
            initramfs: file("initramfs"),
            daemon: file("daemon"),
            agent: file(AGENT),
            monitor: file(MONITOR),
            console: logs.join("console.log"),
        };
        let module = stack.module(config.kernel);
        if config.load_module && !module.exists() {
            bail!(
                "{} is not there; run: cargo xtask build --kernel {}",
                module.display(),
                config.kernel.name()
            );
        }
        let contents = Contents {
            agent: &stack.agent(),
            busybox: &initramfs::busybox(paths),
            module: module.exists().then_some(&module),
            load_module: config.load_module,
            guest_modules: &kernel.guest_modules,
        };
        initramfs::write(&files.initramfs, &contents)?;
        let start = || Daemon::start(&stack, config.daemon.clone(), &files.daemon, &logs.join("daemon.log"));
        let daemon = left.map_or_else(start, Ok)?;
        let listen = |socket: &Path| UnixListener::bind(socket).context("Cannot create a socket");
        let (agent, monitor) = (listen(&files.agent)?, listen(&files.monitor)?);
        let command = qemu_command::command(config, &qemu, &kernel, accelerator, &files);
        let qemu = Process::start("QEMU", command, &logs.join("qemu.log"))?;
        let mut starting = Starting { qemu, daemon, console: files.console };
        let qmp = Qmp::new(starting.accept(&monitor)?)?;
        let agent = starting.accept(&agent)?;
        let Starting { qemu, daemon, console } = starting;
        Ok(Self { agent, accelerator, qmp, qemu, daemon, folder, console })
    }
}

/// Removes the logs of earlier machines. The log of a daemon that runs stays.
fn remove_old_logs(logs: &Path, daemon_runs: bool) -> Result<()> {
    fs::create_dir_all(logs).with_context(|| format!("Cannot create {}", logs.display()))?;
    let daemon = ["daemon.log"].into_iter().filter(|_| !daemon_runs);
    let names = ["qemu.log", "console.log"].into_iter().chain(daemon);
    for old in names.map(|name| logs.join(name)) {
        if old.exists() {
            fs::remove_file(old)?;
        }
    }
    Ok(())
}

/// A machine whose guest is not up yet.
struct Starting {
    qemu: Process,
    daemon: Daemon,
    console: PathBuf,
}

impl Starting {
    /// Waits until QEMU connects.
    fn accept(&mut self, listener: &UnixListener) -> Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let end = Instant::now() + BOOT_LIMIT;
        while Instant::now() < end {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            self.daemon.check()?;
            if let Some(status) = self.qemu.status()? {
                bail!("{}", self.qemu.obituary(status));
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("QEMU does not connect; its log:\n{}", last_lines(&self.qemu.log(), 10))
    }

    /// Adds the guest's last output to an error.
    fn explain<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.daemon.check()?;
        }
        result.with_context(|| {
            let console = read_lossy(&self.console).unwrap_or_default();
            format!("{}\n{}", last_lines(&self.qemu.log(), 10), last_lines(&console, 20))
        })
    }
}
