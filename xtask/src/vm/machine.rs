// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running machine.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::accelerator::Accelerator;
use super::agent::{Agent, Output, Running};
use super::boot::{BOOT_LIMIT, Booted, boot};
use super::qmp::Qmp;
use super::{GuestCommand, VmConfig, qemu_command};
use crate::build::Stack;
use crate::daemon::Daemon;
use crate::paths::Paths;
use crate::process::{Process, last_lines, read_lossy};

/// Time limit for a guest to switch off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for plugging.
const PLUG_LIMIT: Duration = Duration::from_secs(30);

/// A daemon whose machine has ended, for the next one; with the folder of its socket.
pub struct Survivor {
    /// The daemon, for inspecting, killing and restarting it.
    pub daemon: Daemon,
    pub(super) folder: tempfile::TempDir,
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
        Self::boot_at(paths, config, logs, None)
    }

    /// As [`Self::boot`], at the daemon that another machine has left, if there is one.
    pub fn boot_at(paths: &Paths, config: VmConfig, logs: &Path, survivor: Option<Survivor>) -> Result<Self> {
        let booted = boot(paths, &config, logs, survivor)?;
        Ok(Self::of(paths, config, logs, booted))
    }

    /// The machine of these parts.
    pub(super) fn of(paths: &Paths, config: VmConfig, logs: &Path, parts: Booted) -> Self {
        let Booted { agent, problems, accelerator, qmp, qemu, daemon, folder } = parts;
        Self {
            config,
            libraries: Stack::new(paths).guest_libraries(),
            logs: logs.to_path_buf(),
            agent,
            problems,
            accelerator,
            qmp: Mutex::new(qmp),
            qemu: Mutex::new(qemu),
            daemon: Mutex::new(daemon),
            _folder: folder,
        }
    }

    /// The way to the guest.
    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Locks QEMU's monitor.
    pub(super) fn monitor(&self) -> MutexGuard<'_, Qmp> {
        lock(&self.qmp)
    }

    /// The failed steps of the agent's setup, such as a module that did not load.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The guest's accelerator.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// QEMU's process id.
    pub fn qemu_id(&self) -> u32 {
        lock(&self.qemu).id()
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

    /// Runs a line of busybox's shell in the initramfs. Returns its output, or an error unless it succeeds.
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

    /// Locks the daemon, for inspecting, killing and restarting it.
    pub fn daemon(&self) -> MutexGuard<'_, Daemon> {
        lock(&self.daemon)
    }

    /// Executes a command of QEMU's monitor.
    pub fn qmp(&self, command: &str, arguments: Value) -> Result<Value> {
        lock(&self.qmp).execute(command, arguments)
    }

    /// Bytes of memory that the guest has, if it has a balloon.
    pub fn memory(&self) -> Result<u64> {
        let answer = self.qmp("query-balloon", json!({}))?;
        answer["actual"].as_u64().with_context(|| format!("QEMU's query-balloon says {answer}"))
    }

    /// Requests this size of the guest's memory from its balloon, in bytes. [`Self::memory`] returns the progress.
    pub fn ask_for_memory(&self, bytes: u64) -> Result<()> {
        self.qmp("balloon", json!({ "value": bytes })).map(drop)
    }

    /// Plugs memory in, as a DIMM of that number.
    pub fn plug_memory(&self, dimm: usize, bytes: u64) -> Result<()> {
        let (memory, device) = (format!("memory{dimm}"), format!("dimm{dimm}"));
        let backend =
            json!({ "qom-type": "memory-backend-memfd", "id": memory, "size": bytes, "share": true });
        self.qmp("object-add", backend)?;
        self.qmp("device_add", json!({ "driver": "pc-dimm", "id": device, "memdev": memory })).map(drop)
    }

    /// Asks the guest's kernel to give a DIMM back, which it need not do.
    pub fn ask_for_dimm(&self, dimm: usize) -> Result<()> {
        self.qmp("device_del", json!({ "id": format!("dimm{dimm}") })).map(drop)
    }

    /// Removes our device, like a user who unplugs it, and waits until the guest has released it.
    pub fn unplug(&self) -> Result<()> {
        let mut qmp = lock(&self.qmp);
        qmp.execute("device_del", json!({ "id": qemu_command::CUDA_DEVICE }))?;
        let ours = |data: &Value| data["device"] == qemu_command::CUDA_DEVICE;
        qmp.wait_for("DEVICE_DELETED", ours, PLUG_LIMIT)?;
        qmp.execute("chardev-remove", json!({ "id": qemu_command::CUDA_CHARDEV }))?;
        Ok(())
    }

    /// Plugs our device in again.
    pub fn plug(&self) -> Result<()> {
        let socket = self.daemon().socket().to_path_buf();
        let mut qmp = lock(&self.qmp);
        qmp.execute("chardev-add", qemu_command::chardev_description(&socket))?;
        qmp.execute("device_add", qemu_command::device_description(&self.config))?;
        Ok(())
    }

    /// Pauses the guest: its processors, and the device's queues.
    pub fn pause(&self) -> Result<()> {
        self.qmp("stop", json!({})).map(drop)
    }

    /// Lets a paused guest go on.
    pub fn resume(&self) -> Result<()> {
        self.qmp("cont", json!({})).map(drop)
    }

    /// Resets the machine, as its reset button does. A paused guest does not boot before [`Vm::resume_reset`].
    pub fn reset(&self) -> Result<()> {
        self.agent.expect_reset();
        // The command line makes a guest's own reboot end QEMU.
        self.qmp("set-action", json!({ "reboot": "reset" }))?;
        self.qmp("system_reset", json!({})).map(drop)
    }

    /// Lets a guest that was paused and reset boot; waits until it is up.
    pub fn resume_reset(&self) -> Result<()> {
        self.qmp("cont", json!({}))?;
        let problems = self.agent.wait_booted(BOOT_LIMIT)?;
        if !problems.is_empty() {
            bail!("After the reset: {problems:?}");
        }
        Ok(())
    }

    /// Returns whether QEMU still runs.
    pub fn is_running(&self) -> Result<bool> {
        Ok(lock(&self.qemu).status()?.is_none())
    }

    /// Kills QEMU without warning, as a crash of it would end. The daemon runs on.
    pub fn crash(self) -> Result<Survivor> {
        lock(&self.qemu).kill()?;
        let daemon = self.daemon.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Survivor { daemon, folder: self._folder })
    }

    /// Switches the guest off and ends the daemon. Returns an error if the guest does not switch off by itself.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
