// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Buffers in the shared memfd, for bulk data outside of it.

use std::sync::{Mutex, PoisonError};

use super::memory::{RamRange, SharedRam};
use crate::ClientError;

/// Bytes of the buffers that are kept for re-use; longer ones are made and freed each time.
pub const BUFFER_BYTES: usize = 4 << 20;
/// The number of buffers that are kept. Bounds the memory of an idle process.
pub const KEPT_BUFFERS: usize = 4;

/// The kept buffers.
#[derive(Debug, Default)]
pub struct Staging {
    kept: Mutex<Vec<RamRange>>,
}

/// A buffer in use; goes back when dropped.
#[derive(Debug)]
pub struct Buffer<'a> {
    staging: &'a Staging,
    ram: &'a SharedRam,
    /// The range in guest memory.
    pub range: RamRange,
}

impl Staging {
    /// A buffer of at least `bytes` bytes; its contents are unspecified.
    pub fn take<'a>(&'a self, ram: &'a SharedRam, bytes: usize) -> Result<Buffer<'a>, ClientError> {
        let kept = if bytes <= BUFFER_BYTES {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop()
        } else {
            None
        };
        let range = match kept {
            Some(range) => range,
            None => ram.allocate(bytes.max(BUFFER_BYTES))?,
        };
        Ok(Buffer { staging: self, ram, range })
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.staging.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.range.bytes == BUFFER_BYTES as u64 && kept.len() < KEPT_BUFFERS {
            kept.push(self.range);
        } else {
            drop(kept);
            self.ram.give_back(self.range);
        }
    }
}
