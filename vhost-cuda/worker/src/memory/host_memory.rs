// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds on the host memory of a session that only its worker sees.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vhost_cuda_common::budget::{Budget, Charge};

use super::quota::Holder;
use crate::gpu::{CuResult, CudaError};

/// Inputs and results of all links.
const LINK_BYTES: usize = 256 << 20;
/// Images that are loaded. The driver keeps a copy of most of them.
const IMAGE_BYTES: usize = 4 << 30;

/// The bounds of a session.
#[derive(Debug)]
pub struct HostMemory {
    links: Arc<Budget>,
    images: Arc<Budget>,
    /// Images by the object that was made of them, with the context with which they end (0: none).
    loaded: Mutex<HashMap<Holder, (Charge, u64)>>,
}

impl Default for HostMemory {
    fn default() -> Self {
        Self { links: Budget::new(LINK_BYTES), images: Budget::new(IMAGE_BYTES), loaded: Mutex::default() }
    }
}

impl HostMemory {
    /// Takes a share for an input or a result of a link.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge_link(&self, bytes: usize) -> CuResult<Charge> {
        self.links.charge(bytes).ok_or(CudaError::OUT_OF_MEMORY)
    }

    /// Takes a share for an image, until [`Self::unloaded`].
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn loaded(&self, holder: Holder, bytes: usize, context: u64) -> CuResult<()> {
        let charge = self.images.charge(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
        self.loaded.lock().insert(holder, (charge, context));
        Ok(())
    }

    /// Gives back the share of an image that was unloaded.
    pub fn unloaded(&self, holder: Holder) {
        self.loaded.lock().remove(&holder);
    }

    /// Forgets the images that ended with a context.
    pub fn forget_context(&self, context: u64) {
        self.loaded.lock().retain(|_, (_, of)| *of == 0 || *of != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_bounded_in_sum() {
        let memory = HostMemory::default();
        let half = IMAGE_BYTES / 2;
        memory.loaded(Holder::Module(1), half, 9).unwrap();
        memory.loaded(Holder::Library(1), half, 0).unwrap();
        assert_eq!(memory.loaded(Holder::Module(2), 1, 9), Err(CudaError::OUT_OF_MEMORY));
        memory.forget_context(9);
        memory.loaded(Holder::Module(2), half, 8).unwrap();
        memory.unloaded(Holder::Library(1));
        memory.forget_context(0);
        memory.loaded(Holder::Module(3), half, 8).unwrap();
        assert!(memory.loaded(Holder::Module(4), half, 8).is_err());
    }
}
