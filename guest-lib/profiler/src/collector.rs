// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collects the events that processes send: the program, and those that it starts.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vhost_cuda_profile::event::Batch;
use vhost_cuda_profile::table::Tables;
use vhost_cuda_profile::timeline::Timeline;

/// The maximum length of a line in bytes: a few hundred events.
const MAX_LINE: u64 = 4 << 20;
/// The maximum number of processes at a time. Limits the memory for lines.
const MAX_PROCESSES: usize = 256;
/// The time for processes that outlive the program to send what they have.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct State {
    tables: Tables,
    timeline: Option<Timeline<BufWriter<File>>>,
    /// The first error of the timeline's file.
    error: Option<io::Error>,
    processes: usize,
    /// The number of processes that were not served.
    refused: usize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What programs have sent.
#[derive(Debug)]
pub struct Collector {
    shared: Arc<Shared>,
    socket: PathBuf,
}

impl Collector {
    /// Listens at `socket`, and writes a timeline into `trace`.
    ///
    /// Errors: those of both files.
    pub fn listen(socket: &Path, trace: Option<&Path>) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let file = trace.map(crate::create).transpose()?;
        shared.lock().timeline = file.map(|file| Timeline::new(BufWriter::new(file)));
        let listener = UnixListener::bind(socket).context("Cannot listen for the program's events")?;
        let accepting = shared.clone();
        thread::Builder::new().name("accept".into()).spawn(move || accept_all(&listener, &accepting))?;
        Ok(Self { shared, socket: socket.to_path_buf() })
    }

    /// Waits for the last events, ends the timeline, and returns the tables.
    ///
    /// Errors: those of the timeline's file.
    pub fn finish(self) -> Result<Tables> {
        // Connections are accepted in their order, so all that were made before are known when this one is.
        if let Ok(mut last) = UnixStream::connect(&self.socket) {
            let _ = last.shutdown(Shutdown::Write);
            let _ = last.set_read_timeout(Some(PATIENCE));
            let _ = last.read(&mut [0]);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.lock();
        while state.processes > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                eprintln!(
                    "vhost-cuda-prof: {} processes go on, which the program has started",
                    state.processes
                );
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        ensure!(state.refused == 0, "More than {MAX_PROCESSES} processes at a time");
        if let Some(error) = state.error.take() {
            return Err(error).context("Cannot write the timeline");
        }
        if let Some(timeline) = state.timeline.take() {
            let (_, left_out) = timeline.finish().context("Cannot write the timeline")?;
            ensure!(left_out == 0, "{left_out} events are missing in the timeline: they have too many rows");
        }
        Ok(std::mem::take(&mut state.tables))
    }
}

fn accept_all(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let mut state = shared.lock();
        if state.processes >= MAX_PROCESSES {
            state.refused += 1;
            continue;
        }
        state.processes += 1;
        drop(state);
        let reading = shared.clone();
        let read = move || {
            read_all(stream, &reading);
            reading.lock().processes -= 1;
            reading.changed.notify_all();
        };
        if thread::Builder::new().spawn(read).is_err() {
            shared.lock().processes -= 1;
        }
    }
}

/// Reads lines until the process ends, or sends what is none.
fn read_all(stream: UnixStream, shared: &Shared) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = stream.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        if read.is_err() || line.last() != Some(&b'\n') {
            return;
        }
        let Ok(batch) = serde_json::from_slice::<Batch>(&line) else { return };
        // A session's number is the daemon's.
        let batch = Batch { session: 0, ..batch };
        let mut state = shared.lock();
        state.tables.add(&batch);
        let written = state.timeline.as_mut().map(|timeline| timeline.add(&batch));
        if let Some(Err(error)) = written {
            state.error.get_or_insert(error);
            state.timeline = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use vhost_cuda_profile::event::{Event, Kind};
    use vhost_cuda_profile::reader;

    use super::*;

    #[test]
    fn lines_of_several_processes_make_one_profile() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, trace) = (folder.path().join("socket"), folder.path().join("trace"));
        let collector = Collector::listen(&socket, Some(&trace)).unwrap();
        for pid in [3, 4] {
            let events = vec![Event::new(Kind::Kernel, "add", 7, [10, 30])];
            let batch = Batch { session: 9, pid, events, ..Batch::default() };
            let mut stream = UnixStream::connect(&socket).unwrap();
            writeln!(stream, "{}", serde_json::to_string(&batch).unwrap()).unwrap();
            writeln!(stream, "no events").unwrap();
        }
        let tables = collector.finish().unwrap();
        assert_eq!(tables.lines(Kind::Kernel)[0].count, 2);
        let slices = reader::slices(&std::fs::read(&trace).unwrap()).unwrap();
        // Each process has a thread of its own.
        let pids: BTreeSet<_> = slices.iter().map(|slice| slice.pid).collect();
        assert_eq!((pids, slices.len()), (BTreeSet::from([3, 4]), 2));
    }
}
