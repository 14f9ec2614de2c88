// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the driver API as a C program calls it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cuda_abi::{CUDA_MEMCPY3D, CopyEnd3D};

use super::context::api::*;
use super::context::{CUcontext, current_handle};
use super::copy::api::*;
use super::device::api::*;
use super::device::*;
use super::event::CUevent;
use super::event::api::*;
use super::ffi::{In, Out};
use super::handle::Handle;
use super::memory::allocation::*;
use super::memory::host::*;
use super::memory::pointer::*;
use super::module::*;
use super::pool::allocate::*;
use super::pool::api::*;
use super::result::CUresult;
use super::stream::CUstream;
use super::stream::api::*;

const OK: CUresult = CUresult::CUDA_SUCCESS;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;

/// # Safety
/// The variable must outlive the call that gets the pointer.
unsafe fn out<T>(place: &mut T) -> Out<T> {
    // SAFETY: a reference is valid for writing, by this function's contract until the call returns.
    unsafe { Out::new(place) }
}

/// Calls an API function with pointers to this test's own variables. It is no function: the number of arguments differs.
macro_rules! cu {
    ($function:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: all pointers, those that `out` makes too, are to variables of the calling test, which outlive the call.
        unsafe { $function($($arg),*) }
    };
}

/// A context for one test, so that tests neither wait for each other nor see each other's errors.
struct FixtureContext(CUcontext);

impl FixtureContext {
    fn new() -> FixtureContext {
        assert_eq!(cu!(cuInit(0)), OK);
        let mut context = Handle::NULL;
        assert_eq!(cu!(cuCtxCreate_v2(out(&mut context), 0, 0)), OK);
        FixtureContext(context)
    }
}

impl Drop for FixtureContext {
    fn drop(&mut self) {
        cu!(cuCtxDestroy_v2(self.0));
    }
}

fn fixture_stream(flags: u32) -> CUstream {
    let mut stream = Handle::NULL;
    assert_eq!(cu!(cuStreamCreate(out(&mut stream), flags)), OK);
    stream
}

fn fixture_event() -> CUevent {
    let mut event = Handle::NULL;
    assert_eq!(cu!(cuEventCreate(out(&mut event), 0)), OK);
    event
}

fn fixture_memory(bytes: usize) -> u64 {
    let mut ptr = 0;
    assert_eq!(cu!(cuMemAlloc_v2(out(&mut ptr), bytes)), OK);
    ptr
}

