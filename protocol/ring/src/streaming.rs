// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause
//! Copies past the CPU's caches, into buffers that the GPU reads next: fetching their old contents into a cache
//! first would only cost time.

/// Shorter copies use stores through the caches.
const MIN_BYTES: usize = 1 << 10;

/// Copies `bytes` bytes. They are seen by others after [`fence`] only.
///
/// # Safety
///
/// As for `std::ptr::copy_nonoverlapping`.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= MIN_BYTES {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512; `# Safety` promises `bytes` bytes at both addresses, which do not overlap.
            return unsafe { copy_avx512(from, to, bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the CPU has AVX; `# Safety` promises `bytes` bytes at both addresses, which do not overlap.
            return unsafe { copy_avx(from, to, bytes) };
        }
    }
    // SAFETY: `# Safety` promises `bytes` bytes at both addresses, which do not overlap.
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

/// Two lines of the cache, which are copied at a time.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 128;

/// Prefetches data that is needed soon.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch(source: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    /// The processor's own prefetching ends with each page, so what is needed soon is asked for, …
    const AHEAD: usize = 1024;
    let soon = source.wrapping_add(AHEAD).cast();
    // SAFETY: prefetching an address touches no memory.
    unsafe {
        // … and, as addresses of scattered pages take long to translate, the next page but one even sooner.
        if source.addr() % PAGE < STEP {
            _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(2 * PAGE).cast());
        }
        _mm_prefetch::<_MM_HINT_T0>(soon);
        _mm_prefetch::<_MM_HINT_T0>(soon.wrapping_add(STEP / 2));
    }
}

/// Copies a head until the target is aligned, then by `step` [`STEP`] bytes at a time, then the rest.
///
/// # Safety
///
/// As [`copy`]; `step` copies as many bytes, to an address that is a multiple of it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_steps(from: *const u8, to: *mut u8, bytes: usize, step: impl Fn(*const u8, *mut u8)) {
    let head = to.align_offset(STEP).min(bytes);
    let steps = (bytes - head) / STEP * STEP;
    // SAFETY: all offsets are below `bytes`; `to + head` is aligned, and the steps are multiples of it. With a `head` of
    // all bytes there is no step.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for at in (head..head + steps).step_by(STEP) {
            prefetch(from.add(at));
            step(from.add(at), to.add(at));
        }
        let done = head + steps;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
    }
}

/// # Safety
///
/// As [`copy`], on a CPU with AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_avx(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_stream_si256};
    // SAFETY: `copy_steps` gives addresses of `STEP` bytes, of which the second one is a multiple of `STEP`; the CPU has AVX.
    let step = |source: *const u8, target: *mut u8| unsafe {
        let (source, target) = (source.cast::<__m256i>(), target.cast());
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| _mm256_loadu_si256(source.add(index)));
        _mm256_stream_si256(target, a);
        _mm256_stream_si256(target.add(1), b);
        _mm256_stream_si256(target.add(2), c);
        _mm256_stream_si256(target.add(3), d);
    };
    // SAFETY: `# Safety` promises `bytes` bytes at both addresses, which do not overlap; the step copies `STEP` bytes.
    unsafe { copy_steps(from, to, bytes, step) }
}

/// Bytes of a line of the cache, and of a page.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
#[cfg(target_arch = "x86_64")]
const PAGE: usize = 4096;
/// The number of pages that are copied concurrently: while one address is translated, lines of the other pages are in
/// flight.
#[cfg(target_arch = "x86_64")]
const ABREAST: usize = 4;

/// Copies `N` lines that lie `apart` bytes apart.
///
/// # Safety
///
/// The bytes must exist at both addresses, of which the second one must be aligned to lines; the CPU must have
/// AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_lines<const N: usize>(from: *const u8, to: *mut u8, apart: usize) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
    // SAFETY: `# Safety` promises the lines at both addresses, the second one aligned, and AVX-512.
    unsafe {
        let lines: [__m512i; N] =
            std::array::from_fn(|line| _mm512_loadu_si512(from.add(line * apart).cast()));
        for (line, &bytes) in lines.iter().enumerate() {
            _mm512_stream_si512(to.add(line * apart).cast(), bytes);
        }
    }
}

/// Copies whole cache lines, of several pages at a time. Each of the two is faster by 10 to 20 % where several cores
/// copy.
///
/// # Safety
///
/// As [`copy`], on a CPU with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_avx512(from: *const u8, to: *mut u8, bytes: usize) {
    let head = to.align_offset(STEP).min(bytes);
    let blocks = (bytes - head) / (ABREAST * PAGE);
    let done = head + blocks * ABREAST * PAGE;
    // SAFETY: all offsets are below `bytes`; `to + head` is aligned, and what is added to it are multiples of lines. With
    // a `head` of all bytes there is no block.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        for block in (head..done).step_by(ABREAST * PAGE) {
            for at in (block..block + PAGE).step_by(LINE) {
                copy_lines::<ABREAST>(from.add(at), to.add(at), PAGE);
            }
        }
        let step = |source: *const u8, target: *mut u8| copy_lines::<{ STEP / LINE }>(source, target, LINE);
        copy_steps(from.add(done), to.add(done), bytes - done, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside() {
        type Copy = unsafe fn(*const u8, *mut u8, usize);
        let mut ways: Vec<Copy> = vec![copy];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx") {
            ways.push(copy_avx);
        }
        for way in ways {
            check(way);
        }
    }

    fn check(copy: unsafe fn(*const u8, *mut u8, usize)) {
        const ROOM: usize = 48 << 10;
        let source: Vec<u8> = (0..ROOM as u32).map(|at| (at * 31 % 251) as u8).collect();
        for bytes in [0, 1, 127, 1023, 1024, 1025, 1100, 4096, 5000, 16384, 16385, 40000] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (13, 77), (64, 127), (5, 128)] {
                let mut target = vec![0xee_u8; ROOM];
                // SAFETY: both buffers are longer than the offsets and lengths above.
                unsafe { copy(source.as_ptr().add(from), target.as_mut_ptr().add(to), bytes) };
                fence();
                assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} {from} {to}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|&byte| byte == 0xee));
            }
        }
    }
}
