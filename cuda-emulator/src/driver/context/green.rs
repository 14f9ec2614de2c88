// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Green contexts and the resources that they are parts of. The parts are told, but not kept apart: work of a green context
//! runs on all multiprocessors, which the manual allows. So a green context is its device's primary context under another
//! handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::events::{record, wait};
use crate::driver::context::{self, CUcontext};
use crate::driver::device::{CUdevice, Device, device};
use crate::driver::event::CUevent;
use crate::driver::ffi::{In, Out};
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
pub type CUdevResourceDesc = Handle<DevResource>;

static GREENS: Registry<Green> = Registry::new();
static DESCRIPTIONS: Registry<DevResource> = Registry::new();

/// CUdevResource. The part that the header calls padding says where the resource comes from.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DevResource {
    kind: u32,
    device: CUdevice,
    /// The split that it comes from; 0 for none.
    split: u32,
    inside: [u32; 21],
    count: u32,
    least: u32,
    step: u32,
    rest: [u32; 9],
}

const _: () = assert!(size_of::<DevResource>() == 144);

/// A part of a device's multiprocessors.
pub struct Green {
    /// As a context that can be current.
    context: CUcontext,
    device: &'static Device,
    resource: DevResource,
}

impl DevResource {
    /// All multiprocessors of a device.
    fn whole(of: &Device) -> DevResource {
        let count = of.model.multiprocessors;
        // As on devices of compute capability 9.0, unless that would leave nothing to split.
        let step = if count < 16 { count.min(2) } else { 8 };
        let (device, inside, rest) = (of.ordinal, [0; 21], [0; 9]);
        DevResource { kind: TYPE_SM, device, split: 0, inside, count, least: step, step, rest }
    }

    fn check(&self) -> CuResult<()> {
        if self.kind != TYPE_SM {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let most = device(self.device).map_err(|_| INVALID)?.model.multiprocessors;
        if (1..=most).contains(&self.count) { Ok(()) } else { Err(INVALID) }
    }

    fn part(&self, split: u32, count: u32) -> DevResource {
        let kind = if count == 0 { 0 } else { TYPE_SM };
        DevResource { kind, split, count, ..*self }
    }
}

fn check_type(kind: u32) -> CuResult<()> {
    if kind == TYPE_SM { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE) }
}

fn find(handle: CUgreenCtx) -> CuResult<Arc<Green>> {
    GREENS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// The green context that `handle` stands for, if it does.
pub(crate) fn of_context(handle: CUcontext) -> CUgreenCtx {
    GREENS.find(|green| green.context == handle).unwrap_or(Handle::NULL)
}

/// Returns the number of multiprocessors of the green context that `handle` stands for.
pub(crate) fn multiprocessors_of(handle: CUcontext) -> Option<u32> {
    GREENS.get(of_context(handle)).map(|green| green.resource.count)
}

fn device_resource(ordinal: CUdevice, out: Out<DevResource>, kind: u32) -> CuResult<()> {
    let device = device(ordinal)?;
    out.check()?;
    check_type(kind)?;
    out.set(DevResource::whole(device));
    Ok(())
}

fn context_resource(handle: CUcontext, out: Out<DevResource>, kind: u32) -> CuResult<()> {
    out.check()?;
    check_type(kind)?;
    if handle == Handle::NULL {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let device = context::find_given(handle)?.device;
    let green = GREENS.get(of_context(handle));
    out.set(green.map_or_else(|| DevResource::whole(device), |green| green.resource));
    Ok(())
}

fn green_resource(handle: CUgreenCtx, out: Out<DevResource>, kind: u32) -> CuResult<()> {
    out.check()?;
    check_type(kind)?;
    out.set(find(handle)?.resource);
    Ok(())
}

fn split(
    result: Out<DevResource>,
    groups: *mut u32,
    input: In<DevResource>,
    remaining: Out<DevResource>,
    flags: u32,
    min_count: u32,
) -> CuResult<()> {
    static SPLITS: AtomicU32 = AtomicU32::new(1);
    let wanted = In::from_raw(groups.cast_const()).get()?;
    let input = input.get()?;
    if !result.is_null() && wanted == 0 {
        return Err(INVALID);
    }
    input.check()?;
    if flags & !SPLIT_FLAGS != 0 {
        return Err(INVALID);
    }
    if input.split != 0 || min_count > input.count {
        // Only a green context's parts can be split again, and nothing has more than there is.
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let step = if flags & SPLIT_SINGLY != 0 { (input.step / 4).max(1) } else { input.step.max(1) };
    let each = min_count.max(1).next_multiple_of(step);
    let possible = input.count / each;
    let made = if result.is_null() { possible } else { possible.min(wanted) };
    let number = SPLITS.fetch_add(1, Ordering::Relaxed);
    if !result.is_null() {
        for index in 0..made as usize {
            result.element(index).set(input.part(number, each));
        }
    }
    remaining.set(input.part(number, input.count - made * each));
    Out::from_raw(groups).set(made);
    Ok(())
}

fn describe(out: Out<CUdevResourceDesc>, resources: In<DevResource>, count: u32) -> CuResult<()> {
    out.check()?;
    if count == 0 {
        return Err(INVALID);
    }
    let mut all = resources.get()?;
    all.check()?;
    for index in 1..count as usize {
        let other = resources.at(index)?;
        other.check()?;
        // Of one split, or else they may overlap.
        if other.device != all.device || other.split != all.split || all.split == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        all.count = all.count.saturating_add(other.count);
    }
    all.check()?;
    let handle = Handle::mint();
    DESCRIPTIONS.insert(handle, Arc::new(all));
    out.set(handle);
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
    if flags != DEFAULT_STREAM || resource.device != ordinal {
        return Err(INVALID);
    }
    let context = Handle::mint();
    context::add_alias(context, device.primary.retain(ordinal)?)?;
    let handle = Handle::mint();
    // Its parts can be split in their turn.
    let resource = DevResource { split: 0, ..*resource };
    GREENS.insert(handle, Arc::new(Green { context, device, resource }));
    out.set(handle);
    Ok(())
}

fn destroy(handle: CUgreenCtx) -> CuResult<()> {
    let green = GREENS.remove(handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    context::remove_alias(green.context);
    super::end::release_primary(green.device)
}

fn to_context(out: Out<CUcontext>, handle: CUgreenCtx) -> CuResult<()> {
    out.check()?;
    out.set(find(handle)?.context);
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
    out.set(handle.0 as u64);
    Ok(())
}

/// The green context of a stream.
fn of_stream(handle: CUstream, out: Out<CUgreenCtx>) -> CuResult<()> {
    out.check()?;
    out.set(of_context(stream::context_handle(handle)?));
    Ok(())
}

crate::driver::ffi::entries! { after_init
    cuDeviceGetDevResource => device_resource(device: CUdevice, out: Out<DevResource>, kind: u32);
    cuCtxGetDevResource => context_resource(context: CUcontext, out: Out<DevResource>, kind: u32);
    cuGreenCtxGetDevResource => green_resource(green: CUgreenCtx, out: Out<DevResource>, kind: u32);
    cuDevSmResourceSplitByCount => split(
        result: Out<DevResource>, groups: *mut u32, input: In<DevResource>, remaining: Out<DevResource>, flags: u32,
        min_count: u32);
    cuDevResourceGenerateDesc => describe(out: Out<CUdevResourceDesc>, resources: In<DevResource>, count: u32);
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
