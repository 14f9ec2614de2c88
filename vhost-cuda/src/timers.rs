// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timer slack of threads: threads of NVIDIA's driver need not wake up while there is nothing to do, and threads
//! that look around every few microseconds must not sleep longer.
//!
//! The thread that the driver starts with the first context (`cuda-EvtHandlr`) looks around ten times a second, which is all the CPU
//! time that an idle worker takes, and there is one for each session and each warm worker. What it waits for comes by
//! descriptors; its timer may be late. A thread's timers are as late as those of the thread that started it were allowed
//! to be (`prctl(2)`, `PR_SET_TIMERSLACK`).

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// The slack of the timers of threads that the driver starts, in nanoseconds.
const SLACK_NS: u64 = 10_000_000_000;

/// Calls `start`, in which NVIDIA's driver may start threads. The emulator, which has no such thread, is left alone: a
/// worker of it may not ask for this once its sandbox is closed.
pub fn late_in_threads_of<T>(emulated: bool, start: impl FnOnce() -> T) -> T {
    if emulated {
        return start();
    }
    let before = current_timer_slack();
    set_slack(SLACK_NS);
    let started = start();
    // The kernel takes 0 for the slack that the thread began with.
    set_slack(before.unwrap_or(0));
    started
}

/// Lets timers of the calling thread end on time: a thread that looks around every few microseconds would sleep for 50 longer.
pub fn exact() {
    set_slack(1);
}

fn set_slack(nanoseconds: u64) {
    // If it fails, the timers are as they were.
    let _ = set_current_timer_slack(NonZeroU64::new(nanoseconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slack() -> i32 {
        // SAFETY: a plain system call that only asks.
        unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
    }

    #[test]
    fn only_threads_started_meanwhile_are_late() {
        let before = slack();
        let of_thread = || std::thread::spawn(slack).join().expect("asking does not panic");
        // `PR_GET_TIMERSLACK` answers in an int.
        assert_eq!(late_in_threads_of(false, of_thread), SLACK_NS as i32);
        assert_eq!((slack(), of_thread()), (before, before));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                exact();
                assert_eq!(late_in_threads_of(false, of_thread), SLACK_NS as i32);
                assert_eq!(slack(), 1, "a thread that looks around often still does");
            });
        });
        assert_eq!(late_in_threads_of(true, of_thread), before);
    }
}
