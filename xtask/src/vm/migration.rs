// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines that are saved, loaded, and moved to another QEMU with a daemon of its own.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::boot::{Booted, Started};
use super::qmp::Qmp;
use super::{Survivor, Vm, VmConfig};
use crate::daemon::Daemon;
use crate::paths::Paths;

/// The time for QEMU to save, load or move a machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The time between two questions about the progress.
const POLL: Duration = Duration::from_millis(10);
/// The milliseconds for which a machine may stand still, whose programs change their memory faster than it is sent.
const PATIENT: u64 = 60_000;
/// Bytes per second: no limit.
const BANDWIDTH: u64 = 1 << 40;
/// The folder in the guest's own file system for files of the host.
pub const OWN_FILES: &str = "/own";
/// The block nodes of the file for snapshots.
const SNAPSHOT_FILE: &str = "snapshot-file";
const SNAPSHOTS: &str = "snapshots";
/// The size of the disk in that file, which nothing uses: QEMU keeps machines beside its contents.
const DISK_BYTES: u64 = 1 << 20;

/// A QEMU that waits for a machine, and its daemon.
pub struct Destination {
    paths: Paths,
    config: VmConfig,
    logs: PathBuf,
    started: Started,
}

impl Destination {
    /// Starts both, for a machine of this configuration, with logs as [`Vm::boot`] has them. With `survivor` it is the daemon that another
    /// machine has left.
    pub fn start(
        paths: &Paths,
        mut config: VmConfig,
        logs: &Path,
        survivor: Option<Survivor>,
    ) -> Result<Self> {
        config.qemu_arguments.extend(["-incoming", "defer"].map(String::from));
        let started = Started::new(paths, &config, logs, survivor)?;
        Ok(Self { paths: paths.clone(), config, logs: logs.to_path_buf(), started })
    }

    /// Takes a machine from an address of QEMU's, such as `unix:PATH` or `file:PATH`. Does not wait for it.
    pub fn listen(&mut self, address: &str) -> Result<()> {
        self.started.qmp.set_up_migration(address)?;
        self.started.qmp.execute("migrate-incoming", json!({ "uri": address })).map(drop)
    }

    /// Waits until the machine that `source` was runs here. Nothing may run in its guest that this command has started and not
    /// waited for.
    ///
    /// Errors: QEMU has not taken it. Its log has the reason.
    pub fn arrive(mut self, source: &Vm) -> Result<Vm> {
        self.wait()?;
        self.go_on(source)
    }

    /// Waits until the machine is here. It runs then, unless QEMU was started with `-S`.
    ///
    /// Errors: QEMU has not taken it. Its log has the reason.
    pub fn wait(&mut self) -> Result<()> {
        let Err(error) = self.started.qmp.wait_for_migration() else { return Ok(()) };
        // QEMU ends itself when it has not taken a machine.
        let status = self.started.qemu.wait(POLL * 100)?;
        Err(match status {
            Some(status) => error.context(self.started.qemu.obituary(status)),
            None => error,
        })
    }

    /// Lets the machine that is here run, as [`Self::arrive`].
    pub fn go_on(mut self, source: &Vm) -> Result<Vm> {
        self.started.qmp.execute("cont", json!({}))?;
        self.started.qmp.wait_until_running()?;
        let Started { agent, accelerator, qmp, qemu, daemon, folder, .. } = self.started;
        let agent = source.agent().again(agent)?;
        let booted = Booted { agent, problems: Vec::new(), accelerator, qmp, qemu, daemon, folder };
        Ok(Vm::of(&self.paths, self.config, &self.logs, booted))
    }

    /// The daemon, for inspecting, killing and restarting it.
    pub fn daemon(&mut self) -> &mut Daemon {
        &mut self.started.daemon
    }

    /// QEMU's process id.
    pub fn qemu_id(&self) -> u32 {
        self.started.qemu.id()
    }

    /// Kills QEMU without warning. The daemon runs on.
    pub fn crash(mut self) -> Result<Survivor> {
        self.started.qemu.kill()?;
        Ok(Survivor { daemon: self.started.daemon, folder: self.started.folder })
    }
}

