// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The addresses of most loads and stores: consecutive, or all the same. They need one check for all lanes.

use super::access::{Place, aux};
use crate::code::{FULL, Instr, LANES};
use crate::execute::state::Machine;

/// The number of lanes whose addresses are checked together: blocks of 16 by 16 threads have two rows in a warp.
pub(crate) const HALF: usize = LANES / 2;

/// The pattern of the addresses of [`HALF`] lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    Sequence,
    Same,
    Scattered,
}

impl Pattern {
    #[inline(always)]
    fn new(sequence: bool, same: bool) -> Pattern {
        if sequence {
            Pattern::Sequence
        } else if same {
            Pattern::Same
        } else {
            Pattern::Scattered
        }
    }
}

/// Offsets in shared memory, and how each half of them lies.
pub(crate) struct Offsets {
    pub(crate) of: [u32; LANES],
    pub(crate) patterns: [Pattern; 2],
}

/// Returns how each half of the addresses lies. `step` is the address of the element so many lanes after the first.
fn patterns<T: Copy + PartialEq>(addresses: &[T; LANES], step: impl Fn(T, usize) -> T) -> [Pattern; 2] {
    [0, HALF].map(|start| {
        let first = addresses[start];
        let half = &addresses[start..start + HALF];
        let sequence = half.iter().enumerate().all(|(lane, address)| *address == step(first, lane));
        Pattern::new(sequence, half.iter().all(|address| *address == first))
    })
}

fn patterns32(addresses: &[u32; LANES], bytes: u32) -> [Pattern; 2] {
    patterns(addresses, |first, lane| first.wrapping_add(lane as u32 * bytes))
}

fn patterns64(addresses: &[u64; LANES], bytes: u64) -> [Pattern; 2] {
    patterns(addresses, |first, lane| first.wrapping_add(lane as u64 * bytes))
}

/// The same with vector instructions: what compilers make of the plain form is several times slower.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_broadcastd_epi32, _mm256_broadcastq_epi64,
        _mm256_castsi256_si128, _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_max_epu32,
        _mm256_movemask_epi8, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_epi64x,
        _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_storeu_si256, _mm256_testz_si256, _mm256_xor_si256,
    };

    use super::{HALF, LANES, Offsets, Pattern};

    /// # Safety
    /// The CPU has AVX2; `base` has 32 lanes.
    #[target_feature(enable = "avx2")]
    pub(crate) unsafe fn offsets(base: *const u32, offset: u32, bytes: u32, last: u32) -> Option<Offsets> {
        let mut result = Offsets { of: [0; LANES], patterns: [Pattern::Scattered; 2] };
        let offset = _mm256_set1_epi32(offset.cast_signed());
        let size = _mm256_set1_epi32(bytes.cast_signed());
        let steps = [
            _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), size),
            _mm256_mullo_epi32(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), size),
        ];
        let last = _mm256_set1_epi32(last.cast_signed());
        let (mut most, mut all) = (last, _mm256_set1_epi32(0));
        for half in 0..2 {
            // SAFETY: 16 lanes from `half * HALF` on, in both arrays.
            let (low, high) = unsafe {
                let from = base.add(half * HALF).cast::<__m256i>();
                let low = _mm256_add_epi32(_mm256_loadu_si256(from), offset);
                let high = _mm256_add_epi32(_mm256_loadu_si256(from.add(1)), offset);
                let to = result.of.as_mut_ptr().add(half * HALF).cast::<__m256i>();
                _mm256_storeu_si256(to, low);
                _mm256_storeu_si256(to.add(1), high);
                (low, high)
            };
            most = _mm256_max_epu32(most, _mm256_max_epu32(low, high));
            all = _mm256_or_si256(all, _mm256_or_si256(low, high));
            let first = _mm256_broadcastd_epi32(_mm256_castsi256_si128(low));
            let same = _mm256_or_si256(_mm256_xor_si256(low, first), _mm256_xor_si256(high, first));
            let differences = _mm256_or_si256(
                _mm256_xor_si256(low, _mm256_add_epi32(first, steps[0])),
                _mm256_xor_si256(high, _mm256_add_epi32(first, steps[1])),
            );
            let zero = |bits: __m256i| _mm256_testz_si256(bits, bits) != 0;
            result.patterns[half] = Pattern::new(zero(differences), zero(same));
        }
        let inside = _mm256_movemask_epi8(_mm256_cmpeq_epi32(most, last)) == -1;
        let mask = _mm256_set1_epi32(bytes.cast_signed() - 1);
        (inside && _mm256_testz_si256(all, mask) != 0).then_some(result)
    }

    /// # Safety
    /// The CPU has AVX2; `base` has 32 lanes.
    #[target_feature(enable = "avx2")]
    pub(crate) unsafe fn patterns(base: *const u64, bytes: u64) -> [Pattern; 2] {
        let step = |lane: i64| {
            let size = bytes.cast_signed();
            _mm256_setr_epi64x(lane * size, (lane + 1) * size, (lane + 2) * size, (lane + 3) * size)
        };
        let steps = [step(0), step(4), step(8), step(12)];
        let mut result = [Pattern::Scattered; 2];
        for (half, pattern) in result.iter_mut().enumerate() {
            let (mut same, mut differences) = (_mm256_set1_epi64x(0), _mm256_set1_epi64x(0));
            // SAFETY: 16 lanes from `half * HALF` on.
            unsafe {
                let from = base.add(half * HALF).cast::<__m256i>();
                let first = _mm256_broadcastq_epi64(_mm256_castsi256_si128(_mm256_loadu_si256(from)));
                for (index, step) in steps.into_iter().enumerate() {
                    let value = _mm256_loadu_si256(from.add(index));
                    same = _mm256_or_si256(same, _mm256_xor_si256(value, first));
                    let difference = _mm256_xor_si256(value, _mm256_add_epi64(first, step));
                    differences = _mm256_or_si256(differences, difference);
                }
            }
            let zero = |bits: __m256i| _mm256_testz_si256(bits, bits) != 0;
            *pattern = Pattern::new(zero(differences), zero(same));
        }
        result
    }
}

