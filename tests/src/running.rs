// SPDX-License-Identifier: Apache-2.0 OR MIT

//! A child process whose output is collected while it runs, and that cannot outlive its time.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wait_timeout::ChildExt;

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit status.
    Exit(i32),
    /// The signal that ended it.
    Signal(i32),
    /// It ran past its limit and was killed.
    TimedOut,
}

/// The results of a process.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The end of the process.
    pub ended: Ended,
    /// From start to end.
    pub elapsed: Duration,
}

impl Outcome {
    /// Fails, with everything that was printed, unless the process ended with this exit status.
    pub fn expect_exit(&self, status: i32) -> Result<()> {
        if self.ended != Ended::Exit(status) {
            bail!("ended with {:?}, not Exit({status})\n{self}", self.ended);
        }
        Ok(())
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?} after {:.1?}", self.ended, self.elapsed)?;
        writeln!(f, "--- stdout\n{}", self.stdout)?;
        write!(f, "--- stderr\n{}", self.stderr)
    }
}

/// Bytes that a thread appends while tests read them.
#[derive(Debug, Default)]
struct Captured {
    bytes: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

impl Captured {
    fn collect(self: &Arc<Self>, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        let captured = self.clone();
        thread::spawn(move || {
            let mut piece = [0; 16 << 10];
            loop {
                let n = from.read(&mut piece).unwrap_or(0);
                let mut state = captured.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                state.0.extend_from_slice(&piece[..n]);
                state.1 = n == 0;
                captured.changed.notify_all();
                if n == 0 {
                    return;
                }
            }
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner).0).into_owned()
    }

    fn wait_for(&self, text: &str, limit: Duration) -> bool {
        let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        let deadline = Instant::now() + limit;
        let mut state = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if has(&state.0) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.1 || left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A running process; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Arc<Captured>,
    stderr: Arc<Captured>,
    readers: Vec<JoinHandle<()>>,
    started: Instant,
}

impl Running {
    /// Starts `command` with `stdin` as its input.
    pub fn start(command: &mut Command, stdin: &str) -> Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("Cannot start {:?}", command.get_program()))?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that does not read its input may have ended already.
            let _ = pipe.write_all(stdin.as_bytes());
        }
        let (stdout, stderr) = (Arc::<Captured>::default(), Arc::<Captured>::default());
        let mut readers = Vec::new();
        readers.extend(child.stdout.take().map(|pipe| stdout.collect(pipe)));
        readers.extend(child.stderr.take().map(|pipe| stderr.collect(pipe)));
        Ok(Self { child, stdout, stderr, readers, started })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output on standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until `text` has appeared on standard output.
    pub fn wait_for_stdout(&self, text: &str, limit: Duration) -> Result<()> {
        self.wait_for(&self.stdout, "stdout", text, limit)
    }

    /// Waits until `text` has appeared on standard error.
    pub fn wait_for_stderr(&self, text: &str, limit: Duration) -> Result<()> {
        self.wait_for(&self.stderr, "stderr", text, limit)
    }

    fn wait_for(&self, stream: &Captured, name: &str, text: &str, limit: Duration) -> Result<()> {
        if !stream.wait_for(text, limit) {
            bail!(
                "`{text}` did not appear on {name} within {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
                self.stdout.text(),
                self.stderr.text()
            );
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: plain system call; the child is not reaped before `finish`, so the id is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Ends a program that computes until SIGTERM, and then compares all that it has computed, as `tests/cuda/suspended.cu` does.
    ///
    /// Errors: it does not end within `limit`, or not with "right".
    pub fn end_right(self, limit: Duration) -> Result<()> {
        self.signal(libc::SIGTERM);
        let outcome = self.finish(limit)?;
        outcome.expect_exit(0)?;
        ensure!(outcome.stdout.ends_with("right\n"), "{outcome}");
        Ok(())
    }

    /// Waits for the end for at most `limit` from now, and then kills.
    pub fn finish(mut self, limit: Duration) -> Result<Outcome> {
        let status = self.child.wait_timeout(limit).context("Cannot wait for a program")?;
        let ended = match status {
            Some(status) => ended(status),
            None => {
                let _ = self.child.kill();
                self.child.wait().context("Cannot wait for a killed program")?;
                Ended::TimedOut
            }
        };
        let elapsed = self.started.elapsed();
        // A grandchild may hold the pipes open: it is not waited for.
        let deadline = Instant::now() + Duration::from_secs(2);
        for reader in self.readers.drain(..) {
            while !reader.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(Outcome { stdout: self.stdout.text(), stderr: self.stderr.text(), ended, elapsed })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn ended(status: ExitStatus) -> Ended {
    match status.code() {
        Some(code) => Ended::Exit(code),
        None => Ended::Signal(status.signal().unwrap_or(0)),
    }
}

/// Runs `command` to its end.
pub fn run(command: &mut Command, stdin: &str, limit: Duration) -> Result<Outcome> {
    Running::start(command, stdin)?.finish(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_status_and_signal_are_told() {
        let long = Duration::from_secs(20);
        let outcome = run(&mut shell("read x; echo got $x; echo bad >&2; exit 3"), "word\n", long).unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("got word\n", "bad\n"));
        assert_eq!(outcome.ended, Ended::Exit(3));
        assert!(outcome.expect_exit(0).is_err());
        assert_eq!(run(&mut shell("kill -9 $$"), "", long).unwrap().ended, Ended::Signal(9));
        assert_eq!(
            run(&mut shell("exec sleep 60"), "", Duration::from_millis(50)).unwrap().ended,
            Ended::TimedOut
        );
    }

    #[test]
    fn text_is_seen_while_it_runs() {
        let running = Running::start(&mut shell("echo ready; exec sleep 60"), "").unwrap();
        running.wait_for_stdout("ready", Duration::from_secs(20)).unwrap();
        assert!(running.wait_for_stdout("never", Duration::from_millis(50)).is_err());
        running.signal(libc::SIGTERM);
        assert_eq!(running.finish(Duration::from_secs(20)).unwrap().ended, Ended::Signal(libc::SIGTERM));
    }
}
