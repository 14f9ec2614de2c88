// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The green contexts of the process.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use virtio_cuda_client::CudaError;

/// A green context.
#[derive(Clone, Copy, Debug)]
pub struct Green {
    /// As a context that can be current.
    pub(super) context: u64,
    pub(super) device: i32,
    /// The primary context of its device.
    pub(super) primary: u64,
}

/// The green contexts by handle, and those that are gone with the primary contexts that own what was made in them.
#[derive(Debug, Default)]
pub struct Greens(pub(super) RwLock<HashMap<u64, Green>>, pub(super) RwLock<Vec<Green>>);

impl Greens {
    pub(super) fn get(&self, handle: u64) -> Result<Green, CudaError> {
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        greens.get(&handle).copied().ok_or(CudaError::INVALID_CONTEXT)
    }

    /// The green context that `context` stands for, and the primary context.
    pub fn of_context(&self, context: u64) -> Option<(u64, u64)> {
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        greens
            .iter()
            .find(|(_, green)| green.context == context)
            .map(|(&handle, green)| (handle, green.primary))
    }

    /// The contexts of green ones, gone or not, whose objects go with the context `primary`.
    pub fn in_primary(&self, primary: u64) -> Vec<u64> {
        let mut removed = self.1.write().unwrap_or_else(PoisonError::into_inner);
        let mut contexts: Vec<_> =
            removed.extract_if(.., |green| green.primary == primary).map(|green| green.context).collect();
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        contexts.extend(greens.values().filter(|green| green.primary == primary).map(|green| green.context));
        contexts
    }
}