/// The accesses of the two halves of a warp: checked host addresses of all lanes, and their pattern.
pub(crate) struct Halves {
    pub(crate) at: [u64; 2],
    pub(crate) patterns: [Pattern; 2],
}

impl Machine<'_> {
    /// Returns the checked offsets in shared memory of an access by all lanes with 32-bit addresses, or `None` where
    /// the general path is needed (also to determine the error).
    ///
    /// # Safety
    /// Contract of `Handler`; `ops[4]` is the address register that `aux` says.
    #[inline(always)]
    pub(crate) unsafe fn shared_offsets(&self, instr: &Instr, bytes: u32) -> Option<Offsets> {
        let shared = aux::place(instr.aux) == Place::Shared && instr.aux & aux::WIDE_ADDRESS == 0;
        if !shared || self.mask != FULL || self.checks {
            return None;
        }
        let last = self.block.shared_bytes.checked_sub(bytes)?;
        // SAFETY: `ops[4]` is the address register that `aux` says, by this function's contract; `wide` says that the
        // CPU has AVX2.
        unsafe {
            let base = self.source::<u32>(instr.ops[4]);
            #[cfg(target_arch = "x86_64")]
            if self.wide {
                return wide::offsets(base, instr.imm as u32, bytes, last);
            }
            let of = (*base.cast::<[u32; LANES]>()).map(|address| address.wrapping_add(instr.imm as u32));
            let inside = of.iter().all(|address| *address <= last && address & (bytes - 1) == 0);
            inside.then(|| Offsets { of, patterns: patterns32(&of, bytes) })
        }
    }

    /// Returns the host addresses of both halves of a warp whose lanes all access global memory with 64-bit
    /// addresses. Both halves must have a pattern and lie in the range of the instruction's last access.
    ///
    /// # Safety
    /// As [`Self::shared_offsets`].
    #[inline(always)]
    pub(crate) unsafe fn global_halves(&self, instr: &Instr, bytes: u64) -> Option<Halves> {
        let place = aux::place(instr.aux);
        let global = matches!(place, Place::Global | Place::Generic) && instr.aux & aux::WIDE_ADDRESS != 0;
        if !global || self.mask != FULL || self.checks {
            return None;
        }
        // SAFETY: `ops[4]` is the address register that `aux` says, by this function's contract; `wide` says that the
        // CPU has AVX2.
        let (first, second, patterns) = unsafe {
            let base = self.source::<u64>(instr.ops[4]);
            let patterns = |base: *const u64| {
                #[cfg(target_arch = "x86_64")]
                if self.wide {
                    return wide::patterns(base, bytes);
                }
                patterns64(&*base.cast::<[u64; LANES]>(), bytes)
            };
            ((*base).wrapping_add(instr.imm), (*base.add(HALF)).wrapping_add(instr.imm), patterns(base))
        };
        if patterns.contains(&Pattern::Scattered) {
            return None;
        }
        let (start, valid) = self.ranges.known(self.grid.launch.memory, instr.slot);
        let at = [first, second];
        let whole = bytes * HALF as u64;
        let inside = |address: u64| address.wrapping_sub(start) <= valid.wrapping_sub(whole);
        let fits = valid >= whole && inside(at[0]) && inside(at[1]) && (at[0] | at[1]) & (bytes - 1) == 0;
        fits.then_some(Halves { at, patterns })
    }
}
