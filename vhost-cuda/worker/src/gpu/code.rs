// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and parameters of functions and kernels.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use virtio_cuda_protocol::cuda::ParamLayout;

use super::{CUfunction, CUkernel, CUlibrary, CUmodule, Code, CuResult, CudaError, Driver};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and `CU_MEMORYTYPE_DEVICE`.
const MEMORY_TYPE: c_int = 2;
const MEMORY_TYPE_DEVICE: c_int = 2;
/// The maximum number of reported functions per module. An image may claim any number.
const MAX_FUNCTIONS: u32 = 1 << 20;
/// The maximum number of parameters of a kernel: the one-byte parameters that fit the parameter block.
const MAX_PARAMS: usize = 32_764;

/// Names, each with its NUL.
#[derive(Debug)]
pub struct Names(pub Vec<u8>);

fn room<T>(count: u32) -> CuResult<Vec<*mut T>> {
    if count > MAX_FUNCTIONS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(vec![null_mut(); count as usize]) }
}

/// Returns the number of functions, and their names.
fn named<T>(
    functions: Vec<*mut T>,
    name: impl Fn(*mut T) -> CuResult<(*const c_char,)>,
) -> CuResult<(u32, Names)> {
    let mut bytes = Vec::new();
    let count = functions.len() as u32;
    let names = functions.into_iter().map(|function| Ok(name(function)?.0)).collect::<CuResult<Vec<_>>>()?;
    for name in names.into_iter().filter(|name| !name.is_null()) {
        // SAFETY: the driver's own string, valid as long as the module. Another thread of the guest can unload the
        // module while the names are read, but then it damages only the guest's own worker.
        bytes.extend_from_slice(unsafe { CStr::from_ptr(name) }.to_bytes_with_nul());
    }
    Ok((count, Names(bytes)))
}

impl Driver {
    /// Returns the number of a module's functions, and their names.
    pub fn function_names(&self, module: CUmodule) -> CuResult<(u32, Names)> {
        let (count,) = self.cuModuleGetFunctionCount(module)?;
        let mut functions: Vec<CUfunction> = room(count)?;
        // SAFETY: there is room for that many.
        unsafe { self.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module) }?;
        named(functions, |function| self.cuFuncGetName(function))
    }

    /// Returns the number of a library's kernels, and their names.
    pub fn kernel_names(&self, library: CUlibrary) -> CuResult<(u32, Names)> {
        let (count,) = self.cuLibraryGetKernelCount(library)?;
        let mut kernels: Vec<CUkernel> = room(count)?;
        // SAFETY: there is room for that many.
        unsafe { self.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library) }?;
        named(kernels, |kernel| self.cuKernelGetName(kernel))
    }

    /// Returns the name of a function or kernel.
    pub fn code_name(&self, code: Code) -> CuResult<Vec<u8>> {
        let (name,) = match code {
            Code::Kernel(kernel) => self.cuKernelGetName(kernel)?,
            Code::Function(function) => self.cuFuncGetName(function)?,
        };
        if name.is_null() {
            return Err(CudaError::NOT_FOUND);
        }
        // SAFETY: the driver's own string, valid as long as the code is loaded. Libraries do not unload theirs.
        Ok(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec())
    }

    /// Returns whether the driver knows an address as device memory.
    pub fn is_device_memory(&self, address: u64) -> bool {
        let mut kind: c_int = 0;
        // SAFETY: a place of the size of this attribute. The driver looks the address up, and does not follow it.
        let found = unsafe { self.cuPointerGetAttribute((&raw mut kind).cast(), MEMORY_TYPE, address) };
        found.is_ok() && kind == MEMORY_TYPE_DEVICE
    }

    /// Returns the layout of the parameters of a function or kernel.
    pub fn parameters(&self, code: Code) -> CuResult<(Vec<ParamLayout>,)> {
        let mut layouts = Vec::new();
        for index in 0..MAX_PARAMS {
            let found = match code {
                Code::Kernel(kernel) => self.cuKernelGetParamInfo(kernel, index),
                Code::Function(function) => self.cuFuncGetParamInfo(function, index),
            };
            match found {
                Ok((offset, bytes)) if offset <= MAX_PARAMS && bytes <= MAX_PARAMS => {
                    layouts.push(ParamLayout { offset: offset as u32, bytes: bytes as u32 });
                }
                // The driver returns INVALID_VALUE for the index after the last one.
                Ok(_) | Err(CudaError::INVALID_VALUE) => break,
                Err(error) => return Err(error),
            }
        }
        Ok((layouts,))
    }
}
