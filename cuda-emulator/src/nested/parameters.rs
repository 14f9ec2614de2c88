// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device memory for the parameters of pending launches: small pieces of a few allocations, because removing an
//! allocation clears every thread's cache of ranges.

use std::collections::HashMap;

use crate::memory::Memory;

/// Bytes of one allocation.
const CHUNK: u64 = 64 << 10;
/// The smallest piece, and the alignment of all: cudaGetParameterBuffer promises 64 bytes.
const MIN_BYTES: u64 = 64;
/// The maximum number of bytes of a kernel's parameters.
pub(crate) const MAX_BLOCK_BYTES: u64 = 32 << 10;
/// The maximum number of bytes of all allocations of a family. Limits the memory that hostile kernels can take by pending
/// launches.
const MAX_BYTES: u64 = 256 << 20;

/// The allocations, and the pieces of each size that are free.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    chunks: Vec<u64>,
    /// The address and the size of the free room in the last chunk.
    rest: (u64, u64),
    free: HashMap<u64, Vec<u64>>,
}

fn size_of_piece(bytes: u64) -> Option<u64> {
    (bytes <= MAX_BLOCK_BYTES).then(|| bytes.max(MIN_BYTES).next_power_of_two())
}

impl Parameters {
    /// Room for `bytes` bytes; `None` if they are too many, or memory is short.
    pub(super) fn take(&mut self, memory: &Memory, bytes: u64) -> Option<u64> {
        let size = size_of_piece(bytes)?;
        if let Some(piece) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Some(piece);
        }
        if self.rest.1 < size {
            if self.chunks.len() as u64 >= MAX_BYTES / CHUNK {
                return None;
            }
            let chunk = memory.allocate(CHUNK, MIN_BYTES).ok()?;
            self.chunks.push(chunk);
            self.rest = (chunk, CHUNK);
        }
        let (piece, left) = self.rest;
        self.rest = (piece + size, left - size);
        Some(piece)
    }

    /// Gives back what [`Self::take`] gave for so many bytes.
    pub(super) fn give_back(&mut self, piece: u64, bytes: u64) {
        if let Some(size) = size_of_piece(bytes) {
            self.free.entry(size).or_default().push(piece);
        }
    }

    /// Frees everything.
    pub(super) fn release(&mut self, memory: &Memory) {
        for chunk in self.chunks.drain(..) {
            memory.free(chunk);
        }
        self.free.clear();
        self.rest = (0, 0);
    }
}
