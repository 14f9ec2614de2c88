// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls of external memory.

use std::os::fd::{FromRawFd, OwnedFd};

use cuda_abi::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
};

use crate::driver::array::CUmipmappedArray;
use crate::driver::capture;
use crate::driver::context;
use crate::driver::device::CUdeviceptr;
use crate::driver::external::{self, CUexternalMemory};
use crate::driver::ffi::{In, Out};
use crate::driver::result::{CUresult, CuResult};

/// CU_EXTERNAL_MEMORY_HANDLE_TYPE_*
const OPAQUE_FD: u32 = 1;
const DMABUF_FD: u32 = 9;
/// CUDA_EXTERNAL_MEMORY_DEDICATED
const DEDICATED: u32 = 1;

fn import(out: Out<CUexternalMemory>, descriptor: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) -> CuResult<()> {
    out.check()?;
    let from = descriptor.get()?;
    let context = context::current()?;
    if from.bytes == 0 || from.reserved != [0; 16] {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let descriptor = from.handle[0] as i32;
    let elsewhere = match (from.kind, from.flags) {
        (OPAQUE_FD, 0 | DEDICATED) => None,
        (DMABUF_FD, 0) => Some(descriptor >= 0),
        // Handles of Windows, and NvSciBuf.
        (2..=4, 0 | DEDICATED) | (5..=7, DEDICATED) | (8, 0) => Some(from.handle != [0; 2]),
        _ => Some(false),
    };
    match elsewhere {
        None => {}
        Some(true) => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        Some(false) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    capture::check_safe()?;
    // SAFETY: asks for the flags of a descriptor, if it is one.
    if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
        return Err(CUresult::CUDA_ERROR_UNKNOWN);
    }
    // SAFETY: the program hands it over with this call.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    out.set_if_wanted(external::import(&context, file, from.bytes)?);
    Ok(())
}

fn get_buffer(
    out: Out<CUdeviceptr>,
    memory: CUexternalMemory,
    descriptor: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>,
) -> CuResult<()> {
    out.check()?;
    let part = descriptor.get()?;
    let memory = external::find(memory)?;
    if part.flags != 0 || part.reserved != [0; 16] {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(memory.map(part.offset, part.bytes)?);
    Ok(())
}

fn get_array(
    out: Out<CUmipmappedArray>,
    memory: CUexternalMemory,
    descriptor: In<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>,
) -> CuResult<()> {
    out.check()?;
    let part = descriptor.get()?;
    let memory = external::find(memory)?;
    if part.levels == 0 || part.reserved != [0; 16] {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    out.set_if_wanted(memory.map_array(part.array, part.levels, part.offset)?);
    Ok(())
}

fn destroy(memory: CUexternalMemory) -> CuResult<()> {
    external::destroy(memory)
}

/// Vulkan, Direct3D and NvSci create semaphores, and none of them exists here: each handle is refused as NVIDIA's
/// driver does.
fn import_semaphore(out: Out<usize>, descriptor: In<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>) -> CuResult<()> {
    out.check()?;
    let from = descriptor.get()?;
    context::current()?;
    if from.flags != 0 || from.reserved != [0; 16] {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Err(match from.kind {
        9 if (from.handle[0] as i32) < 0 => CUresult::CUDA_ERROR_INVALID_VALUE,
        OPAQUE_FD | 9 => CUresult::CUDA_ERROR_UNKNOWN,
        2..=8 | 10 if from.handle != [0; 2] => CUresult::CUDA_ERROR_NOT_SUPPORTED,
        _ => CUresult::CUDA_ERROR_INVALID_VALUE,
    })
}

crate::driver::ffi::entries! { after_init
    cuImportExternalSemaphore => import_semaphore(out: Out<usize>, descriptor: In<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>);
    cuImportExternalMemory => import(out: Out<CUexternalMemory>, descriptor: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>);
    cuExternalMemoryGetMappedBuffer => get_buffer(
        out: Out<CUdeviceptr>, memory: CUexternalMemory, descriptor: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>);
    cuExternalMemoryGetMappedMipmappedArray => get_array(
        out: Out<CUmipmappedArray>, memory: CUexternalMemory, descriptor: In<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>);
    cuDestroyExternalMemory => destroy(memory: CUexternalMemory);
}
