// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The streams that are capturing.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use virtio_cuda_client::{CudaError, changes};

/// `CUDA_ERROR_ILLEGAL_STATE`: the stream is already capturing.
const ILLEGAL_STATE: i32 = 401;

/// A capturing stream, identified as the device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capturing {
    pub context: u64,
    pub stream: u64,
    /// The thread whose default stream it is.
    pub thread: Option<ThreadId>,
}

/// Captures that have begun and not ended.
#[derive(Debug, Default)]
pub struct Captures {
    /// The number of streams: programs without captures only read this.
    count: AtomicUsize,
    streams: Mutex<HashSet<Capturing>>,
}

/// Ends captures in a thread's default stream when the thread ends: other threads cannot refer to that stream.
#[derive(Default)]
struct OfThread(Cell<Option<&'static Captures>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        if let Some(captures) = self.0.get() {
            captures.forget_thread(thread::current().id());
        }
    }
}

thread_local! {
    static OF_THREAD: OfThread = OfThread::default();
}

impl Captures {
    fn change<T>(&self, body: impl FnOnce(&mut HashSet<Capturing>) -> T) -> T {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = body(&mut streams);
        changes::set_capturing(!streams.is_empty());
        self.count.store(streams.len(), Ordering::Release);
        answer
    }

    /// Returns whether any stream could be capturing.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Begins a capture with `call`.
    pub fn begin(
        &'static self,
        stream: Capturing,
        call: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        // Counted before the device begins the capture: other threads' work could already be captured.
        self.change(|streams| streams.insert(stream));
        if stream.thread.is_some() {
            let _ = OF_THREAD.try_with(|of_thread| of_thread.0.set(Some(self)));
        }
        call().inspect_err(|error| {
            if error.code() != ILLEGAL_STATE {
                self.ended(stream);
            }
        })
    }

    /// Removes the capture of a stream, if there was one.
    pub fn ended(&self, stream: Capturing) {
        if self.any() {
            self.change(|streams| streams.remove(&stream));
        }
    }

    /// Removes the captures of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.change(|streams| streams.retain(|stream| stream.context != context));
    }

    fn forget_thread(&self, thread: ThreadId) {
        self.change(|streams| streams.retain(|stream| stream.thread != Some(thread)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captures() -> &'static Captures {
        Box::leak(Box::default())
    }

    fn stream(context: u64, stream: u64, thread: Option<ThreadId>) -> Capturing {
        Capturing { context, stream, thread }
    }

    #[test]
    fn a_capture_counts_while_it_begins() {
        let captures = captures();
        let (one, other) = (stream(7, 100, None), stream(7, 101, None));
        let begun = captures.begin(one, || {
            assert!(captures.any());
            Ok(())
        });
        assert!(begun.is_ok() && captures.any());
        assert!(captures.begin(other, || Err(CudaError::INVALID_VALUE)).is_err() && captures.any());
        captures.ended(one);
        assert!(!captures.any());
        captures.ended(one);
        assert!(!captures.any());
    }

    #[test]
    fn a_second_begin_leaves_the_capture() {
        let (captures, one) = (captures(), stream(7, 100, None));
        assert!(captures.begin(one, || Ok(())).is_ok());
        assert!(captures.begin(one, || CudaError::check(ILLEGAL_STATE)).is_err() && captures.any());
        captures.ended(one);
        assert!(!captures.any());
    }

    #[test]
    fn captures_end_with_their_context_and_their_thread() {
        let captures = captures();
        for one in [stream(7, 100, None), stream(8, 101, None)] {
            assert!(captures.begin(one, || Ok(())).is_ok());
        }
        let begin = || captures.begin(stream(9, 2, Some(thread::current().id())), || Ok(()));
        assert!(thread::spawn(begin).join().unwrap().is_ok());
        captures.forget_context(7);
        assert!(captures.any());
        captures.forget_context(8);
        assert!(!captures.any(), "the thread has ended");
    }
}
