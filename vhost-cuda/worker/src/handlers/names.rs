// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Returns the names of all functions of a module, or of all kernels of a library.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use virtio_cuda_protocol::cuda::{LibraryId, ModuleId};

use crate::call::CallContext;
use crate::gpu::{CUfunction, CUkernel, CuResult, CudaError};

/// The maximum number of reported functions per module. An image may claim any number.
const MAX_FUNCTIONS: u32 = 1 << 20;

/// Writes the names, if there is room for all. Returns their number and their total bytes.
fn put(cx: &mut CallContext<'_>, names: Vec<*const c_char>) -> CuResult<(u32, u64)> {
    let mut bytes = Vec::new();
    let count = names.len() as u32;
    for name in names.into_iter().filter(|name| !name.is_null()) {
        // SAFETY: the driver's own string, valid as long as the module. Another thread of the guest can unload the
        // module while the names are read, but then it damages only the guest's own worker.
        bytes.extend_from_slice(unsafe { CStr::from_ptr(name) }.to_bytes_with_nul());
    }
    if bytes.len() as u64 <= cx.bulk_out.room() {
        cx.bulk_out.put(&bytes)?;
    }
    Ok((count, bytes.len() as u64))
}

fn room<T>(count: u32) -> CuResult<Vec<*mut T>> {
    if count > MAX_FUNCTIONS { Err(CudaError::OUT_OF_MEMORY) } else { Ok(vec![null_mut(); count as usize]) }
}

/// Returns the names of the functions of a module.
pub fn module_function_names(cx: &mut CallContext<'_>, module: ModuleId) -> CuResult<(u32, u64)> {
    let module = cx.resolve(module)?;
    let (count,) = cx.gpu().cuModuleGetFunctionCount(module)?;
    let mut functions: Vec<CUfunction> = room(count)?;
    // SAFETY: there is room for that many.
    unsafe { cx.gpu().cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module) }?;
    let names = functions.into_iter().map(|function| Ok(cx.gpu().cuFuncGetName(function)?.0));
    let names = names.collect::<CuResult<_>>()?;
    put(cx, names)
}

/// Returns the names of the kernels of a library.
pub fn library_kernel_names(cx: &mut CallContext<'_>, library: LibraryId) -> CuResult<(u32, u64)> {
    let library = cx.resolve(library)?;
    let (count,) = cx.gpu().cuLibraryGetKernelCount(library)?;
    let mut kernels: Vec<CUkernel> = room(count)?;
    // SAFETY: there is room for that many.
    unsafe { cx.gpu().cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library) }?;
    let names = kernels.into_iter().map(|kernel| Ok(cx.gpu().cuKernelGetName(kernel)?.0));
    let names = names.collect::<CuResult<_>>()?;
    put(cx, names)
}
