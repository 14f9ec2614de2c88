// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The memory that a request names, as one row of bytes; sums and patterns are those of `driver_test.h`.

use virtio_cuda_protocol::transport::MemEntry;
use vm_memory::{Bytes, GuestAddress};

use crate::chain::Snapshot;

/// The number of bytes that are read at a time.
const CHUNK: usize = 64 << 10;

/// Pieces of guest memory.
#[derive(Clone, Default)]
pub struct Pages {
    /// In order.
    pub entries: Vec<MemEntry>,
    /// They may only be read.
    pub read_only: bool,
}

impl Pages {
    /// Calls `look` with all bytes in order, and the position of the first one.
    fn read(&self, memory: &Snapshot, mut look: impl FnMut(usize, &[u8])) {
        let mut chunk = vec![0; CHUNK];
        self.each_chunk(|position, at, bytes| {
            if memory.read_slice(&mut chunk[..bytes], at).is_ok() {
                look(position, &chunk[..bytes]);
            }
        });
    }

    fn each_chunk(&self, mut visit: impl FnMut(usize, GuestAddress, usize)) {
        let mut position = 0;
        for entry in &self.entries {
            let mut done = 0;
            while done < entry.bytes as usize {
                let bytes = CHUNK.min(entry.bytes as usize - done);
                visit(position, GuestAddress(entry.addr + done as u64), bytes);
                done += bytes;
                position += bytes;
            }
        }
    }

    /// `checksum()`.
    pub fn checksum(&self, memory: &Snapshot) -> u64 {
        let mut sum = 0_u64;
        self.read(memory, |position, bytes| {
            for (byte, index) in bytes.iter().zip(position + 1..) {
                sum = sum.wrapping_add(u64::from(*byte) * (index as u64 % 251 + 1));
            }
        });
        sum
    }

    /// The sum of the bytes.
    pub fn plain_sum(&self, memory: &Snapshot) -> u64 {
        let mut sum = 0;
        self.read(memory, |_, bytes| sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
        sum
    }

    /// Writes the pattern that `is_filled()` checks, where it may.
    pub fn fill(&self, memory: &Snapshot, seed: u64) {
        if self.read_only {
            return;
        }
        let mut chunk = vec![0; CHUNK];
        self.each_chunk(|position, at, bytes| {
            for (byte, index) in chunk[..bytes].iter_mut().zip(position as u64..) {
                *byte = (seed.wrapping_add(1).wrapping_add(index) % 253) as u8;
            }
            let _ = memory.write_slice(&chunk[..bytes], at);
        });
    }
}
