// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of daemons. They are found by their command lines, so there is no file of process ids that could be wrong.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::folder::Folder;

/// The time that a daemon has to end its workers. The unit of the packages has the same order of magnitude.
const TERMINATION: Duration = Duration::from_secs(10);
/// The time that the kernel has to end a killed process. One that hangs in a GPU's driver needs longer, or never ends.
const KILL: Duration = Duration::from_secs(5);

/// A process that has a daemon's command line: a daemon, or a child that has not executed its own program yet.
#[derive(Debug)]
pub struct Process {
    /// The name of the daemon.
    pub name: String,
    pid: Pid,
    fd: OwnedFd,
}

/// All processes of this user that have the command line of a daemon in `folder`.
pub fn all(folder: &Folder) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let me = rustix::process::geteuid().as_raw();
    let find = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        if entry.metadata().ok()?.uid() != me {
            return None;
        }
        name(&entry.path(), folder)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Again: the number may be another process's since the first look.
        let name = name(&entry.path(), folder)?;
        Some(Process { name, pid, fd })
    };
    entries.flatten().filter_map(find).collect()
}

/// The name of the daemon that has the command line of `process` (a folder of /proc). Processes that have ended have none, and those
/// of containers, which may have any command line.
fn name(process: &Path, folder: &Folder) -> Option<String> {
    let line = fs::read(process.join("cmdline")).ok()?;
    // A program in a script's language comes after its interpreter.
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).take(5).collect();
    let options = words.windows(2).find(|pair| pair[0] == b"--config")?[1];
    let name = folder.name_of(Path::new(OsStr::from_bytes(options)))?;
    is_in_own_namespace(&fs::read(process.join("status")).ok()?).then(|| name.to_owned())
}

/// Returns whether a process with this `status` is in the PID namespace of /proc, and in none below it.
fn is_in_own_namespace(status: &[u8]) -> bool {
    let numbers = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"));
    numbers.is_none_or(|numbers| {
        numbers.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count() == 1
    })
}

/// Ends processes, by SIGTERM and then by SIGKILL. Returns whether all have ended.
pub fn end(processes: &[&Process]) -> bool {
    for (signal, limit) in [(Signal::TERM, TERMINATION), (Signal::KILL, KILL)] {
        for process in processes {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&process.fd, signal);
        }
        let deadline = Instant::now() + limit;
        if processes.iter().all(|process| process.has_ended_by(deadline)) {
            return true;
        }
        for process in processes.iter().filter(|process| !process.has_ended_by(deadline)) {
            log::warn!("{}: process {} does not end on {signal:?}", process.name, process.pid);
        }
    }
    false
}

impl Process {
    /// Waits for its end, and returns whether it has ended.
    fn has_ended_by(&self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return false };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&left)) {
                Ok(ended) => return ended == 1,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::gpus::Gpu;
    use crate::shards::Inventory;

    #[test]
    fn processes_of_containers_are_no_daemons() {
        assert!(is_in_own_namespace(&fs::read("/proc/self/status").unwrap()));
        assert!(is_in_own_namespace(b"Name:\tvhost-user-cuda\nNSpid:\t77\nNSpgid:\t77\t5\n"));
        assert!(!is_in_own_namespace(b"Name:\tsh\nNSpid:\t77\t5\n"));
    }

    #[test]
    fn processes_are_found_by_their_options_and_end() {
        let temporary = tempfile::tempdir().unwrap();
        let inventory = Inventory::new(&[Gpu { id: "0".into(), memory: 4 << 30 }], 1 << 30).unwrap();
        let folder = Folder::open(temporary.path(), &inventory).unwrap();
        let start = |options: &Path| {
            Command::new("sh")
                .args(["-c", "read line", "--config"])
                .arg(options)
                .stdin(Stdio::piped())
                .spawn()
        };
        let mut daemon = start(&folder.options("0-1")).unwrap();
        let mut other = start(Path::new("/etc/daemon.toml")).unwrap();
        let found = all(&folder);
        assert_eq!(found.iter().map(|process| &*process.name).collect::<Vec<_>>(), ["0-1"]);
        assert!(!found[0].has_ended_by(Instant::now()));
        assert!(end(&found.iter().collect::<Vec<_>>()));
        // It is a child, which nobody has waited for, and no longer one of the processes.
        assert!(all(&folder).is_empty() && other.try_wait().unwrap().is_none());
        daemon.wait().unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
