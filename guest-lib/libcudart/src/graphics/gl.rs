// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OpenGL buffers and textures.

use core::ffi::{c_int, c_uint, c_void};

use super::choose_device;
use crate::abi::{CUdeviceptr, cudaGraphicsResource_t, cudaStream_t};
use crate::error::cudaErrorInvalidValue;
use crate::{driver, state};

/// `cudaGLDeviceListAll` to `cudaGLDeviceListNextFrame`.
const DEVICE_LISTS: core::ops::RangeInclusive<c_uint> = 1..=3;

api! {
    fn cudaGLGetDevices(count: *mut c_uint, devices: *mut c_int, most: c_uint, list: c_uint) {
        if !DEVICE_LISTS.contains(&list) {
            return Err(cudaErrorInvalidValue);
        }
        state::runtime()?;
    } => driver::cuGLGetDevices_v2(count, devices, most, list);

    fn cudaGLSetGLDevice(device: c_int) {
        choose_device(device)
    }

    fn cudaGLRegisterBufferObject(buffer: c_uint) {
        state::context()?;
    } => driver::cuGLRegisterBufferObject(buffer);

    fn cudaGLUnregisterBufferObject(buffer: c_uint) {
        state::context()?;
        // SAFETY: no argument.
        unsafe { driver::cuGLInit() }?;
    } => driver::cuGLUnregisterBufferObject(buffer);

    fn cudaGLMapBufferObject(pointer: *mut *mut c_void, buffer: c_uint) {
        state::context()?;
        let mut bytes = 0;
    } => driver::cuGLMapBufferObject_v2(pointer.cast::<CUdeviceptr>(), &mut bytes, buffer);

    fn cudaGLMapBufferObjectAsync(pointer: *mut *mut c_void, buffer: c_uint, stream: cudaStream_t) {
        state::context()?;
        let mut bytes = 0;
    } => driver::cuGLMapBufferObjectAsync_v2(pointer.cast::<CUdeviceptr>(), &mut bytes, buffer, stream);

    fn cudaGLUnmapBufferObject(buffer: c_uint) {
        state::context()?;
    } => driver::cuGLUnmapBufferObject(buffer);

    fn cudaGLUnmapBufferObjectAsync(buffer: c_uint, stream: cudaStream_t) {
        state::context()?;
    } => driver::cuGLUnmapBufferObjectAsync(buffer, stream);

    fn cudaGLSetBufferObjectMapFlags(buffer: c_uint, flags: c_uint) {
        state::context()?;
    } => driver::cuGLSetBufferObjectMapFlags(buffer, flags);

    fn cudaGraphicsGLRegisterBuffer(resource: *mut cudaGraphicsResource_t, buffer: c_uint, flags: c_uint) {
        state::context()?;
    } => driver::cuGraphicsGLRegisterBuffer(resource, buffer, flags);

    fn cudaGraphicsGLRegisterImage(
        resource: *mut cudaGraphicsResource_t, image: c_uint, target: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuGraphicsGLRegisterImage(resource, image, target, flags);
}
