// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A daemon of a test's own, on a socket in a temporary folder.

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use wait_timeout::ChildExt;

use crate::stack::Stack;

/// The lines of a log that explain a failure.
const LOG_LINES: usize = 60;
/// Time limit for a daemon to listen, and to end when asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// The variable that selects the device of all levels except conformance: `emulated` also where there is a GPU.
pub const DEVICE_VARIABLE: &str = "VHOST_CUDA_DEVICE";

/// Further arguments of all daemons of tests, as `--guest-pages named`: a whole level runs with them.
const ARGUMENTS_VARIABLE: &str = "VHOST_CUDA_DAEMON_ARGUMENTS";

/// The process that holds the namespaces of workers (`vhost-cuda/src/confine/keeper.rs`), and its earlier name.
const KEEPER: &str = "cuda-keeper";
const BEFORE_EXEC: &str = "worker-pool";

/// Options of a daemon.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Its `--device`.
    pub device: String,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Environment that its workers inherit.
    pub environment: Vec<(String, String)>,
    /// The hard and soft limit of its open files, if not this process's.
    pub open_files: Option<u64>,
    /// The file for its log, if [`Daemon::log`] is not wanted.
    pub log: Option<PathBuf>,
    /// Its user, if not this process's. Only root can choose one.
    pub user: Option<u32>,
    /// True to start a copy of the program ([`Daemon::program`]), which the test replaces.
    pub is_copy: bool,
}

impl Default for DaemonOptions {
    /// The [`device`] of all tests, with one worker ready.
    fn default() -> Self {
        Self {
            device: device(),
            arguments: Vec::new(),
            environment: Vec::new(),
            open_files: None,
            log: None,
            user: None,
            is_copy: false,
        }
    }
}

/// Returns the `--device` of daemons: the value of `VHOST_CUDA_DEVICE`, otherwise the GPU if there is one, otherwise
/// the emulator.
pub fn device() -> String {
    env::var(DEVICE_VARIABLE).ok().filter(|device| !device.is_empty()).unwrap_or_else(|| "auto".into())
}

/// Returns whether [`device`] is the emulator.
pub fn is_emulated() -> bool {
    match device().as_str() {
        "auto" => !gpu_exists(),
        name => name == "emulated",
    }
}

/// Returns whether this machine has an NVIDIA GPU with its driver.
pub fn gpu_exists() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// A running daemon; ends with the value.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    program: PathBuf,
    emulator: PathBuf,
    options: DaemonOptions,
    folder: TempDir,
}

