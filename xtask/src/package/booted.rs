// SPDX-License-Identifier: Apache-2.0 OR MIT
//! systemd as the first process of a container over a root, so that units run with all their settings.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::root::Root;
use crate::process::Process;
use crate::progress::output_of;

/// Time for systemd to start.
const LIMIT: Duration = Duration::from_secs(60);
/// Files that the container and the host share, so that large ones are not in the layer.
pub const SHARED: &str = "srv";
const PAUSE: Duration = Duration::from_millis(100);

/// The container. Dropping it ends its processes and removes the files that they wrote.
pub struct Booted {
    process: Process,
}

impl Booted {
    /// Starts systemd over `root`; `folder` is for its log and a mount point. The folder `srv` in it becomes /srv.
    pub fn start(root: &Root, folder: &Path) -> Result<Self> {
        let (layer, shared) = (folder.join("layer"), folder.join(SHARED));
        fs::create_dir_all(&layer)?;
        fs::create_dir_all(&shared)?;
        let log = folder.join("systemd.log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--uts",
            "--ipc",
            "--cgroup",
            "--kill-child",
            "sh",
            "-c",
        ]);
        command.arg(include_str!("booted.sh")).arg(root.path("")).arg(&layer).arg(&shared);
        let mut booted = Self { process: Process::start("systemd", command, &log)? };
        let end = Instant::now() + LIMIT;
        while booted.run(["systemctl", "is-active", "basic.target"]).is_err() {
            if let Some(status) = booted.process.status()? {
                bail!("{}", booted.process.obituary(status));
            }
            if Instant::now() > end {
                bail!("systemd has not started: {}", booted.process.log());
            }
            thread::sleep(PAUSE);
        }
        Ok(booted)
    }

    /// Runs a command in the container; its standard output.
    pub fn run<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.first()?.to_string()]);
        command.args(["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]);
        output_of(command.args(words))
    }

    /// The first process of the container, which is the child of `unshare`.
    fn first(&self) -> Result<u32> {
        let id = self.process.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        children.trim().parse().with_context(|| format!("unshare has no child: `{children}`"))
    }
}
