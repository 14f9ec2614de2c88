// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers made from scalar functions: one call per lane, written so that the compiler vectorises it.
//!
//! Each constructor takes a closure that captures nothing; the handler is an instance for that closure's type. It exists
//! twice, for any x86-64 and for one with AVX2 and FMA, and the CPU decides which one the program gets.

use super::state::{Flow, Machine};
use crate::code::{FULL, Handler, Instr, LANES, lanes_of};

/// Lanes that are loaded before the first of them is stored: a destination may be one of the sources.
const CHUNK: usize = 8;

/// A value of the capture-free closure type `F`.
#[inline(always)]
pub(super) fn instance<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "handlers are made from closures that capture nothing") };
    // SAFETY: `F` has no bytes, and a value of it existed: the constructors take one (and `Copy` keeps it alive).
    unsafe { std::mem::zeroed() }
}

/// Defines a handler constructor: `fn name<Generics>(closure) -> Handler` around an inlined body. With `plain`, there is
/// one version for all CPUs: for bodies in which wide vectors gain nothing.
macro_rules! handler {
    (plain $(#[$doc:meta])* $name:ident<$($t:ident),*> ($bound:path) $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name<$($t: Copy + 'static,)* Op: $bound + Copy + 'static>(_operation: Op) -> Handler {
            $body::<$($t,)* Op>
        }
    };
    ($(#[$doc:meta])* $name:ident<$($t:ident),*> ($bound:path) $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name<$($t: Copy + 'static,)* Op: $bound + Copy + 'static>(_operation: Op) -> Handler {
            unsafe fn base<$($t: Copy + 'static,)* Op: $bound + Copy + 'static>(
                machine: &mut Machine<'_>,
                instr: &Instr,
            ) -> Flow {
                // SAFETY: the caller keeps the contract of `Handler`.
                unsafe { $body::<$($t,)* Op>(machine, instr) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
            unsafe fn wide<$($t: Copy + 'static,)* Op: $bound + Copy + 'static>(
                machine: &mut Machine<'_>,
                instr: &Instr,
            ) -> Flow {
                // SAFETY: the caller keeps the contract of `Handler`.
                unsafe { $body::<$($t,)* Op>(machine, instr) }
            }
            #[cfg(target_arch = "x86_64")]
            if $crate::vectors::has_wide_vectors() {
                return wide::<$($t,)* Op>;
            }
            base::<$($t,)* Op>
        }
    };
}
pub(super) use handler;

handler! {
    /// `ops[0] = operation(ops[1])` in every lane; `D` and `A` are as wide as the registers.
    map1<D, A> (Fn(A) -> D) map1_body
}
handler! {
    /// `ops[0] = operation(ops[1], ops[2])`
    map2<D, A, B> (Fn(A, B) -> D) map2_body
}
handler! {
    /// `ops[0] = operation(ops[1], ops[2], ops[3])`
    map3<D, A, B, C> (Fn(A, B, C) -> D) map3_body
}
handler! {
    /// `ops[0] = operation(ops[1], ops[2], ops[3], imm)`
    map3_imm<D, A, B, C> (Fn(A, B, C, u64) -> D) map3_imm_body
}
handler! {
    plain
    /// As [`map1`], calling `operation` for the lanes in the mask only: for operations that do not vectorise.
    each1<D, A> (Fn(A) -> D) each1_body
}
handler! {
    plain
    /// As [`each1`] with two sources.
    each2<D, A, B> (Fn(A, B) -> D) each2_body
}
handler! {
    plain
    /// As [`each1`] with three sources.
    each3<D, A, B, C> (Fn(A, B, C) -> D) each3_body
}
handler! {
    plain
    /// `ops[0] = operation(ops[1], ops[2], ops[3], imm)`, lane by lane as [`each1`].
    each3_imm<D, A, B, C> (Fn(A, B, C, u64) -> D) each3_imm_body
}
handler! {
    plain
    /// The predicate `ops[0] = operation(ops[1], ops[2], imm)`, lane by lane.
    test2_imm<A, B> (Fn(A, B, u64) -> bool) test2_imm_body
}
handler! {
    /// The predicate `ops[0] = operation(ops[1], ops[2])`.
    test2<A, B> (Fn(A, B) -> bool) test2_body
}
handler! {
    /// The predicate `ops[0] = operation(ops[1])`.
    test1<A> (Fn(A) -> bool) test1_body
}
handler! {
    /// The predicate `ops[0] = operation(ops[1], ops[2])` of predicates, all lanes at once.
    logic2<> (Fn(u32, u32) -> u32) logic2_body
}
handler! {
    /// `ops[0] = operation(ops[1], ops[2], p)` with the predicate `p = ops[3]`.
    choose<D, A, B> (Fn(A, B, bool) -> D) choose_body
}

/// # Safety
/// As [`Handler`]; so for all bodies below.
#[inline(always)]
unsafe fn map1_body<D: Copy, A: Copy, Op: Fn(A) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        store(machine, instr, |lane| operation(*a.add(lane)))
    }
}

#[inline(always)]
unsafe fn map2_body<D: Copy, A: Copy, B: Copy, Op: Fn(A, B) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        store(machine, instr, |lane| operation(*a.add(lane), *b.add(lane)))
    }
}

#[inline(always)]
unsafe fn map3_body<D: Copy, A: Copy, B: Copy, C: Copy, Op: Fn(A, B, C) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let c = machine.source::<C>(instr.ops[3]);
        store(machine, instr, |lane| operation(*a.add(lane), *b.add(lane), *c.add(lane)))
    }
}

