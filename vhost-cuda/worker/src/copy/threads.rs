// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that copy between guest pages and staging buffers. They are started on demand, sleep while there is no
//! work, and make no CUDA calls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::staging::Buffer;
use crate::memory::pages::{Cursor, PageList};
use crate::run::cores;

/// The time to poll for the next piece before sleeping, where there are spare cores. It is longer than a piece takes,
/// since waking up can take as long.
const WATCH: Duration = Duration::from_micros(200);

/// Polls for a while until there is work.
fn watch(is_there: impl Fn() -> bool) {
    let how_long = if cores::are_few() { Duration::ZERO } else { WATCH };
    let start = Instant::now();
    while !is_there() && start.elapsed() < how_long {
        // Reads the clock and the other side's cache line only from time to time.
        (0..16).for_each(|_| std::hint::spin_loop());
    }
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the guest's pages.
    Gather,
    /// To the guest's pages.
    Scatter,
}

/// A part of a copy that fits into a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its position in the page list.
    pub at: Cursor,
    /// The number of bytes before it.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

/// The part of a copy that its owner and the threads share.
#[derive(Debug)]
pub struct Transfer {
    pages: PageList,
    direction: Direction,
    done: Mutex<Vec<(Piece, Buffer)>>,
    /// The length of `done`, for threads that poll.
    count: AtomicUsize,
    changed: Condvar,
}

impl Transfer {
    /// A copy from or to `pages`.
    pub fn new(pages: PageList, direction: Direction) -> Arc<Self> {
        let (count, changed) = (AtomicUsize::new(0), Condvar::new());
        Arc::new(Self { pages, direction, done: Mutex::default(), count, changed })
    }

    /// Copies one piece between the pages and `buffer`, which the GPU must not use.
    pub fn copy(&self, piece: &Piece, buffer: &Buffer) {
        // SAFETY: the piece fits into the buffer, whose owner has come here with it; the GPU is done with it.
        unsafe {
            match self.direction {
                Direction::Gather => self.pages.read_to(piece.at, buffer.as_ptr(), piece.bytes),
                Direction::Scatter => self.pages.write_from(piece.at, buffer.as_ptr(), piece.bytes),
            }
        }
    }

    /// Takes the pieces that the threads have completed since the last call, without waiting.
    pub fn take_done(&self) -> Vec<(Piece, Buffer)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        self.take(self.done.lock())
    }

    fn take(&self, mut done: MutexGuard<'_, Vec<(Piece, Buffer)>>) -> Vec<(Piece, Buffer)> {
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *done)
    }

    /// As [`Self::take_done`], but waits until there is at least one. A piece must be in progress.
    pub fn wait_done(&self) -> Vec<(Piece, Buffer)> {
        watch(|| self.count.load(Ordering::Relaxed) > 0);
        let mut done = self.done.lock();
        while done.is_empty() {
            self.changed.wait(&mut done);
        }
        self.take(done)
    }

    fn finish(&self, piece: Piece, buffer: Buffer) {
        let mut done = self.done.lock();
        done.push((piece, buffer));
        self.count.store(done.len(), Ordering::Relaxed);
        drop(done);
        self.changed.notify_one();
    }
}

type Tasks = VecDeque<(Piece, Buffer)>;

#[derive(Debug, Default)]
struct State {
    /// Copies with queued pieces. The threads serve them in turn.
    copies: VecDeque<(Arc<Transfer>, Tasks)>,
    /// The number of pieces of all of them.
    queued: usize,
    threads: usize,
    /// Threads that sleep, or have been woken and do not know yet.
    idle: usize,
    stopping: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A copy of [`State::queued`], for threads that poll.
    queued: AtomicUsize,
    work: Condvar,
}

/// The threads of a session.
#[derive(Debug)]
pub struct CopyThreads {
    limit: usize,
    shared: Arc<Shared>,
}

impl CopyThreads {
    /// At most `limit` threads.
    pub fn new(limit: usize) -> Self {
        Self { limit, shared: Arc::default() }
    }

    /// The maximum number of threads.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Queues one piece for a thread; it is returned by [`Transfer::wait_done`]. Without any thread it is copied
    /// here.
    pub fn submit(&self, transfer: &Arc<Transfer>, piece: Piece, buffer: Buffer) {
        let mut state = self.shared.state.lock();
        if state.queued >= state.idle && state.threads < self.limit {
            self.start(&mut state);
        }
        if state.threads == 0 {
            drop(state);
            transfer.copy(&piece, &buffer);
            return transfer.finish(piece, buffer);
        }
        match state.copies.iter_mut().find(|(other, _)| Arc::ptr_eq(other, transfer)) {
            Some((_, tasks)) => tasks.push_back((piece, buffer)),
            None => state.copies.push_back((transfer.clone(), Tasks::from([(piece, buffer)]))),
        }
        state.queued += 1;
        self.shared.queued.store(state.queued, Ordering::Relaxed);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.shared.work.notify_one();
        }
    }

    fn start(&self, state: &mut State) {
        let shared = self.shared.clone();
        let name = format!("copy-{}", state.threads);
        match thread::Builder::new().name(name).spawn(move || run(&shared)) {
            Ok(_) => state.threads += 1,
            Err(error) => debug!("no copy thread: {error}"),
        }
    }
}

impl Drop for CopyThreads {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.work.notify_all();
    }
}

/// A copy whose thread has died would never end, and its call would never be answered.
struct EndWithThread;

impl Drop for EndWithThread {
    fn drop(&mut self) {
        if thread::panicking() {
            super::super::end_process("a copy thread has failed");
        }
    }
}

fn run(shared: &Shared) {
    let _guard = EndWithThread;
    let mut state = shared.state.lock();
    let mut watched = true;
    loop {
        let Some((transfer, mut tasks)) = state.copies.pop_front() else {
            if state.stopping {
                return;
            }
            if !std::mem::replace(&mut watched, true) {
                drop(state);
                watch(|| shared.queued.load(Ordering::Relaxed) > 0);
                state = shared.state.lock();
                continue;
            }
            state.idle += 1;
            shared.work.wait(&mut state);
            state.idle -= 1;
            continue;
        };
        let Some((piece, buffer)) = tasks.pop_front() else { continue };
        state.queued -= 1;
        shared.queued.store(state.queued, Ordering::Relaxed);
        watched = false;
        if !tasks.is_empty() {
            state.copies.push_back((transfer.clone(), tasks));
        }
        drop(state);
        transfer.copy(&piece, &buffer);
        transfer.finish(piece, buffer);
        state = shared.state.lock();
    }
}
