// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU time of a program's processes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The name of a worker that waits for a session (`vhost-cuda/worker/src/start.rs`).
const WARM: &str = "cuda-warm";
/// Time limit for a worker to become warm.
const WARM_LIMIT: Duration = Duration::from_secs(30);

/// A process and the processes that it has started.
#[derive(Debug, Clone, Copy)]
pub struct Tree(pub u32);

/// Fields of `/proc/PID/stat`.
struct Stat {
    pid: u32,
    name: String,
    parent: u32,
    /// CPU time of children that have ended and were waited for, in clock ticks.
    reaped_ticks: u64,
}

impl Tree {
    /// CPU time so far, in microseconds. Children that have ended count in ticks (10 ms), the others exactly.
    pub fn cpu_us(self) -> f64 {
        let all = processes();
        let mut sum = 0.0;
        let mut left = vec![self.0];
        while let Some(pid) = left.pop() {
            let Some(stat) = all.iter().find(|stat| stat.pid == pid) else { continue };
            sum += 1e6 * stat.reaped_ticks as f64 / ticks_per_second() + process_us(pid);
            left.extend(all.iter().filter(|stat| stat.parent == pid).map(|stat| stat.pid));
        }
        sum
    }

    /// Waits until it has at least `count` workers that are ready for a session.
    pub fn wait_warm(self, count: usize) -> Result<()> {
        let end = Instant::now() + WARM_LIMIT;
        while !self.has_children(WARM, count) {
            if Instant::now() > end {
                bail!("The daemon does not have {count} warm workers after {WARM_LIMIT:?}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns whether it has at least `count` children of that name.
    fn has_children(self, name: &str, count: usize) -> bool {
        let children = processes().into_iter().filter(|stat| stat.parent == self.0 && stat.name == name);
        children.count() >= count
    }
}

fn processes() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// `pid (name) state ppid …`; the name may contain any characters.
fn parse(pid: u32, stat: &str) -> Option<Stat> {
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat[end + 1..].split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Fields 4, 16 and 17 of proc_pid_stat(5).
    let (parent, user, system) = (number(1)?, number(13)?, number(14)?);
    Some(Stat {
        pid,
        name: stat[start + 1..end].to_owned(),
        parent: parent as u32,
        reaped_ticks: user + system,
    })
}

/// CPU time of all threads of a process, in microseconds; 0 if it has ended.
fn process_us(pid: u32) -> f64 {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write to locals of the right type.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    if failed { 0.0 } else { 1e6 * time.tv_sec as f64 + 1e-3 * time.tv_nsec as f64 }
}

fn ticks_per_second() -> f64 {
    // SAFETY: a plain query.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_count_before_and_after_they_end() -> anyhow::Result<()> {
        let own = Tree(std::process::id());
        let before = own.cpu_us();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh")
            .args(["-c", &format!("{busy}; echo; read x")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut line)?;
        let during = own.cpu_us() - before;
        assert!(during > 20_000.0, "{during} us");
        assert!(own.has_children("sh", 1));
        drop(child.stdin.take());
        child.wait()?;
        let after = own.cpu_us() - before;
        assert!(after > during - 20_000.0, "{after} us");
        Ok(())
    }

    #[test]
    fn names_with_spaces_and_parentheses() {
        let line = "7 (a) b) S 3 1 1 0 -1 0 0 0 0 0 9 9 4 5 20 0";
        let stat = parse(7, line).expect("parsed");
        assert_eq!((stat.name.as_str(), stat.parent, stat.reaped_ticks), ("a) b", 3, 9));
    }
}
