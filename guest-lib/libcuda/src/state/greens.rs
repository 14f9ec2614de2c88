// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The green contexts of the process.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use virtio_cuda_client::CudaError;

use crate::handles::{Kind, refusal};

/// A green context.
#[derive(Clone, Copy, Debug)]
pub struct Green {
    /// The context for this green context, which can be made current.
    pub context: u64,
    pub device: i32,
    /// The primary context of its device.
    pub primary: u64,
}

/// The green contexts by handle. The second list has destroyed ones whose objects live as long as their primary
/// context.
#[derive(Debug, Default)]
pub struct Greens(pub RwLock<HashMap<u64, Green>>, pub RwLock<Vec<Green>>);

impl Greens {
    pub fn get(&self, handle: u64) -> Result<Green, CudaError> {
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        greens.get(&handle).copied().ok_or_else(|| refusal(Kind::Green, handle))
    }

    /// Returns the green context that `context` represents, and the primary context.
    pub fn of_context(&self, context: u64) -> Option<(u64, u64)> {
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        greens
            .iter()
            .find(|(_, green)| green.context == context)
            .map(|(&handle, green)| (handle, green.primary))
    }

    /// Returns the contexts of green contexts, destroyed or not, whose objects end with the context `primary`.
    pub fn in_primary(&self, primary: u64) -> Vec<u64> {
        let mut removed = self.1.write().unwrap_or_else(PoisonError::into_inner);
        let mut contexts: Vec<_> =
            removed.extract_if(.., |green| green.primary == primary).map(|green| green.context).collect();
        let greens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        contexts.extend(greens.values().filter(|green| green.primary == primary).map(|green| green.context));
        contexts
    }
}
