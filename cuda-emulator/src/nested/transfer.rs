// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cudaMemcpyAsync, cudaMemsetAsync and their relatives of two and three dimensions.

use super::error::RuntimeError;
use crate::memory::{Memory, OutOfRange};

/// Rows in planes: where they start, and the distances between rows and between planes, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Box3 {
    pub(crate) start: u64,
    pub(crate) pitch: u64,
    pub(crate) plane: u64,
}

/// The source of a copy or a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Memory(Box3),
    Byte(u8),
}

/// A copy or a fill of `extent` bytes, rows and planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) target: Box3,
    pub(crate) source: Source,
    pub(crate) extent: [u64; 3],
}

impl Box3 {
    /// Returns a row of `bytes` bytes.
    pub(crate) fn linear(start: u64) -> Box3 {
        Box3 { start, pitch: 0, plane: 0 }
    }

    /// Returns whether no byte is in two rows, so that the number of rows is bounded by the memory there is.
    fn fits(&self, [width, height, depth]: [u64; 3]) -> bool {
        let rows = height == 1 || self.pitch >= width;
        let planes = depth == 1 || self.pitch.checked_mul(height).is_some_and(|bytes| self.plane >= bytes);
        rows && (planes || (height == 1 && self.plane >= width))
    }

    fn row(&self, y: u64, z: u64) -> Option<u64> {
        let offset = y.checked_mul(self.pitch)?.checked_add(z.checked_mul(self.plane)?)?;
        self.start.checked_add(offset)
    }
}

impl Transfer {
    /// Returns whether there is anything to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// Checks the pitches.
    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        let source = match self.source {
            Source::Memory(source) => source.fits(self.extent),
            Source::Byte(_) => true,
        };
        if source && self.target.fits(self.extent) { Ok(()) } else { Err(RuntimeError::INVALID_PITCH_VALUE) }
    }

    /// Does it; it was checked and is not empty.
    pub(crate) fn run(&self, memory: &Memory) -> Result<(), OutOfRange> {
        let [width, height, depth] = self.extent;
        for z in 0..depth {
            for y in 0..height {
                let beyond = OutOfRange { address: u64::MAX, bytes: width };
                let target = self.target.row(y, z).ok_or(beyond)?;
                match self.source {
                    Source::Memory(source) => memory.copy(target, source.row(y, z).ok_or(beyond)?, width)?,
                    Source::Byte(byte) => memory.fill(target, &[byte], width)?,
                }
            }
        }
        Ok(())
    }
}
