// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One worker process: its start, kill and reaping.

mod saved;

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::iter;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use log::error;
use parking_lot::Mutex;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open, waitid,
};
use vhost_cuda_common::args::Sandbox;
use vhost_cuda_common::link::{self, Ready};
use vhost_cuda_common::statistics::Statistics;
use zerocopy::FromBytes;

use crate::args::Speed;
use crate::confine;
use crate::sessions::environment;
use crate::sessions::messages::{Attached, Messages};
use crate::sessions::predecessor::WorkerLock;
use crate::shares::client::{Client, Enrolment};

pub use saved::SavedWorker;

/// The time limit for the rest of a greeting after its first byte.
const GREETING_TIMEOUT: Duration = Duration::from_millis(200);
/// The maximum number of bytes of a worker's failure report that are logged.
const MAX_REASON: usize = 1024;
/// The bit of a wait status for a core file.
const CORE_DUMPED: i32 = 0x80;
/// The time for a killed process to end before its owner continues without it.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// The settings with which every worker of a daemon is started.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// The libcuda to load.
    pub library: PathBuf,
    /// The folders that are searched first for NVIDIA's libraries.
    pub libraries: Vec<PathBuf>,
    /// True if workers may create sockets within their namespaces.
    pub nccl: bool,
    /// The maximum device memory of a session, in bytes.
    pub memory_limit: Option<u64>,
    /// GPUs that workers see, in the format of CUDA_VISIBLE_DEVICES. `None`: those that the daemon sees.
    pub gpus: Option<String>,
    /// The number of threads of a worker for large copies.
    pub copy_threads: u32,
    /// The filter of a worker's system calls.
    pub sandbox: Sandbox,
    /// All that makes calls faster.
    pub speed: Speed,
    /// True if the library is the emulator.
    pub emulated: bool,
    /// Level of the worker's messages.
    pub log_level: String,
    /// The lock that every worker holds until it has ended.
    pub lock: Option<WorkerLock>,
    /// The receiver of the workers' messages.
    pub messages: Messages,
    /// True to serve GPUs that access pageable memory.
    pub allow_pageable_access: bool,
    /// True if the thread that starts workers has namespaces for them.
    pub namespaces: bool,
    /// True if they map only guest pages that their sessions' processes have named.
    pub named_pages: bool,
    /// The maximum time that work on a GPU may take.
    pub time_limit: Option<Duration>,
    /// The arbiter of GPU time.
    pub shares: Option<Arc<Client>>,
}

/// The reason for which a worker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("Cannot start a worker process")]
    Spawn(#[source] io::Error),
    /// It started, and reports that CUDA does not work.
    #[error("A worker cannot use CUDA: {0}")]
    Failed(String),
    /// It ended, or did not answer in time.
    #[error("A worker ended before it was ready ({0})")]
    Ended(String),
}

/// A running worker. Dropping it kills and reaps the process.
#[derive(Debug)]
pub struct Worker {
    /// Its sockets.
    pub sockets: Arc<Sockets>,
    /// The process.
    pub process: Process,
    /// Its counters.
    pub statistics: Statistics,
    /// The file of its counters.
    pub counters: File,
    /// Its registration for the machine's share of GPU time.
    pub enrolment: Option<Enrolment>,
    /// The socket on which its mapper sends the listener, until its greeting, if it may map only named pages.
    pub pages: Mutex<Option<UnixStream>>,
    /// The listener on which its mappings of guest memory wait for a check, from its greeting on.
    pub listener: Mutex<Option<Arc<OwnedFd>>>,
    /// The version of the link that it speaks.
    pub version: u32,
    /// Its messages. Dropped after the process, so that the last of them are read when it has ended.
    pub messages: Attached,
}

/// The daemon's ends of a worker's sockets.
#[derive(Debug)]
pub struct Sockets {
    /// The stream of requests and replies.
    pub link: UnixStream,
    /// The stream on which it requests images ([`crate::cache`]).
    pub images: Arc<UnixStream>,
    /// The stream on which it shares objects with other workers ([`crate::exchange`]).
    pub exchange: Arc<UnixStream>,
}

