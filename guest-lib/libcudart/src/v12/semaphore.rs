// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first version of the semaphore calls. Its parameters have no reserved words.

use core::ffi::c_uint;
use core::mem::size_of;

use crate::abi::driver::CUDA_EXTERNAL_SEMAPHORE_PARAMS;
use crate::abi::{cudaExternalSemaphore_t, cudaStream_t};
use crate::error::Result;
use crate::pointers::not_null;
use crate::{driver, state};

/// `cudaExternalSemaphoreSignalParams_v1`: fence, sync object, key; flags.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SignalParams {
    params: [u64; 3],
    flags: c_uint,
}
const _: () = assert!(size_of::<SignalParams>() == 32);

/// `cudaExternalSemaphoreWaitParams_v1`: fence, sync object, key, timeout; flags.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WaitParams {
    params: [u64; 3],
    timeout: c_uint,
    padding: c_uint,
    flags: c_uint,
}
const _: () = assert!(size_of::<WaitParams>() == 40);

api! {
    fn cudaSignalExternalSemaphoresAsync, cudaSignalExternalSemaphoresAsync_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const SignalParams, count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        // SAFETY: the program promises a null pointer or `count` parameters.
        let parameters = unsafe { translated(parameters, count, |given| driver_params(given.params, 0, given.flags)) }?;
        state::context()?;
    } => driver::cuSignalExternalSemaphoresAsync(semaphores, parameters.as_ptr().cast(), count, stream);

    fn cudaWaitExternalSemaphoresAsync, cudaWaitExternalSemaphoresAsync_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const WaitParams, count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        let driver_form = |given: WaitParams| driver_params(given.params, given.timeout, given.flags);
        // SAFETY: the program promises a null pointer or `count` parameters.
        let parameters = unsafe { translated(parameters, count, driver_form) }?;
        state::context()?;
    } => driver::cuWaitExternalSemaphoresAsync(semaphores, parameters.as_ptr().cast(), count, stream);
}

fn driver_params(params: [u64; 3], timeout: c_uint, flags: c_uint) -> CUDA_EXTERNAL_SEMAPHORE_PARAMS {
    CUDA_EXTERNAL_SEMAPHORE_PARAMS { params, timeout, flags, ..CUDA_EXTERNAL_SEMAPHORE_PARAMS::ZERO }
}

/// # Safety
/// `given` is null or points to `count` parameters.
unsafe fn translated<T: Copy>(
    given: *const T,
    count: c_uint,
    form: impl Fn(T) -> CUDA_EXTERNAL_SEMAPHORE_PARAMS,
) -> Result<Vec<CUDA_EXTERNAL_SEMAPHORE_PARAMS>> {
    not_null(given)?;
    // SAFETY: not null, so `count` elements by this function's contract.
    Ok((0..count as usize).map(|index| form(unsafe { given.add(index).read() })).collect())
}
