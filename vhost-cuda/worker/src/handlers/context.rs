// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts.

use std::sync::Arc;

use parking_lot::MutexGuard;
use vhost_cuda_common::timers::late_in_threads_of;
use virtio_cuda_protocol::cuda::{ContextId, DeviceOrdinal};

use crate::call::CallContext;
use crate::call::lifecycle::Destroy;
use crate::call::local::bytes_of_stacks;
use crate::gpu::{CuResult, CudaError, EVENT_DISABLE_TIMING, with_capture_relaxed};
use crate::memory::pools;
use crate::memory::quota::{self, Holder};
use crate::objects::Object;
use crate::objects::contexts::{Context, ContextState, Primary};
use crate::state::SessionState;

/// `CU_CTX_COREDUMP_ENABLE` and `CU_CTX_USER_COREDUMP_ENABLE`. The driver never gets these flags: it would write
/// files and create pipes in the host's file system. The guest sees the flags as set.
const CORE_DUMPS: u32 = 0x20 | 0x40;

/// `CUlimit`.
const LIMIT_STACK_SIZE: i32 = 0;
const LIMIT_PRINTF_FIFO_SIZE: i32 = 1;
const LIMIT_MALLOC_HEAP_SIZE: i32 = 2;
const LIMIT_DEV_RUNTIME_SYNC_DEPTH: i32 = 3;
const LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: i32 = 4;
/// The maximum memory of one level of synchronization (150 MB according to CUDA's programming guide), and an estimate
/// for one pending launch.
const SYNC_LEVEL_BYTES: u64 = 150 << 20;
const PENDING_LAUNCH_BYTES: u64 = 1024;

/// Returns a context that calls `give_back` once nothing uses it any longer.
fn context<T>(
    cx: &CallContext<'_>,
    name: ContextId,
    raw: *mut T,
    give_back: impl FnOnce(&SessionState, *mut T) -> CuResult<()> + Send + Sync + 'static,
) -> Object {
    let (session, address) = (cx.session, raw as usize);
    Object::new(raw).ends_by(move |_| {
        session.pools.forget_context(name.0);
        let outcome = give_back(session, address as *mut T);
        session.context_ended(name.0);
        outcome
    })
}

/// Destroys a context whose name was removed, or leaves that to the last call that uses it.
fn end(cx: &CallContext<'_>, name: u64, context: Arc<Object>) -> CuResult<()> {
    cx.session.close_context(name);
    Object::destroy(context)
}

/// Retains the primary context. The driver sees one retain, independent of the guest's count.
pub fn cuDevicePrimaryCtxRetain(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
    name: ContextId,
) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let mut contexts = cx.session.contexts.lock();
    let primary = *contexts.primary(device);
    if primary.retains > 0 {
        if primary.name != name.0 {
            return Err(CudaError::INVALID_VALUE);
        }
        contexts.primary(device).retains = primary.retains.saturating_add(1);
        return Ok(());
    }
    contexts.check_new(name)?;
    let raw = match contexts.primary(device).take_warm() {
        Some(raw) => raw,
        None => {
            // The primary context of the first device is charged for the whole session.
            if device != cx.session.device(0)? {
                pools::charge(cx.session, |allocations| allocations.quota.retain_primary(device))?;
            }
            let made = late_in_threads_of(cx.session.emulated, || cx.gpu().cuDevicePrimaryCtxRetain(device));
            let made = made.inspect_err(|_| cx.session.allocations().quota.release_primary(device));
            made.inspect_err(|_| cx.thread.short_of = Some(device))?.0
        }
    };
    let made = context(cx, name, raw, move |session, _| {
        // The lock lets a reset see that the context has ended.
        let mut contexts = session.contexts.lock();
        contexts.primary(device).alive -= 1;
        let released = session.gpu.cuDevicePrimaryCtxRelease_v2(device);
        if contexts.primary(device).alive == 0 {
            session.allocations().quota.release_primary(device);
        }
        released
    });
    let primary = contexts.primary(device);
    primary.retains = 1;
    primary.alive += 1;
    primary.name = name.0;
    let kept_flags = primary.kept_flags;
    contexts.insert(name, Context::new(made, device, true));
    contexts.keep_flags(name, kept_flags);
    cx.session.contexts.changed();
    Ok(())
}

