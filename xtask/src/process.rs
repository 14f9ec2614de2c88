// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that never outlive this one.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

type Request = (Command, Sender<io::Result<Child>>);

/// Polling interval of a wait with a time limit.
const POLL: Duration = Duration::from_millis(5);

/// A helper process with its output in a log file. Dropping it kills it.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, in a process group of its own so that Ctrl-C is ours to handle.
    pub fn start(name: &'static str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("Cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = spawn(command).with_context(|| format!("Cannot start {program}"))?;
        Ok(Self { name, child, log: log.to_path_buf() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, for at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= end {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    /// Sends SIGTERM; kills it if that takes longer than `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Result<()> {
        self.signal(libc::SIGTERM);
        if self.wait(limit)?.is_none() {
            self.kill()?;
        }
        Ok(())
    }

    /// Sends SIGKILL and waits.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("Cannot kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// An explanation for a process that has ended too early.
    pub fn obituary(&self, status: ExitStatus) -> String {
        format!(
            "{} ended ({status}): {}\nIts log: {}",
            self.name,
            last_lines(&self.log(), 10),
            self.log.display()
        )
    }

    fn signal(&self, number: i32) {
        // SAFETY: kill takes no memory; the child was not waited for, so that its id cannot be another process's.
        unsafe { libc::kill(self.child.id() as i32, number) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself. Other errors cannot be handled.
        let _ = self.kill();
    }
}

/// The last `count` lines of `text`.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The last line of `text` that is not empty, trimmed.
pub fn last_line(text: &str) -> Option<&str> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty())
}

/// Waits until `process` listens on `socket`, which does not exist before.
pub fn wait_for_socket(process: &mut Process, socket: &Path, limit: Duration) -> Result<()> {
    let end = Instant::now() + limit;
    while !socket.exists() {
        if let Some(status) = process.status()? {
            bail!("{}", process.obituary(status));
        }
        if Instant::now() > end {
            let (name, log) = (process.name, process.log.display());
            bail!("{name} does not listen after {limit:?}; its log: {log}");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// A text file, whatever bytes are in it.
pub fn read_lossy(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Spawns `command` so that the kernel kills it when this process ends, however that happens.
///
/// The kernel means the thread that spawned, not its process: so one thread, which never ends, spawns all.
fn spawn(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Request>> = OnceLock::new();
    // SAFETY: the closure runs between fork and exec and makes one system call that takes no memory.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                // There is no receiver for the reply only if the caller panicked.
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, result) = channel();
    let disconnected = |_| io::Error::other("the spawning thread is gone");
    spawner.send((command, reply)).map_err(|_| disconnected(()))?;
    result.recv().map_err(|_| disconnected(()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_leaves_its_output_in_the_log() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let mut process = Process::start("sh", command, &folder.path().join("log"))?;
        let status = process.wait(Duration::from_secs(10))?.context("sh did not end")?;
        assert_eq!(status.code(), Some(3));
        assert_eq!(process.log(), "out\nerr\n");
        assert!(process.obituary(status).contains("sh ended"));
        Ok(())
    }

    #[test]
    fn a_process_that_ignores_the_signal_is_killed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]);
        let mut process = Process::start("sh", command, &folder.path().join("log"))?;
        while !process.log().contains("ready") {
            thread::sleep(POLL);
        }
        process.terminate(Duration::from_millis(200))?;
        assert!(process.status()?.is_some());
        Ok(())
    }
}