impl Vm {
    /// Copies files of the host into [`OWN_FILES`] of the guest's memory, and gives up the host's file system, with which
    /// QEMU does not save a machine. Only commands of the guest's own file system run after that. The dynamic linker gets its usual place.
    pub fn leave_host(&self, files: &[PathBuf]) -> Result<()> {
        let copy = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let folder = if name.starts_with("ld-linux") { "/lib64" } else { OWN_FILES };
            // An absolute link would lead into the guest's own files.
            let source = file.canonicalize().with_context(|| format!("{} is not there", file.display()))?;
            Ok(format!("cp '/host{}' '{folder}/{name}'\n", source.display()))
        };
        let copies: String = files.iter().map(copy).collect::<Result<_>>()?;
        self.shell(&format!("set -e\nmkdir -p {OWN_FILES} /lib64\n{copies}umount -l /root\numount /host"))
            .map(drop)
    }

    /// Sends the machine to an address of QEMU's, and waits until that is done. After that it stands still here.
    ///
    /// Errors: QEMU's reason. The machine goes on.
    pub fn send(&self, address: &str) -> Result<()> {
        self.send_live(address, PATIENT)
    }

    /// As [`Self::send`]. The machine stands still when QEMU thinks that the rest takes so many milliseconds.
    ///
    /// Errors: QEMU's reason. The machine goes on.
    pub fn send_live(&self, address: &str, downtime: u64) -> Result<()> {
        let mut qmp = self.monitor();
        qmp.begin_migration(address, json!({ "max-bandwidth": BANDWIDTH, "downtime-limit": downtime }))?;
        qmp.wait_for_migration()
    }

    /// Sends at most so many bytes per second, and gives that up after `bytes` are sent. The machine goes on.
    pub fn send_in_vain(&self, address: &str, bandwidth: u64, bytes: u64) -> Result<()> {
        let mut qmp = self.monitor();
        qmp.begin_migration(address, json!({ "max-bandwidth": bandwidth, "downtime-limit": 1 }))?;
        let enough = qmp.poll("query-migrate", |answer| match answer["status"].as_str() {
            Some("active") if answer["ram"]["transferred"].as_u64() < Some(bytes) => None,
            Some("setup") => None,
            Some("active") => Some(Ok(())),
            _ => Some(Err("it has ended".to_owned())),
        });
        qmp.execute("migrate_cancel", json!({}))?;
        enough?;
        let cancelled = qmp.wait_for_migration();
        if cancelled.is_ok() { bail!("it was not cancelled") } else { qmp.wait_until_running() }
    }

    /// Creates a file for [`Self::save_snapshot`].
    pub fn create_snapshots(&self, file: &Path) -> Result<()> {
        let mut qmp = self.monitor();
        qmp.job("blockdev-create", json!({ "options": { "driver": "file", "filename": file, "size": 0 } }))?;
        qmp.execute(
            "blockdev-add",
            json!({ "driver": "file", "filename": file, "node-name": SNAPSHOT_FILE }),
        )?;
        let options = json!({ "driver": "qcow2", "file": SNAPSHOT_FILE, "size": DISK_BYTES });
        qmp.job("blockdev-create", json!({ "options": options }))?;
        qmp.execute(
            "blockdev-add",
            json!({ "driver": "qcow2", "file": SNAPSHOT_FILE, "node-name": SNAPSHOTS }),
        )?;
        Ok(())
    }

    /// Saves the machine, as the monitor's `savevm`. It goes on, also if that fails.
    pub fn save_snapshot(&self, name: &str) -> Result<()> {
        let which = json!({ "tag": name, "vmstate": SNAPSHOTS, "devices": [SNAPSHOTS] });
        let mut qmp = self.monitor();
        qmp.job("snapshot-save", which)?;
        qmp.wait_until_running()
    }

    /// Makes the machine what it was when it was saved, as `loadvm`.
    ///
    /// Errors: QEMU's reason. The machine stands still then.
    pub fn load_snapshot(&self, name: &str) -> Result<()> {
        let which = json!({ "tag": name, "vmstate": SNAPSHOTS, "devices": [SNAPSHOTS] });
        let mut qmp = self.monitor();
        qmp.job("snapshot-load", which)?;
        qmp.wait_until_running()
    }
}

impl Qmp {
    fn set_up_migration(&mut self, address: &str) -> Result<()> {
        // With it the source learns that the destination has refused the machine, and goes on. A file has none.
        let answers = json!({ "capability": "return-path", "state": !address.starts_with("file:") });
        self.execute("migrate-set-capabilities", json!({ "capabilities": [answers] })).map(drop)
    }

    fn begin_migration(&mut self, address: &str, parameters: Value) -> Result<()> {
        self.set_up_migration(address)?;
        self.execute("migrate-set-parameters", parameters)?;
        self.execute("migrate", json!({ "uri": address })).map(drop)
    }

    fn wait_for_migration(&mut self) -> Result<()> {
        self.poll("query-migrate", |answer| match answer["status"].as_str() {
            Some("completed") => Some(Ok(())),
            Some("failed" | "cancelled") => {
                Some(Err(answer["error-desc"].as_str().unwrap_or("no reason").to_owned()))
            }
            _ => None,
        })
    }

    fn wait_until_running(&mut self) -> Result<()> {
        self.poll("query-status", |answer| (answer["status"] == "running").then_some(Ok(())))
    }

    /// Runs a job to its end.
    fn job(&mut self, command: &str, mut arguments: Value) -> Result<()> {
        arguments["job-id"] = json!(command);
        self.execute(command, arguments)?;
        let ended = self.poll("query-jobs", |jobs| {
            let job =
                jobs.as_array()?.iter().find(|job| job["id"] == command && job["status"] == "concluded")?;
            Some(job["error"].as_str().map_or(Ok(()), |error| Err(error.to_owned())))
        });
        self.execute("job-dismiss", json!({ "id": command }))?;
        ended.with_context(|| format!("QEMU's {command}"))
    }

    /// Repeats a question until `answer` finds the end.
    fn poll(&mut self, question: &str, end: impl Fn(&Value) -> Option<Result<(), String>>) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = self.execute(question, json!({}))?;
            match end(&answer) {
                Some(result) => return result.map_err(anyhow::Error::msg),
                None if Instant::now() > deadline => bail!("Not within {LIMIT:?}: {question} says {answer}"),
                None => thread::sleep(POLL),
            }
        }
    }
}