/// Releases one retain. The context ends with the last one.
pub fn cuDevicePrimaryCtxRelease_v2(cx: &mut CallContext<'_>, device: DeviceOrdinal) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let mut contexts = cx.session.contexts.lock();
    let primary = contexts.primary(device);
    match primary.retains {
        0 => return Err(CudaError::INVALID_CONTEXT),
        1 => {}
        _ => {
            primary.retains -= 1;
            return Ok(());
        }
    }
    end_primary(cx, contexts, device, false)
}

/// Destroys everything in the primary context. The process holds one retain for all of the guest's retains, and the
/// context ends with it. The driver must not destroy the context while calls still use it.
pub fn cuDevicePrimaryCtxReset_v2(cx: &mut CallContext<'_>, device: DeviceOrdinal) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let mut contexts = cx.session.contexts.lock();
    if contexts.primary(device).retains > 0 {
        return end_primary(cx, contexts, device, true);
    }
    if contexts.primary(device).alive > 0 {
        return Ok(());
    }
    cx.session.pools.forget_context(contexts.primary(device).name);
    cx.gpu().cuDevicePrimaryCtxReset_v2(device)?;
    cx.session.allocations().quota.release_primary(device);
    let primary = contexts.primary(device);
    primary.forget_name();
    release_warm(cx, primary, device)
}

/// Releases the context that the worker retains without the guest's knowledge.
fn release_warm(cx: &CallContext<'_>, primary: &mut Primary, device: i32) -> CuResult<()> {
    match primary.take_warm() {
        Some(_) => cx.gpu().cuDevicePrimaryCtxRelease_v2(device),
        None => Ok(()),
    }
}

/// Ends the guest's primary context and removes the names of the objects in it. With `all`, its green contexts end,
/// too.
fn end_primary(
    cx: &CallContext<'_>,
    mut contexts: MutexGuard<'_, ContextState>,
    device: i32,
    all: bool,
) -> CuResult<()> {
    let name = contexts.primary(device).name;
    let context = contexts.close(ContextId(name))?;
    contexts.primary(device).forget_name();
    let greens = contexts.greens_of(name);
    cx.session.contexts.changed();
    if !all && !greens.is_empty() {
        // The driver keeps the primary context alive for green contexts as well, and objects created in them belong
        // to it.
        drop(contexts);
        cx.session.close_context(name);
        return Ok(());
    }
    // From here on no object is created in the context.
    context.close();
    let ended: Vec<_> =
        greens.into_iter().filter_map(|green| contexts.close(ContextId(green)).ok()).collect();
    drop(contexts);
    for green in ended {
        let _ = Object::destroy(green);
    }
    end(cx, name, context)
}

/// Sets flags for the primary context, also while the worker retains it without the guest's knowledge.
pub fn cuDevicePrimaryCtxSetFlags_v2(
    cx: &mut CallContext<'_>,
    device: DeviceOrdinal,
    flags: u32,
) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let (flags, kept_flags) = (flags & !CORE_DUMPS, flags & CORE_DUMPS);
    let mut contexts = cx.session.contexts.lock();
    match cx.gpu().cuDevicePrimaryCtxSetFlags_v2(device, flags) {
        Err(CudaError::PRIMARY_CONTEXT_ACTIVE) if contexts.primary(device).retains == 0 => {
            release_warm(cx, contexts.primary(device), device)?;
            cx.gpu().cuDevicePrimaryCtxSetFlags_v2(device, flags)
        }
        result => result,
    }?;
    let primary = contexts.primary(device);
    primary.kept_flags = kept_flags;
    let name = ContextId(primary.name);
    contexts.keep_flags(name, kept_flags);
    Ok(())
}

/// Returns the flags of the primary context, and whether the guest has made it active.
pub fn cuDevicePrimaryCtxGetState(cx: &mut CallContext<'_>, device: DeviceOrdinal) -> CuResult<(u32, i32)> {
    let device = cx.resolve(device)?;
    let retains = cx.session.contexts.lock().primary(device).retains;
    let (flags, _) = cx.gpu().cuDevicePrimaryCtxGetState(device)?;
    Ok((flags, i32::from(retains > 0)))
}

