// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine with our device, and the daemon beside it.
//!
//! Boot once, run many commands; see [`Vm`].

mod accelerator;
mod agent;
mod command;
mod initramfs;
mod machine;
mod qmp;

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::build::Stack;
use crate::daemon::{Daemon, DaemonConfig, Device};
use crate::paths::Paths;
use crate::process::{Process, last_lines};
use crate::setup::kernel::{Flavour, Kernel};
use crate::setup::qemu::Qemu;
pub use accelerator::Accelerator;
use agent::Agent;
pub use agent::{Input, Output, Running};
pub use command::{GuestCommand, with_libraries};
use machine::Files;
use qmp::Qmp;

/// How long a guest may take to boot; a loaded machine with TCG is slow.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long it may take to switch off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(20);
/// How long plugging may take.
const PLUG_LIMIT: Duration = Duration::from_secs(30);

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct VmConfig {
    /// The kernel.
    pub kernel: Flavour,
    /// Memory, with a K, M or G.
    pub memory: String,
    /// Processors.
    pub cpus: u32,
    /// The daemon.
    pub daemon: DaemonConfig,
    /// More for the kernel's command line.
    pub kernel_arguments: String,
    /// More for QEMU's.
    pub qemu_arguments: Vec<String>,
    /// Whether the module is loaded at boot. If so it is `/virtio_cuda.ko` in the initramfs (for [`Vm::shell`]), else
    /// `/not-loaded/virtio_cuda.ko`.
    pub load_module: bool,
}

impl VmConfig {
    /// 1 GiB, 2 processors, the small kernel.
    pub fn new(device: Device) -> Self {
        Self {
            kernel: Flavour::Small,
            memory: "1G".to_owned(),
            cpus: 2,
            daemon: DaemonConfig::new(device),
            kernel_arguments: String::new(),
            qemu_arguments: Vec::new(),
            load_module: true,
        }
    }
}

/// A running machine. Dropping it kills QEMU and the daemon.
pub struct Vm {
    config: VmConfig,
    libraries: PathBuf,
    logs: PathBuf,
    agent: Agent,
    problems: Vec<String>,
    accelerator: Accelerator,
    qmp: Mutex<Qmp>,
    qemu: Mutex<Process>,
    daemon: Mutex<Daemon>,
    // The sockets; removed last.
    _folder: tempfile::TempDir,
}

impl Vm {
    /// Boots; the logs go to the folder `logs`: `daemon.log`, `qemu.log`, `console.log`.
    pub fn boot(paths: &Paths, config: VmConfig, logs: &Path) -> Result<Self> {
        let stack = Stack::new(paths);
        let qemu = Qemu::find(paths)?;
        let kernel = Kernel::find(paths, config.kernel)?;
        let accelerator = Accelerator::choose(paths, &qemu, &kernel)?;
        fs::create_dir_all(logs).with_context(|| format!("Cannot create {}", logs.display()))?;
        for old in ["daemon.log", "qemu.log", "console.log"].map(|name| logs.join(name)) {
            if old.exists() {
                fs::remove_file(old)?;
            }
        }
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let file = |name: &str| folder.path().join(name);
        let module = stack.module(config.kernel);
        initramfs::write(
            &file("initramfs"),
            &stack.agent(),
            module.exists().then_some(&module),
            config.load_module,
        )?;
        let daemon = Daemon::start(&stack, config.daemon.clone(), &file("daemon"), &logs.join("daemon.log"))?;
        let listen = |name: &str| UnixListener::bind(file(name)).context("Cannot create a socket");
        let (agent, monitor) = (listen("agent")?, listen("monitor")?);
        let files = Files {
            initramfs: &file("initramfs"),
            daemon: &file("daemon"),
            agent: &file("agent"),
            monitor: &file("monitor"),
            console: &logs.join("console.log"),
        };
        let command = machine::command(&config, &qemu, &kernel, accelerator, &files);
        let mut starting = Starting {
            qemu: Process::start("QEMU", command, &logs.join("qemu.log"))?,
            daemon,
            console: logs.join("console.log"),
        };
        let qmp = Qmp::new(starting.accept(&monitor)?)?;
        let agent = starting.accept(&agent)?;
        let (agent, problems) = starting.explain(Agent::new(agent, BOOT_LIMIT))?;
        let Starting { qemu, daemon, .. } = starting;
        let (qmp, qemu, daemon) = (Mutex::new(qmp), Mutex::new(qemu), Mutex::new(daemon));
        let (libraries, logs) = (stack.guest_libraries(), logs.to_path_buf());
        Ok(Self { config, libraries, logs, agent, problems, accelerator, qmp, qemu, daemon, _folder: folder })
    }

    /// What the agent could not set up: a module that did not load, for one.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What executes the guest.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// Starts a command in the guest.
    pub fn start(&self, command: &GuestCommand) -> Result<Running> {
        self.agent.start(command.to_wire(&self.libraries))
    }

    /// Runs a command to its end, with empty input; it is killed after 60 s, or the command's own limit.
    pub fn run(&self, command: &GuestCommand) -> Result<Output> {
        let running = self.start(command)?;
        running.input().close()?;
        running.output(Some(command.limit))
    }

    /// Runs a line of busybox's shell in the initramfs; an error unless it succeeds. Returns what it printed.
    pub fn shell(&self, line: &str) -> Result<String> {
        let output = self.run(&GuestCommand::shell(line))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status != 0 {
            bail!("`{line}` ended with {} in the guest: {}", output.status, text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }

    /// The kernel's messages so far.
    pub fn kernel_log(&self) -> Result<String> {
        read_lossy(&self.logs.join("console.log"))
    }

    /// The daemon, to look at, kill and restart.
    pub fn daemon(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.daemon)
    }

    /// Executes a command of QEMU's monitor.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value> {
        lock(&self.qmp).execute(command, arguments)
    }

    /// Takes our device out, as a person who unplugs it; waits until the guest has let go of it.
    pub fn unplug(&self) -> Result<()> {
        let mut qmp = lock(&self.qmp);
        qmp.execute("device_del", json!({ "id": machine::CUDA_DEVICE }))?;
        let ours = |data: &Value| data["device"] == machine::CUDA_DEVICE;
        qmp.wait_for("DEVICE_DELETED", ours, PLUG_LIMIT)?;
        qmp.execute("chardev-remove", json!({ "id": machine::CUDA_CHARDEV }))?;
        Ok(())
    }

    /// Plugs our device in again.
    pub fn plug(&self) -> Result<()> {
        let socket = self.daemon().socket().to_path_buf();
        let mut qmp = lock(&self.qmp);
        qmp.execute("chardev-add", machine::chardev_description(&socket))?;
        qmp.execute("device_add", machine::device_description(&self.config))?;
        Ok(())
    }

    /// Whether QEMU still runs.
    pub fn is_running(&self) -> Result<bool> {
        Ok(lock(&self.qemu).status()?.is_none())
    }

    /// Switches the guest off and ends the daemon; an error if the guest does not go by itself.
    pub fn shut_down(self) -> Result<()> {
        self.agent.power_off()?;
        let mut qemu = lock(&self.qemu);
        match qemu.wait(POWER_OFF_LIMIT)? {
            Some(status) if status.success() => self.daemon().stop(),
            Some(status) => bail!("{}", qemu.obituary(status)),
            None => bail!(
                "The guest did not switch off; its last messages:\n{}",
                last_lines(&self.kernel_log()?, 20)
            ),
        }
    }
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

    /// Adds what the guest printed last to an error.
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

fn read_lossy(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
