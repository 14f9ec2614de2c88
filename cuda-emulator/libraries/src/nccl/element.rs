// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Types of elements (`ncclDataType_t`) and the arithmetic of operators on them. A sum of several ranks is stored in
//! 64 bits per element, as an integer, or as an f32 (for the types of up to 32 bits) or f64, and rounded once.

use std::ops::{Add, Mul};

use half::{bf16, f16};

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    /// Types of 8 bits that are only moved: `ncclFloat8e4m3`, `ncclFloat8e5m2`.
    F8,
}

impl Kind {
    /// The type of an `ncclDataType_t`.
    pub fn new(number: i32) -> Option<Self> {
        const KINDS: [Kind; 12] = [
            Kind::I8,
            Kind::U8,
            Kind::I32,
            Kind::U32,
            Kind::I64,
            Kind::U64,
            Kind::F16,
            Kind::F32,
            Kind::F64,
            Kind::Bf16,
            Kind::F8,
            Kind::F8,
        ];
        KINDS.get(usize::try_from(number).ok()?).copied()
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// An operator that combines the elements of all ranks to one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Sum,
    Product,
    Maximum,
    Minimum,
    /// The sum, divided by the number of ranks.
    Average,
}

impl Operator {
    /// The operator of an `ncclRedOp_t`.
    pub fn new(number: i32) -> Option<Self> {
        const OPERATORS: [Operator; 5] =
            [Operator::Sum, Operator::Product, Operator::Maximum, Operator::Minimum, Operator::Average];
        OPERATORS.get(usize::try_from(number).ok()?).copied()
    }
}

/// The type in which elements are stored: `i64`, `u64`, `f32` or `f64`.
trait Wide: Copy {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
    fn divide(self, by: u32) -> Self;

    fn apply(self, operator: Operator, other: Self) -> Self {
        match operator {
            Operator::Sum | Operator::Average => self.plus(other),
            Operator::Product => self.times(other),
            Operator::Maximum => self.larger(other),
            Operator::Minimum => self.smaller(other),
        }
    }
}

/// Implements [`Wide`] for types of the standard library, which have these operations under different names, and no trait for
/// them. Integers wrap.
macro_rules! wide {
    ($($wide:ty: $to_bits:expr, $from_bits:expr, $plus:path, $times:path;)*) => { $(
        impl Wide for $wide {
            fn to_bits(self) -> u64 {
                let to_bits: fn(Self) -> u64 = $to_bits;
                to_bits(self)
            }

            fn from_bits(bits: u64) -> Self {
                let from_bits: fn(u64) -> Self = $from_bits;
                from_bits(bits)
            }

            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            fn times(self, other: Self) -> Self {
                $times(self, other)
            }

            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            fn divide(self, by: u32) -> Self {
                self / by as Self
            }
        }
    )* };
}
wide! {
    i64: |wide| wide as u64, |bits| bits as i64, i64::wrapping_add, i64::wrapping_mul;
    u64: |wide| wide, |bits| bits, u64::wrapping_add, u64::wrapping_mul;
    f32: |wide| wide.to_bits().into(), |bits| f32::from_bits(bits as u32), Add::add, Mul::mul;
    f64: f64::to_bits, f64::from_bits, Add::add, Mul::mul;
}

/// An element.
trait Element<const BYTES: usize>: Copy {
    type Wide: Wide;
    fn read(bytes: [u8; BYTES]) -> Self::Wide;
    fn write(wide: Self::Wide) -> [u8; BYTES];
}

/// Implements [`Element`] for the types of elements, of which each is read and written by functions of its own.
macro_rules! elements {
    ($($element:ty, $bytes:literal, $wide:ty, $widen:expr, $narrow:expr;)*) => { $(
        impl Element<$bytes> for $element {
            type Wide = $wide;

            fn read(bytes: [u8; $bytes]) -> $wide {
                let widen: fn($element) -> $wide = $widen;
                widen(<$element>::from_ne_bytes(bytes))
            }

            fn write(wide: $wide) -> [u8; $bytes] {
                let narrow: fn($wide) -> $element = $narrow;
                narrow(wide).to_ne_bytes()
            }
        }
    )* };
}
elements! {
    i8, 1, i64, i64::from, |wide| wide as i8;
    u8, 1, u64, u64::from, |wide| wide as u8;
    i32, 4, i64, i64::from, |wide| wide as i32;
    u32, 4, u64, u64::from, |wide| wide as u32;
    i64, 8, i64, |value| value, |wide| wide;
    u64, 8, u64, |value| value, |wide| wide;
    f16, 2, f32, f16::to_f32, f16::from_f32;
    bf16, 2, f32, bf16::to_f32, bf16::from_f32;
    f32, 4, f32, |value| value, |wide| wide;
    f64, 8, f64, |value| value, |wide| wide;
}

/// The functions for a type of elements.
struct Functions {
    fold: fn(Operator, &mut [u64], &[u8], bool),
    finish: fn(Operator, &[u64], u32, &mut [u8]),
    scale: fn([u8; 8], &mut [u8]),
}

impl Functions {
    fn of<E: Element<BYTES>, const BYTES: usize>() -> Self {
        Self { fold: fold_all::<E, BYTES>, finish: finish_all::<E, BYTES>, scale: scale_all::<E, BYTES> }
    }
}

/// Returns the functions for a type, of which `ncclFloat8…` have none.
fn functions(kind: Kind) -> Functions {
    match kind {
        Kind::I8 => Functions::of::<i8, 1>(),
        Kind::U8 => Functions::of::<u8, 1>(),
        Kind::I32 => Functions::of::<i32, 4>(),
        Kind::U32 => Functions::of::<u32, 4>(),
        Kind::I64 => Functions::of::<i64, 8>(),
        Kind::U64 => Functions::of::<u64, 8>(),
        Kind::F16 => Functions::of::<f16, 2>(),
        Kind::F32 => Functions::of::<f32, 4>(),
        Kind::F64 => Functions::of::<f64, 8>(),
        Kind::Bf16 => Functions::of::<bf16, 2>(),
        Kind::F8 => unreachable!("checked when the operation was given"),
    }
}

/// Takes in the elements of one more rank; those of the first rank begin the sums.
pub fn fold(kind: Kind, operator: Operator, sums: &mut [u64], bytes: &[u8], is_first: bool) {
    (functions(kind).fold)(operator, sums, bytes, is_first);
}

fn fold_all<E: Element<BYTES>, const BYTES: usize>(
    operator: Operator,
    sums: &mut [u64],
    bytes: &[u8],
    is_first: bool,
) {
    for (sum, element) in sums.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        let element = E::read(*element);
        *sum = if is_first { element } else { E::Wide::from_bits(*sum).apply(operator, element) }.to_bits();
    }
}

