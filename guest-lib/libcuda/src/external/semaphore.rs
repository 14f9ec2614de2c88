// SPDX-License-Identifier: Apache-2.0 OR MIT

//! External semaphores. Vulkan, Direct3D and NvSci make them, none of which is in a guest: each call answers what NVIDIA's
//! driver answers where there is none.

use virtio_cuda_client::CudaError;

use crate::entry_points;
use crate::ffi::{In, Out};

/// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD` and `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD`.
const OPAQUE_FD: u32 = 1;
const TIMELINE_FD: u32 = 9;

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HandleDesc {
    kind: u32,
    handle: [u64; 2],
    flags: u32,
    reserved: [u32; 16],
}
const _: () = assert!(size_of::<HandleDesc>() == 96);

impl HandleDesc {
    /// Returns the error for something that is not a semaphore.
    fn refusal(&self) -> CudaError {
        if self.flags != 0 || self.reserved != [0; 16] {
            return CudaError::INVALID_VALUE;
        }
        match self.kind {
            TIMELINE_FD if (self.handle[0] as i32) < 0 => CudaError::INVALID_VALUE,
            OPAQUE_FD | TIMELINE_FD => CudaError::UNKNOWN,
            // Handles of Windows, and NvSciSync.
            2..=8 | 10 if self.handle != [0; 2] => CudaError::NOT_SUPPORTED,
            _ => CudaError::INVALID_VALUE,
        }
    }
}

entry_points! {
    /// Refuses all that a program may hand over; the file descriptor stays the program's.
    call cuImportExternalSemaphore(_api, extSem_out: Out<u64>, semHandleDesc: In<HandleDesc>) {
        extSem_out.check()?;
        Err(semHandleDesc.get()?.refusal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_those_of_an_h200() {
        let desc = |kind, handle: [u64; 2], flags| HandleDesc { kind, handle, flags, reserved: [0; 16] };
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
            assert_eq!(desc(kind, handle, flags).refusal(), code, "{kind} {handle:?} {flags}");
        }
        let reserved = HandleDesc { reserved: [1; 16], ..desc(OPAQUE_FD, [5, 0], 0) };
        assert_eq!(reserved.refusal(), CudaError::INVALID_VALUE);
    }
}
