// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources of graphics APIs: the shared calls, and the calls that register resources of each API. The driver refuses
//! registration where there are no graphics.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::{CUdeviceptr, cudaArray_t, cudaGraphicsResource_t, cudaMipmappedArray_t, cudaStream_t};
use crate::error::{Result, cudaErrorDevicesUnavailable, cudaErrorSetOnActiveProcess};
use crate::{driver, state};

mod egl;
mod gl;
mod vdpau;

/// Chooses a device for use with a graphics API. Always fails: this is only possible before the process uses CUDA, and
/// it needs a context of the graphics API.
fn choose_device(device: c_int) -> Result {
    state::runtime()?.device(device)?;
    Err(if state::has_context()? { cudaErrorSetOnActiveProcess } else { cudaErrorDevicesUnavailable })
}

api! {
    fn cudaGraphicsUnregisterResource(resource: cudaGraphicsResource_t) {
        state::context()?;
    } => driver::cuGraphicsUnregisterResource(resource);

    fn cudaGraphicsResourceSetMapFlags(resource: cudaGraphicsResource_t, flags: c_uint) {
        state::context()?;
    } => driver::cuGraphicsResourceSetMapFlags_v2(resource, flags);

    fn cudaGraphicsMapResources(count: c_int, resources: *mut cudaGraphicsResource_t, stream: cudaStream_t) {
        state::context()?;
    } => driver::cuGraphicsMapResources(count as c_uint, resources, stream);

    fn cudaGraphicsUnmapResources(
        count: c_int, resources: *mut cudaGraphicsResource_t, stream: cudaStream_t,
    ) {
        state::context()?;
    } => driver::cuGraphicsUnmapResources(count as c_uint, resources, stream);

    fn cudaGraphicsResourceGetMappedPointer(
        pointer: *mut *mut c_void, size: *mut usize, resource: cudaGraphicsResource_t,
    ) {
        state::context()?;
    } => driver::cuGraphicsResourceGetMappedPointer_v2(pointer.cast::<CUdeviceptr>(), size, resource);

    fn cudaGraphicsSubResourceGetMappedArray(
        array: *mut cudaArray_t, resource: cudaGraphicsResource_t, index: c_uint, level: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphicsSubResourceGetMappedArray(array, resource, index, level);

    fn cudaGraphicsResourceGetMappedMipmappedArray(
        array: *mut cudaMipmappedArray_t, resource: cudaGraphicsResource_t,
    ) {
        state::context()?;
    } => driver::cuGraphicsResourceGetMappedMipmappedArray(array, resource);
}
