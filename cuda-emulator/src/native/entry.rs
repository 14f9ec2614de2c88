// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways into translated code and out of it, on the executor's side: scalars become registers of the frame, and the other
//! way round.

use super::shape::Kind;
use crate::code::LANES;

/// A register that is scalars in translated code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// Its offset in the frame.
    pub(crate) place: u32,
    /// Bytes of a lane, 0 for predicates.
    pub(crate) bytes: u8,
    pub(crate) kind: Kind,
    /// The first of its scratch words.
    pub(crate) word: usize,
}

impl Item {
    /// The number of its scratch words.
    pub(crate) fn count(&self, groups: usize) -> usize {
        if self.bytes == 0 || self.kind == Kind::Uniform { 1 } else { groups }
    }
}

/// An entry into translated code.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) pc: u32,
    pub(crate) items: Vec<Item>,
}

/// The reason for which translated code ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The interpreter continues at `pc`.
    Interpret,
    /// A handler returned something else than "go on"; `pc` is the next instruction.
    Handler,
    /// The turn is over; `pc` is next.
    Turn,
    /// Other lanes wait at `pc` or before.
    Merge,
    /// All lanes have exited.
    Ended,
    /// A barrier at `pc`, whose operands are not among the items. The items are those of the entry after it.
    Barrier,
}

/// A way out.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    pub(crate) code: Code,
    pub(crate) pc: u32,
    pub(crate) items: Vec<Item>,
    /// The positions of other lanes, each with the scratch word that has their mask. A later entry overrides an earlier one.
    pub(crate) parts: Vec<(u32, usize)>,
}

/// Reads scalars from a frame into `words`. Returns false when the lanes in `active` (not 0) do not match the items.
///
/// # Safety
/// The frame has the registers that the items name.
#[inline(always)]
pub(crate) unsafe fn read_items(
    items: &[Item],
    frame: *const u8,
    groups: usize,
    active: u32,
    words: &mut [u64],
) -> bool {
    for item in items {
        // SAFETY: the frame has the registers that the items name by this function's contract.
        let place = unsafe { frame.add(item.place as usize) };
        let count = if item.kind == Kind::Uniform { 1 } else { groups };
        let stride = item.kind.stride().unwrap_or(0);
        let fits = match item.bytes {
            0 => {
                // SAFETY: `place` is a register of the frame's; predicates are 4 bytes, and registers are aligned.
                let bits = unsafe { place.cast::<u32>().read() };
                let uniform = item.kind == Kind::Uniform;
                let all = bits & active == active;
                words[item.word] = u64::from(if uniform && all {
                    u32::MAX
                } else if uniform {
                    0
                } else {
                    bits
                });
                !uniform || all || bits & active == 0
            }
            // SAFETY: `place` is a register of the frame's with 32 lanes of this width, and registers are aligned.
            4 => unsafe {
                let lanes = &*place.cast::<[u32; LANES]>();
                read_words(lanes, (stride as u32, count), active, &mut words[item.word..])
            },
            // SAFETY: `place` is a register of the frame's with 32 lanes of this width, and registers are aligned.
            _ => unsafe {
                let lanes = &*place.cast::<[u64; LANES]>();
                read_long_words(lanes, (stride as u64, count), active, &mut words[item.word..])
            },
        };
        if !fits {
            return false;
        }
    }
    true
}

/// Writes scalars from `words` to the lanes in `lanes` of a frame.
///
/// # Safety
/// As [`read_items`].
#[inline(always)]
pub(crate) unsafe fn write_items(items: &[Item], frame: *mut u8, groups: usize, lanes: u32, words: &[u64]) {
    for item in items {
        // SAFETY: the frame has the registers that the items name by this function's contract.
        let place = unsafe { frame.add(item.place as usize) };
        let count = if item.kind == Kind::Uniform { 1 } else { groups };
        let stride = item.kind.stride().unwrap_or(0);
        // SAFETY: `place` is a register of the frame's with as many bytes as the item says.
        unsafe {
            match item.bytes {
                0 => {
                    let place = place.cast::<u32>();
                    *place = (*place & !lanes) | (words[item.word] as u32 & lanes);
                }
                4 => {
                    let target = &mut *place.cast::<[u32; LANES]>();
                    write_words(target, (stride as u32, count), lanes, &words[item.word..]);
                }
                _ => {
                    let target = &mut *place.cast::<[u64; LANES]>();
                    write_long_words(target, (stride as u64, count), lanes, &words[item.word..]);
                }
            }
        }
    }
}

