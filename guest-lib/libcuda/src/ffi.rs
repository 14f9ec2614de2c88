// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Parameters of C functions. Only this file and [`cuda_abi::pointers`] dereference the program's pointers to single
//! values and names. Bulk memory is passed to the client as addresses.
//!
//! # Invariants
//!
//! Those of [`cuda_abi::pointers`], for names as well.

use std::ffi::{CString, c_char};

use cuda_abi::pointers::{self, NullPointer};
use cuda_abi::prototypes::{Parameter, Shape};
use virtio_cuda_client::CudaError;

/// `CUresult`.
pub type CUresult = i32;

/// The driver API's answer to NULL.
#[derive(Clone, Copy, Debug)]
pub struct DriverApi;

impl NullPointer for DriverApi {
    type Error = CudaError;
    const ERROR: CudaError = CudaError::INVALID_VALUE;
}

/// A pointer to which the call stores a `T`.
pub type Out<T> = pointers::Out<T, DriverApi>;
/// An argument of the caller: a `T` or an array of them.
pub type In<T> = pointers::In<T, DriverApi>;
/// An address in the program's memory.
pub type HostPtr = pointers::HostPtr<DriverApi>;

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

impl Parameter for Name {
    const SHAPE: Shape = Shape::Pointer(size_of::<c_char>());
}
impl Parameter for OutName {
    const SHAPE: Shape = Shape::Pointer(size_of::<c_char>());
}