#[inline(always)]
unsafe fn map3_imm_body<D: Copy, A: Copy, B: Copy, C: Copy, Op: Fn(A, B, C, u64) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    let imm = instr.imm;
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let c = machine.source::<C>(instr.ops[3]);
        store(machine, instr, |lane| operation(*a.add(lane), *b.add(lane), *c.add(lane), imm))
    }
}

#[inline(always)]
unsafe fn choose_body<D: Copy, A: Copy, B: Copy, Op: Fn(A, B, bool) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`); ops[3] is a predicate.
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let bits = machine.predicate(instr.ops[3]);
        store(machine, instr, |lane| operation(*a.add(lane), *b.add(lane), bits & (1 << lane) != 0))
    }
}

/// Computes all lanes and stores those in the mask. Lanes outside it are computed from whatever their registers hold and
/// dropped.
#[inline(always)]
unsafe fn store<D: Copy>(machine: &mut Machine<'_>, instr: &Instr, value: impl Fn(usize) -> D) -> Flow {
    let mask = machine.mask;
    // SAFETY: the destination is a register as wide as `D`, 32 lanes long.
    unsafe {
        let target = machine.target::<D>(instr.ops[0]);
        for first in (0..LANES).step_by(CHUNK) {
            let chunk: [D; CHUNK] = std::array::from_fn(|index| value(first + index));
            let place = target.add(first).cast::<[D; CHUNK]>();
            if mask == FULL {
                *place = chunk;
            } else {
                let old = *place;
                *place = std::array::from_fn(|index| {
                    if mask & (1 << (first + index)) != 0 { chunk[index] } else { old[index] }
                });
            }
        }
    }
    Flow::Next
}

unsafe fn each1_body<D: Copy, A: Copy, Op: Fn(A) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let target = machine.target::<D>(instr.ops[0]);
        let a = machine.source::<A>(instr.ops[1]);
        for lane in lanes_of(machine.mask) {
            *target.add(lane) = operation(*a.add(lane));
        }
    }
    Flow::Next
}

unsafe fn each2_body<D: Copy, A: Copy, B: Copy, Op: Fn(A, B) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let target = machine.target::<D>(instr.ops[0]);
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        for lane in lanes_of(machine.mask) {
            *target.add(lane) = operation(*a.add(lane), *b.add(lane));
        }
    }
    Flow::Next
}

unsafe fn each3_body<D: Copy, A: Copy, B: Copy, C: Copy, Op: Fn(A, B, C) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let target = machine.target::<D>(instr.ops[0]);
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let c = machine.source::<C>(instr.ops[3]);
        for lane in lanes_of(machine.mask) {
            *target.add(lane) = operation(*a.add(lane), *b.add(lane), *c.add(lane));
        }
    }
    Flow::Next
}

unsafe fn each3_imm_body<D: Copy, A: Copy, B: Copy, C: Copy, Op: Fn(A, B, C, u64) -> D + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`).
    unsafe {
        let target = machine.target::<D>(instr.ops[0]);
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let c = machine.source::<C>(instr.ops[3]);
        for lane in lanes_of(machine.mask) {
            *target.add(lane) = operation(*a.add(lane), *b.add(lane), *c.add(lane), instr.imm);
        }
    }
    Flow::Next
}

unsafe fn test2_imm_body<A: Copy, B: Copy, Op: Fn(A, B, u64) -> bool + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`); the destination is a predicate.
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let lanes = lanes_of(machine.mask);
        let bits = lanes
            .fold(0, |bits, lane| bits | u32::from(operation(*a.add(lane), *b.add(lane), instr.imm)) << lane);
        machine.set_predicate(instr.ops[0], bits);
    }
    Flow::Next
}

#[inline(always)]
unsafe fn test2_body<A: Copy, B: Copy, Op: Fn(A, B) -> bool + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: the operands are registers of these widths (contract of `Handler`); the destination is a predicate.
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let b = machine.source::<B>(instr.ops[2]);
        let bits = pack(std::array::from_fn(|lane| operation(*a.add(lane), *b.add(lane))));
        machine.set_predicate(instr.ops[0], bits);
    }
    Flow::Next
}

#[inline(always)]
unsafe fn test1_body<A: Copy, Op: Fn(A) -> bool + Copy>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: ops[1] is a register of this width, the destination a predicate (contract of `Handler`).
    unsafe {
        let a = machine.source::<A>(instr.ops[1]);
        let bits = pack(std::array::from_fn(|lane| operation(*a.add(lane))));
        machine.set_predicate(instr.ops[0], bits);
    }
    Flow::Next
}

#[inline(always)]
unsafe fn logic2_body<Op: Fn(u32, u32) -> u32 + Copy>(machine: &mut Machine<'_>, instr: &Instr) -> Flow {
    let operation = instance::<Op>();
    // SAFETY: all three are predicates.
    unsafe {
        let bits = operation(machine.predicate(instr.ops[1]), machine.predicate(instr.ops[2]));
        machine.set_predicate(instr.ops[0], bits);
    }
    Flow::Next
}

/// Lane 0 becomes bit 0.
#[inline(always)]
pub(super) fn pack(lanes: [bool; LANES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_movemask_epi8, _mm_slli_epi16};
        let start = lanes.as_ptr().cast::<__m128i>();
        // SAFETY: `lanes` is 32 bytes, unaligned loads; SSE2 is part of x86-64. The shift moves bit 0 of each byte (a
        // bool is 0 or 1) to bit 7, where movemask takes it.
        unsafe {
            let low = _mm_movemask_epi8(_mm_slli_epi16::<7>(_mm_loadu_si128(start)));
            let high = _mm_movemask_epi8(_mm_slli_epi16::<7>(_mm_loadu_si128(start.add(1))));
            low as u32 | (high as u32) << 16
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    lanes.iter().enumerate().fold(0, |bits, (lane, set)| bits | u32::from(*set) << lane)
}
