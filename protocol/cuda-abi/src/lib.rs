// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! C structures of CUDA and NVML, prototypes of the driver API, and pointers that programs pass, each defined once for
//! the guest's libraries, the worker and the emulator.
//!
//! Types have CUDA's names, fields have Rust's. Enums are plain integers: programs and newer drivers use values that
//! `cuda.h` 13.0 does not list. Handles and host pointers are integers, too, so that each user converts them to its own
//! types at its boundary. This crate does no I/O.

#![allow(non_camel_case_types, clippy::upper_case_acronyms)]

pub mod kinds;
pub mod pointers;
pub mod prototypes;
mod structs;
#[cfg(feature = "wire")]
mod wire;

pub use structs::*;

/// A type whose all-zero value is valid, because C programs initialise structures that way.
pub trait Zero: Copy {
    /// The all-zero value.
    const ZERO: Self;
}

/// `CUhostFn`: a function of the program that is called with its argument.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut core::ffi::c_void)>;

/// Implements `Zero` for numbers.
macro_rules! zero {
    ($($t:ty = $zero:expr),*) => { $(impl Zero for $t { const ZERO: Self = $zero; })* };
}
zero!(u8 = 0, u16 = 0, u32 = 0, i32 = 0, i64 = 0, u64 = 0, usize = 0, f32 = 0.0);

impl<T: Zero, const N: usize> Zero for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}

/// Defines C structures: `NAME: sizeof as in cuda.h 13.0 (more traits) { fields }`.
macro_rules! c_structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal $(($($more:ident),*))? { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, $($($more),*)?)]
        #[repr(C)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

        const _: () = assert!(core::mem::size_of::<$name>() == $size);

        impl $crate::Zero for $name {
            const ZERO: Self = Self { $($field: <$t as $crate::Zero>::ZERO,)* };
        }
        impl $name {
            /// The all-zero value.
            pub const ZERO: Self = <Self as $crate::Zero>::ZERO;
        }
    )* };
}
pub(crate) use c_structs;