/// A stream's host function that waits until the flag at `flag` is set.
unsafe extern "C" fn hold(flag: *mut c_void) {
    // SAFETY: the test passes an AtomicBool that lives until it has synchronised.
    let flag = unsafe { &*flag.cast::<AtomicBool>() };
    while !flag.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn hold_stream(stream: CUstream, flag: &AtomicBool) {
    assert_eq!(cu!(cuLaunchHostFunc(stream, Some(hold), std::ptr::from_ref(flag).cast_mut().cast())), OK);
}

#[test]
fn null_places_and_bad_ordinals_are_refused() {
    let _context = FixtureContext::new();
    let mut count = 0;
    assert_eq!(cu!(cuDeviceGetCount(Out::NULL)), INVALID_VALUE);
    assert_eq!(cu!(cuDeviceGetCount(out(&mut count))), OK);
    assert_eq!(count, 1);
    let mut device = 0;
    for ordinal in [-1, 1, c_int::MAX, c_int::MIN] {
        assert_eq!(cu!(cuDeviceGet(out(&mut device), ordinal)), CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    assert_eq!(cu!(cuMemAlloc_v2(Out::NULL, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuInit(1)), INVALID_VALUE);
}

#[test]
fn forged_and_stale_handles_are_refused() {
    let _context = FixtureContext::new();
    for value in [3, 0xdead_beef, usize::MAX] {
        assert_eq!(cu!(cuStreamSynchronize(Handle::new(value))), INVALID_HANDLE);
        assert_eq!(cu!(cuEventQuery(Handle::new(value))), INVALID_HANDLE);
        assert_eq!(cu!(cuModuleUnload(Handle::new(value))), INVALID_HANDLE);
        assert_eq!(cu!(cuCtxSetCurrent(Handle::new(value))), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let stream = fixture_stream(0);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), OK);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), INVALID_HANDLE);
    let event = fixture_event();
    assert_eq!(cu!(cuEventDestroy_v2(event)), OK);
    assert_eq!(cu!(cuEventRecord(event, Handle::NULL)), INVALID_HANDLE);
}

#[test]
fn the_context_stack_is_a_threads_own() {
    let one = FixtureContext::new();
    let two = FixtureContext::new();
    assert_eq!(current_handle(), Some(two.0));
    let mut popped = Handle::NULL;
    assert_eq!(cu!(cuCtxPopCurrent_v2(out(&mut popped))), OK);
    assert_eq!((popped, current_handle()), (two.0, Some(one.0)));
    let first = one.0;
    thread::spawn(move || {
        let mut free = 0;
        let mut total = 0;
        assert_eq!(
            cu!(cuMemGetInfo_v2(out(&mut free), out(&mut total))),
            CUresult::CUDA_ERROR_INVALID_CONTEXT
        );
        assert_eq!(cu!(cuCtxPopCurrent_v2(Out::NULL)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxPushCurrent_v2(first)), OK);
        assert_eq!(cu!(cuMemGetInfo_v2(out(&mut free), out(&mut total))), OK);
    })
    .join()
    .unwrap();
    assert_eq!(cu!(cuCtxSetCurrent(two.0)), OK);
    assert_eq!(current_handle(), Some(two.0));
    assert_eq!(cu!(cuCtxSetCurrent(Handle::NULL)), OK);
    assert_eq!(current_handle(), None);
    assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn a_destroyed_contexts_memory_and_handles_are_gone() {
    let outer = FixtureContext::new();
    let (ptr, stream, inner) = {
        let inner = FixtureContext::new();
        (fixture_memory(4096), fixture_stream(0), inner.0)
    };
    assert_eq!(current_handle(), Some(outer.0));
    assert_eq!(cu!(cuStreamQuery(stream)), INVALID_HANDLE);
    // Another test may have got the address meanwhile.
    let mut owner = 0usize;
    match cu!(cuPointerGetAttribute(std::ptr::from_mut(&mut owner).cast(), 1, ptr)) {
        OK => assert_ne!(owner, inner.0, "the memory is still there"),
        error => assert_eq!(error, INVALID_VALUE),
    }
}

#[test]
fn bytes_come_back_through_every_way() {
    let _context = FixtureContext::new();
    let stream = fixture_stream(0);
    let source: Vec<u8> = (0..200_000u32).map(|index| (index * 7) as u8).collect();
    let bytes = source.len();
    let (one, two) = (fixture_memory(bytes), fixture_memory(bytes));
    let mut back = vec![0u8; bytes];
    assert_eq!(cu!(cuMemcpyHtoD_v2(one, source.as_ptr().cast(), bytes)), OK);
    assert_eq!(cu!(cuMemcpyDtoD_v2(two, one, bytes)), OK);
    assert_eq!(cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), two, bytes)), OK);
    assert_eq!(back, source);

    back.fill(0);
    assert_eq!(cu!(cuMemsetD8Async(one, 0, bytes, stream)), OK);
    let mut small = source[..1000].to_vec();
    assert_eq!(cu!(cuMemcpyHtoDAsync_v2(one, small.as_ptr().cast(), 1000, stream)), OK);
    // The source may be used again as soon as the call returns.
    small.fill(0xee);
    assert_eq!(cu!(cuMemcpyAsync(one + 1000, source[1000..].as_ptr() as u64, bytes - 1000, stream)), OK);
    assert_eq!(cu!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), one, bytes, stream)), OK);
    assert_eq!(cu!(cuStreamSynchronize(stream)), OK);
    assert_eq!(back, source);
}

