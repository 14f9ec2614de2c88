// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resources of graphics APIs, once registered. Registering them is the business of the graphics APIs' own
//! calls, which are not served.

use core::ffi::{c_int, c_uint, c_void};

use crate::abi::{CUdeviceptr, cudaArray_t, cudaGraphicsResource_t, cudaMipmappedArray_t, cudaStream_t};
use crate::error::cudaErrorInvalidValue;
use crate::{driver, state};

api! {
    fn cudaGraphicsUnregisterResource(resource: cudaGraphicsResource_t) {
        state::context()?;
        driver::cuGraphicsUnregisterResource(resource)
    }

    fn cudaGraphicsResourceSetMapFlags(resource: cudaGraphicsResource_t, flags: c_uint) {
        state::context()?;
        driver::cuGraphicsResourceSetMapFlags_v2(resource, flags)
    }

    fn cudaGraphicsMapResources(count: c_int, resources: *mut cudaGraphicsResource_t, stream: cudaStream_t) {
        let count = c_uint::try_from(count).map_err(|_| cudaErrorInvalidValue)?;
        state::context()?;
        driver::cuGraphicsMapResources(count, resources, stream)
    }

    fn cudaGraphicsUnmapResources(
        count: c_int, resources: *mut cudaGraphicsResource_t, stream: cudaStream_t,
    ) {
        let count = c_uint::try_from(count).map_err(|_| cudaErrorInvalidValue)?;
        state::context()?;
        driver::cuGraphicsUnmapResources(count, resources, stream)
    }

    fn cudaGraphicsResourceGetMappedPointer(
        pointer: *mut *mut c_void, size: *mut usize, resource: cudaGraphicsResource_t,
    ) {
        state::context()?;
        driver::cuGraphicsResourceGetMappedPointer_v2(pointer.cast::<CUdeviceptr>(), size, resource)
    }

    fn cudaGraphicsSubResourceGetMappedArray(
        array: *mut cudaArray_t, resource: cudaGraphicsResource_t, index: c_uint, level: c_uint,
    ) {
        state::context()?;
        driver::cuGraphicsSubResourceGetMappedArray(array, resource, index, level)
    }

    fn cudaGraphicsResourceGetMappedMipmappedArray(
        array: *mut cudaMipmappedArray_t, resource: cudaGraphicsResource_t,
    ) {
        state::context()?;
        driver::cuGraphicsResourceGetMappedMipmappedArray(array, resource)
    }
}
