// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions of the program that are due: in stream order (then the driver's thread waits here until the guest has
//! run them) or because nothing refers to them any more.
//!
//! The driver gets a function of this file and, as its argument, the guest's number of the function, which
//! cannot dangle. So the queue is one for the process, which serves one session.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use virtio_cuda_protocol::cuda::{CALLBACK_FORGET, CALLBACK_RUN, CallbackId};

use super::cores::{self, Watching};
use crate::gpu::CUstream;

/// The maximum time until a guest's request for the next function is answered. Then the guest asks again, so that no
/// request is outstanding for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for a request in a lane, for whose answer a thread of the guest watches: programs that use functions in each of their
/// steps have the next one by then.
const SHORT_PATIENCE: Duration = Duration::from_millis(2);
/// The time to watch for a function in a lane, and for its end: about as long as it takes to wake a thread up.
const WATCH: Duration = Duration::from_micros(300);

/// A function that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The number by which the guest reports that it has run.
    pub ticket: u64,
    /// The guest's number of the function.
    pub callback: CallbackId,
    /// The `CUresult` for stream callbacks.
    pub status: i32,
    /// `CALLBACK_*` bits.
    pub todo: u32,
}

#[derive(Debug)]
struct Queue {
    due: VecDeque<Due>,
    /// Tickets of functions that have not been run yet; a thread of the driver waits for each.
    waiting: BTreeSet<u64>,
    tickets: u64,
}

/// The functions that are due.
#[derive(Debug)]
pub struct Callbacks {
    queue: Mutex<Queue>,
    due: Condvar,
    done: Condvar,
    /// True while nobody waits for functions, because the session leaves this worker.
    left: AtomicBool,
    /// The number of functions that are due, and the number of those that have run, for threads that watch.
    due_now: AtomicUsize,
    finished: AtomicU64,
}

/// Functions that user objects of the driver stand for, by numbers that are given once. Such an object also ends when the session's
/// objects do, and the driver may report that late: then its number is not there any more.
#[derive(Debug, Default)]
struct Ties {
    last: u64,
    all: HashMap<u64, (u64, u32)>,
}

static TIES: LazyLock<Mutex<Ties>> = LazyLock::new(Mutex::default);

/// Returns the argument of [`tie_ended`] for a function: what is to be done with it when the user object has ended.
fn tie(callback: CallbackId, todo: u32) -> *mut c_void {
    let mut ties = TIES.lock();
    ties.last += 1;
    let number = ties.last;
    ties.all.insert(number, (callback.0, todo));
    std::ptr::without_provenance_mut(number as usize)
}

/// As [`tie`], for a function that the guest then forgets.
pub fn tie_node(callback: CallbackId) -> *mut c_void {
    tie(callback, CALLBACK_FORGET)
}

/// As [`tie`], for the destructor of a user object of the program, which the guest then runs.
pub fn tie_object(callback: CallbackId) -> *mut c_void {
    tie(callback, CALLBACK_FORGET | CALLBACK_RUN)
}

/// Ends a tie whose user object does not exist.
pub fn untie(tie: *mut c_void) {
    TIES.lock().all.remove(&(tie as u64));
}

/// Ends all ties, because the session's objects end.
pub fn cut_ties() {
    TIES.lock().all.clear();
}

/// Returns the user objects of the program that have not ended.
pub fn tied_objects() -> HashSet<u64> {
    let ties = TIES.lock();
    let objects = ties.all.values().filter(|(_, todo)| todo & CALLBACK_RUN != 0);
    objects.map(|(callback, _)| *callback).collect()
}

/// For the driver's user objects, with the number of a tie.
pub unsafe extern "C" fn tie_ended(tie: *mut c_void) {
    let ended = TIES.lock().all.remove(&(tie as u64));
    // No thread waits for it: the driver may hold locks here. The guest's answer is ignored.
    if let Some((callback, todo)) = ended {
        CALLBACKS.push(callback, 0, todo);
    }
}

/// The callbacks of this process's session.
pub static CALLBACKS: Callbacks = Callbacks::new();

impl Callbacks {
    const fn new() -> Self {
        Self {
            queue: Mutex::new(Queue { due: VecDeque::new(), waiting: BTreeSet::new(), tickets: 0 }),
            due: Condvar::new(),
            done: Condvar::new(),
            left: AtomicBool::new(false),
            due_now: AtomicUsize::new(0),
            finished: AtomicU64::new(0),
        }
    }

    fn push(&self, callback: u64, status: i32, todo: u32) -> u64 {
        let mut queue = self.queue.lock();
        queue.tickets += 1;
        let ticket = queue.tickets;
        if todo & CALLBACK_RUN != 0 {
            queue.waiting.insert(ticket);
        }
        queue.due.push_back(Due { ticket, callback: CallbackId(callback), status, todo });
        self.due_now.store(queue.due.len(), Ordering::Relaxed);
        self.due.notify_one();
        ticket
    }

    /// Makes the guest run a function, and waits for it. A guest process that has ended ends this process too.
    fn run(&self, callback: u64, status: i32, todo: u32) {
        let finished = self.finished.load(Ordering::Relaxed);
        let ticket = self.push(callback, status, todo | CALLBACK_RUN);
        cores::watch(WATCH, || self.finished.load(Ordering::Relaxed) != finished);
        let mut queue = self.queue.lock();
        while queue.waiting.contains(&ticket) {
            self.done.wait(&mut queue);
        }
    }

