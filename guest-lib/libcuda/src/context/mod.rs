// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Contexts: creation, the stack, limits.

pub mod checkpoint;
pub mod core_dump;
mod forget;
pub mod green;
pub mod peer;

use cuda_abi::{CUctxCreateParams, CUexecAffinityParam};
use virtio_cuda_client::protocol::{ContextId, EventId};
use virtio_cuda_client::{Call, CudaError, calls, idle};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::handles::{Kind, new_handle};
use crate::state::contexts::{self, Primary, current};
use crate::state::dumps;
use crate::trace;

/// `CU_CTX_*`: the scheduling flags, of which at most one may be set, and all flags.
const CTX_SCHED_MASK: u32 = 7;
const CTX_FLAGS: u32 = 0xff;
/// `CU_EXEC_AFFINITY_TYPE_SM_COUNT`, and the error for all other types.
const SM_COUNT: i32 = 0;
const UNSUPPORTED_EXEC_AFFINITY: i32 = 224;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`.
const TO_CURRENT_CONTEXT: i32 = 0;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_*`.
const FLUSH_SCOPES: [i32; 2] = [100, 200];

/// Retains a device's primary context.
pub fn retain(api: Api, device: i32) -> Result<u64, CudaError> {
    let mut primary = api.driver.contexts.primary(device)?;
    if !primary.active {
        let number = api.driver.devices.check(device)?.on_wire();
        calls::cuDevicePrimaryCtxRetain(&mut api.call(), number, ContextId(primary.context))?;
        api.driver.contexts.add(primary.context, device as u32);
        dumps::context_created(primary.context, primary.flags);
        primary.active = true;
        api.adopt_host_memory(primary.context);
    }
    primary.retains += 1;
    Ok(primary.context)
}

/// Releases a device's primary context.
pub fn release(api: Api, device: i32) -> Result<(), CudaError> {
    report_end(api, device, |primary| primary.retains == 1)?;
    let mut primary = api.driver.contexts.primary(device)?;
    if primary.retains == 0 {
        return Err(CudaError::INVALID_CONTEXT);
    }
    if primary.retains == 1 && primary.active {
        calls::cuDevicePrimaryCtxRelease_v2(
            &mut api.internal().call(),
            api.driver.devices.check(device)?.on_wire(),
        )?;
        forget(api, primary.context);
        primary.active = false;
    }
    primary.retains -= 1;
    Ok(())
}

fn reset(api: Api, device: i32) -> Result<(), CudaError> {
    report_end(api, device, |_| true)?;
    let mut primary = api.driver.contexts.primary(device)?;
    if primary.active {
        calls::cuDevicePrimaryCtxReset_v2(
            &mut api.internal().call(),
            api.driver.devices.check(device)?.on_wire(),
        )?;
        // The program's holds remain, but the context exists again only after the next retain.
        primary.active = false;
        primary.flags = 0;
        forget(api, primary.context);
    }
    Ok(())
}

/// Reports the end of a device's primary context to a profiler if `ends` returns true. The context's lock is not held,
/// because the profiler may make calls.
fn report_end(api: Api, device: i32, ends: impl FnOnce(&Primary) -> bool) -> Result<(), CudaError> {
    if trace::hooks().is_none() {
        return Ok(());
    }
    let ending = {
        let primary = api.driver.contexts.primary(device)?;
        (primary.active && ends(&primary)).then_some(primary.context)
    };
    ending.into_iter().for_each(trace::context_ends);
    Ok(())
}

/// Removes a destroyed primary context and everything that was created in its green contexts.
fn forget(api: Api, primary: u64) {
    for context in api.driver.greens.in_primary(primary) {
        dumps::context_destroyed(context);
        api.driver.forget_context(context);
    }
    dumps::context_destroyed(primary);
    api.driver.forget_context(primary);
    if let Some(other) = api.driver.contexts.any() {
        api.adopt_host_memory(other);
    }
}

fn set_flags(api: Api, device: i32, flags: u32) -> Result<(), CudaError> {
    let mut primary = api.driver.contexts.primary(device)?;
    let number = api.driver.devices.check(device)?.on_wire();
    calls::cuDevicePrimaryCtxSetFlags_v2(&mut api.call(), number, flags)?;
    primary.flags = flags;
    Ok(())
}

