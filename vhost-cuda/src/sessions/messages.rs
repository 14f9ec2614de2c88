// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of workers. Each worker writes lines into a pipe, and the daemon writes them to its log.
//!
//! A worker is not trusted, so it does not write the log itself. Lines are cut, control characters are replaced, each
//! line contains its session, and a worker cannot fill the log.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, log, warn};
use parking_lot::{Mutex, MutexGuard};
use vhost_cuda_common::messages::LETTERS;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::confine::threads;
use crate::hand_over::files::{Leaving, Number};
use crate::hand_over::freeze;

/// The maximum length of a line, in bytes. The rest of a longer line is dropped.
const MAX_LINE: usize = 1024;
/// The number of bytes that are read from one pipe before the next one is read.
const READ_BYTES: usize = 4096;
/// The maximum number of bytes of a pipe that are read after its worker has ended: the capacity of a pipe on Linux.
const PIPE_BYTES: usize = 64 << 10;

/// The maximum number of messages above `debug` that the workers of a daemon may write at once.
const LOUD_BURST: u32 = 30;
/// The time until they may write one more. Limits how much a guest can write to the log that an operator reads.
const LOUD_INTERVAL: Duration = Duration::from_secs(1);
/// The same per worker for `debug` and `trace`, which an operator requests.
const QUIET_BURST: u32 = 10_000;
const QUIET_INTERVAL: Duration = Duration::from_micros(100);

/// Reads the pipes of all workers of a daemon. Clones are the same collection.
#[derive(Clone, Debug)]
pub struct Messages(Arc<Collection>);

/// The label of a worker in the log: its process id, later its session.
#[derive(Clone, Debug, Default)]
pub struct Label(Arc<OnceLock<u64>>);

/// The reader of one worker's pipe. Dropping it, after the worker has ended, logs the rest of the pipe and closes it,
/// even if another process still holds the writing end.
#[derive(Debug)]
pub struct Attached {
    collection: Arc<Collection>,
    id: u64,
    /// The worker's label in the log.
    pub label: Label,
}

#[derive(Debug)]
struct Collection {
    epoll: Epoll,
    sources: Mutex<Sources>,
    loud: Mutex<Allowance>,
}

#[derive(Debug, Default)]
struct Sources {
    next: u64,
    by_id: HashMap<u64, Source>,
}

#[derive(Debug)]
struct Source {
    pipe: PipeReader,
    pid: u32,
    label: Label,
    /// The incomplete line, at most [`MAX_LINE`] bytes of it.
    line: Vec<u8>,
    quiet: Allowance,
}

/// The result of one read of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    /// Every writer has closed the pipe.
    End,
}

/// Limits the rate of messages.
#[derive(Debug)]
struct Allowance {
    burst: u32,
    interval: Duration,
    left: u32,
    since: Instant,
    dropped: u64,
}

impl Label {
    /// Sets the session that the worker serves. Only the first call has an effect.
    pub fn set(&self, session: u64) {
        let _ = self.0.set(session);
    }
}

impl Messages {
    /// Starts the reading thread.
    pub fn start() -> io::Result<Self> {
        let loud = Mutex::new(Allowance::new(LOUD_BURST, LOUD_INTERVAL));
        let collection = Arc::new(Collection { epoll: Epoll::new()?, sources: Mutex::default(), loud });
        let this = Self(collection.clone());
        thread::Builder::new().name("worker-messages".into()).spawn(move || collection.read_all())?;
        Ok(this)
    }

    /// Creates a pipe for the messages of a worker that is about to start.
    pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK)?;
        Ok((reader, writer))
    }

    /// Reads `pipe` until every writer has closed it, or the returned value is dropped.
    pub fn attach(&self, pipe: PipeReader, pid: u32) -> io::Result<Attached> {
        self.attach_again(Some(pipe), pid)
    }

    /// The same for a pipe of the program before this one, which may be closed.
    pub fn attach_again(&self, pipe: Option<PipeReader>, pid: u32) -> io::Result<Attached> {
        let label = Label::default();
        let quiet = Allowance::new(QUIET_BURST, QUIET_INTERVAL);
        let mut sources = self.0.lock();
        let id = sources.next;
        sources.next += 1;
        if let Some(pipe) = pipe {
            let events = EpollEvent::new(EventSet::IN, id);
            self.0.epoll.ctl(ControlOperation::Add, pipe.as_raw_fd(), events)?;
            sources.by_id.insert(id, Source { pipe, pid, label: label.clone(), line: Vec::new(), quiet });
        }
        Ok(Attached { collection: self.0.clone(), id, label })
    }
}

