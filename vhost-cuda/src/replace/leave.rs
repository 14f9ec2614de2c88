// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the program that is replaced.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use log::{debug, info};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vhost_cuda_common::gates::now;

use super::state::{Common, State};
use crate::args::DaemonArgs;
use crate::confine::own;
use crate::daemon::connections::{self, Devices};
use crate::front_end::device::{Device, Settings};
use crate::hand_over::files::{Leaving, Number, keep_open};
use crate::hand_over::{freeze, main_thread};

/// The option with which the new program gets the descriptor of the state.
pub const OPTION: &str = "--take-over";
/// The option with which it checks a state, its standard input.
const CHECK: &str = "--check-take-over";
/// The option with which the program before it is told why it got the state back.
const REFUSED: &str = "--take-over-refused=";

/// The time for requests that are under way.
const PATIENCE: Duration = Duration::from_secs(5);
/// The part of it in which no other requests are taken, at a time, and the pause until the next attempt. What is under way may need
/// a later request of its program, so that one long attempt would stop both.
const HOLDING: Duration = Duration::from_millis(200);
const BREATH: Duration = Duration::from_millis(100);
/// The time for the messages of one front-end.
const MESSAGES: Duration = Duration::from_millis(200);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// The time for the new program to check a state.
const CHECKING: Duration = Duration::from_secs(5);
/// The maximum number of bytes of its reason.
const MAX_REASON: u64 = 2048;
/// The time for the new program to serve, in seconds. Nothing else can end one that hangs: the process has no other program any more.
/// It is much longer than the new program takes, because its end is that of all sessions.
const ENTERING: u32 = 30;
/// Descriptors that the new program needs beside those that it inherits.
const FURTHER: usize = 64;

/// A reason for which the program is not replaced now.
const STARTING: &str = "a worker is being started";

/// Replaces a daemon's program.
#[derive(Debug)]
pub struct Replacer {
    args: DaemonArgs,
    settings: Arc<Settings>,
    devices: Devices,
    common: Common,
    /// The descriptors in `common`.
    files: Leaving,
    /// The present program, to go back to.
    _executable: File,
    /// Held while a replacement is under way.
    one: Mutex<()>,
}

/// The sockets of a daemon that the next program goes on with.
#[derive(Debug)]
pub struct Sockets {
    /// The socket on which front-ends connect, which its owner never closes.
    pub listener: Number,
    /// Its path, if the daemon removes it at its end.
    pub path: Option<PathBuf>,
    /// The control socket, which its owner never closes.
    pub control: Option<Number>,
}

impl Replacer {
    /// Prepares for a replacement of `program` with all its options.
    ///
    /// Errors: the present program cannot be opened.
    pub fn new(
        args: &DaemonArgs,
        program: OsString,
        sockets: Sockets,
        mut files: Leaving,
        settings: Arc<Settings>,
        devices: Devices,
    ) -> io::Result<Self> {
        let executable = File::open("/proc/self/exe")?;
        let common = Common {
            program,
            options: options().collect(),
            executable: files.add(&executable),
            listener: sockets.listener,
            socket: sockets.path,
            control: sockets.control,
            cgroups: settings.cgroups.as_ref().map(|groups| groups.root().to_path_buf()),
        };
        let (args, one) = (args.clone(), Mutex::default());
        Ok(Self { args, settings, devices, common, files, _executable: executable, one })
    }

    /// Replaces the program. `asker` waits for the answer. If this returns, all is as before.
    ///
    /// Errors: the reason for which the program was not replaced.
    pub fn replace(&self, asker: Option<&UnixStream>) -> anyhow::Error {
        let error = match self.one.try_lock() {
            Some(_one) => self.try_replace(asker),
            None => Err(anyhow::anyhow!("another replacement is under way")),
        };
        error.err().unwrap_or_else(|| anyhow::anyhow!("the program was not executed"))
    }

