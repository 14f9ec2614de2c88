// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Wakes executors for threads that do not want to wait for it. The request queue involves several processes, which all
//! sleep then: together they take most of a millisecond to wake up.

use std::num::NonZero;
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;

use crate::session;
use crate::thread::without_signals;

/// Requests to the waking thread, which starts with the first one.
#[derive(Debug, Default)]
struct Asked {
    threads: Vec<u32>,
    serves: bool,
}

#[derive(Debug, Default)]
struct Waker {
    asked: Mutex<Asked>,
    some: Condvar,
}

static WAKER: LazyLock<Waker> = LazyLock::new(Waker::default);
/// True if another thread cannot run beside this one.
static ALONE: LazyLock<bool> =
    LazyLock::new(|| thread::available_parallelism().is_ok_and(|cores| cores == NonZero::<usize>::MIN));

/// Wakes the executor of the thread with this number soon. Returns false if it does not.
pub(crate) fn wake(number: u32) -> bool {
    if *ALONE {
        return false;
    }
    let mut asked = WAKER.asked.lock().unwrap_or_else(PoisonError::into_inner);
    if !asked.serves {
        let started =
            without_signals(|| thread::Builder::new().name("cuda-wake".into()).spawn(|| WAKER.serve()));
        if let Err(error) = started {
            log::debug!("No thread that wakes executors: {error}");
            return false;
        }
        asked.serves = true;
    }
    asked.threads.push(number);
    drop(asked);
    WAKER.some.notify_one();
    true
}

impl Waker {
    fn serve(&self) {
        loop {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            while asked.threads.is_empty() {
                asked = self.some.wait(asked).unwrap_or_else(PoisonError::into_inner);
            }
            let threads = std::mem::take(&mut asked.threads);
            drop(asked);
            let Some(session) = session::current() else { continue };
            for thread in threads {
                // An executor that has ended needs no waking; a lost session reports that to all threads.
                if let Err(error) = session.wait_for_lane(thread, 0, 0) {
                    log::debug!("Waking the executor of thread {thread}: {error}");
                }
            }
        }
    }
}
