// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Choices that are derived from the bytes of an input. Missing bytes are zero.

use virtio_cuda_protocol::cuda::{FIRST_HANDLE, FIRST_WORKER_HANDLE, WINDOW_BASE};

/// Boundary values.
const EDGES: [u64; 16] = [
    1,
    2,
    0xff,
    0xfff,
    0x1000,
    0x1001,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_f000,
    u64::MAX,
];

/// The rest of an input.
#[derive(Debug)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Returns the choices of an input.
    pub fn of(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Returns whether there are more.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the rest.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Takes up to `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes `N` bytes, with zeros for missing ones.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes(N);
        let mut all = [0; N];
        all[..taken.len()].copy_from_slice(taken);
        all
    }

    /// Takes any number.
    pub fn any(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes a number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(u16::from_le_bytes(self.array())) % count.max(1)
    }

    /// Takes a number, mostly a short one or a boundary value.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=0x7f => u64::from(small),
            edge @ 0x80..=0xbf => {
                EDGES[usize::from(edge & 0xf)].wrapping_add(u64::from(edge >> 4 & 3)).wrapping_sub(1)
            }
            shift @ 0xc0..=0xdf => u64::from(self.byte()) << (2 * (shift & 0x1f)),
            0xe0..=0xef => u64::from(u16::from_le_bytes(self.array())),
            _ => self.any(),
        }
    }

    /// Takes an object name out of a few.
    pub fn name(&mut self) -> u64 {
        match self.byte() {
            few @ 0..=0xef => match few & 0xf {
                // CUDA's own, and 0.
                special @ 0..=2 => u64::from(special),
                3 => FIRST_WORKER_HANDLE + u64::from(few >> 4),
                other => FIRST_HANDLE + u64::from(other % 8),
            },
            _ => self.number(),
        }
    }

    /// Takes an address: in device memory that begins at `base` in steps of `step`, in the window, or any.
    pub fn address(&mut self, base: u64, step: u64) -> u64 {
        match self.byte() {
            near @ 0..=0x9f => {
                base + step * u64::from(near & 7) + (u64::from(near >> 3) << (near >> 4)) / 2 * 2
            }
            page @ 0xa0..=0xdf => WINDOW_BASE + (u64::from(page & 0x1f) << 11),
            _ => self.number(),
        }
    }
}
