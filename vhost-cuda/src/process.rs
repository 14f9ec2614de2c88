// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One worker process: started, killed, reaped.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use zerocopy::FromBytes;

use crate::args::Sandbox;
use crate::environment;
use crate::link::{self, Ready};

/// How long a worker may take to bring up CUDA.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// What every worker of a daemon is started with.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// The libcuda to load.
    pub library: PathBuf,
    /// Most device memory of a session, in bytes.
    pub memory_limit: Option<u64>,
    /// Threads of a worker for large copies.
    pub copy_threads: u32,
    /// What a worker may ask the kernel for.
    pub sandbox: Sandbox,
    /// The library is the emulator.
    pub emulated: bool,
    /// Level of the worker's messages.
    pub log_level: String,
}

/// Why a worker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("Cannot start a worker process")]
    Spawn(#[source] io::Error),
    /// It started, and says that CUDA does not work.
    #[error("A worker cannot use CUDA: {0}")]
    Failed(String),
    /// It ended, or did not answer in time.
    #[error("A worker ended before it was ready ({0})")]
    Ended(String),
}

/// A running worker. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct Worker {
    /// The stream to it.
    pub link: UnixStream,
    /// The stream on which it asks for images ([`crate::cache`]), until its session has taken it.
    pub images: Option<UnixStream>,
    /// The stream on which it shares things with others ([`crate::exchange`]), until its session has taken it.
    pub exchange: Option<UnixStream>,
    /// The process.
    pub process: Process,
}

/// The process of a worker, leader of its own process group.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    child: Mutex<Option<Child>>,
}

impl Worker {
    /// Starts a worker. It ends when the calling *thread* ends (`PR_SET_PDEATHSIG`), so call this from a
    /// thread that lives as long as the daemon.
    ///
    /// `announce`: it says in the log how much GPU memory its context takes, and so many of them.
    pub fn spawn(spec: &WorkerSpec, announce: Option<usize>) -> Result<Self, WorkerError> {
        let (link, theirs) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let (images, their_images) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let (exchange, their_exchange) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let sockets = [theirs.as_raw_fd(), their_images.as_raw_fd(), their_exchange.as_raw_fd()];
        let [fd, images_fd, exchange_fd] = sockets;
        let parent = std::process::id();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vhost-user-cuda-worker");
        environment::keep_from(&mut command);
        command.arg("worker").arg("--link-fd").arg(fd.to_string()).arg("--library").arg(&spec.library);
        command.arg("--images-fd").arg(images_fd.to_string());
        command.arg("--exchange-fd").arg(exchange_fd.to_string());
        command.arg("--worker-log-level").arg(&spec.log_level);
        command.arg("--copy-threads").arg(spec.copy_threads.to_string());
        command.arg("--sandbox").arg(spec.sandbox.name());
        if spec.emulated {
            command.arg("--emulated");
        }
        if let Some(limit) = spec.memory_limit {
            command.arg("--memory-limit").arg(limit.to_string());
        }
        if let Some(count) = announce {
            command.arg("--announce-memory").arg(count.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        // SAFETY: the closure makes only async-signal-safe calls (prctl, getppid, close_range, fcntl).
        unsafe { command.pre_exec(move || prepare_child(sockets, parent)) };
        let child = command.spawn().map_err(WorkerError::Spawn)?;
        Ok(Self { link, images: Some(images), exchange: Some(exchange), process: Process::of(child) })
    }

    /// Waits until the worker has brought up CUDA.
    pub fn wait_ready(&self) -> Result<Ready, WorkerError> {
        let ended = |error: io::Error| WorkerError::Ended(error.to_string());
        self.link.set_read_timeout(Some(START_TIMEOUT)).map_err(ended)?;
        let frame = link::receive_reply(&self.link).map_err(ended)?;
        self.link.set_read_timeout(None).map_err(ended)?;
        match frame {
            Some((header, payload)) if header.kind == link::FROM_READY => Ready::read_from_bytes(&payload)
                .map_err(|_| WorkerError::Ended("it sent a malformed greeting".into())),
            Some((_, text)) => Err(WorkerError::Failed(String::from_utf8_lossy(&text).into_owned())),
            None => Err(WorkerError::Ended(match self.process.reap() {
                Some(status) => status.to_string(),
                None => "already reaped".into(),
            })),
        }
    }
}

impl Process {
    /// Takes over a child that leads its own process group.
    pub fn of(child: Child) -> Self {
        Self { pid: child.id(), child: Mutex::new(Some(child)) }
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&self) -> bool {
        let mut slot = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let running = slot.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !running {
            // Reaped: its number may belong to another process from now on.
            *slot = None;
        }
        running
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL to the process and all it has started. Does not wait.
    pub fn kill(&self) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if child.is_some() {
            self.kill_group();
        }
    }

    /// Kills the process and waits until it is gone: after that nothing of it touches guest memory.
    /// `None` if that was done before.
    pub fn reap(&self) -> Option<ExitStatus> {
        let mut child = {
            let mut slot = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let child = slot.take()?;
            self.kill_group();
            child
        };
        child.wait().ok()
    }

    fn kill_group(&self) {
        // SAFETY: plain system call. The child is not reaped yet (the caller holds it), so the id is still its own.
        unsafe { libc::kill(-(self.pid as libc::pid_t), libc::SIGKILL) };
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Runs in the child between fork and exec.
fn prepare_child(sockets: [RawFd; 3], parent: u32) -> io::Result<()> {
    // SAFETY: plain system calls on the child's own state; `sockets` are open, inherited across fork.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
            return Err(io::Error::last_os_error());
        }
        // The daemon may have ended before the line above.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // What front-ends sent lacks the close-on-exec flag: no worker may get another guest's memory.
        let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
        if libc::close_range(3, libc::c_uint::MAX, flags) < 0
            || sockets.iter().any(|&socket| libc::fcntl(socket, libc::F_SETFD, 0) < 0)
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
