// SPDX-License-Identifier: Apache-2.0 OR MIT

//! External memory: an allocation that a process of this guest has exported as a file descriptor.

use cuda_abi::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
};
use virtio_cuda_client::protocol::{ContextId, ExternalMemoryId, MAX_MIPMAP_LEVELS, MipmappedArrayId};
use virtio_cuda_client::{Call, CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::handles::{Kind, new_handle};
use crate::state::externals::{EXTERNAL, External};
use crate::state::memory::ranges::DeviceRange;
use crate::tokens::token_in;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD` and `CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD`.
const OPAQUE_FD: u32 = 1;
const DMABUF_FD: u32 = 9;
/// `CUDA_EXTERNAL_MEMORY_DEDICATED`, which has no effect here.
const DEDICATED: u32 = 1;

/// Refuses everything except file descriptors of allocations, with the errors of an H200.
fn check(from: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> Result<(), CudaError> {
    if from.bytes == 0 || from.reserved != [0; 16] {
        return Err(CudaError::INVALID_VALUE);
    }
    let elsewhere = match (from.kind, from.flags) {
        (OPAQUE_FD, 0 | DEDICATED) => return Ok(()),
        (DMABUF_FD, 0) => from.file_descriptor() >= 0,
        // Windows handles, and NvSciBuf.
        (2..=4, 0 | DEDICATED) | (5..=7, DEDICATED) | (8, 0) => from.handle != [0; 2],
        _ => false,
    };
    Err(if elsewhere { CudaError::NOT_SUPPORTED } else { CudaError::INVALID_VALUE })
}

/// Starts a call in the context of external memory, which need not be the current one.
fn call_of(api: Api, external: &External) -> Call<'static> {
    api.call_in(ContextId(external.context))
}

entry_points! {
    /// Imports an allocation by its file descriptor. The import takes ownership of the descriptor and closes it at
    /// once, whatever it refers to. A capture that forbids this call leaves it open.
    call cuImportExternalMemory(api, extMem_out: Out<u64>, memHandleDesc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) {
        extMem_out.check()?;
        let from = memHandleDesc.get()?;
        check(&from)?;
        let context = api.context()?.0;
        let handle = new_handle(Kind::Other);
        let imported = token_in(from.file_descriptor()).and_then(|token| {
            calls::cuImportExternalMemory(&mut api.call(), ExternalMemoryId(handle), token, from.bytes)
        });
        if imported != Err(CudaError::STREAM_CAPTURE_UNSUPPORTED) && from.file_descriptor() >= 0 {
            // SAFETY: the program transfers the descriptor with this call; an invalid number is refused.
            unsafe { libc::close(from.file_descriptor()) };
        }
        // NVIDIA's driver returns this error for other files.
        imported.map_err(|error| if error == CudaError::INVALID_VALUE { CudaError::UNKNOWN } else { error })?;
        api.driver.externals.add(handle, External { context, bytes: from.bytes });
        extMem_out.set(handle)
    }

    /// Maps a part of external memory, for `cuMemFree`.
    call cuExternalMemoryGetMappedBuffer(api, devPtr: Out<u64>, extMem: u64, bufferDesc: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>) {
        devPtr.check()?;
        let part = bufferDesc.get()?;
        let external = api.driver.externals.get(extMem)?;
        let inside = part.offset.checked_add(part.bytes).is_some_and(|end| end <= external.bytes);
        if part.bytes == 0 || !inside || part.flags != 0 || part.reserved != [0; 16] {
            return Err(CudaError::INVALID_VALUE);
        }
        let call = &mut call_of(api, &external);
        let memory = ExternalMemoryId(extMem);
        let dptr = calls::cuExternalMemoryGetMappedBuffer(call, memory, part.offset, part.bytes)?.0;
        let ranges = &api.driver.memory.ranges;
        ranges.add_device(DeviceRange {
            start: dptr,
            bytes: part.bytes,
            context: external.context,
            device: api.driver.contexts.device_of(external.context)?,
            id: ranges.next_id(),
            owner: EXTERNAL,
            pool: 0,
            reachable: true,
        });
        devPtr.set(dptr)
    }

    /// Maps a part of external memory as a mipmapped array, for `cuMipmappedArrayDestroy`.
    call cuExternalMemoryGetMappedMipmappedArray(api, mipmap: Out<u64>, extMem: u64, mipmapDesc: In<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>) {
        mipmap.check()?;
        let part = mipmapDesc.get()?;
        let external = api.driver.externals.get(extMem)?;
        let levels = 1..=MAX_MIPMAP_LEVELS;
        if part.offset >= external.bytes || !levels.contains(&part.levels) || part.reserved != [0; 16] {
            return Err(CudaError::INVALID_VALUE);
        }
        let handle = new_handle(Kind::Levels);
        let (memory, name) = (ExternalMemoryId(extMem), MipmappedArrayId(handle));
        let array = part.array.into();
        let call = &mut call_of(api, &external);
        calls::cuExternalMemoryGetMappedMipmappedArray(call, memory, part.offset, array, part.levels, name)?;
        api.driver.arrays.add_mipmap(handle, external.context, array.flags);
        mipmap.set(handle)
    }

    /// Removes external memory. Existing mappings of it remain.
    call cuDestroyExternalMemory(api, extMem: u64) {
        let external = api.driver.externals.get(extMem)?;
        calls::cuDestroyExternalMemory(&mut call_of(api, &external), ExternalMemoryId(extMem))?;
        api.driver.externals.remove(extMem);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_those_of_an_h200() {
        let desc = |kind, flags, handle| CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            kind,
            handle: [handle, 0],
            bytes: 4096,
            flags,
            ..CUDA_EXTERNAL_MEMORY_HANDLE_DESC::ZERO
        };
        let none = u64::from(u32::MAX);
        assert!(check(&desc(OPAQUE_FD, 0, none)).is_ok(), "found out later");
        assert!(check(&desc(OPAQUE_FD, DEDICATED, 5)).is_ok());
        for (kind, flags, handle, code) in [
            (OPAQUE_FD, 2, 5, 1),
            (0, 0, 5, 1),
            (2, 0, 5, 801),
            (2, 0, 0, 1),
            (4, DEDICATED, 5, 801),
            (5, 0, 5, 1),
            (7, DEDICATED, 5, 801),
            (8, 0, 5, 801),
            (8, DEDICATED, 5, 1),
            (DMABUF_FD, 0, 5, 801),
            (DMABUF_FD, 0, none, 1),
            (DMABUF_FD, DEDICATED, 5, 1),
            (10, 0, 5, 1),
        ] {
            assert_eq!(
                check(&desc(kind, flags, handle)).unwrap_err().code(),
                code,
                "{kind} {flags} {handle}"
            );
        }
        for wrong in [
            CUDA_EXTERNAL_MEMORY_HANDLE_DESC { bytes: 0, ..desc(1, 0, 5) },
            CUDA_EXTERNAL_MEMORY_HANDLE_DESC { reserved: [1; 16], ..desc(1, 0, 5) },
        ] {
            assert_eq!(check(&wrong), Err(CudaError::INVALID_VALUE));
        }
    }
}