/// A copy between contexts runs alone in them: it waits for earlier work, and later work finds the bytes.
#[test]
fn a_copy_between_contexts_is_in_order_with_their_work() {
    type Copy = fn([(u64, CUcontext); 2]) -> CUresult;
    let copies: [(&str, Copy); 2] = [
        ("linear", |[(to, there), (from, here)]| cu!(cuMemcpyPeer(to, there, from, here, 64))),
        ("boxed", |[(to, there), (from, here)]| {
            let end = |device: u64, context: CUcontext| CopyEnd3D {
                memory_type: 2,
                device,
                context: context.0 as u64,
                ..CopyEnd3D::ZERO
            };
            let (dst, src) = (end(to, there), end(from, here));
            let copy = CUDA_MEMCPY3D { src, dst, width: 64, height: 1, depth: 1 };
            cu!(cuMemcpy3DPeer(In::new(&raw const copy)))
        }),
    ];
    for (name, copy) in copies {
        let there = FixtureContext::new();
        let (busy, to) = (fixture_stream(1), fixture_memory(64));
        let flag = AtomicBool::new(false);
        hold_stream(busy, &flag);
        assert_eq!(cu!(cuMemsetD8Async(to, 1, 64, busy)), OK);
        let here = FixtureContext::new();
        let from = fixture_memory(64);
        assert_eq!(cu!(cuMemsetD8_v2(from, 2, 64)), OK);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                flag.store(true, Ordering::Release);
            });
            assert_eq!(copy([(to, there.0), (from, here.0)]), OK, "{name}");
        });
        assert_eq!(cu!(cuCtxSetCurrent(there.0)), OK);
        let mut back = [0u8; 64];
        let place = back.as_mut_ptr().cast();
        assert_eq!(cu!(cuMemcpyDtoHAsync_v2(place, to, 64, busy)), OK);
        assert_eq!(cu!(cuStreamSynchronize(busy)), OK);
        assert_eq!(back, [2; 64], "{name}");
        assert_eq!(cu!(cuCtxSetCurrent(here.0)), OK);
    }
}

#[test]
fn copies_outside_allocations_are_refused() {
    let _context = FixtureContext::new();
    let ptr = fixture_memory(4096);
    let mut host = [0u8; 8192];
    assert_eq!(cu!(cuMemcpyHtoD_v2(ptr, host.as_ptr().cast(), 4097)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), ptr + 4096, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(ptr, host.as_ptr().cast(), usize::MAX)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(host.as_mut_ptr() as u64, host.as_ptr().cast(), 8)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(ptr, std::ptr::null(), 8)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpy(ptr, ptr + (1 << 39), 8)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD32_v2(ptr + 2, 1, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD32_v2(ptr, 1, 1025)), INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD32_v2(ptr, 1, usize::MAX / 2)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(ptr + 256)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(ptr)), OK);
    assert_eq!(cu!(cuMemFree_v2(ptr)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), ptr, 1)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAlloc_v2(out(&mut 0), 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAlloc_v2(out(&mut 0), usize::MAX)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
}

#[test]
fn fills_repeat_their_pattern_within_the_rows() {
    let _context = FixtureContext::new();
    let (mut ptr, mut pitch) = (0, 0);
    assert_eq!(cu!(cuMemAllocPitch_v2(out(&mut ptr), out(&mut pitch), 100, 4, 4)), OK);
    assert_eq!(pitch, 512);
    assert_eq!(cu!(cuMemsetD8_v2(ptr, 0xaa, pitch * 4)), OK);
    assert_eq!(cu!(cuMemsetD2D16_v2(ptr, pitch, 0x1234, 50, 3)), OK);
    let mut back = vec![0u8; pitch * 4];
    assert_eq!(cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), ptr, pitch * 4)), OK);
    for (row, bytes) in back.chunks(pitch).enumerate() {
        let expected = if row < 3 { [0x34, 0x12] } else { [0xaa, 0xaa] };
        assert!(bytes[..100].chunks(2).all(|pair| pair == expected), "row {row}");
        assert!(bytes[100..].iter().all(|byte| *byte == 0xaa), "row {row}");
    }
}

#[test]
fn streams_keep_cudas_order() {
    let _context = FixtureContext::new();
    let (blocking, free) = (fixture_stream(0), fixture_stream(1));
    let flag = AtomicBool::new(false);
    hold_stream(blocking, &flag);
    assert_eq!(cu!(cuStreamQuery(blocking)), NOT_READY);
    assert_eq!(cu!(cuStreamQuery(free)), OK);
    // Work in the legacy stream waits for blocking streams, and they wait for it.
    let ptr = fixture_memory(64);
    assert_eq!(cu!(cuMemsetD8Async(ptr, 1, 64, Handle::NULL)), OK);
    assert_eq!(cu!(cuStreamQuery(Handle::NULL)), NOT_READY);
    let other = fixture_stream(0);
    assert_eq!(cu!(cuMemsetD8Async(ptr, 2, 64, other)), OK);
    assert_eq!(cu!(cuStreamQuery(other)), NOT_READY);
    // A non-blocking stream continues.
    assert_eq!(cu!(cuMemsetD8Async(ptr, 3, 64, free)), OK);
    assert_eq!(cu!(cuStreamSynchronize(free)), OK);
    assert_eq!(cu!(cuStreamQuery(other)), NOT_READY);
    flag.store(true, Ordering::Release);
    assert_eq!(cu!(cuCtxSynchronize()), OK);
    let mut back = [0u8; 64];
    assert_eq!(cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), ptr, 64)), OK);
    assert_eq!(back, [2; 64]);
}

