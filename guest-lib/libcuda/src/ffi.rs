// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parameters of C functions. This is the only file that dereferences the program's pointers to single values and
//! names. Bulk memory is passed to the client as addresses.
//!
//! # Invariants
//!
//! A value exists because C code passed it to an entry point, in a parameter or in a structure that a parameter points
//! to. The C code thereby promised what the CUDA documentation requires: the pointer is NULL, or points to what its
//! type says for as long as the call lasts. Other values come from the unsafe functions of this file, whose callers
//! promise the same.

use std::ffi::{CString, c_char, c_void};

use cuda_abi::prototypes::{Parameter, Shape};
use virtio_cuda_client::CudaError;

/// A pointer to which the call stores a `T`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Returns whether the caller passed NULL.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Refuses NULL, for calls that have effects before they store.
    pub fn check(&self) -> Result<(), CudaError> {
        if self.is_null() { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
    }

    /// Stores `value`. Errors: `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn set(&self, value: T) -> Result<(), CudaError> {
        self.check()?;
        // SAFETY: not NULL, so by the invariant it points to room for a `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Stores `value` unless the caller passed NULL.
    pub fn set_if_wanted(&self, value: T) {
        if !self.is_null() {
            // SAFETY: not NULL, so by the invariant it points to room for a `T`.
            unsafe { self.0.write(value) };
        }
    }

    /// Returns the value of a parameter for both directions.
    pub fn get(&self) -> Result<T, CudaError>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: not NULL, so by the invariant it points to a `T`, which the caller initialised.
        Ok(unsafe { self.0.read() })
    }

    /// Stores element `index` of an array. The caller promised that the array is longer.
    pub fn set_at(&self, index: usize, value: T) -> Result<(), CudaError> {
        self.check()?;
        // SAFETY: not NULL, so by the invariant it points to an array, which the caller promised to be long enough.
        unsafe { self.0.add(index).write(value) };
        Ok(())
    }
}

/// An argument of the caller: a `T` or an array of them.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> In<T> {
    /// The NULL pointer.
    pub const NULL: Self = Self(std::ptr::null());

    /// Returns a pointer to an array of this library, or NULL.
    ///
    /// # Safety
    /// `address` is 0 or that of a `T`, or of as many elements as are read, for as long as the value is used.
    pub unsafe fn at_address(address: usize) -> Self {
        Self(address as *const T)
    }
}

impl<T: Copy> In<T> {
    /// Returns whether the caller passed NULL.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the value. Errors: `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn get(&self) -> Result<T, CudaError> {
        self.at(0)
    }

    /// Returns element `index` of an array. The caller promised that the array is longer.
    pub fn at(&self, index: usize) -> Result<T, CudaError> {
        if self.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        // SAFETY: not NULL, so by the invariant it points to enough `T`s.
        Ok(unsafe { self.0.add(index).read() })
    }
}

/// A C string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Name(*const c_char);

impl Name {
    /// Returns whether the caller passed NULL.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// A copy of the string; NULL, and more than [`cuda_program::MAX_TEXT_BYTES`], is `CUDA_ERROR_INVALID_VALUE`.
    pub fn get(&self) -> Result<CString, CudaError> {
        if self.0.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        // SAFETY: not NULL, so by the invariant it is a C string.
        unsafe { cuda_program::text(self.0) }.ok_or(CudaError::INVALID_VALUE)
    }
}

/// Room for a C string of a given length.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct OutName(*mut c_char);

impl OutName {
    /// Stores as much of `text` as fits. Errors: `CUDA_ERROR_INVALID_VALUE` if that is not all of it.
    pub fn set_whole(&self, text: &[u8], room: i32) -> Result<(), CudaError> {
        self.set(text, room)?;
        if text.len() < room as usize { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Stores as much of `text` as `room` bytes hold, always terminated by a NUL.
    pub fn set(&self, text: &[u8], room: i32) -> Result<(), CudaError> {
        let room = usize::try_from(room).unwrap_or(0);
        if self.0.is_null() || room == 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        let bytes = text.len().min(room - 1);
        // SAFETY: by the invariant there are `room` bytes, more than the `bytes + 1` written here.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), bytes);
            self.0.add(bytes).write(0);
        }
        Ok(())
    }
}

/// An address in the program's memory.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct HostPtr(*mut c_void);

impl HostPtr {
    /// Returns the target of a pointer in a structure of the program.
    ///
    /// # Safety
    /// The program promised for the member the same as for a parameter.
    pub unsafe fn at_address(address: usize) -> Self {
        Self(address as *mut c_void)
    }

    /// Returns the address.
    pub fn address(&self) -> usize {
        self.0 as usize
    }

    /// Returns a pointer to a member of the structure that the parameter points to.
    ///
    /// # Safety
    /// The structure has the member at offset `bytes`.
    pub unsafe fn offset(&self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }

    /// Returns the same pointer as an output parameter.
    ///
    /// # Safety
    /// The function's documentation requires NULL, or room for a `T` or for as many elements as are stored.
    pub unsafe fn as_out<T>(&self) -> Out<T> {
        Out(self.0.cast())
    }

    /// Returns the same pointer as a value or array.
    ///
    /// # Safety
    /// The function's documentation requires NULL, or a `T` or as many elements as are read.
    pub unsafe fn as_in<T: Copy>(&self) -> In<T> {
        In(self.0.cast())
    }
}

impl<T> Parameter for Out<T> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl<T> Parameter for In<T> {
    const SHAPE: Shape = Shape::Pointer(size_of::<T>());
}
impl Parameter for Name {
    const SHAPE: Shape = Shape::Pointer(size_of::<c_char>());
}
impl Parameter for OutName {
    const SHAPE: Shape = Shape::Pointer(size_of::<c_char>());
}
impl Parameter for HostPtr {
    const SHAPE: Shape = Shape::Pointer(0);
}
