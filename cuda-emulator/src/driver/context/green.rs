// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Green contexts and the resources that they are parts of. The parts are reported, but not isolated: work of a green
//! context runs on all multiprocessors, which the manual allows. So a green context is its device's primary context
//! with another handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_abi::CUdevResource;

use super::events::{record, wait};
use crate::driver::context::{self, CUcontext};
use crate::driver::device::{CUdevice, Device, device};
use crate::driver::event::CUevent;
use crate::driver::ffi::{In, InOut, Out};
use crate::driver::handle::{Handle, Registry};
use crate::driver::result::{CUresult, CuResult};
use crate::driver::stream::{self, CUstream};

/// CU_DEV_RESOURCE_TYPE_SM
const TYPE_SM: u32 = 1;
/// CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, ..._MAX_POTENTIAL_CLUSTER_SIZE
const SPLIT_SINGLY: u32 = 1;
const SPLIT_FLAGS: u32 = 3;
/// CU_GREEN_CTX_DEFAULT_STREAM
const DEFAULT_STREAM: u32 = 1;
/// CU_STREAM_NON_BLOCKING
const NON_BLOCKING: u32 = 1;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// A green context's handle.
pub type CUgreenCtx = Handle<Green>;
/// The handle of resources that go into a green context.
pub type CUdevResourceDesc = Handle<CUdevResource>;

static GREENS: Registry<Green> = Registry::new();
static DESCRIPTIONS: Registry<CUdevResource> = Registry::new();

