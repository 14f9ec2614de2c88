// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Green contexts and their resources. The device represents a green context by the context that `cuCtxFromGreenCtx`
//! returns.

use std::sync::PoisonError;

use cuda_abi::CUdevResource;
use virtio_cuda_client::protocol::{ContextId, DeviceResource, Reader, ResourceDescId};
use virtio_cuda_client::{CudaError, calls};

use crate::context::{record_in_context, release, retain, wait_in_context};
use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::handles::{Kind, new_handle};
use crate::state::contexts::current;
use crate::state::greens::Green;
use crate::stream;
use crate::wire::{put, take};

/// `CU_DEV_RESOURCE_TYPE_SM`.
const SM: u32 = 1;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Maximum number of parts of a split: more than any device has multiprocessors.
const MAX_GROUPS: u32 = 1024;
/// Bytes of a [`DeviceResource`] on the wire.
const RESOURCE_BYTES: usize = 28;
/// `CUDA_ERROR_INVALID_RESOURCE_TYPE`.
const INVALID_RESOURCE_TYPE: i32 = 914;

/// The words of `CUdevResource::inside` that hold the resource's id in the device.
const NAME: [usize; 2] = [1, 2];

/// Converts a resource to the program's form.
fn for_program(resource: &DeviceResource) -> CUdevResource {
    let mut answer = CUdevResource::from(resource);
    answer.inside[NAME[0]] = resource.name as u32;
    answer.inside[NAME[1]] = (resource.name >> 32) as u32;
    answer
}

/// Returns the id of a program's resource, if it is one of multiprocessors.
fn name_of(resource: &CUdevResource) -> Result<u64, CudaError> {
    check_type(resource.kind)?;
    let [low, high] = NAME.map(|at| u64::from(resource.inside[at]));
    Ok(low | high << 32)
}

fn check_type(kind: u32) -> Result<(), CudaError> {
    if kind == SM { Ok(()) } else { CudaError::check(INVALID_RESOURCE_TYPE) }
}

fn describe(api: Api, out: Out<u64>, resources: In<CUdevResource>, count: u32) -> Result<(), CudaError> {
    out.check()?;
    if count == 0 || count > MAX_GROUPS {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut bytes = Vec::new();
    for index in 0..count as usize {
        put(&name_of(&resources.at(index)?)?, &mut bytes)?;
    }
    let description = new_handle(Kind::Other);
    calls::cuDevResourceGenerateDesc(&mut api.call().input(&bytes), ResourceDescId(description))?;
    out.set(description)
}

fn create(api: Api, out: Out<u64>, description: u64, device: i32, flags: u32) -> Result<(), CudaError> {
    let number = api.driver.devices.check(device)?.on_wire();
    out.check()?;
    if description == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let (handle, context) = (new_handle(Kind::Green), new_handle(Kind::Context));
    let primary = retain(api, device)?;
    let (id, description) = (ContextId(context), ResourceDescId(description));
    calls::cuGreenCtxCreate(&mut api.call(), id, description, number, flags).inspect_err(|_| {
        let _ = release(api, device);
    })?;
    api.driver.contexts.add(context, device as u32);
    let green = Green { context, device, primary };
    api.driver.greens.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, green);
    out.set(handle)
}

fn destroy(api: Api, handle: u64) -> Result<(), CudaError> {
    let green = api.driver.greens.get(handle)?;
    calls::cuGreenCtxDestroy(&mut api.internal().call(), ContextId(green.context))?;
    api.driver.greens.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    api.driver.greens.1.write().unwrap_or_else(PoisonError::into_inner).push(green);
    api.driver.contexts.destroyed(green.context);
    release(api, green.device)
}

fn create_stream(api: Api, out: Out<u64>, green: u64, flags: u32, priority: i32) -> Result<(), CudaError> {
    out.check()?;
    let context = api.driver.greens.get(green)?.context;
    if flags != NON_BLOCKING {
        return Err(CudaError::INVALID_VALUE);
    }
    stream::create_in(api, context, out, flags, priority)
}

fn resource_of(api: Api, context: u64, resource: Out<CUdevResource>, kind: u32) -> Result<(), CudaError> {
    let told = calls::cuCtxGetDevResource(&mut api.call(), ContextId(context), kind)?;
    resource.set(for_program(&told))
}

