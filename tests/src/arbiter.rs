// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The arbiter of GPU time.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::stack::Stack;

/// Time limit for it to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// An arbiter, killed with the value.
pub struct Arbiter {
    child: Child,
    program: PathBuf,
    folder: TempDir,
}

impl Arbiter {
    /// Starts one, and returns when it listens.
    pub fn start(stack: &Stack) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let program = stack.daemon();
        let child = launch(&program, &folder)?;
        Ok(Self { child, program, folder })
    }

    /// A daemon's options for a machine of this weight.
    pub fn options(&self, weight: u32) -> Result<Vec<String>> {
        let socket = socket_in(&self.folder);
        let socket = socket.to_str().context("a path that is no text")?.to_owned();
        Ok(vec!["--arbiter".to_owned(), socket, "--share".to_owned(), weight.to_string()])
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts another one at the same place.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.child = launch(&self.program, &self.folder)?;
        Ok(())
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        self.kill();
    }
}

fn socket_in(folder: &TempDir) -> PathBuf {
    folder.path().join("arbiter")
}

fn launch(program: &PathBuf, folder: &TempDir) -> Result<Child> {
    let socket = socket_in(folder);
    let mut command = Command::new(program);
    command.arg("arbiter").arg("--socket").arg(&socket).args(["--log-level", "error"]);
    let child = command.stdin(Stdio::null()).spawn().context("Cannot start the arbiter")?;
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        ensure!(Instant::now() < deadline, "the arbiter does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}