impl Attached {
    /// Returns the pipe for the next program, unless every writer has closed it. The rest of a line is lost.
    pub fn save(&self, files: &mut Leaving) -> Option<Number> {
        self.collection.lock().by_id.get(&self.id).map(|source| files.add(&source.pipe))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Closing the last descriptor of the pipe takes it out of the epoll set, too.
        let Some(mut source) = self.collection.lock().by_id.remove(&self.id) else { return };
        let mut loud = self.collection.loud.lock();
        for _ in 0..PIPE_BYTES / READ_BYTES {
            if source.read(&mut |level, text| emit(level, text), &mut loud) != Read::Some {
                break;
            }
        }
        source.end_line(&mut |level, text| emit(level, text), &mut loud);
    }
}

impl Collection {
    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock()
    }

    fn read_all(&self) {
        threads::read_foreign_bytes();
        let mut events = [EpollEvent::default(); 16];
        loop {
            let ready = match self.epoll.wait(-1, &mut events) {
                Ok(ready) => ready,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return warn!("the messages of workers are not read any more: {error}"),
            };
            let _permit = freeze::permit();
            for event in &events[..ready] {
                let mut sources = self.lock();
                let Some(source) = sources.by_id.get_mut(&event.data()) else { continue };
                if source.read(&mut |level, text| emit(level, text), &mut self.loud.lock()) == Read::End {
                    // Closing the last descriptor of the pipe takes it out of the epoll set, too.
                    sources.by_id.remove(&event.data());
                }
            }
        }
    }
}

impl Source {
    /// Reads once.
    fn read(&mut self, emit: &mut impl FnMut(Level, &str), loud: &mut Allowance) -> Read {
        let mut bytes = [0; READ_BYTES];
        let read = match self.pipe.read(&mut bytes) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Read::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Read::Nothing,
            Err(_) => 0,
        };
        for &byte in &bytes[..read] {
            if byte == b'\n' {
                self.end_line(emit, loud);
            } else if self.line.len() < MAX_LINE {
                self.line.push(byte);
            }
        }
        if read == 0 {
            self.end_line(emit, loud);
        }
        if read > 0 { Read::Some } else { Read::End }
    }

    fn end_line(&mut self, emit: &mut impl FnMut(Level, &str), loud: &mut Allowance) {
        let line = std::mem::take(&mut self.line);
        let (level, text) = parse(&line);
        if text.is_empty() || level > log::max_level() {
            return;
        }
        let allowance = if level >= Level::Debug { &mut self.quiet } else { loud };
        let Some(dropped) = allowance.take(Instant::now()) else { return };
        if dropped > 0 {
            emit(level, &format!("{dropped} messages of workers were left out: too many at a time"));
        }
        let who = match self.label.0.get() {
            Some(session) => format!("session {session}: worker: {text}"),
            None => format!("worker {}: {text}", self.pid),
        };
        emit(level, &who);
    }
}

impl Allowance {
    fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, left: burst, since: Instant::now(), dropped: 0 }
    }

    /// Reserves a message. Returns the number of messages that were dropped since the last one, or `None` if there is
    /// no room.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let earned = now.saturating_duration_since(self.since).as_nanos() / self.interval.as_nanos();
        if earned > 0 {
            self.left = self.left.saturating_add(u32::try_from(earned).unwrap_or(u32::MAX)).min(self.burst);
            self.since = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

fn emit(level: Level, text: &str) {
    log!(target: "worker", level, "{text}");
}

/// Returns the level of a line and its printable text. A line without a level comes from a library and is a warning.
pub(crate) fn parse(line: &[u8]) -> (Level, String) {
    let text = String::from_utf8_lossy(line);
    let marked = LETTERS
        .iter()
        .find_map(|&(letter, level)| Some((level, text.strip_prefix(letter)?.strip_prefix(' ')?)));
    let (level, text) = marked.unwrap_or((Level::Warn, &text));
    (level, text.trim().chars().map(printable).collect())
}

/// Replaces terminal commands and characters that change the order of others.
fn printable(letter: char) -> char {
    match letter {
        '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        letter if letter.is_control() => '?',
        letter => letter,
    }
}

#[cfg(test)]
#[path = "messages_test.rs"]
mod tests;
