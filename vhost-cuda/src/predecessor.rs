// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A daemon that was killed leaves workers that are still ending, while GPUs write guest memory for them. The next
//! daemon on the same socket waits for these before it answers anybody: the guest gives memory back once a daemon
//! says that it knows nothing of a session.
//!
//! The daemon and each of its workers hold one open description of a file beside the socket, which is locked; the kernel
//! unlocks it when the last of them has ended. A daemon that can lock the file alone has no predecessor. The daemon opens
//! the file once, because workers are started where its folder cannot be seen.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use log::warn;

/// Time that workers get to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which the log says what is waited for.
const SILENCE: Duration = Duration::from_secs(1);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The file that a daemon and its workers lock.
#[derive(Clone, Debug)]
pub struct WorkerLock {
    file: Arc<File>,
}

impl WorkerLock {
    /// Waits until the workers of earlier daemons on `socket` have ended.
    ///
    /// Errors: they have not within [`PATIENCE`].
    pub fn wait(socket: &Path) -> anyhow::Result<Self> {
        Self::wait_for(socket, PATIENCE)
    }

    fn wait_for(socket: &Path, patience: Duration) -> anyhow::Result<Self> {
        let mut name = OsString::from(socket);
        name.push(".workers");
        let path = PathBuf::from(name);
        let file = open(&path).with_context(|| format!("Cannot open {}", path.display()))?;
        let begun = Instant::now();
        let mut said = false;
        while !try_lock(&file).with_context(|| format!("Cannot lock {}", path.display()))? {
            let waited = begun.elapsed();
            if waited >= patience {
                bail!(
                    "Workers of an earlier daemon have not ended within {} s, and may still write the guest's memory: \
                     `fuser {}` names them. If they hang in the kernel, its log says why; restart the host, or shut the \
                     virtual machine down and remove that file",
                    patience.as_secs(),
                    path.display()
                );
            }
            if waited >= SILENCE && !std::mem::replace(&mut said, true) {
                warn!("waiting for the workers of an earlier daemon to end ({})", path.display());
            }
            thread::sleep(PAUSE);
        }
        Ok(Self { file: Arc::new(file) })
    }

    /// A descriptor that says for the worker that inherits it that it has not ended.
    pub fn hold(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Locks the file alone, if nobody else has locked it.
fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: a plain call on an open descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn a_daemon_waits_for_workers_and_not_for_ever() {
        let folder = TempDir::new().unwrap();
        let socket = folder.as_path().join("socket");
        let lock = WorkerLock::wait_for(&socket, Duration::ZERO).unwrap();
        let (one, other) = (lock.hold().unwrap(), lock.hold().unwrap());
        let refused = WorkerLock::wait_for(&socket, Duration::from_millis(50)).unwrap_err();
        assert!(refused.to_string().contains("socket.workers"), "{refused}");
        drop((one, lock));
        thread::scope(|scope| {
            let next = scope.spawn(|| WorkerLock::wait_for(&socket, PATIENCE));
            thread::sleep(Duration::from_millis(100));
            assert!(!next.is_finished(), "one of them has not ended");
            drop(other);
            assert!(next.join().unwrap().is_ok());
        });
    }
}
