// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vectors in memory, as one access each.
//!
//! PTX allows a vector to be several accesses in any order (PTX ISA, Memory Consistency Model, Vector Data-types).
//! GPUs access up to 16 bytes at once, and programs rely on it: a tile of CUB's scans is a vector of a flag and a value, which
//! other blocks wait for.

use std::mem::MaybeUninit;

/// 16 bytes. Processors with AVX access them at once if they are aligned (Intel SDM, volume 3, Guaranteed Atomic Operations); a
/// `u128` would be two accesses.
#[cfg(target_arch = "x86_64")]
type Sixteen = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Sixteen = u128;

/// The most elements of a vector.
const MAX: usize = 4;

/// Reads `count` elements of memory that others may write; gives each with its index to `take`.
///
/// # Safety
/// `from` is valid for `count` elements, at most [`MAX`]. Every pattern of bits is a `T`.
#[inline(always)]
pub(super) unsafe fn read<T: Copy>(from: *const T, count: usize, mut take: impl FnMut(usize, T)) {
    let mut own = [const { MaybeUninit::<T>::uninit() }; MAX];
    // SAFETY: `from` is valid by the contract, and `own` has room for `MAX`.
    unsafe { transfer(from.cast_mut(), own.as_mut_ptr().cast(), count, Direction::Read) };
    for (index, element) in own.iter().enumerate().take(count) {
        // SAFETY: `transfer` has initialised `count` elements.
        take(index, unsafe { element.assume_init_read() });
    }
}

/// Writes `count` elements, which `give` returns, to memory that others may read.
///
/// # Safety
/// `to` is valid for `count` elements, at most [`MAX`].
#[inline(always)]
pub(super) unsafe fn write<T: Copy>(to: *mut T, count: usize, mut give: impl FnMut(usize) -> T) {
    let mut own = [const { MaybeUninit::<T>::uninit() }; MAX];
    for (index, element) in own.iter_mut().enumerate().take(count) {
        element.write(give(index));
    }
    // SAFETY: `to` is valid by the contract, and `count` elements of `own` have been initialised.
    unsafe { transfer(to, own.as_mut_ptr().cast(), count, Direction::Write) };
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// # Safety
/// Both pointers are valid for `count` elements, for writes on the side that `direction` writes.
#[inline(always)]
unsafe fn transfer<T>(memory: *mut T, own: *mut T, count: usize, direction: Direction) {
    let bytes = count * size_of::<T>();
    // SAFETY: the contract of this function.
    unsafe {
        match bytes {
            2 => pieces::<T, u16>(memory, own, bytes, direction),
            4 => pieces::<T, u32>(memory, own, bytes, direction),
            8 => pieces::<T, u64>(memory, own, bytes, direction),
            16 | 32 => pieces::<T, Sixteen>(memory, own, bytes, direction),
            _ => pieces::<T, T>(memory, own, bytes, direction),
        }
    }
}

/// Copies `bytes` bytes by accesses to `memory` that are as large as `P`. Memory that is not aligned for that is local, so no
/// other thread sees how it is accessed.
///
/// # Safety
/// As for [`transfer`]; `bytes` is a multiple of the size of `P`.
#[inline(always)]
unsafe fn pieces<T, P>(memory: *mut T, own: *mut T, bytes: usize, direction: Direction) {
    if !memory.cast::<P>().is_aligned() {
        // SAFETY: the contract of this function.
        return unsafe {
            match direction {
                Direction::Read => own.cast::<u8>().copy_from_nonoverlapping(memory.cast(), bytes),
                Direction::Write => memory.cast::<u8>().copy_from_nonoverlapping(own.cast(), bytes),
            }
        };
    }
    for piece in 0..bytes / size_of::<P>() {
        // SAFETY: the piece lies within `bytes`, which both pointers are valid for; `memory` is aligned.
        unsafe {
            let (memory, own) = (memory.cast::<P>().add(piece), own.cast::<P>().add(piece));
            match direction {
                Direction::Read => own.write_unaligned(memory.read_volatile()),
                Direction::Write => memory.write_volatile(own.read_unaligned()),
            }
        }
    }
}
