// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution contexts and the resources of green contexts (CUDA 13.1). An execution context is a driver context: a
//! device's primary context or that of a green context.

use core::ffi::{c_int, c_uint};
use core::ptr;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::{
    CUcontext, CUdevResourceDesc, CUdevice, CUgreenCtx, cudaDevResource, cudaDevSmResourceGroupParams,
    cudaEvent_t, cudaGraph_t, cudaGraphConditionalHandle, cudaStream_t,
};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::pointers::{Out, not_null};
use crate::{driver, state};

/// `CU_GREEN_CTX_DEFAULT_STREAM`, which drivers of 13.0 require.
const DEFAULT_STREAM: c_uint = 1;
/// `CU_STREAM_NON_BLOCKING`: streams of green contexts are always non-blocking.
const NON_BLOCKING: c_uint = 1;

/// Green contexts by the addresses of their contexts.
static GREEN: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

fn green_contexts() -> MutexGuard<'static, HashMap<usize, usize>> {
    GREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the green context of an execution context.
fn green(context: CUcontext) -> Option<CUgreenCtx> {
    green_contexts().get(&context.addr()).map(|&green| ptr::with_exposed_provenance_mut(green))
}

fn device(ordinal: c_int) -> Result<CUdevice> {
    Ok(state::runtime()?.device(ordinal)?.handle)
}

api! {
    fn cudaDeviceGetDevResource(ordinal: c_int, resource: *mut cudaDevResource, kind: c_uint) {} => driver::cuDeviceGetDevResource(device(ordinal)?, resource, kind);

    fn cudaDevSmResourceSplitByCount(
        result: *mut cudaDevResource, groups: *mut c_uint, input: *const cudaDevResource,
        remaining: *mut cudaDevResource, flags: c_uint, min_count: c_uint,
    ) {
        state::runtime()?;
    } => driver::cuDevSmResourceSplitByCount(result, groups, input, remaining, flags, min_count);

    fn cudaDevSmResourceSplit(
        result: *mut cudaDevResource, groups: c_uint, input: *const cudaDevResource,
        remainder: *mut cudaDevResource, flags: c_uint, parameters: *mut cudaDevSmResourceGroupParams,
    ) {
        state::runtime()?;
    } => driver::cuDevSmResourceSplit(result, groups, input, remainder, flags, parameters);

    fn cudaDevResourceGenerateDesc(
        description: *mut CUdevResourceDesc, resources: *mut cudaDevResource, count: c_uint,
    ) {
        state::runtime()?;
    } => driver::cuDevResourceGenerateDesc(description, resources, count);

    fn cudaGreenCtxCreate(
        context: Out<CUcontext>, description: CUdevResourceDesc, ordinal: c_int, flags: c_uint,
    ) {
        context.check()?;
        if flags != 0 {
            return Err(cudaErrorInvalidValue);
        }
        let runtime = state::runtime()?;
        // The green context belongs to the primary one, which the runtime retains.
        let device = runtime.device(ordinal)?;
        device.primary_context()?;
        let (mut green, mut made) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: `green` is a local; the program promises a live description.
        unsafe { driver::cuGreenCtxCreate(&mut green, description, device.handle, DEFAULT_STREAM) }?;
        // SAFETY: `made` is a local; `green` was created just above.
        if let Err(error) = unsafe { driver::cuCtxFromGreenCtx(&mut made, green) } {
            // SAFETY: created above, and nothing else refers to it.
            let _ = unsafe { driver::cuGreenCtxDestroy(green) };
            return Err(error);
        }
        green_contexts().insert(made.addr(), green.expose_provenance());
        context.set(made)
    }

    fn cudaExecutionCtxDestroy(context: CUcontext) {
        state::runtime()?;
        let green = green(context).ok_or(cudaErrorInvalidValue)?;
        // SAFETY: `GREEN` holds live green contexts only: the entry goes with the context.
        unsafe { driver::cuGreenCtxDestroy(green) }?;
        green_contexts().remove(&context.addr());
        Ok(())
    }

    fn cudaExecutionCtxGetDevResource(context: CUcontext, resource: *mut cudaDevResource, kind: c_uint) {
        not_null(context)?;
        state::runtime()?;
    } => driver::cuCtxGetDevResource(context, resource, kind);

    fn cudaExecutionCtxGetDevice(ordinal: Out<c_int>, context: CUcontext) {
        ordinal.check()?;
        not_null(context)?;
        let runtime = state::runtime()?;
        let mut device = 0;
        // SAFETY: `device` is a local; the program promises a live context.
        unsafe { driver::cuCtxGetDevice_v2(&mut device, context) }?;
        ordinal.set(runtime.ordinal(device)?)
    }

    fn cudaExecutionCtxGetId(context: CUcontext, id: *mut u64) {
        not_null(context)?;
        state::runtime()?;
    } => driver::cuCtxGetId(context, id);

    fn cudaExecutionCtxStreamCreate(
        stream: *mut cudaStream_t, context: CUcontext, flags: c_uint, priority: c_int,
    ) {
        not_null(stream)?;
        not_null(context)?;
        state::runtime()?;
        if flags & !NON_BLOCKING != 0 {
            return Err(cudaErrorInvalidValue);
        }
        if let Some(green) = green(context) {
            // SAFETY: `stream` is not null, so the program promises room for a handle; `GREEN` holds live contexts
            // only.
            return unsafe { driver::cuGreenCtxStreamCreate(stream, green, NON_BLOCKING, priority) };
        }
        let mut popped = ptr::null_mut();
        // SAFETY: the program promises a live context.
        unsafe { driver::cuCtxPushCurrent_v2(context) }?;
        // SAFETY: `stream` is not null, so the program promises room for a handle.
        let created = unsafe { driver::cuStreamCreateWithPriority(stream, flags, priority) };
        // SAFETY: `popped` is a local.
        unsafe { driver::cuCtxPopCurrent_v2(&mut popped) }?;
        created
    }

    fn cudaExecutionCtxSynchronize(context: CUcontext) {
        not_null(context)?;
        state::runtime()?;
    } => driver::cuCtxSynchronize_v2(context);

    fn cudaExecutionCtxRecordEvent(context: CUcontext, event: cudaEvent_t) {
        not_null(context)?;
        state::runtime()?;
    } => driver::cuCtxRecordEvent(context, event);

    fn cudaExecutionCtxWaitEvent(context: CUcontext, event: cudaEvent_t) {
        not_null(context)?;
        state::runtime()?;
    } => driver::cuCtxWaitEvent(context, event);

    fn cudaDeviceGetExecutionCtx(context: Out<CUcontext>, ordinal: c_int) {
        context.check()?;
        context.set(state::runtime()?.device(ordinal)?.primary_context()?)
    }

    fn cudaGraphConditionalHandleCreate_v2(
        handle: *mut cudaGraphConditionalHandle, graph: cudaGraph_t, context: CUcontext,
        default_value: c_uint, flags: c_uint,
    ) {
        state::context()?;
        let context = if context.is_null() { state::current_context()? } else { context };
    } => driver::cuGraphConditionalHandleCreate(handle, graph, context, default_value, flags);
}