impl Sockets {
    /// Shuts down all sockets, also if another process still holds the worker's ends. A reader here gets the data
    /// that was sent so far and then the end of the stream.
    pub fn hang_up(&self) {
        for socket in [&self.link, &*self.images, &*self.exchange] {
            // Fails only if the other end has hung up already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// The process of a worker, leader of its own process group, with the process that maps guest memory for it.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    pidfd: OwnedFd,
    /// True once it was waited for: its id may belong to another process then.
    reaped: Mutex<bool>,
    /// The mapper's id and descriptor, from the greeting on. It shares the worker's memory, which is unmapped when both
    /// have ended.
    mapper: OnceLock<(u32, OwnedFd)>,
}

/// The state of a process after it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It has ended, with its mapper, and no longer accesses guest memory. The status is unknown if a debugger holds it, or if it was
    /// reaped before.
    Ended(Option<ExitStatus>),
    /// It has not ended: it hangs in the kernel, mostly in a device driver.
    Stuck,
}

impl Worker {
    /// Starts a worker. In namespaces it ends with them. Without, it ends when the calling *thread* ends (`PR_SET_PDEATHSIG`), so
    /// call this from a thread that lives as long as the process.
    ///
    /// With `announce`, it logs the GPU memory that its context takes, and this number of such contexts.
    pub fn spawn(spec: &WorkerSpec, announce: Option<usize>) -> Result<Self, WorkerError> {
        let (link, theirs) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let (images, their_images) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let (exchange, their_exchange) = UnixStream::pair().map_err(WorkerError::Spawn)?;
        let (statistics, counters) = Statistics::create().map_err(WorkerError::Spawn)?;
        let files =
            [theirs.as_raw_fd(), their_images.as_raw_fd(), their_exchange.as_raw_fd(), counters.as_raw_fd()];
        let [fd, images_fd, exchange_fd, statistics_fd] = files;
        let named = spec.named_pages.then(UnixStream::pair);
        let (pages, their_pages) = named.transpose().map_err(WorkerError::Spawn)?.unzip();
        // Whoever sends its listener is its mapper, by the kernel's word.
        let authenticated = pages.as_ref().map(|pages| set_socket_passcred(pages, true)).transpose();
        authenticated.map_err(|error| WorkerError::Spawn(error.into()))?;
        let lock = spec.lock.as_ref().map(WorkerLock::hold).transpose().map_err(WorkerError::Spawn)?;
        let pages_fd = their_pages.as_ref().map(AsRawFd::as_raw_fd);
        let enrolment = spec.shares.as_ref().map(Client::enrol).transpose().map_err(WorkerError::Spawn)?;
        let share_fds = enrolment.as_ref().map(Enrolment::fds);
        let mut inherited: Vec<RawFd> =
            files.into_iter().chain(lock.as_ref().map(AsRawFd::as_raw_fd)).chain(pages_fd).collect();
        inherited.extend(share_fds.iter().flatten());
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vhost-user-cuda-worker");
        environment::keep_from(&mut command);
        command.arg("worker").arg("--link-fd").arg(fd.to_string()).arg("--library").arg(&spec.library);
        command.arg("--images-fd").arg(images_fd.to_string());
        command.arg("--exchange-fd").arg(exchange_fd.to_string());
        command.arg("--statistics-fd").arg(statistics_fd.to_string());
        if let Some(fd) = pages_fd {
            command.arg("--pages-fd").arg(fd.to_string());
        }
        if let Some(lock) = &lock {
            command.arg("--lock-fd").arg(lock.as_raw_fd().to_string());
        }
        if let Some([page, bell]) = share_fds {
            command.arg("--share-page-fd").arg(page.to_string());
            command.arg("--share-bell-fd").arg(bell.to_string());
        }
        command.arg("--worker-log-level").arg(&spec.log_level);
        command.arg("--copy-threads").arg(spec.copy_threads.to_string());
        command.arg("--sandbox").arg(spec.sandbox.name());
        for folder in &spec.libraries {
            command.arg("--libraries").arg(folder);
        }
        if spec.nccl {
            command.arg("--nccl");
        }
        if spec.emulated {
            command.arg("--emulated");
        }
        if spec.speed == Speed::Off {
            command.arg("--plain");
        }
        if let Some(limit) = spec.memory_limit {
            command.arg("--memory-limit").arg(limit.to_string());
        }
        if let Some(limit) = spec.time_limit {
            command.arg("--time-limit").arg(limit.as_millis().to_string());
        }
        if let Some(gpus) = &spec.gpus {
            // The numbers are then those of nvidia-smi.
            command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", gpus);
        }
        if let Some(count) = announce {
            command.arg("--announce-memory").arg(count.to_string());
        }
        if spec.namespaces {
            command.arg("--namespaces");
        }
        if spec.allow_pageable_access {
            command.arg("--allow-pageable-access");
        }
        confine::environment(&mut command);
        let (messages, stderr) = Messages::pipe().map_err(WorkerError::Spawn)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).process_group(0);
        let parent = (!spec.namespaces).then(std::process::id);
        // SAFETY: the closure makes only async-signal-safe calls (prctl, getppid, close_range, fcntl).
        unsafe { command.pre_exec(move || prepare_child(&inherited, parent)) };
        let child = command.spawn().map_err(WorkerError::Spawn)?;
        let process = Process::of(child).map_err(WorkerError::Spawn)?;
        let messages = spec.messages.attach(messages, process.pid()).map_err(WorkerError::Spawn)?;
        let (images, exchange) = (Arc::new(images), Arc::new(exchange));
        let sockets = Arc::new(Sockets { link, images, exchange });
        let pages = Mutex::new(pages);
        let (listener, version) = (Mutex::default(), link::VERSION);
        Ok(Self { sockets, process, pages, listener, statistics, counters, enrolment, messages, version })
    }