impl crate::driver::handle::Object for CUdevResource {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

impl crate::driver::handle::Object for Green {
    const KIND: Option<crate::driver::handle::Kind> = Some(crate::driver::handle::Kind::Green);
}

/// The words of `CUdevResource::inside` that hold the resource's origin: its device, and the split that it comes
/// from, or 0.
const DEVICE: usize = 0;
const SPLIT: usize = 1;

/// A part of a device's multiprocessors.
pub struct Green {
    /// Its handle as a context that can be current.
    context: CUcontext,
    device: &'static Device,
    resource: CUdevResource,
}

/// All multiprocessors of a device.
fn whole(of: &Device) -> CUdevResource {
    let count = of.model.multiprocessors;
    // As on devices of compute capability 9.0, unless that would leave nothing to split.
    let step = if count < 16 { count.min(2) } else { 8 };
    let mut whole = CUdevResource {
        kind: TYPE_SM,
        sm_count: count,
        min_sm_count: step,
        sm_alignment: step,
        ..CUdevResource::ZERO
    };
    whole.inside[DEVICE] = of.ordinal.cast_unsigned();
    whole
}

fn device_of(resource: &CUdevResource) -> CUdevice {
    resource.inside[DEVICE].cast_signed()
}

fn check(resource: &CUdevResource) -> CuResult<()> {
    if resource.kind != TYPE_SM {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let most = device(device_of(resource)).map_err(|_| INVALID)?.model.multiprocessors;
    if (1..=most).contains(&resource.sm_count) { Ok(()) } else { Err(INVALID) }
}

fn part(of: &CUdevResource, split: u32, sm_count: u32) -> CUdevResource {
    let kind = if sm_count == 0 { 0 } else { TYPE_SM };
    let mut part = CUdevResource { kind, sm_count, ..*of };
    part.inside[SPLIT] = split;
    part
}

fn check_type(kind: u32) -> CuResult<()> {
    if kind == TYPE_SM { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE) }
}

fn find(handle: CUgreenCtx) -> CuResult<Arc<Green>> {
    GREENS.get(handle).ok_or_else(|| handle.refusal())
}

/// Returns the green context of `handle`, if it is one.
pub(crate) fn of_context(handle: CUcontext) -> CUgreenCtx {
    GREENS.find(|green| green.context == handle).unwrap_or(Handle::NULL)
}

/// Returns the number of multiprocessors of the green context of `handle`, if it is one.
pub(crate) fn multiprocessors_of(handle: CUcontext) -> Option<u32> {
    GREENS.get(of_context(handle)).map(|green| green.resource.sm_count)
}

fn device_resource(ordinal: CUdevice, out: Out<CUdevResource>, kind: u32) -> CuResult<()> {
    let device = device(ordinal)?;
    out.check()?;
    check_type(kind)?;
    out.set_if_wanted(whole(device));
    Ok(())
}

fn context_resource(handle: CUcontext, out: Out<CUdevResource>, kind: u32) -> CuResult<()> {
    out.check()?;
    check_type(kind)?;
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let device = context::find_given(handle)?.device;
    let green = GREENS.get(of_context(handle));
    out.set_if_wanted(green.map_or_else(|| whole(device), |green| green.resource));
    Ok(())
}

fn green_resource(handle: CUgreenCtx, out: Out<CUdevResource>, kind: u32) -> CuResult<()> {
    out.check()?;
    check_type(kind)?;
    out.set_if_wanted(find(handle)?.resource);
    Ok(())
}

fn split(
    result: Out<CUdevResource>,
    groups: InOut<u32>,
    input: In<CUdevResource>,
    remaining: Out<CUdevResource>,
    flags: u32,
    min_count: u32,
) -> CuResult<()> {
    static SPLITS: AtomicU32 = AtomicU32::new(1);
    let wanted = groups.get()?;
    let input = input.get()?;
    if !result.is_null() && wanted == 0 {
        return Err(INVALID);
    }
    check(&input)?;
    if flags & !SPLIT_FLAGS != 0 {
        return Err(INVALID);
    }
    if input.inside[SPLIT] != 0 || min_count > input.sm_count {
        // Only a green context's parts can be split again, and a part cannot have more than exist.
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let step =
        if flags & SPLIT_SINGLY != 0 { (input.sm_alignment / 4).max(1) } else { input.sm_alignment.max(1) };
    let each = min_count.max(1).next_multiple_of(step);
    let possible = input.sm_count / each;
    let made = if result.is_null() { possible } else { possible.min(wanted) };
    let number = SPLITS.fetch_add(1, Ordering::Relaxed);
    if !result.is_null() {
        for index in 0..made as usize {
            // SAFETY: `made` is at most `wanted`, as many elements as the caller says in `groups` that the array has.
            unsafe { result.element(index) }.set_if_wanted(part(&input, number, each));
        }
    }
    remaining.set_if_wanted(part(&input, number, input.sm_count - made * each));
    groups.set_if_wanted(made);
    Ok(())
}

fn describe(out: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: u32) -> CuResult<()> {
    out.check()?;
    if count == 0 {
        return Err(INVALID);
    }
    let mut all = resources.get()?;
    check(&all)?;
    for index in 1..count as usize {
        let other = resources.at(index)?;
        check(&other)?;
        // They come from one split, or else they may overlap.
        if other.inside[..=SPLIT] != all.inside[..=SPLIT] || all.inside[SPLIT] == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        all.sm_count = all.sm_count.saturating_add(other.sm_count);
    }
    check(&all)?;
    let handle = Handle::unique();
    DESCRIPTIONS.insert(handle, Arc::new(all));
    out.set_if_wanted(handle);
    Ok(())
}

fn create(
    out: Out<CUgreenCtx>,
    description: CUdevResourceDesc,
    ordinal: CUdevice,
    flags: u32,
) -> CuResult<()> {
    let device = device(ordinal)?;
    out.check()?;
    let resource = DESCRIPTIONS.get(description).ok_or(INVALID)?;
    if flags != DEFAULT_STREAM || device_of(&resource) != ordinal {
        return Err(INVALID);
    }
    let context = Handle::unique();
    context::add_alias(context, device.primary.retain(ordinal)?)?;
    let handle = Handle::unique();
    // Its parts can be split again.
    let resource = part(&resource, 0, resource.sm_count);
    GREENS.insert(handle, Arc::new(Green { context, device, resource }));
    out.set_if_wanted(handle);
    Ok(())
}

fn destroy(handle: CUgreenCtx) -> CuResult<()> {
    let green = GREENS.remove(handle).ok_or_else(|| handle.refusal())?;
    context::remove_alias(green.context);
    super::end::release_primary(green.device)
}

fn to_context(out: Out<CUcontext>, handle: CUgreenCtx) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(find(handle)?.context);
    Ok(())
}

fn record_event(handle: CUgreenCtx, event: CUevent) -> CuResult<()> {
    record(find(handle)?.context, event)
}

fn wait_event(handle: CUgreenCtx, event: CUevent) -> CuResult<()> {
    wait(find(handle)?.context, event)
}

fn create_stream(out: Out<CUstream>, green: CUgreenCtx, flags: u32, priority: i32) -> CuResult<()> {
    out.check()?;
    let context = find(green)?.context;
    if flags != NON_BLOCKING {
        return Err(INVALID);
    }
    stream::create_in(context, out, flags, priority)
}

fn get_id(handle: CUgreenCtx, out: Out<u64>) -> CuResult<()> {
    out.check()?;
    let current = || of_context(context::current_handle().unwrap_or(Handle::NULL));
    let handle = if handle == Handle::NULL { current() } else { handle };
    find(handle)?;
    out.set_if_wanted(handle.0 as u64);
    Ok(())
}

/// Returns the green context of a stream.
fn of_stream(handle: CUstream, out: Out<CUgreenCtx>) -> CuResult<()> {
    out.check()?;
    out.set_if_wanted(of_context(stream::context_handle(handle)?));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuDeviceGetDevResource => device_resource(device: CUdevice, out: Out<CUdevResource>, kind: u32);
    cuCtxGetDevResource => context_resource(context: CUcontext, out: Out<CUdevResource>, kind: u32);
    cuGreenCtxGetDevResource => green_resource(green: CUgreenCtx, out: Out<CUdevResource>, kind: u32);
    cuDevSmResourceSplitByCount => split(
        result: Out<CUdevResource>, groups: InOut<u32>, input: In<CUdevResource>, remaining: Out<CUdevResource>, flags: u32,
        min_count: u32);
    cuDevResourceGenerateDesc => describe(out: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: u32);
    cuGreenCtxCreate => create(
        out: Out<CUgreenCtx>, description: CUdevResourceDesc, device: CUdevice, flags: u32);
    cuGreenCtxDestroy => destroy(green: CUgreenCtx);
    cuCtxFromGreenCtx => to_context(out: Out<CUcontext>, green: CUgreenCtx);
    cuGreenCtxRecordEvent => record_event(green: CUgreenCtx, event: CUevent);
    cuGreenCtxWaitEvent => wait_event(green: CUgreenCtx, event: CUevent);
    cuGreenCtxStreamCreate => create_stream(out: Out<CUstream>, green: CUgreenCtx, flags: u32, priority: i32);
    cuGreenCtxGetId => get_id(green: CUgreenCtx, out: Out<u64>);
    cuStreamGetGreenCtx => of_stream(stream: CUstream, out: Out<CUgreenCtx>);
}
