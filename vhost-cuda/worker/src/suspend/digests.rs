// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests of chunks of the device's memory, which the device computes itself.
//!
//! They tell which chunks are zeros, which ones are in host memory already, and whether all came back as it was. Two chunks
//! with different contents have the same digest of 128 bits by accident once in 2^128 pairs. The key is random, so a program
//! cannot prepare such chunks; if it did, it would harm its own contents only.

use std::ffi::CString;
use std::sync::{Arc, Weak};

use super::room::CHUNK_BYTES;
use crate::gpu::{CuResult, CudaError, Driver};
use crate::objects::Object;

/// The kernel. [`of`] is the same function.
const PTX: &str = concat!(include_str!("digests.ptx"), "\0");
/// Its name.
const NAME: &str = "chunk_digests";
/// The number of threads of a block, one of which reads each chunk.
pub const THREADS: u32 = 512;
/// The bytes that the threads of a block read in each round: four pieces each.
const ROUND_BYTES: usize = 4 * PIECE * THREADS as usize;
/// The bytes that a thread reads at once.
const PIECE: usize = 16;
/// The number of rounds for a chunk.
pub const ROUNDS: u32 = (CHUNK_BYTES / ROUND_BYTES as u64) as u32;

const _: () = assert!(CHUNK_BYTES.is_multiple_of(ROUND_BYTES as u64));

/// A digest of a chunk, as the kernel stores it.
pub type Digest = [u64; 2];

/// The key of a session's digests.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The numbers with which the chains of all threads begin.
    pub words: [u64; 2],
    /// The digest of a chunk of zeros.
    pub zeros: Digest,
}

impl Key {
    /// A random key.
    ///
    /// Errors: `CUDA_ERROR_UNKNOWN` if the kernel has no random numbers.
    pub fn random() -> CuResult<Self> {
        let word = || getrandom::u64().map_err(|_| CudaError::UNKNOWN);
        Ok(Self::of([word()?, word()?]))
    }

    /// The key of these words.
    pub fn of(words: [u64; 2]) -> Self {
        Self { words, zeros: of(words, &vec![0; CHUNK_BYTES as usize]) }
    }
}

/// The kernel in a context of the driver. The module ends with the context.
#[derive(Debug)]
pub struct Kernel {
    /// The context's object: while this refers to it, no other one has its address.
    context: Weak<Object>,
    function: usize,
}

impl Kernel {
    /// Loads the kernel into `context`, which is current.
    ///
    /// Errors: the driver's.
    pub fn load(gpu: &Driver, context: &Arc<Object>) -> CuResult<Self> {
        // SAFETY: the image is a string that ends with a zero.
        let (module,) = unsafe { gpu.cuModuleLoadData(PTX.as_ptr().cast()) }?;
        let name = CString::new(NAME).map_err(|_| CudaError::INVALID_VALUE)?;
        let (function,) = gpu.cuModuleGetFunction(module, name).inspect_err(|_| {
            let _ = gpu.cuModuleUnload(module);
        })?;
        Ok(Self { context: Arc::downgrade(context), function: function as usize })
    }

    /// Returns the driver's function, if the kernel was loaded into `context`.
    pub fn function_in(&self, context: &Arc<Object>) -> Option<usize> {
        std::ptr::eq(self.context.as_ptr(), Arc::as_ptr(context)).then_some(self.function)
    }
}

/// Returns the digest of `contents`, whole rounds, as the kernel computes it.
pub fn of(key: [u64; 2], contents: &[u8]) -> Digest {
    let mut digest = [0_u64; 2];
    for thread in 0..THREADS as usize {
        let number = thread as u64;
        let mut low = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(key[0]);
        let mut high = number.wrapping_mul(0xD6E8_FEB8_6659_FD93).wrapping_add(key[1]);
        for piece in contents.chunks_exact(PIECE).skip(thread).step_by(THREADS as usize) {
            let (first, second) = piece.split_at(8);
            let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            low = (low ^ word(first) ^ high).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            low ^= low >> 32;
            high = (high.wrapping_add(word(second)) ^ low).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
            high ^= high >> 29;
        }
        let odd = 2 * number + 1;
        digest[0] ^= (low ^ high).wrapping_mul(odd);
        digest[1] = digest[1].wrapping_add(high.wrapping_mul(odd + 2));
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_each_byte_its_place_and_the_key() {
        let key = [3, 5];
        let zeros = vec![0; ROUND_BYTES];
        let mut seen = vec![of(key, &zeros), of([3, 6], &zeros), of([4, 5], &zeros)];
        for place in [0, 7, 8, PIECE, PIECE * THREADS as usize, ROUND_BYTES - 1] {
            let mut contents = zeros.clone();
            contents[place] = 1;
            seen.push(of(key, &contents));
        }
        let words: std::collections::HashSet<u64> = seen.iter().flatten().copied().collect();
        assert_eq!(words.len(), 2 * seen.len());
        assert_eq!(seen[0], of(key, &zeros));
    }
}
