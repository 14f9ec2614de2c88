// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The program's external memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

/// Owner of external memory in the table of ranges. No handle has this value.
pub const EXTERNAL: u64 = 2;

/// Imported memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// The context that was current at the import. All mappings belong to it.
    pub context: u64,
    /// Size in bytes that the program specified.
    pub bytes: u64,
}

/// All external memory by handle.
#[derive(Debug, Default)]
pub struct Externals(Mutex<HashMap<u64, External>>);

impl Externals {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, External>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds imported memory.
    pub fn add(&self, handle: u64, external: External) {
        self.lock().insert(handle, external);
    }

    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an unknown handle, for which NVIDIA's library crashes.
    pub fn get(&self, handle: u64) -> Result<External, CudaError> {
        self.lock().get(&handle).copied().ok_or(CudaError::INVALID_VALUE)
    }

    /// Removes destroyed external memory.
    pub fn remove(&self, handle: u64) {
        self.lock().remove(&handle);
    }

    /// Removes the external memory of a destroyed context.
    pub fn forget_context(&self, context: u64) {
        self.lock().retain(|_, external| external.context != context);
    }
}
