// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends events to `vhost-cuda-prof`, on a thread of its own. The program never waits for it, except when it ends.

use std::ffi::{CStr, OsStr, c_void};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use std::{fs, process, thread};

use vhost_cuda_profile::event::{Batch, Event};
use vhost_cuda_profile::names::clean;

use crate::cupti;
use crate::records::Reader;

/// The socket's name, in the folder of the link to this library.
const SOCKET: &str = "socket";
/// A file that exists beside it if `vhost-cuda-prof` writes a timeline.
const TIMELINE: &str = "timeline";
/// The maximum number of events that wait (about 16 MiB). Further ones are counted and lost.
const MAX_WAITING: usize = 1 << 16;
/// The maximum number of events of a line.
const MAX_BATCH: usize = 512;
/// The time between two looks at completed work.
const INTERVAL: Duration = Duration::from_millis(50);
/// The time for sending what is left when the program ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message to the thread that sends events.
enum Message {
    Event(Event),
    /// Send all that has come, and confirm.
    Flush(SyncSender<()>),
}

/// The way to `vhost-cuda-prof`.
#[derive(Debug)]
pub struct Sink {
    queue: SyncSender<Message>,
    dropped: AtomicU64,
    no_gpu: OnceLock<String>,
    timeline: bool,
}

impl Sink {
    /// Sends an event, or counts it as lost if the queue is full.
    pub fn send(&self, event: Event) {
        if self.queue.try_send(Message::Event(event)).is_err() {
            self.add_dropped(1);
        }
    }

    /// Counts events that were lost.
    pub fn add_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Notes the reason for which work of GPUs is not measured.
    pub fn set_no_gpu(&self, reason: String) {
        let _ = self.no_gpu.set(reason);
    }

    /// Returns whether a timeline is written, not only tables.
    pub fn wants_timeline(&self) -> bool {
        self.timeline
    }

    /// Waits until all events are sent.
    fn flush(&self) {
        let (done, waits) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            let _ = waits.recv_timeout(PATIENCE);
        }
    }
}

static SINK: OnceLock<Option<Sink>> = OnceLock::new();

/// Returns the way to `vhost-cuda-prof`; `None` if it does not listen, as in programs that inherit its variables later.
pub fn get() -> Option<&'static Sink> {
    SINK.get_or_init(connect).as_ref()
}

fn connect() -> Option<Sink> {
    let path = own_path()?;
    let stream = UnixStream::connect(path.with_file_name(SOCKET)).ok()?;
    let (queue, messages) = sync_channel(MAX_WAITING);
    thread::Builder::new().name("vhost-cuda-prof".into()).spawn(move || send_all(&stream, &messages)).ok()?;
    // SAFETY: a function without arguments of this library, which stays loaded: CUDA and NVTX never close it.
    unsafe { libc::atexit(at_exit) };
    let (dropped, timeline) = (AtomicU64::new(0), path.with_file_name(TIMELINE).exists());
    Some(Sink { queue, dropped, no_gpu: OnceLock::new(), timeline })
}

extern "C" fn at_exit() {
    cupti::flush();
    if let Some(Some(sink)) = SINK.get() {
        sink.flush();
    }
}

/// Returns the path by which this library was loaded.
fn own_path() -> Option<PathBuf> {
    // SAFETY: all zero is a valid value of a structure of pointers.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is one of this library's code; `about` is a local.
    let found = unsafe { libc::dladdr(own_path as *const c_void, &raw mut about) };
    if found == 0 || about.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr has found the file, whose name is a C string.
    let name = unsafe { CStr::from_ptr(about.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    path.is_absolute().then_some(path)
}

fn send_all(stream: &UnixStream, messages: &Receiver<Message>) {
    let mut stream = BufWriter::new(stream);
    let program = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let program = clean(program.trim_end());
    // The process's id where it sees itself.
    let own = |batch| Batch { session: 0, program: program.clone(), pid: process::id(), ..batch };
    let mut records = Reader::default();
    loop {
        let mut batch = own(Batch::default());
        let mut flushes = Vec::new();
        let mut next = messages.recv_timeout(INTERVAL);
        while let Ok(message) = next {
            match message {
                Message::Event(event) => batch.events.push(event),
                Message::Flush(done) => flushes.push(done),
            }
            if batch.events.len() >= MAX_BATCH {
                break;
            }
            next = messages.try_recv().map_err(|_| RecvTimeoutError::Timeout);
        }
        if let Some(Some(sink)) = SINK.get() {
            batch.dropped = sink.dropped.swap(0, Ordering::Relaxed);
            batch.no_gpu = sink.no_gpu.get().cloned();
        }
        let has_more = batch.events.len() >= MAX_BATCH;
        let is_empty = batch.events.is_empty() && batch.dropped == 0;
        if !is_empty && write(&mut stream, &batch).is_err() {
            // Nobody reads. What follows is lost, and the program goes on.
            return;
        }
        let mut pass_on = |batch| write(&mut stream, &own(batch));
        let passed =
            if flushes.is_empty() { records.read(&mut pass_on) } else { records.finish(&mut pass_on) };
        if passed.is_err() {
            return;
        }
        // All events that were queued before the request are in this line or in earlier ones.
        for done in flushes {
            let _ = done.send(());
        }
        if !has_more {
            cupti::flush();
        }
    }
}

fn write(stream: &mut impl Write, batch: &Batch) -> std::io::Result<()> {
    serde_json::to_writer(&mut *stream, batch)?;
    stream.write_all(b"\n")?;
    stream.flush()
}
