// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions for `tests/bench/calls.cu` only, which finds them with dlsym. They provide memory with the page lists of a
//! virtual machine, also over virtio-user, and the time that the worker needs for copies. Not part of CUDA.

use std::ffi::c_void;

use virtio_cuda_client::{Call, calls, session};

/// Allocates at least `bytes` bytes in the transport's pages, in random order. Returns null if pageable memory already
/// has that order (in a guest), before `cuInit`, and if there is no room.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_alloc(bytes: usize) -> *mut c_void {
    let memory = session::current().and_then(|session| session.transport().map_scattered(bytes));
    memory.map_or(std::ptr::null_mut(), |memory| memory.address as *mut c_void)
}

/// Frees the memory. Returns 0, or -1 if it is not from [`virtio_cuda_bench_alloc`].
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_free(memory: *mut c_void) -> i32 {
    let freed = session::current().is_some_and(|s| s.transport().unmap_scattered(memory as usize));
    if freed { 0 } else { -1 }
}

/// Returns the nanoseconds that the worker has spent in copies of host memory for calls that wait; negative if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_copy_ns() -> i64 {
    let statistics =
        session::current().map(|session| calls::session_statistics(&mut Call::internal(session).direct()));
    match statistics {
        Some(Ok((_, ns))) => ns.try_into().unwrap_or(i64::MAX),
        _ => -1,
    }
}