/// Creates a context. It does not stay current here, because the guest library tracks the current context.
pub fn cuCtxCreate_v2(
    cx: &mut CallContext<'_>,
    context: ContextId,
    flags: u32,
    device: DeviceOrdinal,
) -> CuResult<()> {
    let device = cx.resolve(device)?;
    let mut contexts = cx.session.contexts.lock();
    contexts.check_new(context)?;
    contexts.check_created()?;
    let (flags, kept_flags) = (flags & !CORE_DUMPS, flags & CORE_DUMPS);
    pools::charge(cx.session, |allocations| allocations.quota.create_context(context.0))?;
    let made = late_in_threads_of(cx.session.emulated, || cx.session.gpu.cuCtxCreate_v2(flags, device));
    let (raw,) = made.inspect_err(|_| cx.session.allocations().quota.let_go(Holder::Context(context.0)))?;
    cx.thread.forget_current();
    // Keeps the thread's stack of contexts flat. If this fails, the next call makes another context current.
    let _ = cx.session.gpu.cuCtxPopCurrent_v2();
    let made = self::context(cx, context, raw, |session, raw| session.gpu.cuCtxDestroy_v2(raw));
    contexts.insert(context, Context::new(made, device, false));
    contexts.keep_flags(context, kept_flags);
    Ok(())
}

/// Waits for all work of the current context, unless a stream captures. The driver would invalidate the capture, and
/// it checks for one at an unknown moment. So the work is marked by an event, which takes no time, while no capture
/// can begin.
pub fn wait_unless_capturing(cx: &mut CallContext<'_>) -> CuResult<()> {
    let (gpu, graphs) = (cx.gpu(), &cx.session.graphs);
    let context = cx.resolve(cx.context)?;
    cx.held().lock_captures(graphs.captures());
    if graphs.is_capturing() {
        return Err(CudaError::CAPTURE_UNSUPPORTED);
    }
    let (event,) = gpu.cuEventCreate(EVENT_DISABLE_TIMING)?;
    let recorded = gpu.cuCtxRecordEvent(context, event);
    cx.held().unlock_captures();
    let waited = match recorded {
        Ok(()) => with_capture_relaxed(gpu, || gpu.cuEventSynchronize(event)),
        // Drivers before CUDA 12.5 cannot record such an event. A capture that begins at this moment is lost.
        Err(_) => gpu.cuCtxSynchronize(),
    };
    waited.and(gpu.cuEventDestroy_v2(event))
}

/// Sets a limit of the current context. The driver allocates memory for it at once or at the next launch.
pub fn cuCtxSetLimit(cx: &mut CallContext<'_>, limit: i32, value: u64) -> CuResult<()> {
    if !cx.session.is_limited() {
        return cx.gpu().cuCtxSetLimit(limit, value as usize);
    }
    let home = cx.home();
    let (holder, bytes) = (Holder::Limit(home, limit), bytes_of_limit(cx, limit, value)?);
    let before = cx.session.allocations().quota.held(holder);
    pools::charge(cx.session, |allocations| allocations.quota.hold(holder, bytes.max(before), home))?;
    let set = cx.gpu().cuCtxSetLimit(limit, value as usize);
    // This cannot fail: it does not exceed the amount that is already charged.
    cx.session.allocations().quota.hold(holder, if set.is_ok() { bytes } else { before }, home)?;
    set
}

/// Returns the bytes that a limit takes beyond its default, which is part of the charge of every context.
fn bytes_of_limit(cx: &CallContext<'_>, limit: i32, value: u64) -> CuResult<u64> {
    let (default, each) = match limit {
        LIMIT_STACK_SIZE => return bytes_of_stacks(cx, value),
        LIMIT_PRINTF_FIFO_SIZE => (1 << 20, 1),
        LIMIT_MALLOC_HEAP_SIZE => (8 << 20, 1),
        LIMIT_DEV_RUNTIME_SYNC_DEPTH => (2, SYNC_LEVEL_BYTES),
        LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => (2048, PENDING_LAUNCH_BYTES),
        // The others take no memory.
        _ => (u64::MAX, 0),
    };
    Ok(quota::rounded(value.saturating_sub(default).saturating_mul(each)))
}

/// Sets the flags of the current context.
pub fn cuCtxSetFlags(cx: &mut CallContext<'_>, flags: u32) -> CuResult<()> {
    cx.gpu().cuCtxSetFlags(flags & !CORE_DUMPS)?;
    cx.session.contexts.lock().keep_flags(cx.context, flags & CORE_DUMPS);
    Ok(())
}

impl Destroy for ContextId {
    /// Destroys a context that the guest created.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let mut contexts = cx.session.contexts.lock();
        if contexts.get(self)?.primary {
            return Err(CudaError::INVALID_CONTEXT);
        }
        let destroyed = contexts.close(self)?;
        destroyed.close();
        cx.session.contexts.changed();
        drop(contexts);
        end(cx, self.0, destroyed)
    }
}
