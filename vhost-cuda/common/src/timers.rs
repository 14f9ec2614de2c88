// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timer slack of threads. Threads of NVIDIA's driver should not wake up while there is no work. Threads that poll
//! every few microseconds must not sleep longer than requested.
//!
//! The thread that the driver starts with the first context (`cuda-EvtHandlr`) polls ten times per second. This is
//! all the CPU time that an idle worker takes, and there is one such thread per session and per warm worker. Its
//! events arrive by descriptors, so its timer may be late. A thread inherits the timer slack of the thread that
//! started it (`prctl(2)`, `PR_SET_TIMERSLACK`).

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// The slack of the timers of threads that the driver starts, in nanoseconds.
const SLACK_NS: u64 = 10_000_000_000;

/// Calls `start`, in which NVIDIA's driver may start threads. Does nothing else with the emulator, which has no such
/// thread: its worker may not make this system call once its sandbox is closed.
pub fn late_in_threads_of<T>(emulated: bool, start: impl FnOnce() -> T) -> T {
    if emulated {
        return start();
    }
    let before = current_timer_slack();
    set_slack(SLACK_NS);
    let started = start();
    // The kernel takes 0 for the slack with which the thread began.
    set_slack(before.unwrap_or(0));
    started
}

/// Lets timers of the calling thread end on time: a thread that polls every few microseconds would otherwise sleep
/// for 50 longer.
pub fn exact() {
    set_slack(1);
}

fn set_slack(nanoseconds: u64) {
    // If it fails, the timers are unchanged.
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
        // `PR_GET_TIMERSLACK` returns an int.
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
