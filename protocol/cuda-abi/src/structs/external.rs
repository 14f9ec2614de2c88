// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Memory of other processes and other APIs.

use super::CUDA_ARRAY3D_DESCRIPTOR;
use crate::c_structs;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: u32 = 1;

c_structs! {
    /// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC: 104 {
        /// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_*`.
        kind: u32,
        /// Padding.
        pad: u32,
        /// The union: a file descriptor is the first half of the first word.
        handle: [u64; 2],
        /// Bytes.
        bytes: u64,
        /// `CUDA_EXTERNAL_MEMORY_*` bits.
        flags: u32,
        /// Zero.
        reserved: [u32; 16],
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC: 88 {
        /// Bytes into the memory.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Zero.
        flags: u32,
        /// Zero.
        reserved: [u32; 16],
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC: 120 {
        /// Bytes into the memory.
        offset: u64,
        /// The first level.
        array: CUDA_ARRAY3D_DESCRIPTOR,
        /// Levels.
        levels: u32,
        /// Zero.
        reserved: [u32; 16],
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC: 96 {
        /// `CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_*`.
        kind: u32,
        /// Padding.
        pad: u32,
        /// The union: a file descriptor is the first half of the first word.
        handle: [u64; 2],
        /// Zero.
        flags: u32,
        /// Zero.
        reserved: [u32; 16],
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS`.
    CUDA_EXTERNAL_SEMAPHORE_PARAMS: 144 {
        /// Fence, NvSci's object and key.
        params: [u64; 3],
        /// The timeout of a wait in milliseconds.
        timeout: u32,
        /// Zero.
        reserved_params: [u32; 11],
        /// `CUDA_EXTERNAL_SEMAPHORE_*_SKIP_NVSCIBUF_MEMSYNC`.
        flags: u32,
        /// Zero.
        reserved: [u32; 16],
        /// Padding.
        tail_pad: u32,
    }
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS`.
pub type CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = CUDA_EXTERNAL_SEMAPHORE_PARAMS;
/// `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS`.
pub type CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = CUDA_EXTERNAL_SEMAPHORE_PARAMS;

impl CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    /// Returns the file descriptor, for the types that have one.
    pub fn file_descriptor(&self) -> i32 {
        self.handle[0] as i32
    }

    /// Describes an opaque file descriptor of `bytes` bytes.
    pub fn of_file(descriptor: i32, bytes: u64) -> Self {
        Self { kind: OPAQUE_FD, handle: [u64::from(descriptor.cast_unsigned()), 0], bytes, ..Self::ZERO }
    }
}
