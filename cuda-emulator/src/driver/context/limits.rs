// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of contexts (CUlimit).

use std::sync::atomic::Ordering;

use crate::driver::context::{self, Context};
use crate::driver::ffi::Out;
use crate::driver::result::{CUresult, CuResult};

/// CUlimit
const LIMIT_STACK_SIZE: u32 = 0;
const LIMIT_PRINTF_FIFO_SIZE: u32 = 1;
const LIMIT_MALLOC_HEAP_SIZE: u32 = 2;
const LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: u32 = 4;
const LIMIT_MAX_L2_FETCH_GRANULARITY: u32 = 5;
const LIMIT_PERSISTING_L2_CACHE_SIZE: u32 = 6;
const LIMIT_SHMEM_SIZE: u32 = 7;
const LIMIT_CIG_ENABLED: u32 = 8;
const LIMIT_MAX: u32 = 10;
/// The maximum number of bytes that the L2 cache fetches at once.
const MAX_FETCH: usize = 128;
/// An upper bound for the size of an L2 cache, in bytes.
const MAX_PERSISTING: usize = 1 << 30;
/// The maximum local memory of a thread, in bytes.
const MAX_STACK: u64 = 512 << 10;

fn ctx_set_limit(limit: u32, value: usize) -> CuResult<()> {
    let context = context::current()?;
    match limit {
        LIMIT_STACK_SIZE if value as u64 > MAX_STACK => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        LIMIT_STACK_SIZE => context.stack_limit.store((value as u64).next_multiple_of(16), Ordering::Relaxed),
        LIMIT_PRINTF_FIFO_SIZE => context.printf.resize(value),
        LIMIT_MALLOC_HEAP_SIZE => context.device.memory.set_heap_limit(value as u64),
        LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => {
            context.pending_launches.store(value as u64, Ordering::Relaxed);
        }
        LIMIT_MAX_L2_FETCH_GRANULARITY if value > MAX_FETCH => {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        LIMIT_PERSISTING_L2_CACHE_SIZE if value > MAX_PERSISTING => {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        LIMIT_MAX_L2_FETCH_GRANULARITY | LIMIT_PERSISTING_L2_CACHE_SIZE => {}
        LIMIT_SHMEM_SIZE | LIMIT_CIG_ENABLED => return Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
        limit if limit < LIMIT_MAX => return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn ctx_get_limit(value: Out<usize>, limit: u32) -> CuResult<()> {
    value.check()?;
    value.set_if_wanted(limit_of(&*context::current()?, limit)?);
    Ok(())
}

/// Returns the value of a CUlimit.
pub(crate) fn limit_of(context: &Context, limit: u32) -> CuResult<usize> {
    Ok(match limit {
        LIMIT_STACK_SIZE => context.stack_limit.load(Ordering::Relaxed) as usize,
        LIMIT_PRINTF_FIFO_SIZE => context.printf.limit(),
        LIMIT_MALLOC_HEAP_SIZE => context.device.memory.heap_limit() as usize,
        LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => context.pending_launches.load(Ordering::Relaxed) as usize,
        // Hints for hardware that this device does not have.
        LIMIT_MAX_L2_FETCH_GRANULARITY => 64,
        LIMIT_PERSISTING_L2_CACHE_SIZE | LIMIT_CIG_ENABLED => 0,
        LIMIT_SHMEM_SIZE => context.device.model.limits().shared_optin as usize,
        limit if limit < LIMIT_MAX => return Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

crate::driver::ffi::entries! { after_init
    cuCtxSetLimit => ctx_set_limit(limit: u32, value: usize);
    cuCtxGetLimit => ctx_get_limit(value: Out<usize>, limit: u32);
}
