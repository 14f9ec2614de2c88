// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies in graphs from and to pageable memory. They must use the contents of the program's memory at the time when
//! the graph runs, not when the node is created. The GPU therefore copies from and to a pinned buffer. A function in
//! the graph copies between that buffer and the program's memory, right before or after.

use std::sync::Mutex;

use virtio_cuda_client::protocol::Box3;

/// Pinned memory of this library.
#[derive(Debug)]
pub struct Buffer {
    pub address: u64,
    pub bytes: u64,
    pub context: u64,
}

/// Free buffers. They stay pinned, because unpinning one would have to wait for the GPU.
#[derive(Debug, Default)]
pub struct Buffers(pub Mutex<Vec<Buffer>>);

/// One end of a copy: a box in the program's memory, and the buffer with the same rows without gaps.
#[derive(Debug)]
pub struct PageableCopy {
    pub user: u64,
    pub pitch: u64,
    pub height: u64,
    pub size: Box3,
    pub to_user: bool,
    pub buffer: Option<Buffer>,
}

impl PageableCopy {
    /// Returns the address of the program's first byte, the bytes from row to row and the rows from slice to slice.
    pub fn user(&self) -> (u64, u64, u64) {
        (self.user, self.pitch, self.height)
    }

    /// Copies the bytes. Runs in the graph's order, so the GPU does not access the buffer meanwhile.
    pub fn run(&self) {
        let Some(buffer) = &self.buffer else { return };
        let mut packed = buffer.address as *mut u8;
        for z in 0..self.size.depth {
            for y in 0..self.size.height {
                let row = (self.user + (z * self.height + y) * self.pitch) as *mut u8;
                let width = self.size.width as usize;
                // SAFETY: the program promised that its memory is there whenever the graph runs; the buffer has
                // room for all rows (`new`) and belongs to this copy.
                unsafe {
                    if self.to_user {
                        std::ptr::copy_nonoverlapping(packed, row, width);
                    } else {
                        std::ptr::copy_nonoverlapping(row, packed, width);
                    }
                    packed = packed.add(width);
                }
            }
        }
    }
}