fn create(api: Api, pctx: Out<u64>, flags: u32, device: i32) -> Result<(), CudaError> {
    pctx.check()?;
    let number = api.driver.devices.check(device)?.on_wire();
    let context = new_handle(Kind::Context);
    calls::cuCtxCreate_v2(&mut api.call(), ContextId(context), flags, number)?;
    api.driver.contexts.add(context, device as u32);
    dumps::context_created(context, flags);
    api.adopt_host_memory(context);
    contexts::push(context);
    pctx.set(context)
}

fn destroy(api: Api, context: u64) -> Result<(), CudaError> {
    if context == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    api.driver.contexts.device_of(context)?;
    trace::context_ends(context);
    calls::cuCtxDestroy_v2(&mut api.internal().call(), ContextId(context))?;
    dumps::context_destroyed(context);
    api.driver.forget_context(context);
    if current() == context {
        contexts::pop();
    }
    if let Some(other) = api.driver.contexts.any() {
        api.adopt_host_memory(other);
    }
    Ok(())
}

fn push(api: Api, context: u64) -> Result<(), CudaError> {
    if context == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    api.driver.contexts.device_of(context)?;
    contexts::push(context);
    Ok(())
}

fn pop(pctx: Out<u64>) -> Result<(), CudaError> {
    match contexts::pop() {
        0 => Err(CudaError::INVALID_CONTEXT),
        context => {
            pctx.set_if_wanted(context);
            Ok(())
        }
    }
}

/// Returns a context parameter; NULL stands for the current context.
fn or_current(api: Api, context: u64) -> Result<u64, CudaError> {
    let context = if context == 0 { current() } else { context };
    api.driver.contexts.device_of(context)?;
    Ok(context)
}

fn synchronize(api: Api, context: u64) -> Result<(), CudaError> {
    let visible = api.driver.memory.visible.so_far();
    let frees = api.driver.local_pools.frees_so_far();
    // All calls that were counted in `visible` are counted as calls, too: if these have no work, those have none.
    if !api.is_idle() {
        let call = &mut api.call_in(ContextId(context));
        let idle = idle::so_far();
        calls::cuCtxSynchronize(call)?;
        // Another context may have outstanding work.
        if api.driver.contexts.is_only_one() {
            api.driver.memory.visible.end(visible);
            idle::done(idle);
        }
    } else {
        api.driver.memory.visible.end(visible);
    }
    api.driver.local_pools.reached(frees, |stream| stream.context == context);
    api.context_synchronized();
    Ok(())
}

/// Records the work of a context.
pub fn record_in_context(api: Api, context: u64, event: u64) -> Result<(), CudaError> {
    let mut call = of_context(api, context, event)?;
    let recorded = calls::cuCtxRecordEvent(&mut call, ContextId(context), EventId(event));
    if let Ok(event) = api.driver.events.get(event)
        && let Some(reached) = &event.reached
    {
        reached.recorded();
    }
    recorded
}

/// Makes a context wait for an event.
pub fn wait_in_context(api: Api, context: u64, event: u64) -> Result<(), CudaError> {
    calls::cuCtxWaitEvent(&mut of_context(api, context, event)?, ContextId(context), EventId(event))
}

/// Starts a call about a whole context and an event.
fn of_context(api: Api, context: u64, event: u64) -> Result<Call<'static>, CudaError> {
    api.driver.contexts.device_of(context)?;
    api.driver.events.get(event)?;
    Ok(api.call_in(ContextId(context)))
}

