// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause
//! Copies past the CPU's caches, into buffers that the GPU reads next: fetching their old contents into a cache
//! first would only cost time.

/// Shorter copies go the ordinary way.
const MIN_BYTES: usize = 1 << 10;

/// Copies `bytes` bytes. They are seen by others after [`fence`] only.
///
/// # Safety
///
/// As for `std::ptr::copy_nonoverlapping`.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= MIN_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the CPU has AVX; the rest by the caller.
        return unsafe { copy_avx(from, to, bytes) };
    }
    // SAFETY: by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// Makes what [`copy`] wrote visible before whatever the calling thread writes next.
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction (SSE).
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// # Safety
///
/// As [`copy`], with at least [`MIN_BYTES`] bytes on a CPU with AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_avx(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_stream_si256};
    /// Two lines of the cache.
    const STEP: usize = 128;
    const VECTOR: usize = 32;
    const LINE: usize = 64;
    /// The processor's own prefetching ends with each page, so what is needed soon is asked for, …
    const AHEAD: usize = 1024;
    /// … and, as addresses of scattered pages take long to translate, the next page but one even sooner.
    const PAGE: usize = 4096;
    let head = to.align_offset(STEP).min(bytes);
    let steps = (bytes - head) / STEP * STEP;
    // SAFETY: all offsets are below `bytes`; the stores are aligned, since `to + head` is and the steps are
    // multiples of it. With a `head` of all bytes there is no step. Prefetching an address touches no memory.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + steps).step_by(STEP) {
            let (source, target) = (from.add(at), to.add(at));
            if source.addr() % PAGE < STEP {
                _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(2 * PAGE).cast());
            }
            let soon = source.wrapping_add(AHEAD).cast();
            _mm_prefetch::<_MM_HINT_T0>(soon);
            _mm_prefetch::<_MM_HINT_T0>(soon.wrapping_add(LINE));
            let load = |offset: usize| _mm256_loadu_si256(source.add(offset).cast());
            let vectors = [load(0), load(VECTOR), load(2 * VECTOR), load(3 * VECTOR)];
            for (index, vector) in vectors.into_iter().enumerate() {
                _mm256_stream_si256(target.add(index * VECTOR).cast(), vector);
            }
        }
        let done = head + steps;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside() {
        let source: Vec<u8> = (0..8192_u32).map(|at| (at * 31 % 251) as u8).collect();
        for bytes in [0, 1, 127, 1023, 1024, 1025, 1100, 4096, 5000] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (13, 77), (64, 127), (5, 128)] {
                let mut target = vec![0xee_u8; 8192];
                // SAFETY: both buffers are longer than the offsets and lengths above.
                unsafe { copy(source.as_ptr().add(from), target.as_mut_ptr().add(to), bytes) };
                fence();
                assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} {from} {to}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|&byte| byte == 0xee));
            }
        }
    }
}