    /// Ends all waits for functions, or lets them begin again: whether the session leaves this worker.
    pub fn set_left(&self, left: bool) {
        let queue = self.queue.lock();
        self.left.store(left, Ordering::Relaxed);
        drop(queue);
        self.due.notify_all();
    }

    /// Returns the number of tickets so far. `None` while a function is due, or runs.
    pub fn tickets(&self) -> Option<u64> {
        let queue = self.queue.lock();
        (queue.due.is_empty() && queue.waiting.is_empty()).then_some(queue.tickets)
    }

    /// Goes on behind the tickets of another worker, so that none is given twice.
    pub fn begin_behind(&self, tickets: u64) {
        self.queue.lock().tickets = tickets;
    }

    /// Notes that the guest has run the function with this ticket. Other tickets are ignored.
    pub fn finish(&self, ticket: u64) {
        if self.queue.lock().waiting.remove(&ticket) {
            self.finished.fetch_add(1, Ordering::Relaxed);
            self.done.notify_all();
        }
    }

    /// Returns the next function; `None` if none is due for a while, or with `soon` for a shorter while.
    pub fn next(&self, soon: bool) -> Option<Due> {
        if soon && let Some(_permit) = Watching::begin() {
            cores::watch(WATCH, || self.due_now.load(Ordering::Relaxed) > 0);
        }
        let mut queue = self.queue.lock();
        let patience = if soon { SHORT_PATIENCE } else { PATIENCE };
        let is_awaited = |queue: &mut Queue| queue.due.is_empty() && !self.left.load(Ordering::Relaxed);
        self.due.wait_while_for(&mut queue, is_awaited, patience);
        let due = queue.due.pop_front();
        self.due_now.store(queue.due.len(), Ordering::Relaxed);
        due
    }
}

/// For work that happens once.
pub unsafe extern "C" fn run_once(callback: *mut c_void) {
    CALLBACKS.run(callback as u64, 0, CALLBACK_FORGET);
}

/// For nodes of graphs, which can be launched again.
pub unsafe extern "C" fn run_node(callback: *mut c_void) {
    CALLBACKS.run(callback as u64, 0, 0);
}

/// For `cuStreamAddCallback`.
pub unsafe extern "C" fn run_stream_callback(_stream: CUstream, status: c_int, callback: *mut c_void) {
    CALLBACKS.run(callback as u64, status, CALLBACK_FORGET);
}

/// For callbacks that nothing refers to any more.
pub unsafe extern "C" fn forget(callback: *mut c_void) {
    CALLBACKS.push(callback as u64, 0, CALLBACK_FORGET);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_waited_for_until_the_guest_has_run_it() {
        let callbacks = Callbacks::new();
        let finished = Mutex::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                callbacks.run(7, 3, CALLBACK_FORGET);
                *finished.lock() = true;
            });
            let due = callbacks.next(false).expect("it is due");
            assert_eq!(
                (due.callback, due.status, due.todo),
                (CallbackId(7), 3, CALLBACK_RUN | CALLBACK_FORGET)
            );
            callbacks.finish(due.ticket + 1);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!*finished.lock(), "another ticket does not count");
            callbacks.finish(due.ticket);
        });
        assert!(*finished.lock());
    }

    #[test]
    fn nobody_waits_when_the_session_leaves() {
        let callbacks = Callbacks::new();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| callbacks.next(false));
            callbacks.set_left(true);
            assert_eq!(waits.join().unwrap(), None);
        });
        assert_eq!(callbacks.tickets(), Some(0));
        callbacks.push(1, 0, CALLBACK_FORGET);
        assert_eq!(callbacks.tickets(), None);
        assert!(callbacks.next(false).is_some());
        callbacks.begin_behind(callbacks.tickets().unwrap() + 6);
        assert_eq!(callbacks.push(1, 0, CALLBACK_FORGET), 8);
    }

    #[test]
    fn a_tie_is_reported_once_and_not_after_the_objects_have_ended() {
        let before = CALLBACKS.queue.lock().due.len();
        let [node, object, late] =
            [tie_node(CallbackId(1)), tie_object(CallbackId(2)), tie_object(CallbackId(3))];
        assert!(tied_objects().is_superset(&HashSet::from([2, 3])) && !tied_objects().contains(&1));
        for tie in [node, object, node, object] {
            // SAFETY: the function takes any number.
            unsafe { tie_ended(tie) };
        }
        let reported: Vec<_> =
            CALLBACKS.queue.lock().due.drain(before..).map(|due| (due.callback.0, due.todo)).collect();
        assert_eq!(reported, [(1, CALLBACK_FORGET), (2, CALLBACK_FORGET | CALLBACK_RUN)]);
        CALLBACKS.queue.lock().waiting.clear();
        cut_ties();
        // SAFETY: as above.
        unsafe { tie_ended(late) };
        assert!(CALLBACKS.queue.lock().due.len() == before && tied_objects().is_empty());
    }

    #[test]
    fn notices_wait_for_nobody_and_keep_their_order() {
        let callbacks = Callbacks::new();
        callbacks.push(1, 0, CALLBACK_FORGET);
        callbacks.push(2, 0, CALLBACK_FORGET);
        assert_eq!(callbacks.next(false).map(|due| due.callback), Some(CallbackId(1)));
        assert_eq!(callbacks.next(true).map(|due| due.callback), Some(CallbackId(2)));
        assert_eq!(callbacks.next(true), None, "not for ever");
    }
}
