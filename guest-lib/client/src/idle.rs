// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Tracks whether the device is known to have no work for this process: waiting for it then needs no call.

use std::cell::Cell;

use cuda_environment::speed;
use virtio_cuda_protocol::cuda::{ContextId, Opcode, StreamId};
use virtio_cuda_ring::Outstanding;

use crate::touched::Touched;

/// Calls that may have given the device something to do.
static CALLS: Outstanding = Outstanding::new();
/// Calls for whose work the legacy default stream waits. Posted copies that count as done are not counted: such a copy is posted
/// only if the stream has nothing to wait for, so the copy itself delays nobody.
static DEFAULT_STREAM: Outstanding = Outstanding::new();

thread_local! {
    /// The stream for which this thread has waited last, with its context, and the number of calls that there were by then.
    static WAITED: Cell<Option<(ContextId, StreamId, u64)>> = const { Cell::new(None) };
}

/// Calls up to some moment.
#[derive(Clone, Copy, Debug)]
pub struct SoFar {
    all: u64,
    default_stream: u64,
}

fn leaves_work(opcode: Opcode, posted: bool) -> bool {
    posted || !opcode.facts().is_idle()
}

fn delays_default_stream(opcode: Opcode, posted: bool, touched: &Touched) -> bool {
    leaves_work(opcode, posted) && opcode != Opcode::cuMemcpyHtoD_v2 && touched.delays_legacy()
}

/// Must be called before each call is sent: another thread's copy may come behind it.
pub(crate) fn begin(opcode: Opcode, posted: bool, touched: &Touched) {
    if delays_default_stream(opcode, posted, touched) {
        DEFAULT_STREAM.begin();
    }
}

/// Must be called after each call was sent.
pub(crate) fn count(opcode: Opcode, posted: bool, touched: &Touched) {
    if leaves_work(opcode, posted) {
        CALLS.begin();
    }
    begin(opcode, posted, touched);
}

/// Returns the number of calls so far; for a caller that then waits for all work.
pub fn so_far() -> SoFar {
    SoFar { all: CALLS.so_far(), default_stream: DEFAULT_STREAM.so_far() }
}

/// Marks the work of these calls as done.
pub fn done(so_far: SoFar) {
    CALLS.end(so_far.all);
    default_stream_done(so_far);
}

/// As [`done`], after a wait for the legacy default stream.
pub fn default_stream_done(so_far: SoFar) {
    DEFAULT_STREAM.end(so_far.default_stream);
}

/// Notes that the calling thread has waited for all work in `stream`, by a call with number `opcode` that began after `before`.
pub fn waited_for(opcode: Opcode, context: ContextId, stream: StreamId, before: SoFar) {
    let now = CALLS.so_far();
    // Calls of other threads that came meanwhile may have left work in the stream.
    let alone = now == before.all + u64::from(leaves_work(opcode, false));
    WAITED.set(alone.then_some((context, stream, now)));
}

/// Returns whether the calling thread has waited for all work in `stream` last, and no call has left work since.
pub(crate) fn is_stream_idle(context: ContextId, stream: StreamId) -> bool {
    speed::is_on() && WAITED.get() == Some((context, stream, CALLS.so_far()))
}

/// Returns whether a copy in the legacy default stream would have nothing to wait for.
pub fn is_default_stream_idle() -> bool {
    DEFAULT_STREAM.is_none()
}

/// Returns whether all work is done. Calls that other threads are making just now do not count: they could equally come
/// later.
pub(crate) fn is_idle() -> bool {
    speed::is_on() && CALLS.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 0x1000;
    const NON_BLOCKING: u64 = 0x2000 | crate::touched::NON_BLOCKING_STREAM;

    fn call(opcode: Opcode, posted: bool, stream: u64) {
        let mut touched = Touched::of(opcode, CONTEXT, false);
        touched.add(&virtio_cuda_protocol::cuda::StreamId(stream));
        begin(opcode, posted, &touched);
        count(opcode, posted, &touched);
    }

    // One test, because all share the counts.
    #[test]
    fn work_counts_until_it_was_waited_for() {
        call(Opcode::cuLaunchKernel, true, 0);
        assert!(!is_idle() && !is_default_stream_idle());
        let before = so_far();
        call(Opcode::cuCtxSynchronize, false, 0);
        done(before);
        assert!(is_idle());
        call(Opcode::memcpy_wait, false, 0);
        assert!(is_idle());
        // A wait for earlier calls says nothing about calls that came meanwhile.
        let before = so_far();
        call(Opcode::cuMemcpyAsync, false, 0);
        done(before);
        assert!(!is_idle());
        done(so_far());
        call(Opcode::memcpy_wait, true, 0);
        assert!(!is_idle(), "nobody has waited for it");
        done(so_far());

        call(Opcode::cuMemcpyHtoD_v2, true, 0);
        call(Opcode::cuLaunchKernel, true, NON_BLOCKING);
        assert!(!is_idle() && is_default_stream_idle(), "neither delays the default stream");
        for delays in [0, 1, 2, 0x2000] {
            call(Opcode::cuLaunchKernel, true, delays);
            assert!(!is_default_stream_idle());
            let before = so_far();
            call(Opcode::cuMemcpyHtoD_v2, false, 0);
            default_stream_done(before);
            assert!(is_default_stream_idle());
        }
        assert!(!is_idle());
        done(so_far());

        let (context, stream) = (ContextId(CONTEXT), StreamId(NON_BLOCKING));
        for waits in [Opcode::cuStreamSynchronize, Opcode::cuMemcpyDtoHAsync_v2] {
            let before = so_far();
            call(waits, false, NON_BLOCKING);
            assert!(!is_stream_idle(context, stream));
            waited_for(waits, context, stream, before);
            assert!(is_stream_idle(context, stream) && !is_stream_idle(context, StreamId(0)));
            assert!(!std::thread::scope(|scope| scope
                .spawn(|| is_stream_idle(context, stream))
                .join()
                .unwrap()));
            call(Opcode::cuLaunchKernel, true, 0);
            assert!(!is_stream_idle(context, stream), "the launch may delay the stream");
        }
        let before = so_far();
        call(Opcode::cuLaunchKernel, true, NON_BLOCKING);
        call(Opcode::cuStreamSynchronize, false, NON_BLOCKING);
        waited_for(Opcode::cuStreamSynchronize, context, stream, before);
        assert!(!is_stream_idle(context, stream), "it may have come behind the wait");
    }
}