/// As NVIDIA's driver: the copy does not wait for the stream that it synchronises with, but for its own.
#[test]
fn short_pinned_memory_is_read_in_the_call_if_the_stream_has_no_work() {
    let _context = FixtureContext::new();
    let (busy, device) = (fixture_stream(0), fixture_memory(64 << 10));
    let mut host = std::ptr::null_mut();
    assert_eq!(cu!(cuMemHostAlloc(out(&mut host), 64 << 10, 0)), OK);
    // SAFETY: the allocation has that length, and until the end of the test no other reference is made.
    let write = |value: u8| unsafe { host.cast::<u8>().write_bytes(value, 64 << 10) };
    for (stream, bytes, read) in
        [(Handle::NULL, 64, 1_u8), (Handle::NULL, 16 << 10, 1), (Handle::NULL, 32 << 10, 2), (busy, 64, 2)]
    {
        write(1);
        let flag = AtomicBool::new(false);
        hold_stream(busy, &flag);
        assert_eq!(cu!(cuMemcpyAsync(device, host as u64, bytes, stream)), OK);
        write(2);
        flag.store(true, Ordering::Release);
        assert_eq!(cu!(cuCtxSynchronize()), OK);
        let mut back = vec![0_u8; bytes];
        assert_eq!(cu!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), device, bytes)), OK);
        assert_eq!(back, vec![read; bytes], "{bytes} bytes");
    }
    assert_eq!(cu!(cuMemFreeHost(host)), OK);
}

#[test]
fn the_per_thread_stream_is_another_one_in_each_thread() {
    let context = FixtureContext::new();
    let per_thread: CUstream = Handle::new(2);
    let flag = AtomicBool::new(false);
    hold_stream(per_thread, &flag);
    assert_eq!(cu!(cuStreamQuery_ptsz(Handle::NULL)), NOT_READY);
    let handle = context.0;
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(cu!(cuCtxSetCurrent(handle)), OK);
            assert_eq!(cu!(cuStreamQuery(per_thread)), OK);
        });
    });
    flag.store(true, Ordering::Release);
    assert_eq!(cu!(cuStreamSynchronize(per_thread)), OK);
}

#[test]
fn events_wait_and_measure() {
    let _context = FixtureContext::new();
    let (one, two) = (fixture_stream(1), fixture_stream(1));
    let (start, end) = (fixture_event(), fixture_event());
    let mut milliseconds = 0.0;
    assert_eq!(cu!(cuEventElapsedTime(out(&mut milliseconds), start, end)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventQuery(start)), OK);
    let flag = AtomicBool::new(false);
    assert_eq!(cu!(cuEventRecord(start, one)), OK);
    hold_stream(one, &flag);
    assert_eq!(cu!(cuEventRecord(end, one)), OK);
    assert_eq!(cu!(cuStreamWaitEvent(two, end, 0)), OK);
    assert_eq!(cu!(cuEventSynchronize(start)), OK);
    assert_eq!(cu!(cuEventQuery(end)), NOT_READY);
    assert_eq!(cu!(cuStreamQuery(two)), NOT_READY);
    assert_eq!(cu!(cuEventElapsedTime(out(&mut milliseconds), start, end)), NOT_READY);
    thread::sleep(Duration::from_millis(20));
    flag.store(true, Ordering::Release);
    assert_eq!(cu!(cuStreamSynchronize(two)), OK);
    assert_eq!(cu!(cuEventElapsedTime(out(&mut milliseconds), start, end)), OK);
    assert!((19.0..2000.0).contains(&milliseconds), "{milliseconds}");
    let mut untimed = Handle::NULL;
    assert_eq!(cu!(cuEventCreate(out(&mut untimed), 2)), OK);
    assert_eq!(cu!(cuEventElapsedTime(out(&mut milliseconds), start, untimed)), INVALID_HANDLE);
}