/// Writes the elements of the result.
pub fn finish(kind: Kind, operator: Operator, sums: &[u64], ranks: u32, bytes: &mut [u8]) {
    (functions(kind).finish)(operator, sums, ranks, bytes);
}

fn finish_all<E: Element<BYTES>, const BYTES: usize>(
    operator: Operator,
    sums: &[u64],
    ranks: u32,
    bytes: &mut [u8],
) {
    for (sum, place) in sums.iter().zip(bytes.as_chunks_mut::<BYTES>().0) {
        let sum = E::Wide::from_bits(*sum);
        *place = E::write(if operator == Operator::Average { sum.divide(ranks) } else { sum });
    }
}

/// Multiplies elements by a scalar of the same type.
pub fn scale(kind: Kind, scalar: [u8; 8], bytes: &mut [u8]) {
    (functions(kind).scale)(scalar, bytes);
}

fn scale_all<E: Element<BYTES>, const BYTES: usize>(scalar: [u8; 8], bytes: &mut [u8]) {
    let Some(scalar) = scalar.first_chunk::<BYTES>() else { return };
    let scalar = E::read(*scalar);
    for place in bytes.as_chunks_mut::<BYTES>().0 {
        *place = E::write(E::read(*place).times(scalar));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two(kind: Kind, operator: Operator, one: &[u8], two: &[u8]) -> Vec<u8> {
        let mut sums = vec![0; one.len() / kind.bytes()];
        fold(kind, operator, &mut sums, one, true);
        fold(kind, operator, &mut sums, two, false);
        let mut bytes = vec![0; one.len()];
        finish(kind, operator, &sums, 2, &mut bytes);
        bytes
    }

    #[test]
    fn integers_wrap_in_their_type_and_averages_do_not() {
        assert_eq!(of_two(Kind::I8, Operator::Sum, &[100, 0xff], &[100, 0xfe]), [200, 0xfd]);
        assert_eq!(of_two(Kind::I8, Operator::Average, &[100, 0xff], &[100, 0xfe]), [100, 0xff]);
        assert_eq!(of_two(Kind::U8, Operator::Product, &[16, 3], &[17, 5]), [16, 15]);
        assert_eq!(of_two(Kind::I8, Operator::Maximum, &[0x80, 1], &[0x7f, 2]), [0x7f, 2]);
        assert_eq!(of_two(Kind::U8, Operator::Minimum, &[0x80, 1], &[0x7f, 2]), [0x7f, 1]);
        let large = u64::MAX.to_ne_bytes();
        assert_eq!(of_two(Kind::U64, Operator::Maximum, &large, &1_u64.to_ne_bytes()), large);
    }

    #[test]
    fn halves_are_rounded_once() {
        let bytes = |value: f32| f16::from_f32(value).to_ne_bytes();
        // 2049 is not an f16, but 2050 is.
        let mut sums = [0];
        for (index, value) in [2048.0, 1.0, 1.0].into_iter().enumerate() {
            fold(Kind::F16, Operator::Sum, &mut sums, &bytes(value), index == 0);
        }
        let mut result = [0; 2];
        finish(Kind::F16, Operator::Sum, &sums, 3, &mut result);
        assert_eq!(result, bytes(2050.0));
        let scalar = [&bytes(0.5)[..], &[0; 6]].concat().try_into().unwrap();
        scale(Kind::F16, scalar, &mut result);
        assert_eq!(result, bytes(1025.0));
    }

    #[test]
    fn numbers_are_those_of_nccl() {
        let sizes: Vec<_> = (0..13).filter_map(Kind::new).map(Kind::bytes).collect();
        assert_eq!(sizes, [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]);
        assert_eq!((Operator::new(2), Operator::new(5)), (Some(Operator::Maximum), None));
        assert_eq!((Kind::new(-1), Operator::new(-1)), (None, None));
    }
}
