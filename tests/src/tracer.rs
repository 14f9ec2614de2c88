// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A process that does not end: as one that hangs in a driver of the kernel, it is killed and stays.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

/// Holds a process where it begins to end, with its memory and files. It ends when this is dropped.
#[derive(Debug)]
pub struct HeldInExit {
    release: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl HeldInExit {
    /// Holds `pid`, a process of one's own user, from when it is killed on.
    pub fn new(pid: u32) -> Result<Self> {
        let (started, start) = channel();
        let (release, released) = channel::<()>();
        // One thread must do all of the tracing.
        let tracer = thread::spawn(move || {
            let _ = started.send(seize(pid as libc::pid_t));
            let _ = released.recv();
            let_go(pid as libc::pid_t);
        });
        start.recv().context("The tracer has ended")?.with_context(|| format!("Cannot trace {pid}"))?;
        Ok(Self { release: Some(release), tracer: Some(tracer) })
    }
}

impl Drop for HeldInExit {
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

fn seize(pid: libc::pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXIT as libc::c_long;
    // SAFETY: a plain system call; it reads no memory of this process.
    let failed = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0 as libc::c_long, options) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn let_go(pid: libc::pid_t) {
    // SAFETY: plain system calls. A process that is not stopped, for nobody has killed it, is let go of by the end of
    // this thread.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0 as libc::c_long, 0 as libc::c_long) };
}
