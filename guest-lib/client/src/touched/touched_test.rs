// SPDX-License-Identifier: Apache-2.0 OR MIT

use virtio_cuda_protocol::cuda::DevicePtr;
use virtio_cuda_ring::layout::Header;
use virtio_cuda_ring::{LaneMemory, Order};

use super::marks::order;
use super::*;

const CONTEXT: u64 = 0x1000;
const OTHER_CONTEXT: u64 = 0x1010;
/// A stream with a mark that no other test uses: the contexts of a stream are never forgotten.
const BLOCKING: u64 = 0x2000;
const NON_BLOCKING: u64 = 0x2010 | NON_BLOCKING_STREAM;
const OTHER_NON_BLOCKING: u64 = 0x2020 | NON_BLOCKING_STREAM;
const EVENT: u64 = 0x2030;
const OTHER_EVENT: u64 = 0x2040;

fn two_lanes() -> Order {
    let order = order();
    for _ in 0..2 {
        let header: &'static Header = Box::leak(Box::default());
        // SAFETY: the header lives for good; nothing behind it is used.
        order.add(&unsafe { LaneMemory::new(std::ptr::from_ref(header).cast_mut().cast()) }).expect("a lane");
    }
    order
}

fn call(opcode: Opcode, context: u64, stream: Option<u64>, event: Option<u64>) -> Touched {
    let mut touched = Touched::of(opcode, context, false);
    touched.add(&DevicePtr(0x2000));
    if let Some(stream) = stream {
        touched.add(&StreamId(stream));
    }
    if let Some(event) = event {
        touched.add(&EventId(event));
    }
    touched
}

fn launch(context: u64, stream: u64) -> Touched {
    call(Opcode::cuLaunchKernel, context, Some(stream), None)
}

fn record(stream: u64, event: u64) -> Touched {
    call(Opcode::cuEventRecordWithFlags, CONTEXT, Some(stream), Some(event))
}

/// Returns whether `second` of one thread comes after `first`, which another thread has posted; posted itself, and waited for.
fn comes_after(second: Touched, first: Touched) -> bool {
    let order = two_lanes();
    first.publish(first.begin(&order, Some(0), true), 64);
    let [posted, waits] =
        [true, false].map(|posted| !second.begin(&order, Some(1), posted).dependencies().is_empty());
    assert_eq!(posted, waits, "{second:?} after {first:?}");
    assert!(second.begin(&order, Some(0), false).dependencies().is_empty(), "the same thread");
    posted
}

