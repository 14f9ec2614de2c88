// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine that is paused and goes on. One thread at a time has its sessions follow: a front-end may stop and start its queues as
//! often as it likes, and each change can take seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the machine is paused.
#[derive(Debug, Default)]
pub struct Pausing {
    is_paused: AtomicBool,
    has_thread: AtomicBool,
}

impl Pausing {
    /// Returns whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Goes on with the state of the program before this one.
    pub fn restore(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Notes a change. Returns the follower that is to run on a thread, unless there is one, or nothing has changed.
    pub fn change(self: &Arc<Self>, to: bool) -> Option<Follower> {
        // A load first, because this is called for each event of a queue.
        let has_changed = self.is_paused() != to && self.is_paused.swap(to, Ordering::AcqRel) != to;
        (has_changed && !self.has_thread.swap(true, Ordering::AcqRel)).then(|| Follower(Some(self.clone())))
    }
}

/// Follows the changes. Without a thread to run on, it is dropped, and the next change makes another one.
#[derive(Debug)]
pub struct Follower(Option<Arc<Pausing>>);

impl Follower {
    /// Calls `act` with the present state, until that is the last one.
    pub fn run(mut self, act: impl Fn(bool)) {
        let Some(pausing) = self.0.take() else { return };
        loop {
            let is_paused = pausing.is_paused();
            act(is_paused);
            pausing.has_thread.store(false, Ordering::Release);
            if pausing.is_paused() == is_paused || pausing.has_thread.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(pausing) = &self.0 {
            pausing.has_thread.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn one_thread_follows_however_often_a_machine_pauses() {
        let pausing = Arc::<Pausing>::default();
        assert!(pausing.change(false).is_none(), "it runs already");
        drop(pausing.change(true).unwrap());
        let follower = pausing.change(false).expect("no thread was there for the first one");
        let acts = Mutex::new(Vec::new());
        follower.run(|is_paused| {
            acts.lock().push(is_paused);
            if acts.lock().len() == 1 {
                let flips = (0..1000).map(|flip| flip % 2 == 0).chain([true]);
                assert!(flips.filter_map(|to| pausing.change(to)).next().is_none(), "a second thread");
            }
        });
        assert_eq!(*acts.lock(), [false, true], "the last state counts");
        assert!(pausing.change(false).is_some());
    }
}
