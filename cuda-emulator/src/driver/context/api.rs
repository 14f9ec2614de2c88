// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuCtx* and cuDevicePrimaryCtx*.

use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use cuda_abi::{CUctxCreateParams, CUexecAffinityParam};

use super::{end, green};
use crate::driver::capture;
use crate::driver::context::{self, CUcontext, Context};
use crate::driver::device::{CUdevice, device};
use crate::driver::ffi::{In, Out};
use crate::driver::handle::Handle;
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::PRIORITIES;

/// CU_CTX_SCHED_MASK, MAP_HOST, LMEM_RESIZE_TO_MAX, COREDUMP_ENABLE, USER_COREDUMP_ENABLE, SYNC_MEMOPS
const CTX_FLAGS: u32 = 0xff;
const CTX_SCHED_MASK: u32 = 7;
/// Always on with unified addressing.
const CTX_MAP_HOST: u32 = 8;
/// The result of cuCtxGetApiVersion since CUDA 3.2.
const API_VERSION: u32 = 3020;

fn check_flags(flags: u32) -> CuResult<()> {
    // Scheduling: automatic, spin, yield or blocking synchronisation.
    if flags & !CTX_FLAGS == 0 && matches!(flags & CTX_SCHED_MASK, 0 | 1 | 2 | 4) {
        return Ok(());
    }
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn ctx_create(out: Out<CUcontext>, flags: u32, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    check_flags(flags)?;
    out.set_if_wanted(context::create(device(ordinal)?, flags)?);
    Ok(())
}

/// The version before CUDA 3.2. As on an H200: 32-bit addresses cannot address the memory of today's devices.
fn ctx_create_32(out: Out<CUcontext>, flags: u32, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    check_flags(flags)?;
    device(ordinal)?;
    Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

fn ctx_create_v3(
    out: Out<CUcontext>,
    _affinity: *const c_void,
    affinities: c_int,
    flags: u32,
    ordinal: CUdevice,
) -> CuResult<()> {
    if affinities != 0 {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    ctx_create(out, flags, ordinal)
}

/// CU_EXEC_AFFINITY_TYPE_SM_COUNT
const SM_COUNT: u32 = 0;

fn ctx_create_v4(
    out: Out<CUcontext>,
    params: In<CUctxCreateParams>,
    flags: u32,
    ordinal: CUdevice,
) -> CuResult<()> {
    if !params.is_null() {
        let params = params.get()?;
        if params.affinity_count != 0 {
            return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        if params.cig != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
    }
    ctx_create(out, flags, ordinal)
}

fn ctx_destroy(handle: CUcontext) -> CuResult<()> {
    if handle == CUcontext::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    end::destroy(handle)
}

fn ctx_attach(out: Out<CUcontext>, flags: u32) -> CuResult<()> {
    context::current_unchecked()?;
    out.check()?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(context::attach()?);
    Ok(())
}

fn ctx_detach(handle: CUcontext) -> CuResult<()> {
    end::detach(handle)
}

fn ctx_get_exec_affinity(out: Out<CUexecAffinityParam>, kind: u32) -> CuResult<()> {
    let context = context::current()?;
    out.check()?;
    if kind != SM_COUNT {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    let count = green::multiprocessors_of(context::current_handle().unwrap_or(Handle::NULL));
    out.set_if_wanted(CUexecAffinityParam {
        kind,
        sm_count: count.unwrap_or(context.device.model.multiprocessors),
    });
    Ok(())
}

fn ctx_push_current(handle: CUcontext) -> CuResult<()> {
    context::push(handle)
}

fn ctx_pop_current(out: Out<CUcontext>) -> CuResult<()> {
    out.set_if_wanted(context::pop()?);
    Ok(())
}

fn ctx_set_current(handle: CUcontext) -> CuResult<()> {
    context::set_current(handle)
}

fn ctx_get_current(out: Out<CUcontext>) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(context::current_handle().unwrap_or(Handle::NULL));
    Ok(())
}

fn ctx_get_device(out: Out<CUdevice>) -> CuResult<()> {
    ctx_get_device_v2(out, Handle::NULL)
}

fn ctx_get_device_v2(out: Out<CUdevice>, handle: CUcontext) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(context::device_of(handle)?.ordinal);
    Ok(())
}

fn ctx_get_flags(flags: Out<u32>) -> CuResult<()> {
    flags.check()?;
    flags.set_if_wanted(context::current_unchecked()?.flags.load(Ordering::Relaxed) | CTX_MAP_HOST);
    Ok(())
}

fn ctx_set_flags(flags: u32) -> CuResult<()> {
    check_flags(flags)?;
    context::current_unchecked()?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

fn ctx_get_id(handle: CUcontext, id: Out<u64>) -> CuResult<()> {
    id.check()?;
    id.set_if_wanted(context::find_or_current(handle)?.id);
    Ok(())
}

fn ctx_get_api_version(handle: CUcontext, version: Out<u32>) -> CuResult<()> {
    version.check()?;
    context::find_or_current(handle)?;
    version.set_if_wanted(API_VERSION);
    Ok(())
}

fn ctx_synchronize() -> CuResult<()> {
    synchronize(&*context::current_unchecked()?)
}

fn ctx_synchronize_v2(handle: CUcontext) -> CuResult<()> {
    synchronize(&*context::find_or_current(handle)?)
}

/// Waits for all streams and returns an error if work failed.
fn synchronize(context: &Context) -> CuResult<()> {
    capture::refuse_any(context)?;
    context.wait_idle();
    context.flush_printf();
    context.sticky().map_or(Ok(()), Err)
}

fn ctx_get_cache_config(config: Out<u32>) -> CuResult<()> {
    config.check()?;
    config.set_if_wanted(context::current()?.cache_config.load(Ordering::Relaxed));
    Ok(())
}

fn ctx_set_cache_config(config: u32) -> CuResult<()> {
    let context = context::current()?;
    if config > 3 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    context.cache_config.store(config, Ordering::Relaxed);
    Ok(())
}

fn ctx_get_shared_mem_config(config: Out<u32>) -> CuResult<()> {
    config.check()?;
    config.set_if_wanted(context::current()?.shared_config.load(Ordering::Relaxed));
    Ok(())
}

fn ctx_set_shared_mem_config(config: u32) -> CuResult<()> {
    context::current()?;
    // Banks always have four bytes, as on devices since compute capability 5.0.
    if config > 2 { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn ctx_get_stream_priority_range(least: Out<c_int>, greatest: Out<c_int>) -> CuResult<()> {
    context::current()?;
    least.set_if_wanted(PRIORITIES.0);
    greatest.set_if_wanted(PRIORITIES.1);
    Ok(())
}

fn ctx_reset_persisting_l2_cache() -> CuResult<()> {
    context::current().map(|_| ())
}

fn ctx_enable_peer_access(peer: CUcontext, flags: u32) -> CuResult<()> {
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    let peer = context::find_given(peer)?;
    if peer.device.ordinal == context.device.ordinal {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    if !context.peers.lock().unwrap_or_else(PoisonError::into_inner).insert(peer.id) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    context.device.memory.add_peer(&peer.device.memory);
    Ok(())
}

fn ctx_disable_peer_access(peer: CUcontext) -> CuResult<()> {
    let context = context::current()?;
    let peer = context::find_given(peer)?;
    if !context.peers.lock().unwrap_or_else(PoisonError::into_inner).remove(&peer.id) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    // Running work may still use it.
    context.wait_idle();
    context.device.memory.remove_peer(&peer.device.memory);
    Ok(())
}

fn primary_retain(out: Out<CUcontext>, ordinal: CUdevice) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(device(ordinal)?.primary.retain(ordinal)?);
    Ok(())
}

fn primary_release(ordinal: CUdevice) -> CuResult<()> {
    end::release_primary(device(ordinal)?)
}

fn primary_reset(ordinal: CUdevice) -> CuResult<()> {
    end::reset_primary(device(ordinal)?);
    Ok(())
}

fn primary_get_state(ordinal: CUdevice, flags: Out<u32>, active: Out<c_int>) -> CuResult<()> {
    flags.check()?;
    active.check()?;
    let (current, exists) = device(ordinal)?.primary.state();
    flags.set_if_wanted(current);
    active.set_if_wanted(c_int::from(exists));
    Ok(())
}

fn primary_set_flags(ordinal: CUdevice, flags: u32) -> CuResult<()> {
    let device = device(ordinal)?;
    check_flags(flags)?;
    // A primary context always maps host memory.
    if flags & CTX_MAP_HOST != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    device.primary.set_flags(flags);
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuCtxCreate => ctx_create_32(out: Out<CUcontext>, flags: u32, device: CUdevice);
    cuCtxCreate_v2 => ctx_create(out: Out<CUcontext>, flags: u32, device: CUdevice);
    cuCtxCreate_v3 => ctx_create_v3(
        out: Out<CUcontext>, affinity: *const c_void, affinities: c_int, flags: u32, device: CUdevice);
    cuCtxCreate_v4 => ctx_create_v4(out: Out<CUcontext>, params: In<CUctxCreateParams>, flags: u32, device: CUdevice);
    cuCtxDestroy => ctx_destroy(context: CUcontext);
    cuCtxDestroy_v2 => ctx_destroy(context: CUcontext);
    cuCtxAttach => ctx_attach(out: Out<CUcontext>, flags: u32);
    cuCtxDetach => ctx_detach(context: CUcontext);
    cuCtxGetExecAffinity => ctx_get_exec_affinity(out: Out<CUexecAffinityParam>, kind: u32);
    cuCtxPushCurrent => ctx_push_current(context: CUcontext);
    cuCtxPushCurrent_v2 => ctx_push_current(context: CUcontext);
    cuCtxPopCurrent => ctx_pop_current(out: Out<CUcontext>);
    cuCtxPopCurrent_v2 => ctx_pop_current(out: Out<CUcontext>);
    cuCtxSetCurrent => ctx_set_current(context: CUcontext);
    cuCtxGetCurrent => ctx_get_current(out: Out<CUcontext>);
    cuCtxGetDevice => ctx_get_device(out: Out<CUdevice>);
    cuCtxGetDevice_v2 => ctx_get_device_v2(out: Out<CUdevice>, context: CUcontext);
    cuCtxGetFlags => ctx_get_flags(flags: Out<u32>);
    cuCtxSetFlags => ctx_set_flags(flags: u32);
    cuCtxGetId => ctx_get_id(context: CUcontext, id: Out<u64>);
    cuCtxGetApiVersion => ctx_get_api_version(context: CUcontext, version: Out<u32>);
    cuCtxSynchronize => ctx_synchronize();
    cuCtxSynchronize_v2 => ctx_synchronize_v2(context: CUcontext);
    cuCtxGetCacheConfig => ctx_get_cache_config(config: Out<u32>);
    cuCtxSetCacheConfig => ctx_set_cache_config(config: u32);
    cuCtxGetSharedMemConfig => ctx_get_shared_mem_config(config: Out<u32>);
    cuCtxSetSharedMemConfig => ctx_set_shared_mem_config(config: u32);
    cuCtxGetStreamPriorityRange => ctx_get_stream_priority_range(least: Out<c_int>, greatest: Out<c_int>);
    cuCtxResetPersistingL2Cache => ctx_reset_persisting_l2_cache();
    cuCtxEnablePeerAccess => ctx_enable_peer_access(peer: CUcontext, flags: u32);
    cuCtxDisablePeerAccess => ctx_disable_peer_access(peer: CUcontext);
    cuDevicePrimaryCtxRetain => primary_retain(out: Out<CUcontext>, device: CUdevice);
    cuDevicePrimaryCtxRelease => primary_release(device: CUdevice);
    cuDevicePrimaryCtxRelease_v2 => primary_release(device: CUdevice);
    cuDevicePrimaryCtxReset => primary_reset(device: CUdevice);
    cuDevicePrimaryCtxReset_v2 => primary_reset(device: CUdevice);
    cuDevicePrimaryCtxGetState => primary_get_state(device: CUdevice, flags: Out<u32>, active: Out<c_int>);
    cuDevicePrimaryCtxSetFlags => primary_set_flags(device: CUdevice, flags: u32);
    cuDevicePrimaryCtxSetFlags_v2 => primary_set_flags(device: CUdevice, flags: u32);
}
