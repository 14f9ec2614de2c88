// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host memory of a call.

use cuda_library_rows::block::{BadSize, MAX_BYTES, PRESENT, SLOT, padded};
use cuda_library_rows::{Call, Kind, Library};
use smallvec::SmallVec;
use vhost_cuda_common::budget::Charge;

use crate::gpu::CuResult;
use crate::vendor::describe::{ALIGNMENT, described_bytes};
use crate::vendor::handles::charge;
use crate::vendor::objects::Block;

/// Host memory that a call uses: the pieces of its parameters, one after the other.
#[derive(Default)]
pub(super) struct Memory {
    words: SmallVec<[u128; 64]>,
    /// Offset and length of each parameter's piece, in bytes.
    pieces: SmallVec<[(usize, usize); 24]>,
}

impl Memory {
    /// Makes room for the pieces of all parameters, zeroed.
    pub(super) fn lay_out(&mut self, library: &Library, call: &Call, slots: &[u64]) -> Result<(), BadSize> {
        let mut end = 0;
        self.pieces.resize(call.parameters.len(), (0, 0));
        for &index in call.roles.memory {
            let bytes = match call.parameters[index].kind {
                Kind::New(_) => SLOT,
                // The library writes an address here.
                Kind::Table(_) | Kind::Allocated { .. } => SLOT,
                // The arrays are followed by their addresses.
                Kind::Arrays { ref arrays, .. } if slots.get(index) == Some(&PRESENT) => {
                    let addresses = call.count(arrays, slots)?.checked_mul(SLOT);
                    let addresses = addresses.filter(|bytes| *bytes <= MAX_BYTES).ok_or(BadSize)?;
                    padded(call.memory_bytes(library, index, slots)?) + addresses
                }
                // The text and its NUL.
                Kind::Text => call.memory_bytes(library, index, slots)? + 1,
                // The next parameter is the number of streams that the library reads here. At most one is supported.
                Kind::InStream => match slots.get(index + 1) {
                    Some(count) if *count as u32 <= 1 => SLOT,
                    _ => return Err(BadSize),
                },
                // The address of an object.
                Kind::Described { kind, .. } if library.descriptors[kind].is_object => SLOT,
                // The library's own structure, which is created from the transferred contents, and another one that
                // it may point to.
                Kind::Described { kind, .. } => described_bytes(library, kind),
                _ => call.memory_bytes(library, index, slots)?.max(call.room_bytes(index, slots)?),
            };
            self.pieces[index] = (end, bytes);
            if bytes > 0 {
                end = (end + bytes).next_multiple_of(ALIGNMENT) + ALIGNMENT;
            }
        }
        if end > 2 * MAX_BYTES {
            return Err(BadSize);
        }
        // An empty piece at the end has an address, too.
        self.words.resize(end / ALIGNMENT + 1, 0);
        Ok(())
    }

    /// Prepares memory that outlives the call. Must come before its addresses are taken.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(super) fn charge(&mut self) -> CuResult<Charge> {
        // Words that are not in this structure stay where they are when it moves.
        self.words.grow(self.words.len().max(self.words.inline_size() + 1));
        charge(self.words.capacity() * ALIGNMENT)
    }

    /// Takes the memory, at its address, and leaves zeros.
    pub(super) fn lend(&mut self, charge: Charge) -> Block {
        let zeros = SmallVec::from_elem(0, self.words.len());
        Block::charged(std::mem::replace(&mut self.words, zeros).into_vec(), charge)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = self.words.len() * ALIGNMENT;
        // SAFETY: the words are plain bytes, of this number, and borrowed as long.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), bytes) }
    }

    pub(super) fn piece(&mut self, index: usize) -> &mut [u8] {
        let (start, bytes) = self.pieces[index];
        &mut self.bytes()[start..start + bytes]
    }

    /// Returns a piece for reading.
    pub(super) fn contents(&self, index: usize) -> &[u8] {
        let (start, bytes) = self.pieces[index];
        // SAFETY: the words are plain bytes, of this number, and borrowed as long.
        let all = unsafe {
            std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.words.len() * ALIGNMENT)
        };
        &all[start..start + bytes]
    }

    pub(super) fn address(&mut self, index: usize) -> u64 {
        let (start, _) = self.pieces[index];
        self.bytes()[start..].as_mut_ptr() as u64
    }
}

#[cfg(test)]
mod tests {
    use cuda_library_rows::Body;

    use super::*;

    fn of(library: &Library, call: &Call, slots: &[u64]) -> Result<Memory, BadSize> {
        let mut memory = Memory::default();
        memory.lay_out(library, call, slots).map(|()| memory)
    }

    #[test]
    fn pieces_are_apart_and_aligned() {
        let text =
            "handle H\n0 forward f(h: H, n: i32, a: in i32[n], h2: new H, t: table 64, b: out f64) [writes];";
        let library = cuda_api_description::libraries::library(text, "").expect("valid").library;
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        let mut memory = of(&library, call, &[1, 3, PRESENT, 32, PRESENT, PRESENT]).expect("fits");
        assert_eq!(memory.pieces.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [0, 0, 12, 8, 8, 8]);
        let places: Vec<u64> = (2..6).map(|index| memory.address(index)).collect();
        assert!(places.iter().all(|place| place % ALIGNMENT as u64 == 0), "{places:?}");
        assert!(places.is_sorted_by(|one, next| next - one >= 2 * ALIGNMENT as u64), "{places:?}");
    }

    #[test]
    fn addresses_stand_behind_their_arrays() {
        let text = "handle H\n0 forward f(h: H, n: i32, a: in f32[n] each[b], b: i32) [writes];";
        let library = cuda_api_description::libraries::library(text, "").expect("valid").library;
        let Body::Forward(call) = &library.functions[0].body else { panic!("{library:?}") };
        let bytes = |n: u64, arrays: u64| {
            of(&library, call, &[1, n, PRESENT, arrays]).map(|mut memory| memory.piece(2).len())
        };
        assert_eq!(bytes(3, 3), Ok(40 + 3 * SLOT));
        assert_eq!(bytes(0, 1 << 30), Err(BadSize), "addresses of empty arrays");
    }
}

#[cfg(test)]
#[path = "lent_test.rs"]
mod lent_tests;
