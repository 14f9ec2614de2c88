// SPDX-License-Identifier: Apache-2.0 OR MIT
//! atom and red.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::access::{Access, aux};
use super::vector;
use crate::code::{Handler, Instr, LANES, lanes_of};
use crate::execute::arithmetic::float::{canonical, flush};
use crate::execute::arithmetic::half::{self, Format, decode, encode};
use crate::execute::arithmetic::round::Rounding;
use crate::execute::lanes::{handler, instance};
use crate::execute::state::{Flow, Machine};
use crate::ptx::types::Type;

handler! {
    /// `ops[0] = [ops[4] + imm]; [ops[4] + imm] = operation(old, ops[1], ops[2])`, atomically.
    update<T> (Fn(T, T, T) -> T) update_body
}

/// A word that the host's atomics work on.
pub(super) trait Word: Copy + 'static {
    /// # Safety
    /// `place` is valid for atomic access and aligned.
    unsafe fn replace(place: *mut Self, f: impl Fn(Self) -> Self) -> Self;
}

/// Implements [`Word`] for the numbers that the standard library has atomics of, which have no trait.
macro_rules! word {
    ($($t:ty, $atomic:ty;)*) => {
        $(impl Word for $t {
            #[inline(always)]
            unsafe fn replace(place: *mut $t, f: impl Fn($t) -> $t) -> $t {
                // SAFETY: `place` is valid for atomic access and aligned by the contract of `Word::replace`.
                let word = unsafe { <$atomic>::from_ptr(place) };
                let mut old = word.load(Ordering::Relaxed);
                loop {
                    match word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(_) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        })*
    };
}
word! { u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; }

/// Held during every operation on 128 bits: there is no such atomic in the standard library. A store beside one can be lost.
static WIDE: Mutex<()> = Mutex::new(());

impl Word for u128 {
    unsafe fn replace(place: *mut u128, f: impl Fn(u128) -> u128) -> u128 {
        let _guard = WIDE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `place` is valid for atomic access and aligned by the contract of `Word::replace`.
        unsafe {
            let mut old = 0;
            vector::read(place, 1, |_, value| old = value);
            vector::write(place, 1, |_| f(old));
            old
        }
    }
}

#[inline(always)]
unsafe fn update_body<T: Copy, Op: Fn(T, T, T) -> T + Copy>(
    machine: &mut Machine<'_>,
    instr: &Instr,
) -> Flow {
    let operation = instance::<Op>();
    let mut at = [0; LANES];
    // SAFETY: the operands have the kinds and widths that the constructor of this handler documents (contract of
    // `Handler`), `resolve` has checked address and alignment; `T` is u16 to u128 (the constructors in this file), so
    // that the casts below only name its width.
    unsafe {
        if let Err(flow) = machine.resolve(instr, &mut at, size_of::<T>() as u64, Access::Atomic) {
            return flow;
        }
        if instr.aux & aux::POLLS != 0 {
            machine.polls();
        }
        let target = machine.target::<T>(instr.ops[0]);
        let value = machine.source::<T>(instr.ops[1]);
        let other = machine.source::<T>(instr.ops[2]);
        for lane in lanes_of(machine.mask) {
            let (value, other) = (*value.add(lane), *other.add(lane));
            let place = at[lane] as *mut T;
            let old = match size_of::<T>() {
                2 => replace_as::<T, u16>(place, |old| operation(old, value, other)),
                4 => replace_as::<T, u32>(place, |old| operation(old, value, other)),
                16 => replace_as::<T, u128>(place, |old| operation(old, value, other)),
                _ => replace_as::<T, u64>(place, |old| operation(old, value, other)),
            };
            *target.add(lane) = old;
        }
    }
    Flow::Next
}

/// # Safety
/// As [`Word::replace`]; `T` and `W` have the same size and every bit pattern is valid for both.
#[inline(always)]
unsafe fn replace_as<T: Copy, W: Word>(place: *mut T, f: impl Fn(T) -> T) -> T {
    // SAFETY: `place` is valid for atomic access and aligned, and the types have the same size, by this function's
    // contract.
    unsafe {
        let cast = |word: W| std::mem::transmute_copy::<W, T>(&word);
        let back = |value: T| std::mem::transmute_copy::<T, W>(&value);
        cast(W::replace(place.cast::<W>(), |old| back(f(cast(old)))))
    }
}

/// An operation with one value on one element in memory.
///
/// # Safety
/// Both are valid for the element, the first for atomic access and aligned.
pub(crate) type Reduction = unsafe fn(*mut u8, *const u8);

/// The reductions of cp.reduce.async.bulk. As on an H200, sums keep subnormals, and NaNs as they are.
static REDUCTIONS: &[(&str, Type, Reduction)] = &[
    ("and", Type::B32, reduction_of(|a: u32, b: u32| a & b)),
    ("or", Type::B32, reduction_of(|a: u32, b: u32| a | b)),
    ("xor", Type::B32, reduction_of(|a: u32, b: u32| a ^ b)),
    ("and", Type::B64, reduction_of(|a: u64, b: u64| a & b)),
    ("or", Type::B64, reduction_of(|a: u64, b: u64| a | b)),
    ("xor", Type::B64, reduction_of(|a: u64, b: u64| a ^ b)),
    ("add", Type::U32, reduction_of(u32::wrapping_add)),
    ("add", Type::S32, reduction_of(u32::wrapping_add)),
    ("add", Type::U64, reduction_of(u64::wrapping_add)),
    ("add", Type::S64, reduction_of(u64::wrapping_add)),
    ("inc", Type::U32, reduction_of(|a: u32, b: u32| if a >= b { 0 } else { a + 1 })),
    ("dec", Type::U32, reduction_of(|a: u32, b: u32| if a == 0 || a > b { b } else { a - 1 })),
    ("min", Type::U32, reduction_of(u32::min)),
    ("max", Type::U32, reduction_of(u32::max)),
    ("min", Type::U64, reduction_of(u64::min)),
    ("max", Type::U64, reduction_of(u64::max)),
    ("min", Type::S32, reduction_of(i32::min)),
    ("max", Type::S32, reduction_of(i32::max)),
    ("min", Type::S64, reduction_of(i64::min)),
    ("max", Type::S64, reduction_of(i64::max)),
    ("add", Type::F32, reduction_of(|a: f32, b: f32| canonical(a + b))),
    (
        "add",
        Type::F64,
        reduction_of(|a: f64, b: f64| {
            if b.is_nan() {
                b
            } else if a.is_nan() {
                a
            } else {
                a + b
            }
        }),
    ),
    ("add.noftz", Type::F16, reduction_of(add::<half::F16>)),
    ("add.noftz", Type::Bf16, reduction_of(add::<half::Bf16>)),
    ("min", Type::F16, reduction_of(half::least_bits::<half::F16>)),
    ("max", Type::F16, reduction_of(half::most_bits::<half::F16>)),
    ("min", Type::Bf16, reduction_of(half::least_bits::<half::Bf16>)),
    ("max", Type::Bf16, reduction_of(half::most_bits::<half::Bf16>)),
];

const fn reduction_of<T: Copy, Op: Fn(T, T) -> T + Copy>(_operation: Op) -> Reduction {
    unsafe fn reduce<T: Copy, Op: Fn(T, T) -> T + Copy>(to: *mut u8, from: *const u8) {
        let operation = instance::<Op>();
        // SAFETY: `to` is valid for atomic access and `from` for a read, both of this number's width, by the contract of the table's
        // functions; every bit pattern is valid for a number.
        unsafe {
            let value = from.cast::<T>().read_unaligned();
            replace(to.cast::<T>(), |old| operation(old, value));
        }
    }
    reduce::<T, Op>
}

/// The number of an operation for [`reduction`].
pub(crate) fn reduction_number(operation: &str, kind: Type) -> Option<u32> {
    REDUCTIONS.iter().position(|known| (known.0, known.1) == (operation, kind)).map(|place| place as u32)
}

/// The operation with this number.
pub(crate) fn reduction(number: u32) -> Option<Reduction> {
    REDUCTIONS.get(number as usize).map(|known| known.2)
}

/// Changes an element of two, four or eight bytes.
///
/// # Safety
/// `place` is valid for atomic access and aligned.
unsafe fn replace<T: Copy>(place: *mut T, f: impl Fn(T) -> T) {
    // SAFETY: `place` is valid for atomic access and aligned by this function's contract; the sizes agree.
    unsafe {
        match size_of::<T>() {
            2 => replace_as::<T, u16>(place, f),
            4 => replace_as::<T, u32>(place, f),
            _ => replace_as::<T, u64>(place, f),
        };
    }
}

/// The handler for an operation; `ops[2]` counts for cas only and has the same width.
pub(crate) fn select(operation: &str, kind: Type) -> Option<Handler> {
    use Type::*;
    Some(match (operation, kind) {
        ("and", B32) => update(|old: u32, b, _| old & b),
        ("and", B64) => update(|old: u64, b, _| old & b),
        ("or", B32) => update(|old: u32, b, _| old | b),
        ("or", B64) => update(|old: u64, b, _| old | b),
        ("xor", B32) => update(|old: u32, b, _| old ^ b),
        ("xor", B64) => update(|old: u64, b, _| old ^ b),
        ("exch", B32) => update(|_: u32, b, _| b),
        ("exch", B64) => update(|_: u64, b, _| b),
        ("cas", B16) => update(|old: u16, b, c| if old == b { c } else { old }),
        ("cas", B32) => update(|old: u32, b, c| if old == b { c } else { old }),
        ("cas", B64) => update(|old: u64, b, c| if old == b { c } else { old }),
        ("add", U32 | S32) => update(|old: u32, b, _| old.wrapping_add(b)),
        ("add", U64 | S64) => update(|old: u64, b, _| old.wrapping_add(b)),
        ("inc", U32) => update(|old: u32, b, _| if old >= b { 0 } else { old + 1 }),
        ("dec", U32) => update(|old: u32, b, _| if old == 0 || old > b { b } else { old - 1 }),
        ("min", U32) => update(|old: u32, b, _| old.min(b)),
        ("max", U32) => update(|old: u32, b, _| old.max(b)),
        ("min", U64) => update(|old: u64, b, _| old.min(b)),
        ("max", U64) => update(|old: u64, b, _| old.max(b)),
        ("min", S32) => update(|old: i32, b, _| old.min(b)),
        ("max", S32) => update(|old: i32, b, _| old.max(b)),
        ("min", S64) => update(|old: i64, b, _| old.min(b)),
        ("max", S64) => update(|old: i64, b, _| old.max(b)),
        // `.ftz` is what global memory does with f32: subnormals become zero.
        ("add", F32) => update(|old: f32, b, _| canonical(old + b)),
        ("add.ftz", F32) => update(|old: f32, b, _| canonical(flush(flush(old) + flush(b)))),
        // Global memory passes a NaN on unchanged: the operand's, otherwise the one in memory. Shared memory prefers
        // its own NaN and makes it quiet.
        ("add.ftz", F64) => update(|old: f64, b, _| match (b.is_nan(), old.is_nan()) {
            (true, _) => b,
            (_, true) => old,
            _ => old + b,
        }),
        ("add", F64) => update(
            |old: f64, b, _| {
                if old.is_nan() { f64::from_bits(old.to_bits() | 1 << 51) } else { old + b }
            },
        ),
        ("add.noftz", F16) => update(|old: u16, b, _| add::<half::F16>(old, b)),
        ("add.noftz", Bf16) => update(|old: u16, b, _| add::<half::Bf16>(old, b)),
        ("min.noftz", F16) => update(|old: u16, b, _| half::least_bits::<half::F16>(old, b)),
        ("min.noftz", Bf16) => update(|old: u16, b, _| half::least_bits::<half::Bf16>(old, b)),
        ("max.noftz", F16) => update(|old: u16, b, _| half::most_bits::<half::F16>(old, b)),
        ("max.noftz", Bf16) => update(|old: u16, b, _| half::most_bits::<half::Bf16>(old, b)),
        ("min.noftz", F16x2) => update(|old: u32, b, _| half::pair2(old, b, half::least_bits::<half::F16>)),
        ("min.noftz", Bf16x2) => update(|old: u32, b, _| half::pair2(old, b, half::least_bits::<half::Bf16>)),
        ("max.noftz", F16x2) => update(|old: u32, b, _| half::pair2(old, b, half::most_bits::<half::F16>)),
        ("max.noftz", Bf16x2) => update(|old: u32, b, _| half::pair2(old, b, half::most_bits::<half::Bf16>)),
        ("cas", B128) => update(|old: u128, b, c| if old == b { c } else { old }),
        ("exch", B128) => update(|_: u128, b, _| b),
        ("add.noftz", F16x2) => update(|old: u32, b, _| add_pair::<half::F16>(old, b)),
        ("add.noftz", Bf16x2) => update(|old: u32, b, _| add_pair::<half::Bf16>(old, b)),
        _ => return None,
    })
}

fn add<F: Format>(a: u16, b: u16) -> u16 {
    encode::<F>(decode::<F>(a) + decode::<F>(b), Rounding::Nearest)
}

fn add_pair<F: Format>(a: u32, b: u32) -> u32 {
    let high = add::<F>((a >> 16) as u16, (b >> 16) as u16);
    u32::from(add::<F>(a as u16, b as u16)) | u32::from(high) << 16
}