    fn try_replace(&self, asker: Option<&UnixStream>) -> anyhow::Result<()> {
        let begun = Instant::now();
        // A program that does not start delays nobody.
        self.check(&State::new(&self.common, &self.args)).context("the new program does not start")?;
        let _leaving = freeze::Leaving::begin();
        // Neither do the ends of workers without a session, and the check of the state: it has the same form when all is stopped
        // again.
        let _rest = self.settings.pool.rest();
        self.settings.pool.drop_idle();
        let (state, held, stopped) = self.stop(asker)?;
        drop((stopped, held));
        self.check(&state).context("the new program refuses the state")?;
        let held_since = now();
        let (mut state, _held, _stopped) = self.stop(asker)?;
        state.held_since = held_since;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let needed = state.files.len() * 2 + FURTHER;
        ensure!(
            limit.is_none_or(|limit| needed as u64 <= limit),
            "the new program needs {needed} open files: raise the limit (LimitNOFILE= of a systemd unit, `ulimit -Hn`)"
        );
        let file = state.write().context("the state cannot be written")?;
        info!(
            "replaced by {}, which ends with all sessions if it does not serve within {ENTERING} s",
            Path::new(&self.common.program).display()
        );
        self.settings.pool.drop_idle();
        debug!("{} descriptors go over, after {:.3} s", state.files.len(), begun.elapsed().as_secs_f64());
        let (program, options) = (self.common.program.clone(), self.common.options.clone());
        let execute = move || execute(program, options, &file, state.files, None);
        // Its thread becomes the new program's first one.
        Err(main_thread::run(execute).unwrap_or_else(|| anyhow::anyhow!("the daemon is ending")))
    }

    /// Stops all threads, and returns the state.
    ///
    /// Errors: requests under way, or other work, have not ended in time.
    fn stop(&self, asker: Option<&UnixStream>) -> anyhow::Result<(State, Held, freeze::Stopped)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = Held::default();
            let reason = match self.try_stop(&held, asker) {
                Ok((state, stopped)) => return Ok((state, held, stopped)),
                Err(reason) => reason,
            };
            drop(held);
            if Instant::now() >= deadline {
                bail!("the daemon is busy: {reason}: try again later");
            }
            thread::sleep(BREATH);
        }
    }

    fn try_stop(&self, held: &Held, asker: Option<&UnixStream>) -> Result<(State, freeze::Stopped), String> {
        let until = Instant::now() + HOLDING;
        let mut reason = "its threads are busy".to_owned();
        loop {
            if self.settings.pool.is_starting() {
                // Takes seconds, for which nothing needs to be held.
                reason = STARTING.to_owned();
            } else {
                // One that has just connected, too.
                held.add(&self.devices);
                if let Some(stopped) = freeze::stop() {
                    match self.collect(asker) {
                        Ok(state) => return Ok((state, stopped)),
                        Err(busy) => reason = busy,
                    }
                }
            }
            if Instant::now() >= until {
                return Err(reason);
            }
            thread::sleep(PAUSE);
        }
    }

    fn collect(&self, asker: Option<&UnixStream>) -> Result<State, String> {
        if self.settings.pool.is_starting() {
            return Err(STARTING.into());
        }
        if self.settings.endings.are_left() {
            return Err("a worker of an earlier connection does not end".into());
        }
        let mut files = self.files.clone();
        let mut state = State::new(&self.common, &self.args);
        let devices: Vec<_> = self.devices.lock().values().cloned().collect();
        let saved: Result<Vec<_>, _> =
            devices.iter().map(|device| device.save(MESSAGES, &mut files)).collect();
        state.devices = saved?;
        state.images = self.settings.images.save(&mut files);
        if let Some((namespaces, of_namespaces)) = self.settings.pool.namespaces() {
            state.namespaces = Some(namespaces);
            files.extend(&of_namespaces);
        }
        state.asker = asker.map(|asker| files.add(asker));
        state.next_connection = connections::next();
        state.files = files.numbers();
        Ok(state)
    }

    /// Has the new program check a state.
    fn check(&self, state: &State) -> anyhow::Result<()> {
        let file = state.write().context("the state cannot be written")?;
        let mut command = Command::new(&self.common.program);
        command.args(&self.common.options).arg(CHECK);
        command.stdin(file).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let cannot = || format!("{} cannot be executed", Path::new(&self.common.program).display());
        let mut child = command.spawn().with_context(cannot)?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).is_ok_and(|pidfd| {
            let time = Timespec::try_from(CHECKING).ok();
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], time.as_ref()) == Ok(1)
        });
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait()?;
        if !status.success() {
            let mut reason = Vec::new();
            if let Some(stderr) = child.stderr.take() {
                // A process that it has started may hold the pipe open.
                let _ = rustix::io::ioctl_fionbio(&stderr, true);
                let _ = stderr.take(MAX_REASON).read_to_end(&mut reason);
            }
            let reason = String::from_utf8_lossy(&reason);
            match ended {
                true => bail!("{} ({status})", reason.trim()),
                false => bail!("it has not checked the state within {} s", CHECKING.as_secs()),
            }
        }
        Ok(())
    }
}

