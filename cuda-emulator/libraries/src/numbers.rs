// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Types of elements (`cudaDataType`). Operations other than matrix products are computed in complex doubles,
//! independent of the type.

use std::ffi::c_int;

use half::{bf16, f16};
use num_complex::Complex;

/// `cuComplex`
pub type C32 = Complex<f32>;
/// `cuDoubleComplex`
pub type C64 = Complex<f64>;

/// An address, and the type of the elements there.
#[derive(Clone, Copy, Debug)]
pub struct TypedAddress {
    pub kind: Type,
    pub address: usize,
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    I64,
    C32,
    C64,
}

impl Type {
    /// The type of a `cudaDataType`.
    pub fn new(number: c_int) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F64,
            2 => Self::F16,
            3 => Self::I8,
            4 => Self::C32,
            5 => Self::C64,
            10 => Self::I32,
            14 => Self::Bf16,
            24 => Self::I64,
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// Bytes that an address of an element is a multiple of.
    pub const fn alignment(self) -> usize {
        match self {
            Self::C32 => 4,
            Self::C64 => 8,
            _ => self.bytes(),
        }
    }

    /// The type has an imaginary part.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::C32 | Self::C64)
    }

    /// The type of real results: norms, eigenvalues.
    pub const fn real(self) -> Self {
        match self {
            Self::C32 => Self::F32,
            Self::C64 => Self::F64,
            other => other,
        }
    }

    /// An address of elements of this type.
    pub const fn at(self, address: usize) -> TypedAddress {
        TypedAddress { kind: self, address }
    }

    /// The distance from 1 to the next number.
    pub fn epsilon(self) -> f64 {
        match self {
            Self::F64 | Self::C64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        }
    }

    /// # Safety
    ///
    /// `address` has an element of this type.
    pub unsafe fn read(self, address: usize) -> C64 {
        // SAFETY: `address` has an element of this type by this function's contract.
        unsafe {
            let real = match self {
                Self::F32 => f64::from((address as *const f32).read_unaligned()),
                Self::F64 => (address as *const f64).read_unaligned(),
                Self::F16 => (address as *const f16).read_unaligned().to_f64(),
                Self::Bf16 => (address as *const bf16).read_unaligned().to_f64(),
                Self::I8 => f64::from((address as *const i8).read()),
                Self::I32 => f64::from((address as *const i32).read_unaligned()),
                Self::I64 => (address as *const i64).read_unaligned() as f64,
                Self::C32 => {
                    let value = (address as *const C32).read_unaligned();
                    return C64::new(f64::from(value.re), f64::from(value.im));
                }
                Self::C64 => return (address as *const C64).read_unaligned(),
            };
            C64::new(real, 0.0)
        }
    }

    /// # Safety
    ///
    /// `address` has room for an element of this type.
    pub unsafe fn write(self, address: usize, value: C64) {
        // SAFETY: `address` has room for an element of this type by this function's contract.
        unsafe {
            match self {
                Self::F32 => (address as *mut f32).write_unaligned(value.re as f32),
                Self::F64 => (address as *mut f64).write_unaligned(value.re),
                Self::F16 => (address as *mut f16).write_unaligned(f16::from_f64(value.re)),
                Self::Bf16 => (address as *mut bf16).write_unaligned(bf16::from_f64(value.re)),
                Self::I8 => (address as *mut i8).write(value.re.round_ties_even() as i8),
                Self::I32 => (address as *mut i32).write_unaligned(value.re.round_ties_even() as i32),
                Self::I64 => (address as *mut i64).write_unaligned(value.re.round_ties_even() as i64),
                Self::C32 => {
                    (address as *mut C32).write_unaligned(C32::new(value.re as f32, value.im as f32));
                }
                Self::C64 => (address as *mut C64).write_unaligned(value),
            }
        }
    }
}
