// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeper: the first process of the workers' PID namespace. Its only purpose is to exist: the namespace, with all
//! workers, ends with it, and it ends with the daemon.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use vhost_cuda_common::confine::{paths, rights};

use crate::hand_over::files::{Inherited, Leaving, Number};

/// Its name (`ps -o comm`).
const NAME: &std::ffi::CStr = c"cuda-keeper";

/// A running keeper. It ends with the value, and so do all workers.
#[derive(Debug)]
pub struct Keeper {
    pid: Pid,
    /// Its standard input, which is closed when the daemon ends.
    pipe: OwnedFd,
}

/// A keeper that is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedKeeper {
    pid: i32,
    pipe: Number,
}

impl Keeper {
    /// Starts `program` as the first process of the namespace that the calling thread has created for its children.
    /// It mounts that namespace's view of processes in the thread's root.
    pub fn start(program: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg0("vhost-user-cuda-keeper").arg("keeper").env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: the closure makes system calls with constant strings only.
        unsafe { command.pre_exec(prepare) };
        let mut child =
            command.spawn().context("Cannot start the first process of the workers' PID namespace")?;
        let pipe = child.stdin.take().context("It has no standard input")?;
        Ok(Self { pid: Pid::from_child(&child), pipe: pipe.into() })
    }

    /// Returns what the next program needs to go on with it.
    pub fn save(&self, files: &mut Leaving) -> SavedKeeper {
        SavedKeeper { pid: self.pid.as_raw_nonzero().get(), pipe: files.add(&self.pipe) }
    }

    /// Goes on with a keeper of the program before this one.
    ///
    /// Errors: the state is wrong.
    pub fn restore(saved: SavedKeeper, files: &mut Inherited) -> io::Result<Self> {
        // 1 and negative numbers would be other processes than children.
        let pid = Pid::from_raw(saved.pid).filter(|_| saved.pid > 1).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, pipe: files.take(saved.pipe)? })
    }

    /// Returns whether the namespace still exists. A keeper that was killed cannot be waited for until the daemon has
    /// waited for every worker, but it closes its end of the pipe at once.
    pub fn is_running(&self) -> bool {
        poll(&mut [PollFd::new(&self.pipe, PollFlags::empty())], Some(&Timespec::default())) == Ok(0)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It was not waited for, so the id is its own.
        let _ = kill_process(self.pid, Signal::KILL);
        let pid = self.pid;
        // The namespace ends when its last worker has ended.
        let _ = thread::Builder::new()
            .name("keeper-end".into())
            .spawn(move || waitpid(Some(pid), WaitOptions::empty()));
    }
}

fn prepare() -> std::io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Workers see each other's numbers, which CUDA's IPC needs, and no files of each other.
    mount(c"proc", paths::PROC, c"proc", flags, c"hidepid=1")?;
    for settings in paths::SETTINGS {
        match mount_bind(settings, settings) {
            // This kernel does not have the file.
            Err(Errno::NOENT) => continue,
            result => result?,
        }
        mount_remount(settings, flags | MountFlags::BIND | MountFlags::RDONLY, c"")?;
    }
    // SAFETY: plain system call on the child's own descriptors.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Runs the process itself.
pub fn run() -> ExitCode {
    let _ = rustix::thread::set_name(NAME);
    let _ = super::own::hide_memory();
    if rights::drop_privileges().is_err() {
        return ExitCode::FAILURE;
    }
    // SAFETY: plain system call. Processes for mappings, which workers have started, are nobody's to wait for.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}