/// Devices whose queues are held. Dropping it releases them.
#[derive(Debug, Default)]
struct Held(Mutex<Vec<Arc<Device>>>);

impl Held {
    fn add(&self, devices: &Devices) {
        let mut held = self.0.lock();
        for device in devices.lock().values() {
            if !held.iter().any(|known| Arc::ptr_eq(known, device)) {
                device.hold();
                held.push(device.clone());
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().iter().for_each(|device| device.release());
    }
}

/// Returns the options of this process, without those of an earlier replacement.
fn options() -> impl Iterator<Item = OsString> {
    let mut options = std::env::args_os().skip(1);
    std::iter::from_fn(move || {
        loop {
            let option = options.next()?;
            if option == OPTION {
                options.next();
            } else if !option.as_bytes().starts_with(REFUSED.as_bytes()) {
                return Some(option);
            }
        }
    })
}

/// Executes `program` with `options`, which inherits `numbers` and the state. Must be called by the first thread. Returns the reason if it fails:
/// nothing has changed then.
pub fn execute(
    program: OsString,
    options: Vec<OsString>,
    state: &File,
    mut numbers: Vec<Number>,
    refused: Option<String>,
) -> anyhow::Error {
    let mut files = Leaving::default();
    numbers.push(files.add(state));
    let mut words: Vec<OsString> = std::env::args_os().take(1).chain(options).collect();
    words.extend([OPTION.into(), state.as_raw_fd().to_string().into()]);
    // In one word, because a reason may begin as an option does.
    words.extend(refused.map(|reason| format!("{REFUSED}{reason}").into()));
    end_after(ENTERING);
    let result = inherit(&numbers).and_then(|()| exec(&program, &words));
    end_after(0);
    let _ = keep_open(&numbers, false);
    let reason = result.err().unwrap_or_else(|| io::ErrorKind::Other.into());
    anyhow::Error::new(reason).context(format!("{} cannot be executed", Path::new(&program).display()))
}

/// Has the kernel end this process after some seconds (SIGALRM), whatever program it executes then. 0: not.
pub fn end_after(seconds: u32) {
    // SAFETY: plain system calls, and a signal set that is a local and initialised by the first call that gets it. The signal has no
    // handler in this program, and its default is to end the process.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        // Whoever has started the daemon may have blocked or ignored it.
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(seconds);
    }
}

/// Closes all other descriptors when a program is executed: those that libraries have opened, too.
fn inherit(numbers: &[Number]) -> io::Result<()> {
    // SAFETY: a plain system call. No other thread starts processes now: all are stopped.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) } < 0 {
        return Err(io::Error::last_os_error());
    }
    own::keep_capabilities()?;
    keep_open(numbers, true)
}

fn exec(program: &OsString, words: &[OsString]) -> io::Result<()> {
    let text = |word: &OsString| CString::new(word.as_bytes());
    let (program, words) = (text(program)?, words.iter().map(text).collect::<Result<Vec<_>, _>>()?);
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: both are strings of C, and an array of such with a null pointer at its end, which live across the call. The
    // environment is this process's: the signal mask, too, so that no signal is lost.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    Err(io::Error::last_os_error())
}
