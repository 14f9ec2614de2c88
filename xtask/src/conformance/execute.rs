// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a command with a time limit, and stores its output with a size limit.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The maximum number of bytes that are stored of each stream. No sample's result needs more, and a program that
/// prints endlessly does not fill the disk.
const KEPT: usize = 256 << 10;
/// Interval of checking a running program.
const POLL: Duration = Duration::from_millis(10);
/// Time that the pipes may stay open after the program's end: a process that it started may hold them.
const LINGER: Duration = Duration::from_secs(2);

/// The results of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its status, or 128 and the signal that ended it; none if it took too long.
    pub status: Option<i32>,
    /// The start of its standard output.
    pub stdout: String,
    /// The start of its standard error.
    pub stderr: String,
    /// Duration in milliseconds.
    pub milliseconds: u64,
}

/// Starts `command`. A file that was just copied is busy for as long as a process that another thread has started
/// meanwhile still has it open, as all do until they become another program.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let begun = Instant::now();
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && begun.elapsed() < LINGER => {
                thread::sleep(POLL);
            }
            outcome => return outcome,
        }
    }
}

/// Runs `command` with empty input; kills it and its children after `limit`.
pub fn execute(mut command: Command, limit: Duration) -> Result<Outcome> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let started = Instant::now();
    let mut child = spawn(&mut command).with_context(|| format!("Cannot start {program}"))?;
    let group = -(child.id() as i32);
    let stdout = keep(child.stdout.take());
    let stderr = keep(child.stderr.take());
    let mut status = None;
    while status.is_none() && started.elapsed() < limit {
        thread::sleep(POLL);
        status = child.try_wait()?;
    }
    let milliseconds = started.elapsed().as_millis() as u64;
    let ended = Instant::now();
    while status.is_some() && !(stdout.is_finished() && stderr.is_finished()) && ended.elapsed() < LINGER {
        thread::sleep(POLL);
    }
    // SAFETY: kill takes no memory. The group is the child's own: either the child was not waited for yet, or what
    // is left of the group are processes that it started; an id is not used again while a group has it.
    unsafe { libc::kill(group, libc::SIGKILL) };
    if status.is_none() {
        child.wait()?;
    }
    let text = |reader: JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    let status =
        status.map(|status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
    Ok(Outcome { status, stdout: text(stdout), stderr: text(stderr), milliseconds })
}

/// Reads all, keeps the start.
fn keep(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 16 << 10]);
        let Some(mut stream) = stream else { return kept };
        while let Ok(count) = stream.read(&mut buffer) {
            if count == 0 {
                break;
            }
            let room = KEPT.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..count.min(room)]);
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, limit: Duration) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        execute(command, limit).unwrap()
    }

    #[test]
    fn output_and_status_are_kept() {
        let outcome = shell("echo out; echo err >&2; exit 3", Duration::from_secs(10));
        assert_eq!(outcome.status, Some(3));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(shell("kill -SEGV $$", Duration::from_secs(10)).status, Some(139));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let started = Instant::now();
        let outcome = shell("sleep 1000 & wait", Duration::from_millis(300));
        assert_eq!(outcome.status, None);
        // Its child has the pipes, too.
        assert!(started.elapsed() < Duration::from_secs(500));
    }

    #[test]
    fn endless_output_is_bounded() {
        let line = format!("yes | head -c {}", 3 * KEPT);
        assert_eq!(shell(&line, Duration::from_secs(60)).stdout.len(), KEPT);
    }
}
