// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions without a prototype in cudarc for CUDA 12.9: those of CUDA 13, and the emulator's own.

use std::ffi::c_uint;

use cuda_abi::prototypes::functions::{cuDeviceGetHostAtomicCapabilities, cuDeviceGetP2PAtomicCapabilities};
use libloading::os::unix::Library;

use super::{CUdevice, CUlibrary, CUmodule, Courier, CuResult, CudaError, Driver};

/// `CU_ATOMIC_OPERATION_MAX`.
const ATOMIC_OPERATIONS: usize = 13;

/// The functions. Each is `None` if this libcuda does not have it.
#[derive(Debug)]
pub(super) struct Later {
    host_atomics: Option<cuDeviceGetHostAtomicCapabilities>,
    peer_atomics: Option<cuDeviceGetP2PAtomicCapabilities>,
    set_courier: Option<unsafe extern "C" fn(*const Courier)>,
    module_bytes: Option<extern "C" fn(CUmodule) -> u64>,
    library_bytes: Option<extern "C" fn(CUlibrary) -> u64>,
}

impl Later {
    /// Returns a driver that has none of them.
    #[cfg(any(test, fuzzing))]
    pub(super) fn none() -> Self {
        Self {
            host_atomics: None,
            peer_atomics: None,
            set_courier: None,
            module_bytes: None,
            library_bytes: None,
        }
    }

    /// Finds them in a library that stays loaded.
    pub(super) fn from_library(library: &Library) -> Self {
        // SAFETY: the types are those of the functions' prototypes, and the emulator's (`cuda-emulator/src/driver/ipc/files.rs`,
        // `…/module`), to which the courier's context is a pointer that it only passes on, and handles are numbers.
        unsafe {
            Self {
                host_atomics: library.get(b"cuDeviceGetHostAtomicCapabilities\0").ok().map(|f| *f),
                peer_atomics: library.get(b"cuDeviceGetP2PAtomicCapabilities\0").ok().map(|f| *f),
                set_courier: library.get(b"cuda_emulator_set_courier\0").ok().map(|f| *f),
                module_bytes: library.get(b"cuda_emulator_module_bytes\0").ok().map(|f| *f),
                library_bytes: library.get(b"cuda_emulator_library_bytes\0").ok().map(|f| *f),
            }
        }
    }
}

impl Driver {
    /// Returns the bytes of the device that a module's variables take. `None`: only the emulator tells.
    pub fn module_bytes(&self, module: CUmodule) -> Option<u64> {
        self.later.module_bytes.map(|bytes| bytes(module))
    }

    /// As [`Self::module_bytes`], of a library in one context.
    pub fn library_bytes(&self, library: CUlibrary) -> Option<u64> {
        self.later.library_bytes.map(|bytes| bytes(library))
    }

    /// Makes the emulator pass files to other processes by these functions. NVIDIA's driver has its own mechanism.
    pub fn set_courier(&self, courier: Courier) {
        if let Some(set) = self.later.set_courier {
            // SAFETY: the courier is a local, which is copied; its functions may be called from any thread with its context,
            // which is `'static`.
            unsafe { set(&raw const courier) };
        }
    }

    /// `cuDeviceGetHostAtomicCapabilities`, or with a peer `cuDeviceGetP2PAtomicCapabilities`, for each
    /// `CUatomicOperation`.
    pub fn atomic_capabilities(
        &self,
        device: CUdevice,
        peer: Option<CUdevice>,
    ) -> CuResult<([c_uint; ATOMIC_OPERATIONS],)> {
        let mut capabilities = [0; ATOMIC_OPERATIONS];
        let operations: [c_uint; ATOMIC_OPERATIONS] = std::array::from_fn(|operation| operation as c_uint);
        let (to, from, count) = (capabilities.as_mut_ptr(), operations.as_ptr(), ATOMIC_OPERATIONS as c_uint);
        let code = match peer {
            // SAFETY: both arrays have `count` elements and live across the call.
            None => unsafe {
                self.later.host_atomics.ok_or(CudaError::NOT_SUPPORTED)?(to, from, count, device)
            },
            // SAFETY: both arrays have `count` elements and live across the call.
            Some(peer) => unsafe {
                self.later.peer_atomics.ok_or(CudaError::NOT_SUPPORTED)?(to, from, count, device, peer)
            },
        };
        if code == 0 { Ok((capabilities,)) } else { Err(CudaError(code)) }
    }
}
