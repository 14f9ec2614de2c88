// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Unfinished links.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

use crate::jit::JitSinks;

/// A link.
#[derive(Debug)]
pub struct Link {
    pub sinks: JitSinks,
    /// The result of `cuLinkComplete`. It does not move until the link ends.
    pub image: Option<Box<[u8]>>,
}

/// All links by handle.
#[derive(Debug, Default)]
pub struct Links(Mutex<HashMap<u64, Link>>);

impl Links {
    pub fn lock(&self) -> MutexGuard<'_, HashMap<u64, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn sinks(&self, link: u64) -> Result<JitSinks, CudaError> {
        self.lock().get(&link).map(|link| link.sinks).ok_or(CudaError::INVALID_HANDLE)
    }
}
