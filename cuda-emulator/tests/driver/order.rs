// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that calls wait for the right work, where several threads and streams are involved.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cu::{self, Opaque, cu};

const NOT_READY: i32 = 600;
/// The maximum number of jobs of a stream before it makes the caller wait.
const FULL: usize = 1024;

/// A context of the test's own: others would wait for its streams.
struct OwnContext(Opaque);

impl OwnContext {
    fn new() -> OwnContext {
        let mut context = null_mut();
        assert_eq!(cu!(cuInit(0)), 0);
        assert_eq!(cu!(cuCtxCreate_v2(&mut context, 0, 0)), 0);
        OwnContext(context)
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        assert_eq!(cu!(cuCtxDestroy_v2(self.0)), 0);
    }
}

fn stream() -> Opaque {
    let mut stream = null_mut();
    assert_eq!(cu!(cuStreamCreate(&mut stream, 1)), 0);
    stream
}

fn event() -> Opaque {
    let mut event = null_mut();
    assert_eq!(cu!(cuEventCreate(&mut event, 0)), 0);
    event
}

/// Holds a stream until the flag is set.
fn hold(stream: Opaque, flag: &AtomicBool) {
    unsafe extern "C" fn wait(flag: *mut c_void) {
        // SAFETY: the test's flag, which lives until it has synchronised.
        let flag = unsafe { &*flag.cast::<AtomicBool>() };
        while !flag.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(wait), std::ptr::from_ref(flag).cast_mut().cast())), 0);
}

#[test]
fn synchronising_includes_the_records_of_whole_contexts() {
    let context = OwnContext::new();
    let (stream, event, flag) = (stream(), event(), AtomicBool::new(false));
    hold(stream, &flag);
    assert_eq!(cu!(cuCtxRecordEvent(context.0, event)), 0);
    assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
    flag.store(true, Ordering::Release);
    for _ in 0..50 {
        assert_eq!(cu!(cuCtxSynchronize()), 0);
        assert_eq!(cu!(cuEventQuery(event)), 0);
        assert_eq!(cu!(cuCtxRecordEvent(context.0, event)), 0);
    }
}

#[test]
fn an_event_can_be_asked_while_its_record_waits_for_room() {
    let context = OwnContext::new();
    let (stream, event, flag, ptr) = (stream(), event(), AtomicBool::new(false), cu::upload(&[0_u8]));
    let (of_stream, of_event) = (stream as usize, event as usize);
    hold(stream, &flag);
    for _ in 1..FULL {
        assert_eq!(cu!(cuMemsetD8Async(ptr, 1, 1, stream)), 0);
    }
    thread::scope(|scope| {
        let recorder =
            scope.spawn(move || assert_eq!(cu!(cuEventRecord(of_event as Opaque, of_stream as Opaque)), 0));
        thread::sleep(Duration::from_millis(50));
        let asker = scope.spawn(move || assert_eq!(cu!(cuEventQuery(of_event as Opaque)), 0));
        let begin = Instant::now();
        while !asker.is_finished() && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(1));
        }
        let (asked, full) = (asker.is_finished(), !recorder.is_finished());
        flag.store(true, Ordering::Release);
        assert!(asked && full);
    });
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    drop(context);
}
