// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned buffers through which scattered guest pages are copied.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::gpu::{CuResult, Driver, HOST_PORTABLE_MAPPED};

/// Bytes of one buffer: large enough for the link's full speed.
pub const STAGING_BYTES: usize = 2 << 20;
/// Free buffers that a context keeps for the next copy.
const MAX_FREE: usize = 8;

/// A pinned buffer of [`STAGING_BYTES`].
#[derive(Debug)]
pub struct Buffer {
    address: usize,
    context: u64,
}

impl Buffer {
    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }
    /// Its bytes. The GPU must not be writing it, and is not while the owner has waited for its copies.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `cuMemHostAlloc` gave STAGING_BYTES at this address, which are freed with this value only,
        // and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), STAGING_BYTES) }
    }
}

/// The session's free buffers, by context: pinned memory ends with the context that it was made in.
#[derive(Debug, Default)]
pub struct Staging {
    free: Mutex<HashMap<u64, Vec<Buffer>>>,
}

impl Staging {
    /// A buffer for copies in the context named `context`, which must be current.
    pub fn take(&self, gpu: &Driver, context: u64) -> CuResult<Buffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = free.get_mut(&context).and_then(Vec::pop) {
            return Ok(buffer);
        }
        drop(free);
        // SAFETY: the call only allocates.
        let (address,) = unsafe { gpu.cuMemHostAlloc(STAGING_BYTES, HOST_PORTABLE_MAPPED) }?;
        Ok(Buffer { address: address as usize, context })
    }

    /// Takes a buffer back. The GPU must have finished with it.
    pub fn give_back(&self, gpu: &Driver, buffer: Buffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let buffers = free.entry(buffer.context).or_default();
        if buffers.len() < MAX_FREE {
            buffers.push(buffer);
            return;
        }
        drop(free);
        // SAFETY: the address came from cuMemHostAlloc, and the buffer is consumed here. If its context has
        // ended meanwhile the driver answers with an error.
        let _ = unsafe { gpu.cuMemFreeHost(buffer.as_ptr().cast()) };
    }

    /// Forgets the buffers of a context that has ended, and its memory with it.
    pub fn forget_context(&self, context: u64) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).remove(&context);
    }
}