entry_points! {
    /// Returns a resource of a device.
    call cuDeviceGetDevResource(api, device: i32, resource: Out<CUdevResource>, kind: u32) {
        let device = api.driver.devices.check(device)?.on_wire();
        resource.check()?;
        check_type(kind)?;
        resource.set(for_program(&calls::cuDeviceGetDevResource(&mut api.call(), device, kind)?))
    }

    /// Returns a resource of a context.
    call cuCtxGetDevResource(api, hCtx: u64, resource: Out<CUdevResource>, kind: u32) {
        resource.check()?;
        check_type(kind)?;
        api.driver.contexts.device_of(hCtx)?;
        resource_of(api, hCtx, resource, kind)
    }

    /// Returns a resource of a green context.
    call cuGreenCtxGetDevResource(api, hCtx: u64, resource: Out<CUdevResource>, kind: u32) {
        resource.check()?;
        check_type(kind)?;
        resource_of(api, api.driver.greens.get(hCtx)?.context, resource, kind)
    }

    /// Splits multiprocessors into equal parts and a remainder.
    call cuDevSmResourceSplitByCount(api, result: Out<CUdevResource>, nbGroups: Out<u32>, input: In<CUdevResource>, remaining: Out<CUdevResource>, useFlags: u32, minCount: u32) {
        let wanted = if result.is_null() { nbGroups.check().map(|()| 0)? } else { nbGroups.get()? };
        let input = input.get()?;
        if !result.is_null() && wanted == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let (name, wanted) = (name_of(&input)?, wanted.min(MAX_GROUPS));
        let mut room = vec![0u8; if wanted == 0 { 0 } else { (wanted as usize + 1) * RESOURCE_BYTES }];
        let mut call = api.call();
        if wanted > 0 {
            call = call.output(&mut room);
        }
        let made = calls::cuDevSmResourceSplitByCount(&mut call, name, wanted, useFlags, minCount)?;
        if wanted > 0 {
            let mut reader = Reader::new(&room);
            for index in 0..made.min(wanted) as usize {
                result.set_at(index, for_program(&take(&mut reader)?))?;
            }
            remaining.set_if_wanted(for_program(&take(&mut reader)?));
        }
        // The program reads as many groups as this number.
        nbGroups.set(if wanted > 0 { made.min(wanted) } else { made })
    }

    /// Describes resources for a green context.
    call cuDevResourceGenerateDesc(api, phDesc: Out<u64>, resources: In<CUdevResource>, nbResources: u32) {
        describe(api, phDesc, resources, nbResources)
    }

    /// Creates a green context. It does not become current.
    call cuGreenCtxCreate(api, phCtx: Out<u64>, desc: u64, dev: i32, flags: u32) {
        create(api, phCtx, desc, dev, flags)
    }

    /// Destroys a green context.
    call cuGreenCtxDestroy(api, hCtx: u64) {
        destroy(api, hCtx)
    }

    /// Returns a context for a green context, which can be made current.
    call cuCtxFromGreenCtx(api, pContext: Out<u64>, hCtx: u64) {
        pContext.check()?;
        pContext.set(api.driver.greens.get(hCtx)?.context)
    }

    /// Records the work of a green context.
    call cuGreenCtxRecordEvent(api, hCtx: u64, hEvent: u64) {
        record_in_context(api, api.driver.greens.get(hCtx)?.context, hEvent)
    }

    /// Makes a green context wait for an event.
    call cuGreenCtxWaitEvent(api, hCtx: u64, hEvent: u64) {
        wait_in_context(api, api.driver.greens.get(hCtx)?.context, hEvent)
    }

    /// Creates a stream in a green context.
    call cuGreenCtxStreamCreate(api, phStream: Out<u64>, greenCtx: u64, flags: u32, priority: i32) {
        create_stream(api, phStream, greenCtx, flags, priority)
    }

    /// Returns an id for the green context that is never reused; for NULL that of the current one.
    call cuGreenCtxGetId(api, greenCtx: u64, greenCtxId: Out<u64>) {
        greenCtxId.check()?;
        let green = match greenCtx {
            0 => api.driver.greens.of_context(current()).ok_or(CudaError::INVALID_CONTEXT)?.0,
            green => api.driver.greens.get(green).map(|_| green)?,
        };
        greenCtxId.set(green)
    }

    /// Returns the green context of a stream.
    call cuStreamGetGreenCtx(api, hStream: u64, phCtx: Out<u64>) {
        phCtx.check()?;
        phCtx.set(api.green_context_of_stream(hStream)?.0)
    }
}
