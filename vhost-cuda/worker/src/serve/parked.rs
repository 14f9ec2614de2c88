// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executors whose guest thread has ended. They execute the calls of the next one: their threads do not end.
//!
//! While a thread ends the driver destroys the default stream that the thread has there (`CU_STREAM_PER_THREAD`). On an H200 with driver
//! 580 this does not end now and then: the thread waits for a helper of the driver's, which uses a processor for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::executor::Executor;
use crate::run::MAX_LANES;

/// Says whether an executor waits for a guest thread. Set by the executor.
#[derive(Clone, Debug, Default)]
pub struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// Notes that the executor is done with its guest thread.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Executors that have no guest thread, or are at the last call of theirs.
#[derive(Debug, Default)]
pub struct Parked(Vec<Executor>);

impl Parked {
    /// Takes an executor to which no more calls of its guest thread come. Returns it if there are as many as lanes: without its sender it ends.
    pub fn add(&mut self, executor: Executor) -> Option<Executor> {
        self.0.retain(|executor| !executor.is_gone());
        if self.0.len() >= MAX_LANES {
            return Some(executor);
        }
        self.0.push(executor);
        None
    }

    /// Returns an executor for another guest thread.
    pub fn take(&mut self) -> Option<Executor> {
        let ready = |executor: &Executor| executor.waiting.has_begun() && !executor.is_gone();
        let executor = self.0.swap_remove(self.0.iter().position(ready)?);
        executor.waiting.0.store(false, Ordering::Relaxed);
        Some(executor)
    }

    /// Returns whether one is at a call still.
    pub fn any_works(&self) -> bool {
        self.0.iter().any(|executor| !executor.waiting.has_begun() && !executor.is_gone())
    }

    /// All of them.
    #[cfg(any(test, fuzzing))]
    pub fn into_all(self) -> Vec<Executor> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vhost_cuda_common::link::{Frame, ToWorker};
    use virtio_cuda_protocol::cuda::{CallHeader, Opcode};
    use zerocopy::IntoBytes;

    use crate::renewal::fixture::Guest;

    /// Behind all numbers that other tests use.
    const FIRST: u32 = 54300;

    /// The number of threads of this process that have begun with a guest thread of this test.
    fn threads() -> usize {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        // A thread that ends meanwhile has no name.
        tasks
            .filter(|task| {
                fs::read(task.as_ref().unwrap().path().join("comm"))
                    .is_ok_and(|name| name.starts_with(b"guest-543"))
            })
            .count()
    }

    fn call(guest: &mut Guest, opcode: Opcode, thread: u32) {
        let header = CallHeader { opcode: opcode as u32, thread, ..CallHeader::default() };
        let id = guest.submit(Frame::of_payload(ToWorker::default(), header.as_bytes().to_vec()));
        guest.answer(id);
    }

    #[test]
    fn the_thread_of_a_guest_thread_that_ended_goes_on_with_another_one() {
        let mut guest = Guest::new(false);
        for number in FIRST..FIRST + 50 {
            call(&mut guest, Opcode::cuCtxSynchronize, number);
            call(&mut guest, Opcode::session_thread_exit, number);
            // It is ready soon after its answer.
            while guest.executors.any_ends() {
                std::thread::yield_now();
            }
        }
        assert_eq!(threads(), 1);
        for number in FIRST..FIRST + 3 {
            call(&mut guest, Opcode::cuCtxSynchronize, number);
        }
        assert_eq!(threads(), 3);
        guest.executors.end();
    }
}