entry_points! {
    /// Records the work of a whole context.
    call cuCtxRecordEvent(api, hCtx: u64, hEvent: u64) {
        record_in_context(api, hCtx, hEvent)
    }

    /// Makes a whole context wait for an event.
    call cuCtxWaitEvent(api, hCtx: u64, hEvent: u64) {
        wait_in_context(api, hCtx, hEvent)
    }

    /// Retains the device's primary context.
    call cuDevicePrimaryCtxRetain(api, pctx: Out<u64>, dev: i32) {
        pctx.check()?;
        pctx.set(retain(api, dev)?)
    }

    /// Releases the device's primary context.
    call cuDevicePrimaryCtxRelease_v2(api, dev: i32) {
        release(api, dev)
    }

    /// Releases the device's primary context.
    call cuDevicePrimaryCtxRelease(api, dev: i32) {
        release(api, dev)
    }

    /// Destroys everything in the primary context, even if it is retained elsewhere.
    call cuDevicePrimaryCtxReset_v2(api, dev: i32) {
        reset(api, dev)
    }

    /// Destroys everything in the primary context, even if it is retained elsewhere.
    call cuDevicePrimaryCtxReset(api, dev: i32) {
        reset(api, dev)
    }

    /// Sets the flags of the primary context.
    call cuDevicePrimaryCtxSetFlags_v2(api, dev: i32, flags: u32) {
        set_flags(api, dev, flags)
    }

    /// Sets the flags of the primary context.
    call cuDevicePrimaryCtxSetFlags(api, dev: i32, flags: u32) {
        set_flags(api, dev, flags)
    }

    /// Returns the flags of the primary context, and whether it is active in this process.
    call cuDevicePrimaryCtxGetState(api, dev: i32, flags: Out<u32>, active: Out<i32>) {
        let primary = *api.driver.contexts.primary(dev)?;
        flags.set(primary.flags)?;
        active.set(primary.active.into())
    }

    /// Creates a context and makes it current.
    call cuCtxCreate_v2(api, pctx: Out<u64>, flags: u32, dev: i32) {
        create(api, pctx, flags, dev)
    }

    /// Creates a context; execution affinity is not supported.
    call cuCtxCreate_v3(api, pctx: Out<u64>, _paramsArray: HostPtr, numParams: i32, flags: u32, dev: i32) {
        if numParams != 0 {
            return Err(CudaError::NOT_SUPPORTED);
        }
        create(api, pctx, flags, dev)
    }

    /// Creates a context; execution affinity and CIG are not supported.
    call cuCtxCreate_v4(api, pctx: Out<u64>, ctxCreateParams: In<CUctxCreateParams>, flags: u32, dev: i32) {
        if !ctxCreateParams.is_null() {
            let params = ctxCreateParams.get()?;
            if params.affinity_count != 0 || params.cig != 0 {
                return Err(CudaError::NOT_SUPPORTED);
            }
        }
        create(api, pctx, flags, dev)
    }

    /// The version from before CUDA 3.2: a context with 32-bit addresses, which cannot reach the memory of current
    /// devices. An H200 returns the same error.
    call cuCtxCreate(api, pctx: Out<u64>, flags: u32, dev: i32) {
        pctx.check()?;
        if flags & !CTX_FLAGS != 0 || !matches!(flags & CTX_SCHED_MASK, 0 | 1 | 2 | 4) {
            return Err(CudaError::INVALID_VALUE);
        }
        api.driver.devices.check(dev)?;
        Err(CudaError::OUT_OF_MEMORY)
    }

    /// Destroys a context.
    call cuCtxDestroy_v2(api, ctx: u64) {
        destroy(api, ctx)
    }

    /// Destroys a context.
    call cuCtxDestroy(api, ctx: u64) {
        destroy(api, ctx)
    }

    /// Increments the usage count of the current context.
    call cuCtxAttach(api, pctx: Out<u64>, flags: u32) {
        pctx.check()?;
        if flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let context = api.context()?.0;
        api.driver.contexts.attach(context)?;
        pctx.set(context)
    }

    /// Decrements the usage count of the current context, and destroys it at 0.
    call cuCtxDetach(api, ctx: u64) {
        if ctx != current() {
            return Err(CudaError::INVALID_CONTEXT);
        }
        if api.driver.contexts.is_destroyed(ctx) {
            return Err(CudaError::CONTEXT_IS_DESTROYED);
        }
        let device = api.driver.contexts.device_of(ctx)? as i32;
        if api.driver.contexts.detach(ctx) {
            return Ok(());
        }
        let is_primary = api.driver.contexts.primary(device)?.context == ctx;
        if is_primary { release(api, device) } else { destroy(api, ctx) }
    }

    /// Returns the number of multiprocessors of the current context.
    call cuCtxGetExecAffinity(api, pExecAffinity: Out<CUexecAffinityParam>, r#type: i32) {
        pExecAffinity.check()?;
        if r#type != SM_COUNT {
            return CudaError::check(UNSUPPORTED_EXEC_AFFINITY);
        }
        let sm_count = calls::cuCtxGetExecAffinity(&mut api.in_context()?, r#type)?;
        pExecAffinity.set(CUexecAffinityParam { kind: 0, sm_count })
    }

    /// Makes writes of other devices to the GPU's memory visible.
    call cuFlushGPUDirectRDMAWrites(api, target: i32, scope: i32) {
        if target != TO_CURRENT_CONTEXT || !FLUSH_SCOPES.contains(&scope) {
            return Err(CudaError::INVALID_VALUE);
        }
        calls::cuFlushGPUDirectRDMAWrites(&mut api.in_context()?, target, scope)
    }

    /// Pushes a context onto the calling thread's stack.
    call cuCtxPushCurrent_v2(api, ctx: u64) {
        push(api, ctx)
    }

    /// Pushes a context onto the calling thread's stack.
    call cuCtxPushCurrent(api, ctx: u64) {
        push(api, ctx)
    }

    /// Pops the top of the calling thread's stack.
    call cuCtxPopCurrent_v2(_, pctx: Out<u64>) {
        pop(pctx)
    }

    /// Pops the top of the calling thread's stack.
    call cuCtxPopCurrent(_, pctx: Out<u64>) {
        pop(pctx)
    }

    /// Replaces the top of the calling thread's stack.
    call cuCtxSetCurrent(api, ctx: u64) {
        if ctx != 0 {
            api.driver.contexts.device_of(ctx)?;
        }
        contexts::set_current(ctx);
        Ok(())
    }

    /// Returns the calling thread's context, or NULL.
    call cuCtxGetCurrent(_, pctx: Out<u64>) {
        pctx.set(current())
    }

    /// Returns the device of the current context.
    call cuCtxGetDevice(api, device: Out<i32>) {
        device.set(api.driver.contexts.device_of(current())? as i32)
    }

    /// Returns the device of a context.
    call cuCtxGetDevice_v2(api, device: Out<i32>, ctx: u64) {
        device.set(api.driver.contexts.device_of(or_current(api, ctx)?)? as i32)
    }

    /// Returns an id for the context that is never reused.
    call cuCtxGetId(api, ctx: u64, ctxId: Out<u64>) {
        ctxId.set(or_current(api, ctx)?)
    }

    /// Waits for all work of the current context.
    call cuCtxSynchronize(api) {
        synchronize(api, api.context()?.0)
    }

    /// Waits for all work of a context.
    call cuCtxSynchronize_v2(api, ctx: u64) {
        synchronize(api, or_current(api, ctx)?)
    }

    /// Returns the API version for which a context was created.
    call cuCtxGetApiVersion(api, ctx: u64, version: Out<u32>) {
        version.check()?;
        let context = or_current(api, ctx)?;
        version.set(calls::cuCtxGetApiVersion(&mut api.call(), ContextId(context))?)
    }

    /// The width of shared memory banks has been fixed since compute capability 5.0:
    /// `CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE`.
    call cuCtxGetSharedMemConfig(api, pConfig: Out<i32>) {
        api.context()?;
        pConfig.set(1)
    }

    /// Without effect since compute capability 5.0.
    call cuCtxSetSharedMemConfig(api, config: i32) {
        if !(0..=2).contains(&config) {
            return Err(CudaError::INVALID_VALUE);
        }
        api.context().map(|_| ())
    }

    /// Returns the lowest and the highest stream priority.
    call cuCtxGetStreamPriorityRange(api, leastPriority: Out<i32>, greatestPriority: Out<i32>) {
        let (least, greatest) = calls::cuCtxGetStreamPriorityRange(&mut api.in_context()?)?;
        leastPriority.set_if_wanted(least);
        greatestPriority.set_if_wanted(greatest);
        Ok(())
    }
}
