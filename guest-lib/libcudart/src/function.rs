// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of kernels.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::shared::{FUNC_ATTRIBUTES_BYTES, cudaFuncAttributes};
use crate::abi::{CUdevice, CUkernel, cudaFunction_t, cudaKernel_t};
use crate::error::{Result, cudaErrorInvalidDeviceFunction, cudaErrorInvalidValue};
use crate::module::{attribute_device, function_of, kernel_of, registered_function_of};
use crate::pointers::{Out, not_null, store_start};
use crate::{driver, state};

api! {
    fn cudaFuncGetAttributes(attributes: *mut cudaFuncAttributes, function: *const c_void) {
        not_null(attributes)?;
        state::whole_context()?;
        let device = attribute_device()?;
    } => store_start(attributes, &attributes_of(named_kernel(function)?, device)?, FUNC_ATTRIBUTES_BYTES);

    fn cudaFuncSetAttribute(function: *const c_void, attribute: c_uint, value: c_int) {
        let device = attribute_device()?;
        settable(attribute)?;
    } => driver::cuKernelSetAttribute(attribute, value, named_kernel(function)?, device);

    fn cudaKernelSetAttributeForDevice(kernel: cudaKernel_t, attribute: c_uint, value: c_int, device: c_int) {
        let runtime = state::context()?;
        settable(attribute)?;
        let device = runtime.device(device)?.handle;
    } => driver::cuKernelSetAttribute(attribute, value, kernel_of(kernel.cast())?, device);

    fn cudaFuncSetCacheConfig(function: *const c_void, config: c_uint) {
        state::whole_context()?;
        let device = attribute_device()?;
    } => driver::cuKernelSetCacheConfig(named_kernel(function)?, config, device);

    fn cudaFuncSetSharedMemConfig(function: *const c_void, config: c_uint) {
        state::context()?;
        named_kernel(function)?;
    } => driver::cuFuncSetSharedMemConfig(function_of(function)?, config);

    fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) {
        not_null(name)?;
        state::context()?;
    } => driver::cuKernelGetName(name, named_kernel(function)?);

    fn cudaFuncGetParamInfo(function: *const c_void, index: usize, offset: *mut usize, size: *mut usize) {
        state::context()?;
    } => driver::cuKernelGetParamInfo(named_kernel(function)?, index, offset, size);

    /// Accepts registered kernels only.
    fn cudaGetFuncBySymbol(function: Out<cudaFunction_t>, symbol: *const c_void) {
        state::context()?;
        let found = registered_function_of(symbol)?;
        if function.is_null() { Ok(()) } else { function.set(found) }
    }
}

/// Accepts the values of `cudaFuncAttribute` from the size of dynamic shared memory to the cluster scheduling policy.
fn settable(attribute: c_uint) -> Result {
    if (8..=15).contains(&attribute) { Ok(()) } else { Err(cudaErrorInvalidValue) }
}

/// Returns the kernel of a stub, or the kernel handle itself. Refuses null.
pub fn named_kernel(function: *const c_void) -> Result<CUkernel> {
    if function.is_null() { Err(cudaErrorInvalidDeviceFunction) } else { kernel_of(function) }
}

/// Reads the `CU_FUNC_ATTRIBUTE_*` values in the order of their numbers, from 0.
fn attributes_of(kernel: CUkernel, device: CUdevice) -> Result<cudaFuncAttributes> {
    let get = |attribute: c_uint| {
        let mut value = 0;
        // SAFETY: `value` is valid for the write; the kernel is the driver's or what the program passed as
        // one.
        unsafe { driver::cuKernelGetAttribute(&mut value, attribute, kernel, device) }.map(|()| value)
    };
    let size = |attribute| get(attribute).map(|value| value as usize);
    Ok(cudaFuncAttributes {
        maxThreadsPerBlock: get(0)?,
        sharedSizeBytes: size(1)?,
        constSizeBytes: size(2)?,
        localSizeBytes: size(3)?,
        numRegs: get(4)?,
        ptxVersion: get(5)?,
        binaryVersion: get(6)?,
        cacheModeCA: get(7)?,
        maxDynamicSharedSizeBytes: get(8)?,
        preferredShmemCarveout: get(9)?,
        clusterDimMustBeSet: get(10)?,
        requiredClusterWidth: get(11)?,
        requiredClusterHeight: get(12)?,
        requiredClusterDepth: get(13)?,
        nonPortableClusterSizeAllowed: get(14)?,
        clusterSchedulingPolicyPreference: get(15)?,
        reserved: [0; 16],
    })
}