    /// Reads the worker's greeting. Must be called when its link has become readable.
    pub fn greeting(&self) -> Result<Ready, WorkerError> {
        let ended = |error: io::Error| WorkerError::Ended(error.to_string());
        let link = &self.sockets.link;
        link.set_read_timeout(Some(GREETING_TIMEOUT)).map_err(ended)?;
        let frame = link::receive_reply(link).map_err(ended)?;
        link.set_read_timeout(None).map_err(ended)?;
        match frame {
            Some((header, payload)) if header.kind == link::FROM_READY => {
                if let Some(pages) = self.pages.lock().take() {
                    let (listener, mapper) = receive_listener(&pages).map_err(ended)?;
                    self.process.add_mapper(mapper).map_err(ended)?;
                    *self.listener.lock() = Some(Arc::new(listener));
                }
                Ready::read_from_bytes(&payload)
                    .ok()
                    // It is the same program.
                    .filter(|ready| ready.link_version == link::VERSION)
                    .ok_or_else(|| WorkerError::Ended("it sent a malformed greeting".into()))
            }
            Some((_, text)) => Err(WorkerError::Failed(one_line(&text))),
            None => Err(WorkerError::Ended(match self.process.reap(GREETING_TIMEOUT) {
                Reaped::Ended(Some(status)) => status.to_string(),
                Reaped::Ended(None) => "already reaped".into(),
                Reaped::Stuck => "it has closed its socket".into(),
            })),
        }
    }

    /// Kills the worker and shuts down its sockets. Does not wait.
    pub fn kill(&self) {
        self.process.kill();
        self.sockets.hang_up();
    }

    /// Returns its sockets, which exist as long as it is in use.
    pub fn watched(&self) -> Weak<Sockets> {
        Arc::downgrade(&self.sockets)
    }
}

