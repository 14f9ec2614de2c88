// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that serve streams and processes that request shared memory. There are as many as there are working
//! tasks, because each may wait for another. They end after a while without work.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

type Task = Box<dyn FnOnce() + Send>;

/// The time that an idle thread stays.
const LINGER: Duration = Duration::from_secs(2);

struct Threads {
    tasks: VecDeque<Task>,
    /// Threads that wait for a task.
    idle: usize,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { tasks: VecDeque::new(), idle: 0 });
static WORK: Condvar = Condvar::new();

/// Runs a task at once on a thread of its own.
pub(crate) fn run(task: Task) {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    threads.tasks.push_back(task);
    if threads.tasks.len() <= threads.idle {
        WORK.notify_one();
        return;
    }
    drop(threads);
    let spawned = thread::Builder::new().name("cuda-stream".into()).spawn(work);
    if let Err(error) = spawned {
        // The task stays queued for the next thread that is free.
        log::error!("cannot start a thread for a stream: {error}; raise `ulimit -u`");
    }
}

fn work() {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(task) = threads.tasks.pop_front() {
            drop(threads);
            task();
            threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        threads.idle += 1;
        let (woken, waited) = WORK
            .wait_timeout_while(threads, LINGER, |threads| threads.tasks.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        threads = woken;
        threads.idle -= 1;
        if waited.timed_out() && threads.tasks.is_empty() {
            return;
        }
    }
}