#[test]
fn callbacks_run_in_order_with_their_arguments() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn callback(stream: CUstream, status: CUresult, data: *mut c_void) {
        assert_eq!(status, CUresult::CUDA_SUCCESS);
        assert_ne!(stream, Handle::NULL);
        let expected = data as usize as u32;
        assert_eq!(CALLS.swap(expected + 1, Ordering::SeqCst), expected);
    }
    let _context = FixtureContext::new();
    let stream = fixture_stream(0);
    for index in 0..100 {
        assert_eq!(cu!(cuStreamAddCallback(stream, Some(callback), index as *mut c_void, 0)), OK);
    }
    assert_eq!(cu!(cuStreamSynchronize(stream)), OK);
    assert_eq!(CALLS.load(Ordering::SeqCst), 100);
}

#[test]
fn pinned_memory_is_its_own_device_pointer() {
    let _context = FixtureContext::new();
    let mut host: *mut c_void = null_mut();
    assert_eq!(cu!(cuMemHostAlloc(out(&mut host), 10_000, 0)), OK);
    let mut ptr = 0;
    assert_eq!(cu!(cuMemHostGetDevicePointer_v2(out(&mut ptr), host, 0)), OK);
    assert_eq!(ptr, host as u64);
    assert_eq!(cu!(cuMemsetD8_v2(ptr, 5, 10_000)), OK);
    // SAFETY: the allocation is 10000 bytes long.
    assert_eq!(unsafe { *host.cast::<u8>().add(9999) }, 5);
    assert_eq!(cu!(cuMemHostUnregister(host)), INVALID_VALUE);
    assert_eq!(cu!(cuMemHostRegister_v2(host, 100, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeHost(host)), OK);
    assert_eq!(cu!(cuMemFreeHost(host)), INVALID_VALUE);

    let mut buffer = vec![1u8; 5000];
    let place: *mut c_void = buffer.as_mut_ptr().cast();
    assert_eq!(cu!(cuMemHostRegister_v2(place, 5000, 0)), OK);
    assert_eq!(
        cu!(cuMemHostRegister_v2(place, 5000, 0)),
        CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    );
    assert_eq!(cu!(cuMemsetD8_v2(place as u64, 9, 5000)), OK);
    assert_eq!(cu!(cuMemHostUnregister(place)), OK);
    assert_eq!(cu!(cuMemHostUnregister(place)), CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(buffer, vec![9; 5000]);
    // Nothing is mapped there.
    assert_eq!(cu!(cuMemHostRegister_v2(0x10_0000 as *mut c_void, 4096, 0)), INVALID_VALUE);
}

/// Like work that another thread queues while the memory is freed, and that has found the memory before.
#[test]
fn late_writes_to_freed_pinned_memory_reach_nobody() {
    let _context = FixtureContext::new();
    let bytes = 0x7000;
    let mut host: *mut c_void = null_mut();
    assert_eq!(cu!(cuMemHostAlloc(out(&mut host), bytes, 0)), OK);
    let (last, ends) = (host as usize + bytes - 1, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                // SAFETY: pinned memory, or spare memory that stays mapped.
                unsafe { (last as *mut u8).write_volatile(1) };
            }
        });
        thread::sleep(Duration::from_millis(1));
        assert_eq!(cu!(cuMemFreeHost(host)), OK);
        ends.store(true, Ordering::Relaxed);
    });
    // The system never gets the addresses back.
    let page = (last & !0xfff) as *mut c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: MAP_FIXED_NOREPLACE: only a place that nothing uses.
    let other = unsafe { libc::mmap(page, 0x1000, libc::PROT_NONE, flags, -1, 0) };
    assert_eq!(other, libc::MAP_FAILED);
    assert_eq!(cu!(cuMemHostAlloc(out(&mut host), bytes, 0)), OK);
    // SAFETY: the allocation is as long.
    assert_eq!(unsafe { host.cast::<u8>().add(bytes - 1).read_volatile() }, 0, "new pages");
    assert_eq!(cu!(cuMemFreeHost(host)), OK);
}

