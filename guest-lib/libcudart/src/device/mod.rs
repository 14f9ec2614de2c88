// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device selection, attributes and flags.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::shared::{
    cudaChannelFormatDesc, cudaDeviceMapHost, cudaDeviceMask, cudaInitDeviceFlagsAreValid,
};
use crate::abi::{CUdevice, cudaAsyncCallback, cudaAsyncCallbackHandle_t};
use crate::error::{Result, cudaErrorInvalidValue};
use crate::pointers::{In, Out, not_null};
use crate::state::Device;
use crate::texture::channel::Format;
use crate::{driver, state};

mod limits;
mod peer;
pub mod properties;

api! {
    fn cudaGetDeviceCount(count: Out<c_int>) {
        count.check()?;
        count.set(state::runtime()?.device_count() as c_int)
    }

    /// Makes the device's primary context current, as the runtime does since 12.0.
    fn cudaSetDevice(device: c_int) {
        state::runtime()?.bind(device)
    }

    fn cudaGetDevice(device: Out<c_int>) {
        device.check()?;
        device.set(state::runtime()?.current_ordinal()?)
    }

    fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) {
        let device = state::runtime()?.device(device)?;
        if flags & cudaInitDeviceFlagsAreValid != 0 {
            set_flags(device, device_flags)?;
        }
        device.primary_context().map(|_| ())
    }

    fn cudaSetDeviceFlags(flags: c_uint) {
        set_flags(state::runtime()?.current_device()?, flags)
    }

    fn cudaGetDeviceFlags(flags: Out<c_uint>) {
        flags.check()?;
        let runtime = state::runtime()?;
        let mut set: c_uint = 0;
        if state::has_context()? {
            // SAFETY: `set` is a local.
            unsafe { driver::cuCtxGetFlags(&mut set) }?;
        } else {
            let mut active = 0;
            let device = runtime.current_device()?.handle;
            // SAFETY: `set` and `active` are locals.
            unsafe { driver::cuDevicePrimaryCtxGetState(device, &mut set, &mut active) }?;
        }
        flags.set(set | cudaDeviceMapHost)
    }

    fn cudaSetValidDevices(devices: *mut c_int, length: c_int) {
        let runtime = state::runtime()?;
        let length = usize::try_from(length).map_err(|_| cudaErrorInvalidValue)?;
        if length > 0 {
            not_null(devices)?;
        }
        let mut ordinals = Vec::new();
        for index in 0..length {
            // SAFETY: not null, so the program promises `length` ordinals there.
            let ordinal = unsafe { devices.add(index).read() };
            runtime.device(ordinal)?;
            ordinals.push(ordinal as usize);
        }
        state::set_valid_devices(ordinals);
        Ok(())
    }

    fn cudaDeviceSynchronize() {
        state::context()?;
    } => driver::cuCtxSynchronize();

    fn cudaDeviceReset() {
        state::runtime()?.reset_current_device()
    }

    /// Attributes have the same numbers in both APIs.
    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        not_null(value)?;
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetAttribute(value, attribute, device);

    fn cudaDeviceGetPCIBusId(bus_id: *mut c_char, length: c_int, device: c_int) {
        not_null(bus_id)?;
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetPCIBusId(bus_id, length, device);

    fn cudaDeviceGetByPCIBusId(device: Out<c_int>, bus_id: *const c_char) {
        device.check()?;
        not_null(bus_id)?;
        let runtime = state::runtime()?;
        let mut handle: CUdevice = 0;
        // SAFETY: `handle` is a local; `bus_id` is not null, so the program promises a string.
        unsafe { driver::cuDeviceGetByPCIBusId(&mut handle, bus_id) }?;
        device.set(runtime.ordinal(handle)?)
    }

    fn cudaDeviceGetTexture1DLinearMaxWidth(
        width: *mut usize, desc: In<cudaChannelFormatDesc>, device: c_int,
    ) {
        let format = Format::of(&desc.get()?)?;
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetTexture1DLinearMaxWidth(width, format.code, format.channels, device);

    #[cfg(cuda_major = "13")]
    fn cudaDeviceGetHostAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, device: c_int,
    ) {
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, device);

    fn cudaDeviceGetNvSciSyncAttributes(list: *mut c_void, device: c_int, flags: c_int) {
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetNvSciSyncAttributes(list, device, flags);

    fn cudaDeviceRegisterAsyncNotification(
        device: c_int, callback: cudaAsyncCallback, data: *mut c_void, handle: *mut cudaAsyncCallbackHandle_t,
    ) {
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceRegisterAsyncNotification(device, callback, data, handle);

    fn cudaDeviceUnregisterAsyncNotification(device: c_int, handle: cudaAsyncCallbackHandle_t) {
        let runtime = state::runtime()?;
        not_null(handle)?;
        let device = runtime.device(device)?.handle;
    } => driver::cuDeviceUnregisterAsyncNotification(device, handle);

    fn cudaDeviceFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint) {
        state::context()?;
    } => driver::cuFlushGPUDirectRDMAWrites(target, scope);

    fn cudaProfilerStart() {
        state::context()?;
    } => driver::cuProfilerStart();

    fn cudaProfilerStop() {
        state::context()?;
    } => driver::cuProfilerStop();
}

/// Mapping of host memory is always on and is not a flag of a primary context.
fn set_flags(device: &Device, flags: c_uint) -> Result {
    if flags & !cudaDeviceMask != 0 {
        return Err(cudaErrorInvalidValue);
    }
    // SAFETY: no pointer.
    unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(device.handle, flags & !cudaDeviceMapHost) }
}
