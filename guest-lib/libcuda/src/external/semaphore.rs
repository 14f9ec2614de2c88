// SPDX-License-Identifier: Apache-2.0 OR MIT

//! External semaphores. Vulkan, Direct3D and NvSci create them, none of which exists in a guest. Each call returns the
//! error of NVIDIA's driver for a missing semaphore.

use cuda_abi::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
use virtio_cuda_client::CudaError;

use crate::entry_points;
use crate::ffi::{In, Out};

/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD` and `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
const OPAQUE_FD: u32 = 1;
const TIMELINE_FD: u32 = 9;

/// Returns the error for something that is not a semaphore.
fn refusal(desc: &CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) -> CudaError {
    if desc.flags != 0 || desc.reserved != [0; 16] {
        return CudaError::INVALID_VALUE;
    }
    match desc.kind {
        TIMELINE_FD if (desc.handle[0] as i32) < 0 => CudaError::INVALID_VALUE,
        OPAQUE_FD | TIMELINE_FD => CudaError::UNKNOWN,
        // Windows handles, and NvSciSync.
        2..=8 | 10 if desc.handle != [0; 2] => CudaError::NOT_SUPPORTED,
        _ => CudaError::INVALID_VALUE,
    }
}

entry_points! {
    /// Refuses every handle; a file descriptor stays the program's.
    call cuImportExternalSemaphore(_api, extSem_out: Out<u64>, semHandleDesc: In<CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC>) {
        extSem_out.check()?;
        Err(refusal(&semHandleDesc.get()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_those_of_an_h200() {
        let none_of = CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC::ZERO;
        let desc = |kind, handle: [u64; 2], flags| CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            kind,
            handle,
            flags,
            ..none_of
        };
        let none = u64::from(u32::MAX);
        for (kind, handle, flags, code) in [
            (OPAQUE_FD, [5, 0], 0, CudaError::UNKNOWN),
            (OPAQUE_FD, [none, 0], 0, CudaError::UNKNOWN),
            (OPAQUE_FD, [5, 0], 1, CudaError::INVALID_VALUE),
            (TIMELINE_FD, [5, 0], 0, CudaError::UNKNOWN),
            (TIMELINE_FD, [none, 0], 0, CudaError::INVALID_VALUE),
            (2, [5, 0], 0, CudaError::NOT_SUPPORTED),
            (2, [0, 0], 0, CudaError::INVALID_VALUE),
            (10, [5, 0], 1, CudaError::INVALID_VALUE),
            (0, [5, 0], 0, CudaError::INVALID_VALUE),
            (11, [5, 0], 0, CudaError::INVALID_VALUE),
        ] {
            assert_eq!(refusal(&desc(kind, handle, flags)), code, "{kind} {handle:?} {flags}");
        }
        let reserved =
            CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC { reserved: [1; 16], ..desc(OPAQUE_FD, [5, 0], 0) };
        assert_eq!(refusal(&reserved), CudaError::INVALID_VALUE);
    }
}
