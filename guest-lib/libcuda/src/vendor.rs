// SPDX-License-Identifier: Apache-2.0 OR MIT

//! For the project's own `libcublas.so` and the like (`guest-lib/vendor`), which look these names up with dlsym: calls of
//! NVIDIA's libraries, in order with all other calls of the process. No part of CUDA.

use virtio_cuda_client::calls;
use virtio_cuda_client::transport::UserMemory;

use crate::entry::{self, CUresult, DefaultStream};

/// What [`virtio_cuda_vendor_call`] takes.
#[repr(C)]
#[derive(Debug)]
pub struct VendorCall {
    library: u32,
    function: u32,
    /// The stream that the work goes to.
    stream: u64,
    /// A block of arguments.
    input: usize,
    input_bytes: usize,
    /// Room for a block of answers.
    output: usize,
    /// 0: nobody waits for answers.
    output_bytes: usize,
}

/// Has the worker load a library of the host.
///
/// Errors: `CUDA_ERROR_NOT_FOUND` if the host has none; `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` if it has other rows.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_vendor_open(library: u32, major: u32, digest: u64) -> CUresult {
    entry::call(const { &entry::Call::new("virtio_cuda_vendor_open") }, DefaultStream::Legacy, |api| {
        calls::vendor_open(&mut api.in_context()?, library, major, digest)
    })
}

/// Has the worker call a function of a library that it has loaded.
///
/// Errors: those of launches, and `CUDA_ERROR_INVALID_VALUE` for a block that does not fit the function's row.
///
/// # Safety
///
/// `call` points to a [`VendorCall`] whose addresses have that many readable and writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn virtio_cuda_vendor_call(call: *const VendorCall) -> CUresult {
    // SAFETY: the caller's promise.
    let call = unsafe { &*call };
    entry::call(const { &entry::Call::new("virtio_cuda_vendor_call") }, DefaultStream::Legacy, |api| {
        let input = UserMemory { address: call.input, bytes: call.input_bytes };
        let output = UserMemory { address: call.output, bytes: call.output_bytes };
        api.before_work()?;
        let mut row = api.in_context()?.input(input).output(output);
        if call.output_bytes == 0 && api.may_post(call.stream) {
            row = row.posted();
        }
        calls::vendor_call(&mut row, call.library, call.function)?;
        api.work_queued();
        api.end_asynchronous(api.stream(call.stream))
    })
}