#[test]
fn streams_of_their_own_do_not_wait_for_each_other() {
    assert!(comes_after(launch(CONTEXT, NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(launch(CONTEXT, OTHER_NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    let with_attributes = |stream| call(Opcode::cuLaunchKernelEx, CONTEXT, Some(stream), None);
    assert!(comes_after(with_attributes(NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    assert!(comes_after(launch(CONTEXT, NON_BLOCKING), with_attributes(NON_BLOCKING)));
    assert!(!comes_after(with_attributes(OTHER_NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(launch(CONTEXT, BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(launch(CONTEXT, PER_THREAD_STREAM), launch(CONTEXT, PER_THREAD_STREAM)));
    let synchronize = |stream| call(Opcode::cuStreamSynchronize, CONTEXT, Some(stream), None);
    assert!(comes_after(synchronize(NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(synchronize(OTHER_NON_BLOCKING), launch(CONTEXT, NON_BLOCKING)));
}

#[test]
fn the_legacy_default_stream_goes_with_blocking_streams_of_its_context() {
    for legacy in LEGACY_STREAMS {
        for blocking in [BLOCKING, PER_THREAD_STREAM, LEGACY_STREAMS[0]] {
            assert!(comes_after(launch(CONTEXT, legacy), launch(CONTEXT, blocking)));
            assert!(comes_after(launch(CONTEXT, blocking), launch(CONTEXT, legacy)));
        }
        assert!(!comes_after(launch(CONTEXT, legacy), launch(CONTEXT, NON_BLOCKING)));
        assert!(!comes_after(launch(CONTEXT, NON_BLOCKING), launch(CONTEXT, legacy)));
        assert!(!comes_after(launch(OTHER_CONTEXT, legacy), launch(CONTEXT, legacy)));
    }
    // A stream goes with its own context, whichever is current.
    let asks = call(Opcode::cuStreamQuery, OTHER_CONTEXT, Some(BLOCKING), None);
    let _ = launch(CONTEXT, BLOCKING);
    assert!(comes_after(asks, launch(CONTEXT, LEGACY_STREAMS[0])));
}

#[test]
fn events_lead_from_one_stream_to_the_other() {
    let first = record(NON_BLOCKING, EVENT);
    let wait = |event| call(Opcode::cuStreamWaitEvent, CONTEXT, Some(OTHER_NON_BLOCKING), Some(event));
    assert!(comes_after(wait(EVENT), first) && !comes_after(wait(OTHER_EVENT), first));
    assert!(comes_after(call(Opcode::cuEventSynchronize, 0, None, Some(EVENT)), first));
    assert!(comes_after(call(Opcode::cuEventDestroy_v2, 0, None, Some(EVENT)), first));
    assert!(comes_after(first, wait(EVENT)));
}

#[test]
fn copies_that_count_as_done_come_before_everything_in_their_context() {
    let copy = call(Opcode::cuMemcpyHtoD_v2, CONTEXT, None, None);
    assert!(comes_after(launch(CONTEXT, NON_BLOCKING), copy));
    assert!(comes_after(call(Opcode::cuMemcpyAsync, OTHER_CONTEXT, Some(NON_BLOCKING), None), copy));
    assert!(!comes_after(launch(OTHER_CONTEXT, LEGACY_STREAMS[0]), copy));
    let in_stream = call(Opcode::cuMemcpyHtoDAsync_v2, CONTEXT, Some(NON_BLOCKING), None);
    assert!(!comes_after(launch(CONTEXT, OTHER_NON_BLOCKING), in_stream));
    let mut of_thread = Touched::of(Opcode::cuMemcpyHtoD_v2, CONTEXT, false);
    of_thread.add(&StreamId(PER_THREAD_STREAM));
    assert!(comes_after(launch(CONTEXT, NON_BLOCKING), of_thread));
    assert!(!comes_after(of_thread, launch(CONTEXT, NON_BLOCKING)), "it is not in the legacy stream");
}

#[test]
fn a_request_for_a_function_waits_for_nothing() {
    let (order, posted) = (two_lanes(), call(Opcode::vendor_call, CONTEXT, None, None));
    posted.publish(posted.begin(&order, Some(0), true), 64);
    // The posted call may wait for the function.
    let next = call(Opcode::session_next_callback, 0, None, None);
    assert!(next.begin(&order, Some(1), false).dependencies().is_empty());
}

#[test]
fn what_may_use_anything_comes_after_everything_and_before_it() {
    let anything = call(Opcode::vendor_call, CONTEXT, None, None);
    for other in [launch(OTHER_CONTEXT, NON_BLOCKING), record(BLOCKING, EVENT), anything] {
        assert!(comes_after(other, anything) && comes_after(anything, other));
    }
    let free = call(Opcode::cuMemFree_v2, CONTEXT, None, None);
    assert!(comes_after(free, launch(OTHER_CONTEXT, NON_BLOCKING)));
    let synchronize = call(Opcode::cuCtxSynchronize, CONTEXT, None, None);
    assert!(comes_after(synchronize, launch(CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(synchronize, launch(OTHER_CONTEXT, NON_BLOCKING)));
    assert!(!comes_after(call(Opcode::cuMemAlloc_v2, CONTEXT, None, None), launch(CONTEXT, NON_BLOCKING)));
}
