// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that are forbidden during a capture, and the error of each.

use std::ptr::null_mut;
use std::thread;

use crate::alone;
use crate::capture::{event, stream};
use crate::cu::{self, Opaque, cu, upload};

const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;
const ILLEGAL_STATE: i32 = 401;
const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const MERGE: i32 = 902;
const UNMATCHED: i32 = 903;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const CAPTURED_EVENT: i32 = 907;
const WRONG_THREAD: i32 = 908;

fn begin(stream: Opaque, mode: u32) {
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, mode)), 0);
}

/// Ends a capture that must have failed.
fn end(stream: Opaque, expected: i32) {
    let (mut graph, mut status) = (std::ptr::dangling_mut(), 9);
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), expected);
    assert!(graph.is_null());
    assert_eq!(cu!(cuStreamIsCapturing(stream, &mut status)), 0);
    assert_eq!(status, 0);
}

fn end_well(stream: Opaque) {
    let mut graph = null_mut();
    assert_eq!(cu!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
}

#[test]
fn waiting_for_a_capturing_stream_ends_the_capture() {
    let _alone = alone();
    cu::use_primary_context();
    let stream = stream();
    let calls: [&dyn Fn() -> i32; 3] =
        [&|| cu!(cuStreamSynchronize(stream)), &|| cu!(cuStreamQuery(stream)), &|| cu!(cuCtxSynchronize())];
    for call in calls {
        begin(stream, RELAXED);
        assert_eq!(call(), UNSUPPORTED);
        let mut status = 0;
        assert_eq!(cu!(cuStreamIsCapturing(stream, &mut status)), 0);
        assert_eq!(status, 2);
        assert_eq!(cu!(cuMemsetD32Async(0, 0, 0, stream)), 0);
        let target = 0u64;
        assert_eq!(cu!(cuLaunchHostFunc(stream, Some(nothing), target as *mut _)), INVALIDATED);
        end(stream, INVALIDATED);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
}

unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

#[test]
fn allocations_are_for_the_relaxed_only() {
    let _alone = alone();
    cu::use_primary_context();
    let (stream, mut ptr) = (stream(), 0);
    begin(stream, GLOBAL);
    assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), UNSUPPORTED);
    end(stream, INVALIDATED);
    begin(stream, GLOBAL);
    let mut mode = RELAXED;
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    assert_eq!(mode, GLOBAL);
    assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), 0);
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)), 0);
    end_well(stream);
    begin(stream, RELAXED);
    assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
    end_well(stream);
    // A capture that is its thread's own affair does not bother others; a global one does.
    let context = cu::use_primary_context() as usize;
    let elsewhere = || {
        thread::spawn(move || {
            let mut ptr = 0;
            assert_eq!(cu!(cuCtxSetCurrent(context as Opaque)), 0);
            cu!(cuMemAlloc_v2(&mut ptr, 4))
        })
        .join()
        .unwrap()
    };
    begin(stream, 1);
    assert_eq!(elsewhere(), 0);
    end_well(stream);
    begin(stream, GLOBAL);
    assert_eq!(elsewhere(), UNSUPPORTED);
    end(stream, INVALIDATED);
}

#[test]
fn the_legacy_stream_must_not_meet_a_blocking_capture() {
    let _alone = alone();
    cu::use_primary_context();
    let (target, mut blocking, mut status) = (upload(&[0i32]), null_mut(), 0);
    assert_eq!(cu!(cuStreamCreate(&mut blocking, 0)), 0);
    begin(blocking, RELAXED);
    assert_eq!(cu!(cuStreamIsCapturing(null_mut(), &mut status)), IMPLICIT);
    assert_eq!(cu!(cuMemsetD32Async(target, 0, 1, null_mut())), IMPLICIT);
    end(blocking, INVALIDATED);
    begin(blocking, RELAXED);
    let mut word = 0u32;
    assert_eq!(cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), target, 4)), IMPLICIT);
    end(blocking, INVALIDATED);
    let apart = stream();
    begin(apart, RELAXED);
    assert_eq!(cu!(cuMemsetD32Async(target, 0, 1, null_mut())), 0);
    end_well(apart);
    assert_eq!(cu!(cuStreamBeginCapture_v2(null_mut(), RELAXED)), UNSUPPORTED);
    assert_eq!(cu!(cuStreamDestroy_v2(blocking)), 0);
}

