// SPDX-License-Identifier: GPL-2.0-only

//! Memory of the current process.

use crate::{
    error::{code::*, Result},
    ffi::c_void,
    glue,
};

/// An address from a process, which may be invalid.
#[derive(Clone, Copy)]
pub struct UserPtr(usize);

impl UserPtr {
    /// Converts a number.
    pub fn from_addr(addr: usize) -> Self {
        Self(addr)
    }

    /// Converts a pointer.
    pub fn from_ptr(addr: *mut c_void) -> Self {
        Self(addr as usize)
    }
}

/// A range of user memory.
pub struct UserSlice {
    addr: usize,
    bytes: usize,
}

impl UserSlice {
    /// Returns a range. Copying checks whether it is accessible.
    pub fn new(ptr: UserPtr, bytes: usize) -> Self {
        Self { addr: ptr.0, bytes }
    }

    /// Returns a reader of the range.
    pub fn reader(self) -> UserSliceReader {
        UserSliceReader(self)
    }

    /// Returns a writer to the range.
    pub fn writer(self) -> UserSliceWriter {
        UserSliceWriter(self)
    }

    /// Removes the first `bytes` bytes. Returns their address.
    fn take(&mut self, bytes: usize) -> Result<usize> {
        let addr = self.addr;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(EFAULT)?;
        self.addr = addr.wrapping_add(bytes);
        Ok(addr)
    }
}

/// Reads a range from its start.
pub struct UserSliceReader(UserSlice);

impl UserSliceReader {
    /// Copies the next bytes. `EFAULT`: they are not accessible, or the range is too short.
    pub fn read_slice(&mut self, out: &mut [u8]) -> Result {
        let from = self.0.take(out.len())?;
        // SAFETY: `out` is valid for writes of its length; the C side checks the user's address.
        if unsafe { glue::stock_copy_from_user(out.as_mut_ptr().cast(), from, out.len()) } {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }
}

/// Writes a range from its start.
pub struct UserSliceWriter(UserSlice);

impl UserSliceWriter {
    /// Returns the number of remaining bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether no bytes remain.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// Copies to the next bytes. `EFAULT`: they are not accessible, or the range is too short.
    pub fn write_slice(&mut self, data: &[u8]) -> Result {
        let to = self.0.take(data.len())?;
        // SAFETY: `data` is valid for reads of its length; the C side checks the user's address.
        if unsafe { glue::stock_copy_to_user(to, data.as_ptr().cast(), data.len()) } {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }
}