impl Daemon {
    /// Starts one and waits until it listens.
    pub fn start(stack: &Stack, options: &DaemonOptions) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("vhost-cuda-").tempdir()?;
        let (mut program, mut emulator) = (stack.daemon(), stack.emulator());
        if let Some(user) = options.user {
            // The stack may lie where only its owner looks.
            for (file, name) in [(&mut program, "daemon"), (&mut emulator, "libcuda.so.1")] {
                let copy = folder.path().join(name);
                fs::copy(&*file, &copy)?;
                fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
                *file = copy;
            }
            chown(folder.path(), Some(user), Some(user))?;
        } else if options.is_copy {
            let copy = folder.path().join("daemon");
            fs::copy(&program, &copy)?;
            program = copy;
        }
        let child = launch(&program, &emulator, options, folder.path())?;
        let mut daemon = Self { child, program, emulator, options: options.clone(), folder };
        daemon.wait_until_listening()?;
        Ok(daemon)
    }

    /// Starts a new daemon on the same socket, after [`Daemon::kill`].
    pub fn restart(&mut self) -> Result<()> {
        self.start_again()?;
        self.wait_until_listening()
    }

    /// As [`Daemon::restart`], but does not wait until the new one listens.
    pub fn start_again(&mut self) -> Result<()> {
        self.kill();
        self.child = launch(&self.program, &self.emulator, &self.options, self.folder.path())?;
        Ok(())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        socket_in(self.folder.path())
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program's file.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Everything that it and its workers have logged.
    pub fn log(&self) -> String {
        fs::read(log_in(self.folder.path()))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end and answers how it did.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        // SAFETY: plain system call; the child is not reaped before the wait below.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let ended = self.child.wait_timeout(PATIENCE)?;
        ended.with_context(|| format!("The daemon ignores SIGTERM\n{}", self.log()))
    }

    /// Returns whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its worker processes, warm ones included.
    pub fn workers(&self) -> Vec<u32> {
        workers_of(self.child.id())
    }

    /// Its open files.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// Files that are mapped into the daemon itself.
    pub fn mapped_files(&self) -> String {
        fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap_or_default()
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !condition(self) {
            if Instant::now() > deadline {
                bail!("not within {limit:?}: {what}; workers {:?}\n{}", self.workers(), self.log());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Waits until it listens.
    pub fn wait_until_listening(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let socket = self.socket();
        while !is_listening(&socket) {
            if let Some(status) = self.child.try_wait()? {
                bail!("The daemon ended at once: {status}\n{}", self.log());
            }
            if Instant::now() > deadline {
                bail!("The daemon does not listen on {}\n{}", socket.display(), self.log());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the end of a daemon's log, without the many lines about functions of libraries.
pub fn end_of_log(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" functions")).collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("vhost.sock")
}

fn log_in(folder: &Path) -> PathBuf {
    folder.join("daemon.log")
}

fn launch(program: &Path, emulator: &Path, options: &DaemonOptions, folder: &Path) -> Result<Child> {
    let log = options.log.clone().unwrap_or_else(|| log_in(folder));
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(program);
    // Containers have no other user.
    command.arg("--allow-root");
    command.arg("--socket-path").arg(socket_in(folder)).arg("--device").arg(&options.device);
    // Programs over virtio-user, and fake front-ends, are many.
    command.arg("--single=false");
    if !options.arguments.iter().any(|argument| argument == "--log-level") {
        command.args(["--log-level", "debug"]);
    }
    command.args(env::var(ARGUMENTS_VARIABLE).unwrap_or_default().split_whitespace());
    command.args(&options.arguments);
    if let Some(user) = options.user {
        command.uid(user).gid(user).current_dir("/");
    }
    if let Some(files) = options.open_files {
        limit_files(&mut command, files);
    }
    // Programs follow them themselves, among all devices of the daemon.
    command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER");
    command.env("VHOST_CUDA_EMULATOR", emulator).envs(options.environment.iter().cloned());
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("Cannot start {}", program.display()))
}

fn limit_files(command: &mut Command, files: u64) {
    let limit = libc::rlimit { rlim_cur: files, rlim_max: files };
    let set = move || {
        // SAFETY: a plain system call, allowed between fork and exec; the structure lives across it.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one async-signal-safe call.
    unsafe { command.pre_exec(set) };
}

/// Looks in the kernel's table: a trial connection would be a front-end to the daemon.
fn is_listening(socket: &Path) -> bool {
    const ACCEPTS: &str = "00010000";
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&ACCEPTS) && words.get(7).is_some_and(|path| Path::new(path) == socket)
    })
}

/// The workers of the daemon with that process id.
pub fn workers_of(daemon: u32) -> Vec<u32> {
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let children = children_of(daemon).into_iter();
    children.filter(|&child| !matches!(name(child).trim(), KEEPER | BEFORE_EXEC)).collect()
}

/// The processes whose parent is `pid`.
pub fn children_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|child| parent_and_state(*child).is_some_and(|(parent, state)| parent == pid && state != 'Z'))
        .collect()
}

fn parent_and_state(pid: u32) -> Option<(u32, char)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut words = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((words.next()?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_listeners_are_found() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children_of(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(!is_listening(&path));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(is_listening(&path));
    }
}
