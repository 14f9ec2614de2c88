// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of the driver's functions as Rust values. If no type requires a promise of the caller, the function's
//! method is safe.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{CUhostFn, CUoccupancyB2DSize, CUsurfObject, CUtexObject};

use super::raw::{
    RawAffinity, RawAllocation, RawArray, RawDevResource, RawIpcHandle, RawRequirements, RawSparse,
    RawTensorMap,
};
use super::{CUdeviceptr, CUstream, CUuuid, CuResult, CudaError};

/// A function that the driver calls on one of its own threads for `cuStreamAddCallback`, with the `CUresult`.
pub type StreamFunction = unsafe extern "C" fn(CUstream, c_int, *mut c_void);

/// A value that the driver writes through an out pointer: integers and handles, for which all-zero bytes are valid.
pub(super) trait Plain: Copy {
    const ZERO: Self;
}
/// Implements [`Plain`].
macro_rules! plain {
    ($($t:ty = $zero:expr),*) => { $(impl Plain for $t { const ZERO: Self = $zero; })* };
}
plain!(
    RawArray = RawArray::ZERO,
    RawRequirements = RawRequirements::ZERO,
    RawSparse = RawSparse::ZERO,
    RawAllocation = RawAllocation::ZERO,
    RawIpcHandle = RawIpcHandle::ZERO
);
plain!([f32; 4] = [0.0; 4], RawDevResource = RawDevResource::ZERO);
plain!(RawAffinity = RawAffinity::ZERO, RawTensorMap = RawTensorMap { opaque: [0; 128] });
plain!(TextureObject = TextureObject(0), SurfaceObject = SurfaceObject(0));
plain!(c_int = 0, c_uint = 0, c_ulonglong = 0, usize = 0, f32 = 0.0, CUuuid = CUuuid { bytes: [0; 16] });
impl<T> Plain for *mut T {
    const ZERO: Self = std::ptr::null_mut();
}
impl<T> Plain for *const T {
    const ZERO: Self = std::ptr::null();
}

/// A value that the C function takes by pointer, and only reads.
#[derive(Clone, Copy, Debug)]
pub struct Ref<T>(pub T);
/// A value that the C function takes by a pointer that is not `const`.
#[derive(Clone, Copy, Debug)]
pub struct Mut<T>(pub T);

/// An argument, as the C function takes it.
pub(super) trait Argument {
    type C;
    fn pass(&mut self) -> Self::C;
}
/// Implements [`Argument`] for values that are passed as they are.
macro_rules! by_value {
    ($([$($of:tt)*] $t:ty),* $(,)?) => { $(
        impl<$($of)*> Argument for $t {
            type C = Self;
            fn pass(&mut self) -> Self {
                *self
            }
        }
    )* };
}
by_value!(
    [] u8, [] u16, [] c_int, [] c_uint, [] c_ulonglong, [] usize, [] f32, [T] *const T, [T] *mut T, [] CUhostFn,
    [] Option<StreamFunction>, [] RawIpcHandle
);
impl<T> Argument for Ref<T> {
    type C = *const T;
    fn pass(&mut self) -> *const T {
        &raw const self.0
    }
}
impl<T> Argument for Mut<T> {
    type C = *mut T;
    fn pass(&mut self) -> *mut T {
        &raw mut self.0
    }
}

impl<T> Argument for Option<Ref<T>> {
    type C = *const T;
    fn pass(&mut self) -> *const T {
        self.as_mut().map_or(std::ptr::null(), Ref::pass)
    }
}
impl Argument for CString {
    type C = *const c_char;
    fn pass(&mut self) -> *const c_char {
        self.as_ptr()
    }
}

/// Elements of an array: the maximum number that the C function reads.
#[derive(Clone, Copy, Debug)]
pub struct Elements<T, const N: usize>(pub [T; N]);
impl<T, const N: usize> Argument for Elements<T, N> {
    type C = *const T;
    fn pass(&mut self) -> *const T {
        self.0.as_ptr()
    }
}

/// Implements [`Argument`] for values that are converted.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident: $c:ty = |$value:ident| $pass:expr;)*) => { $(
        impl Argument for $name {
            type C = $c;
            fn pass(&mut self) -> $c {
                let $value = self;
                $pass
            }
        }
    )* };
}
arguments! {
    One: usize = |_one| 1;
    NoFunction: CUoccupancyB2DSize = |_none| None;
    Rank: c_uint = |rank| rank.0;
    Opaque: *mut c_void = |address| std::ptr::without_provenance_mut(address.0 as usize);
    Checked: CUdeviceptr = |address| address.0;
}

/// The length of an array of one element.
#[derive(Clone, Copy, Debug)]
pub struct One;
/// A null callback: the program's function is not called, because the guest library handles it.
#[derive(Clone, Copy, Debug)]
pub struct NoFunction;
/// The rank of a tensor. The driver reads this number of dimensions, one stride less, and two corners less.
#[derive(Clone, Copy, Debug)]
pub struct Rank(c_uint);
/// An address that the driver stores and does not follow.
#[derive(Clone, Copy, Debug)]
pub struct Opaque(pub u64);
/// An address for which the bytes that the call uses are memory of the session.
#[derive(Clone, Copy, Debug)]
pub struct Checked(CUdeviceptr);
/// A texture object, which kernels take by its value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct TextureObject(pub CUtexObject);
/// A surface object, which kernels take by its value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SurfaceObject(pub CUsurfObject);

impl Rank {
    /// The maximum rank.
    pub const MAX: c_uint = 5;
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a rank outside of 1 to [`Self::MAX`].
    pub fn new(rank: u32) -> CuResult<Self> {
        if (1..=Self::MAX).contains(&rank) { Ok(Self(rank)) } else { Err(CudaError::INVALID_VALUE) }
    }
}

impl Checked {
    /// Returns an address for a call of the driver.
    ///
    /// # Safety
    ///
    /// The bytes that the driver uses there must belong to the session.
    pub unsafe fn new(address: u64) -> Self {
        Self(address)
    }
    /// Returns the address.
    pub(super) fn address(self) -> CUdeviceptr {
        self.0
    }
}
