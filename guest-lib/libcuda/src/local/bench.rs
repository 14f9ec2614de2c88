// SPDX-License-Identifier: Apache-2.0 OR MIT

//! For `tests/bench/calls.cu` only, which looks these names up with dlsym: memory whose page lists look as a
//! virtual machine's do, also over virtio-user, and the time that the worker takes for copies. No part of CUDA, and of no use to any other program.

use std::ffi::c_void;

use virtio_cuda_client::{calls, session};

/// At least `bytes` of memory in the transport's own pages, in random order. Null where pageable memory
/// is that way already (in a guest), before `cuInit`, and when there is no room.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_alloc(bytes: usize) -> *mut c_void {
    let memory = session::current().and_then(|session| session.transport().map_scattered(bytes));
    memory.map_or(std::ptr::null_mut(), |memory| memory.address as *mut c_void)
}

/// Frees it. 0: done; -1: it is not from [`virtio_cuda_bench_alloc`].
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_free(memory: *mut c_void) -> i32 {
    let freed = session::current().is_some_and(|s| s.transport().unmap_scattered(memory as usize));
    if freed { 0 } else { -1 }
}

/// The nanoseconds that the worker has spent in copies of host memory for calls that wait; negative: unknown.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_bench_copy_ns() -> i64 {
    let statistics =
        session::current().map(|session| calls::session_statistics(&mut session.call().direct()));
    match statistics {
        Some(Ok((_, ns))) => ns.try_into().unwrap_or(i64::MAX),
        _ => -1,
    }
}
