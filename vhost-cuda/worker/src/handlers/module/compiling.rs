// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bound on the code that the driver loads, compiles and links at once: for each it takes host memory that nobody else counts.

use parking_lot::{Condvar, Mutex};

/// More do not end earlier: the driver compiles under a lock, and the emulator uses all cores for a few.
const MOST: usize = 8;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// Runs `work`, after waiting for others to end.
pub fn compiled<T>(work: impl FnOnce() -> T) -> T {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            *RUNNING.lock() -= 1;
            ENDED.notify_one();
        }
    }
    let mut running = RUNNING.lock();
    ENDED.wait_while(&mut running, |running| *running >= MOST);
    *running += 1;
    drop(running);
    let _running = Running;
    work()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_many_run_at_once_and_no_more() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..5 * MOST {
                scope.spawn(|| {
                    compiled(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(5));
                        now.fetch_sub(1, Ordering::SeqCst);
                    });
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= MOST);
    }
}
