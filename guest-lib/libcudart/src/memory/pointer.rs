// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pointer attributes.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use crate::abi::CUdeviceptr;
use crate::abi::driver::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
};
use crate::abi::shared::{
    cudaInvalidDeviceId, cudaMemoryTypeDevice, cudaMemoryTypeHost, cudaMemoryTypeManaged,
    cudaMemoryTypeUnregistered,
};
use crate::abi::version::cudaPointerAttributes;
use crate::memory::address;
use crate::pointers::not_null;
use crate::{driver, state};

api! {
    /// A pointer that CUDA does not know is not an error: its type is cudaMemoryTypeUnregistered. Reserved fields are
    /// not written.
    fn cudaPointerGetAttributes(attributes: *mut cudaPointerAttributes, pointer: *const c_void) {
        not_null(attributes)?;
        state::context()?;
        let mut context: *mut c_void = ptr::null_mut();
        let mut memory_type: c_uint = 0;
        let mut device_pointer: CUdeviceptr = 0;
        let mut host_pointer: *mut c_void = ptr::null_mut();
        let mut managed: c_uint = 0;
        let mut device: c_int = cudaInvalidDeviceId;
        let mut questions = [
            CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_HOST_POINTER,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ];
        let mut answers: [*mut c_void; 6] = [
            (&raw mut context).cast(),
            (&raw mut memory_type).cast(),
            (&raw mut device_pointer).cast(),
            (&raw mut host_pointer).cast(),
            (&raw mut managed).cast(),
            (&raw mut device).cast(),
        ];
        let count = questions.len() as c_uint;
        let (questions, answers) = (questions.as_mut_ptr(), answers.as_mut_ptr());
        // SAFETY: `count` questions and as many answers, each of which leads to a local of the attribute's type.
        unsafe { driver::cuPointerGetAttributes(count, questions, answers, address(pointer)) }?;
        let kind = match memory_type {
            _ if managed != 0 => cudaMemoryTypeManaged,
            CU_MEMORYTYPE_HOST => cudaMemoryTypeHost,
            CU_MEMORYTYPE_DEVICE => cudaMemoryTypeDevice,
            _ => cudaMemoryTypeUnregistered,
        };
        let unregistered = kind == cudaMemoryTypeUnregistered;
        let device = if unregistered { cudaInvalidDeviceId } else { device };
        let host_pointer = if unregistered { pointer.cast_mut() } else { host_pointer };
        let device_pointer = ptr::with_exposed_provenance_mut(device_pointer as usize);
        // SAFETY: not null, so the program promises room for the attributes. No reference is made: they may be
        // uninitialised.
        unsafe {
            (&raw mut (*attributes).type_).write(kind);
            (&raw mut (*attributes).device).write(device);
            (&raw mut (*attributes).devicePointer).write(device_pointer);
            (&raw mut (*attributes).hostPointer).write(host_pointer);
        }
        Ok(())
    }
}