/// Writes the two functions for words of 32 or 64 bits. Generic ones would need a trait of all these operations, as the standard
/// library has none.
macro_rules! transfer {
    ($read:ident, $write:ident, $t:ty) => {
        #[inline(always)]
        fn $read(lanes: &[$t; LANES], (stride, count): ($t, usize), active: u32, words: &mut [u64]) -> bool {
            #[inline(always)]
            fn group<const SIZE: usize>(lanes: &[$t], stride: $t, here: u32) -> Option<$t> {
                let lanes: &[$t; SIZE] = lanes.try_into().ok()?;
                let some = if here == 0 { 0 } else { here.trailing_zeros() as usize % SIZE };
                let base = lanes[some].wrapping_sub(stride.wrapping_mul(some as $t));
                let mut differences = 0;
                let all = u32::MAX >> (LANES - SIZE);
                if here == all {
                    // Without looking at the mask, this is a few vector instructions.
                    for lane in 0..SIZE {
                        differences |= lanes[lane] ^ base.wrapping_add(stride.wrapping_mul(lane as $t));
                    }
                    return (differences == 0).then_some(base);
                }
                for lane in 0..SIZE {
                    let expected = base.wrapping_add(stride.wrapping_mul(lane as $t));
                    let wanted = (0 as $t).wrapping_sub((here >> lane & 1) as $t);
                    differences |= (lanes[lane] ^ expected) & wanted;
                }
                (differences == 0).then_some(base)
            }
            let size = LANES / count;
            for (index, lanes) in lanes.chunks_exact(size).enumerate() {
                let here = active >> (index * size);
                let base = match size {
                    32 => group::<32>(lanes, stride, here),
                    16 => group::<16>(lanes, stride, here & 0xffff),
                    _ => group::<8>(lanes, stride, here & 0xff),
                };
                let Some(base) = base else { return false };
                words[index] = base as u64;
            }
            true
        }

        #[inline(always)]
        fn $write(target: &mut [$t; LANES], (stride, count): ($t, usize), lanes: u32, words: &[u64]) {
            #[inline(always)]
            fn group<const SIZE: usize>(target: &mut [$t], stride: $t, lanes: u32, base: $t) {
                let Ok(target) = <&mut [$t; SIZE]>::try_from(target) else { return };
                if lanes & (u32::MAX >> (LANES - SIZE)) == u32::MAX >> (LANES - SIZE) {
                    for (lane, target) in target.iter_mut().enumerate().take(SIZE) {
                        *target = base.wrapping_add(stride.wrapping_mul(lane as $t));
                    }
                    return;
                }
                for lane in 0..SIZE {
                    let value = base.wrapping_add(stride.wrapping_mul(lane as $t));
                    let wanted = (0 as $t).wrapping_sub((lanes >> lane & 1) as $t);
                    target[lane] = (target[lane] & !wanted) | (value & wanted);
                }
            }
            let size = LANES / count;
            for (index, target) in target.chunks_exact_mut(size).enumerate() {
                let (lanes, base) = (lanes >> (index * size), words[index] as $t);
                match size {
                    32 => group::<32>(target, stride, lanes, base),
                    16 => group::<16>(target, stride, lanes, base),
                    _ => group::<8>(target, stride, lanes, base),
                }
            }
        }
    };
}
transfer!(read_words, write_words, u32);
transfer!(read_long_words, write_long_words, u64);