#[test]
fn pointers_are_described() {
    let context = FixtureContext::new();
    let device = fixture_memory(1000);
    let (mut managed, mut host) = (0, null_mut());
    assert_eq!(cu!(cuMemAllocManaged(out(&mut managed), 1000, 1)), OK);
    assert_eq!(cu!(cuMemHostAlloc(out(&mut host), 1000, 0)), OK);
    let local = 0u8;
    let cases = [
        (device + 10, 2, false, 0, context.0.0),
        (managed, 2, true, 0, context.0.0),
        (host as u64, 1, false, 0, context.0.0),
        (std::ptr::from_ref(&local) as u64, 0, false, -2, 0),
    ];
    for (ptr, kind, is_managed, ordinal, owner) in cases {
        let (mut context, mut memory_type, mut managed, mut device) = (1usize, 9u32, 9u32, 9i32);
        let attributes = [1u32, 2, 8, 9];
        let mut places: [*mut c_void; 4] = [
            std::ptr::from_mut(&mut context).cast(),
            std::ptr::from_mut(&mut memory_type).cast(),
            std::ptr::from_mut(&mut managed).cast(),
            std::ptr::from_mut(&mut device).cast(),
        ];
        // SAFETY: arrays of this test, which outlive the call below, with as many elements as it says.
        let (names, data) =
            unsafe { (In::new(attributes.as_ptr()), In::new(places.as_mut_ptr().cast_const())) };
        assert_eq!(cu!(cuPointerGetAttributes(4, names, data, ptr)), OK);
        assert_eq!(
            (context, memory_type, managed != 0, device),
            (owner, kind, is_managed, ordinal),
            "{ptr:#x}"
        );
    }
    let (mut base, mut bytes) = (0, 0);
    assert_eq!(cu!(cuMemGetAddressRange_v2(out(&mut base), out(&mut bytes), device + 999)), OK);
    assert_eq!((base, bytes), (device, 1000));
    let nowhere = std::ptr::from_ref(&local) as u64;
    assert_eq!(cu!(cuPointerGetAttribute(std::ptr::from_mut(&mut base).cast(), 1, nowhere)), INVALID_VALUE);
}

#[test]
fn stream_ordered_memory_is_freed_in_order_and_counted() {
    let _context = FixtureContext::new();
    let stream = fixture_stream(1);
    let mut pool = Handle::NULL;
    assert_eq!(cu!(cuDeviceGetDefaultMemPool(out(&mut pool), 0)), OK);
    let (mut ptr, mut used) = (0, 0u64);
    assert_eq!(cu!(cuMemAllocAsync(out(&mut ptr), 1 << 20, stream)), OK);
    assert_eq!(cu!(cuMemPoolGetAttribute(pool, 7, std::ptr::from_mut(&mut used).cast())), OK);
    assert!(used >= 1 << 20);
    let flag = AtomicBool::new(false);
    hold_stream(stream, &flag);
    assert_eq!(cu!(cuMemsetD8Async(ptr, 1, 1 << 20, stream)), OK);
    assert_eq!(cu!(cuMemFreeAsync(ptr, stream)), OK);
    assert_eq!(cu!(cuMemFreeAsync(ptr, stream)), INVALID_VALUE);
    flag.store(true, Ordering::Release);
    // The address may be another test's from now on.
    assert_eq!(cu!(cuStreamSynchronize(stream)), OK);
}

#[test]
fn images_that_are_none_are_refused() {
    let _context = FixtureContext::new();
    let mut module = Handle::NULL;
    let load = |image: &[u8]| {
        let mut module = Handle::NULL;
        cu!(cuModuleLoadData(out(&mut module), image.as_ptr().cast()))
    };
    assert_eq!(cu!(cuModuleLoadData(out(&mut module), std::ptr::null())), INVALID_VALUE);
    assert_eq!(load(b"\0"), CUresult::CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(load(b"no such thing\0"), CUresult::CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(load(b"\x7fELF\x02\x01\0"), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_eq!(load(b".version nonsense\0"), CUresult::CUDA_ERROR_INVALID_PTX);
    assert_eq!(load(b".version 10.0\n.target sm_90\n\0"), CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    assert_eq!(load(b".version 9.2\n.target sm_100a\n\0"), OK);
    // A container that consists of a header only.
    let mut empty = crate::fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
    empty.extend_from_slice(&[1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(load(&empty), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
}
