// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for workers of an earlier daemon that was killed. These workers may still be ending, while GPUs write guest
//! memory for them. The next daemon on the same socket waits for them before it answers any front-end. The guest
//! frees memory once a daemon reports that it does not know a session.
//!
//! Each worker holds a file (`--workers-lock`, by default beside the socket) open and locked. The kernel unlocks the
//! file when the worker has ended. A daemon that can lock the file exclusively has no predecessor.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use log::warn;
use rustix::fs::{Mode, OFlags, openat};

/// The time limit for the workers to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which the log reports the wait.
const SILENCE: Duration = Duration::from_secs(1);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// The file that workers of a socket lock. Its folder is held open, because workers are started in a root in which it
/// is not visible.
#[derive(Clone, Debug)]
pub struct WorkerLock {
    folder: Arc<File>,
    name: CString,
}

impl WorkerLock {
    /// Returns the path of the file for `socket`, unless the operator sets another one.
    pub fn beside(socket: &Path) -> PathBuf {
        let mut path = OsString::from(socket);
        path.push(".workers");
        PathBuf::from(path)
    }

    /// Waits until the workers of earlier daemons, which hold `path`, have ended.
    ///
    /// Errors: they have not ended within [`PATIENCE`].
    pub fn wait(path: &Path) -> anyhow::Result<Self> {
        Self::wait_for(path, PATIENCE)
    }

    /// Opens the file of workers with which the daemon goes on. Does not wait for them.
    pub fn again(path: &Path) -> anyhow::Result<Self> {
        Self::of(path).with_context(|| format!("Cannot open the folder of {}", path.display()))
    }

    fn wait_for(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let lock = Self::of(path).with_context(|| format!("Cannot open the folder of {}", path.display()))?;
        let file = lock.open().with_context(|| format!("Cannot open {}", path.display()))?;
        let begun = Instant::now();
        let mut said = false;
        while !is_locked(file.try_lock()).with_context(|| format!("Cannot lock {}", path.display()))? {
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
        Ok(lock)
    }

    fn of(path: &Path) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder =
            OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(folder)?;
        let name = CString::new(path.file_name().unwrap_or_default().as_bytes())?;
        Ok(Self { folder: Arc::new(folder), name })
    }

    /// Returns an open file. As long as it is held, a worker has not ended. The file cannot be written.
    pub fn hold(&self) -> io::Result<File> {
        let file = self.open()?;
        // Only a daemon that starts on the socket of this one locks it exclusively.
        match is_locked(file.try_lock_shared())? {
            true => Ok(file),
            false => {
                Err(io::Error::new(io::ErrorKind::ResourceBusy, "another daemon starts on the same socket"))
            }
        }
    }

    fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &*self.name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }
}

/// Returns whether the file is locked now.
fn is_locked(outcome: Result<(), TryLockError>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm_sys_util::tempdir::TempDir;

    #[test]
    fn a_daemon_waits_for_workers_and_not_for_ever() {
        let folder = TempDir::new().unwrap();
        let path = WorkerLock::beside(&folder.as_path().join("socket"));
        let lock = WorkerLock::wait_for(&path, Duration::ZERO).unwrap();
        let (one, other) = (lock.hold().unwrap(), lock.hold().unwrap());
        let refused = WorkerLock::wait_for(&path, Duration::from_millis(50)).unwrap_err();
        assert!(refused.to_string().contains("socket.workers"), "{refused}");
        drop(one);
        thread::scope(|scope| {
            let next = scope.spawn(|| WorkerLock::wait_for(&path, PATIENCE));
            thread::sleep(Duration::from_millis(100));
            assert!(!next.is_finished(), "one of them has not ended");
            drop(other);
            assert!(next.join().unwrap().is_ok());
        });
    }
}