#[test]
fn events_keep_captures_and_other_work_apart() {
    let _alone = alone();
    cu::use_primary_context();
    let (one, two, inside, outside) = (stream(), stream(), event(), event());
    assert_eq!(cu!(cuEventRecord(outside, two)), 0);
    begin(one, RELAXED);
    assert_eq!(cu!(cuStreamWaitEvent(one, outside, 0)), ISOLATION);
    end(one, INVALIDATED);
    begin(one, RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, one)), 0);
    assert_eq!(cu!(cuEventQuery(inside)), CAPTURED_EVENT);
    end(one, INVALIDATED);
    begin(one, RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, one)), 0);
    assert_eq!(cu!(cuEventSynchronize(inside)), CAPTURED_EVENT);
    end(one, INVALIDATED);
    begin(one, RELAXED);
    begin(two, RELAXED);
    assert_eq!(cu!(cuEventRecord(inside, one)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(two, inside, 0)), MERGE);
    end(one, INVALIDATED);
    end(two, INVALIDATED);
}

#[test]
fn captures_end_where_and_as_they_began() {
    let _alone = alone();
    let context = cu::use_primary_context() as usize;
    let (one, two, fork, mut graph) = (stream(), stream(), event(), null_mut());
    let target = upload(&[0i32]);
    assert_eq!(cu!(cuStreamEndCapture(one, &mut graph)), ILLEGAL_STATE);
    begin(one, GLOBAL);
    assert_eq!(cu!(cuStreamBeginCapture_v2(one, GLOBAL)), ILLEGAL_STATE);
    let stream = one as usize;
    let ended = thread::spawn(move || {
        let mut graph = null_mut();
        assert_eq!(cu!(cuCtxSetCurrent(context as Opaque)), 0);
        cu!(cuStreamEndCapture(stream as Opaque, &mut graph))
    });
    assert_eq!(ended.join().unwrap(), WRONG_THREAD);
    end(one, INVALIDATED);
    for joins in [false, true] {
        begin(one, GLOBAL);
        assert_eq!(cu!(cuEventRecord(fork, one)), 0);
        assert_eq!(cu!(cuStreamWaitEvent(two, fork, 0)), 0);
        if joins {
            assert_eq!(cu!(cuStreamEndCapture(two, &mut graph)), UNMATCHED);
            end(one, INVALIDATED);
        } else {
            assert_eq!(cu!(cuMemsetD32Async(target, 1, 1, two)), 0);
            end(one, UNJOINED);
        }
    }
    // A branch that did nothing has nothing to join.
    begin(one, GLOBAL);
    assert_eq!(cu!(cuEventRecord(fork, one)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(two, fork, 0)), 0);
    end_well(one);
    assert_eq!(cu!(cuStreamBeginCapture_v2(one, 3)), 1);
    assert_eq!(cu!(cuStreamBeginCapture_v2(std::ptr::dangling_mut::<u64>().cast(), 0)), 400);
}

#[test]
fn a_stream_that_has_joined_may_go() {
    let _alone = alone();
    cu::use_primary_context();
    let (target, fork, join) = (upload(&[0i32]), event(), event());
    for joins in [true, false] {
        let (one, two) = (stream(), stream());
        begin(one, GLOBAL);
        assert_eq!(cu!(cuEventRecord(fork, one)), 0);
        assert_eq!(cu!(cuStreamWaitEvent(two, fork, 0)), 0);
        assert_eq!(cu!(cuMemsetD32Async(target, 1, 1, two)), 0);
        assert_eq!(cu!(cuEventRecord(join, two)), 0);
        if joins {
            assert_eq!(cu!(cuStreamWaitEvent(one, join, 0)), 0);
        }
        assert_eq!(cu!(cuStreamDestroy_v2(two)), 0);
        if joins {
            end_well(one);
        } else {
            end(one, UNJOINED);
        }
        begin(one, GLOBAL);
        assert_eq!(cu!(cuStreamDestroy_v2(one)), 0);
        // No capture is left that would forbid this.
        let mut ptr = 0;
        assert_eq!(cu!(cuMemAlloc_v2(&mut ptr, 4)), 0);
        assert_eq!(cu!(cuMemFree_v2(ptr)), 0);
    }
}
