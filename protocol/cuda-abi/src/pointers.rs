// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Pointers that programs pass to the functions of a library. Each library names its answer to a null pointer
//! ([`NullPointer`]), and the compiler keeps the pointers of libraries apart.
//!
//! # Invariants
//!
//! A value exists because C code passed it to an exported function, in a parameter or in a structure that a parameter
//! points to. The C code thereby promised what the documentation of CUDA requires: the pointer is null, or points to
//! what its type says for as long as the call lasts. Other values come from the unsafe functions of this file, whose
//! callers promise the same.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;

use crate::prototypes::{Parameter, Shape};

/// A library's answer to a null pointer.
pub trait NullPointer {
    /// The type of the library's errors.
    type Error;
    /// The error.
    const ERROR: Self::Error;
}

/// A pointer to which a call stores a `T` or an array of them. `N` is the library.
#[repr(transparent)]
pub struct Out<T, N>(*mut T, PhantomData<fn() -> N>);

/// An argument: a pointer to a `T` or an array of them. `N` is the library.
#[repr(transparent)]
pub struct In<T, N>(*const T, PhantomData<fn() -> N>);

/// An address in the program's memory. `N` is the library.
#[repr(transparent)]
pub struct HostPtr<N>(*mut c_void, PhantomData<fn() -> N>);

/// Implements `Copy` and `Debug` for a type of pointers, whatever it points to.
macro_rules! plain {
    ($name:ident<$($parameter:ident),*>) => {
        impl<$($parameter),*> Clone for $name<$($parameter),*> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($parameter),*> Copy for $name<$($parameter),*> {}
        impl<$($parameter),*> fmt::Debug for $name<$($parameter),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
plain!(Out<T, N>);
plain!(In<T, N>);
plain!(HostPtr<N>);

impl<T, N> Out<T, N> {
    /// The null pointer.
    pub const NULL: Self = Self(core::ptr::null_mut(), PhantomData);

    /// Returns a pointer that is not a parameter.
    ///
    /// # Safety
    /// `pointer` is null, or valid for reads and writes of a `T`, or of as many elements as are used, while the value is used.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns the pointer, for calls of other libraries.
    pub fn as_ptr(self) -> *mut T {
        self.0
    }

    /// Returns whether the program passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns whether it points to a multiple of `bytes`.
    pub fn is_aligned(self, bytes: usize) -> bool {
        self.0.addr().is_multiple_of(bytes)
    }

    /// Returns the pointer to element `index` of an array of results; null for null.
    ///
    /// # Safety
    /// If the pointer is not null, the array has this element.
    pub unsafe fn element(self, index: usize) -> Self {
        Self(if self.is_null() { self.0 } else { self.0.wrapping_add(index) }, PhantomData)
    }

    /// Returns the pointer to the member that begins `offset` bytes after the start of the structure; null for null.
    ///
    /// # Safety
    /// If the pointer is not null, the structure has such a member there.
    pub unsafe fn member<M>(self, offset: usize) -> Out<M, N> {
        let member = if self.is_null() { self.0 } else { self.0.wrapping_byte_add(offset) };
        Out(member.cast(), PhantomData)
    }

    /// Stores `value` unless the program passed null.
    pub fn set_if_wanted(self, value: T) {
        if !self.is_null() {
            // SAFETY: not null, so by the invariant it points to room for a `T`. C does not promise alignment in packed
            // structures.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T, N: NullPointer> Out<T, N> {
    /// Refuses null, for calls that have effects before they store.
    pub fn check(self) -> Result<(), N::Error> {
        if self.is_null() { Err(N::ERROR) } else { Ok(()) }
    }

    /// Stores `value`. Refuses null.
    pub fn set(self, value: T) -> Result<(), N::Error> {
        self.set_at(0, value)
    }

    /// Stores the result of `value`. Refuses null before calling it.
    pub fn give(self, value: impl FnOnce() -> Result<T, N::Error>) -> Result<(), N::Error> {
        self.check()?;
        self.set(value()?)
    }

    /// Stores element `index` of an array. The program promised that the array is longer. Refuses null.
    pub fn set_at(self, index: usize, value: T) -> Result<(), N::Error> {
        self.check()?;
        // SAFETY: not null, so by the invariant it points to an array that is long enough.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// Returns the value of a parameter for both directions. Refuses null.
    pub fn get(self) -> Result<T, N::Error>
    where
        T: Copy,
    {
        In::<T, N>(self.0.cast_const(), PhantomData).get()
    }

    /// Returns the version in the first field of a structure. Refuses null. The other fields need not be initialised.
    pub fn version(self) -> Result<u32, N::Error> {
        const { assert!(size_of::<T>() >= size_of::<u32>() && align_of::<T>() >= align_of::<u32>()) };
        Out::<u32, N>(self.0.cast(), PhantomData).get()
    }
}

impl<T, N> In<T, N> {
    /// The null pointer.
    pub const NULL: Self = Self(core::ptr::null(), PhantomData);

    /// Returns a pointer that is not a parameter.
    ///
    /// # Safety
    /// `pointer` is null or points to a `T`, or to as many elements as are read, for as long as the value is used.
    pub unsafe fn new(pointer: *const T) -> Self {
        Self(pointer, PhantomData)
    }

    /// Returns a pointer to an array of the library, or null.
    ///
    /// # Safety
    /// `address` is 0 or that of a `T`, or of as many elements as are read, for as long as the value is used.
    pub unsafe fn at_address(address: usize) -> Self {
        Self(address as *const T, PhantomData)
    }

    /// Returns the pointer.
    pub fn as_ptr(self) -> *const T {
        self.0
    }

    /// Returns whether the program passed null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy, N: NullPointer> In<T, N> {
    /// Returns the value. Refuses null.
    pub fn get(self) -> Result<T, N::Error> {
        self.at(0)
    }

    /// Returns element `index` of an array. The program promised that the array is longer. Refuses null.
    pub fn at(self, index: usize) -> Result<T, N::Error> {
        if self.is_null() {
            return Err(N::ERROR);
        }
        // SAFETY: not null, so by the invariant it points to enough `T`s.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<N> HostPtr<N> {
    /// Returns the target of a pointer in a structure of the program.
    ///
    /// # Safety
    /// The program promised for the member the same as for a parameter.
    pub unsafe fn at_address(address: usize) -> Self {
        Self(address as *mut c_void, PhantomData)
    }

    /// Returns the address.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// Returns a pointer to a member of the structure that the parameter points to.
    ///
    /// # Safety
    /// The structure has the member at offset `bytes`.
    pub unsafe fn offset(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes), PhantomData)
    }

    /// Returns the same pointer as an output parameter.
    ///
    /// # Safety
    /// The function's documentation requires null, or room for a `T` or for as many elements as are stored.
    pub unsafe fn as_out<T>(self) -> Out<T, N> {
        Out(self.0.cast(), PhantomData)
    }

    /// Returns the same pointer as a value or array.
    ///
    /// # Safety
    /// The function's documentation requires null, or a `T` or as many elements as are read.
    pub unsafe fn as_in<T: Copy>(self) -> In<T, N> {
        In(self.0.cast(), PhantomData)
    }
}

impl<T, N> Parameter for Out<T, N> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<T, N> Parameter for In<T, N> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<N> Parameter for HostPtr<N> {
    const SHAPE: Shape = Shape::Pointer(0);
}