impl Process {
    /// Takes ownership of a child that leads its own process group.
    pub fn of(mut child: Child) -> io::Result<Self> {
        let pid = child.id();
        // The child is not reaped yet, so the id is its own.
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            // The child is waited for by its descriptor.
            Ok(pidfd) => Ok(Self { pid, pidfd, reaped: Mutex::default(), mapper: OnceLock::new() }),
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error.into())
            }
        }
    }

    /// Adds the process that maps guest memory for this one, a member of its process group. It has not ended yet.
    fn add_mapper(&self, pid: Pid) -> io::Result<()> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let number = pid.as_raw_nonzero().get() as u32;
        self.mapper.set((number, pidfd)).map_err(|_| io::Error::other("it has two mappers"))
    }

    fn pidfds(&self) -> impl Iterator<Item = &OwnedFd> {
        iter::once(&self.pidfd).chain(self.mapper.get().map(|(_, pidfd)| pidfd))
    }

    /// Returns whether neither the process nor its mapper has ended yet.
    pub fn is_running(&self) -> bool {
        !self.pidfds().any(|pidfd| has_ended(pidfd, Instant::now()))
    }

    /// Waits until the process and its mapper have ended: their memory is unmapped and their files are closed. Returns
    /// false after `patience`.
    pub fn has_ended(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.pidfds().all(|pidfd| has_ended(pidfd, deadline))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Process ids of the worker and of its mapper.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        iter::once(self.pid).chain(self.mapper.get().map(|(pid, _)| *pid))
    }

    /// Sends SIGKILL to the process and all processes that it has started. Does not wait.
    pub fn kill(&self) {
        let reaped = self.reaped.lock();
        if !*reaped {
            self.kill_group();
        }
    }

    /// Kills the process and waits until it has ended, for at most `patience`.
    pub fn reap(&self, patience: Duration) -> Reaped {
        self.kill();
        if !self.has_ended(patience) {
            return Reaped::Stuck;
        }
        if let Some((_, pidfd)) = self.mapper.get() {
            // Its parent is the worker, and then the first process: in a container that may be this daemon.
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        let mut reaped = self.reaped.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok().flatten();
        *reaped |= status.is_some();
        Reaped::Ended(status.map(|status| exit_status(&status)))
    }

    fn kill_group(&self) {
        // The child is not reaped yet (the caller holds it), so the id is still its own.
        if let Some(group) = Pid::from_raw(self.pid as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl AsFd for Process {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reap(DROP_PATIENCE) == Reaped::Stuck {
            error!(
                "worker {} does not end after SIGKILL: it hangs in the kernel; it is left behind",
                self.pid
            );
        }
    }
}

/// Returns the status as the standard library has it.
fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    let core = if status.dumped() { CORE_DUMPED } else { 0 };
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::from_raw(code << 8),
        (None, signal) => ExitStatus::from_raw(signal.unwrap_or_default() | core),
    }
}

/// Waits until a process has ended, for the last time at `deadline`.
fn has_ended(pidfd: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], time.as_ref()) {
            Ok(1..) => return true,
            _ if left.is_zero() => return false,
            _ => {}
        }
    }
}

/// Receives the listener on which the worker's mappings of guest memory wait, and the id of the process that has sent it:
/// its mapper. It was sent before the greeting.
fn receive_listener(pages: &UnixStream) -> io::Result<(OwnedFd, Pid)> {
    pages.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    recvmsg(pages, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let (mut listener, mut sender) = (None, None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(mut files) => listener = files.next(),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.pid),
            _ => {}
        }
    }
    listener.zip(sender).ok_or_else(|| io::Error::other("it does not say who guards its mappings"))
}

/// Returns the beginning of a worker's message, for one line of the log.
fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_REASON)]);
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Runs in the child between fork and exec. The child ends with `parent`, if that is given.
fn prepare_child(inherited: &[RawFd], parent: Option<u32>) -> io::Result<()> {
    // SAFETY: plain system calls on the child's own state; `inherited` are open, inherited across fork.
    unsafe {
        if let Some(parent) = parent {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            // The daemon may have ended before the line above.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        // Descriptors from front-ends lack the close-on-exec flag, and no worker may get another guest's memory.
        let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
        if libc::close_range(3, libc::c_uint::MAX, flags) < 0
            || inherited.iter().any(|&file| libc::fcntl(file, libc::F_SETFD, 0) < 0)
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::link::{FROM_READY, FromWorker};
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::sessions::fixture::sleeping_worker;

    #[test]
    fn a_greeting_without_a_guard_is_refused() {
        let (worker, link) = sleeping_worker();
        let (pages, _theirs) = UnixStream::pair().unwrap();
        *worker.pages.lock() = Some(pages);
        let header = FromWorker { kind: FROM_READY, ..FromWorker::default() };
        link::send_reply(&link, &header, Ready::new_zeroed().as_bytes()).unwrap();
        assert!(matches!(worker.greeting(), Err(WorkerError::Ended(_))));
        assert!(worker.listener.lock().is_none());
    }
}
