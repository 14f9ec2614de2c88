// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bulk data of a call, which lies in the call itself or in pages of the guest process.

use std::borrow::Cow;
use std::ffi::CString;
use std::ops::Deref;

use super::pages::PageList;
use crate::copy_charge::{CopyCharge, charge_copy};
use crate::gpu::{CuResult, CudaError};

/// The maximum length of the name of a function or variable, in bytes.
const MAX_NAME_BYTES: u64 = 64 << 10;

/// The bytes that the device reads.
#[derive(Debug)]
pub enum BulkIn<'a> {
    /// Bytes that came with the call.
    Inline(&'a [u8]),
    /// Bytes in the guest process.
    Pages(PageList),
}

impl<'a> BulkIn<'a> {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Pages(pages) => pages.bytes(),
        }
    }
    /// Returns all bytes in one piece.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY` while calls use too many such copies.
    pub fn contents(&self) -> CuResult<Contents<'a>> {
        Ok(match self {
            Self::Inline(bytes) => Contents { bytes: Cow::Borrowed(bytes), charge: None },
            Self::Pages(pages) => {
                let charge = Some(charge_copy(pages.bytes() as usize)?);
                let mut bytes = vec![0; pages.bytes() as usize];
                pages.read(&mut bytes);
                Contents { bytes: Cow::Owned(bytes), charge }
            }
        })
    }
    /// Returns all bytes as a name (a trailing NUL is optional).
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for an empty or overlong one, and one with NULs.
    pub fn name(&self) -> CuResult<CString> {
        if self.bytes() > MAX_NAME_BYTES {
            return Err(CudaError::INVALID_VALUE);
        }
        let contents = self.contents()?;
        let name = contents.strip_suffix(&[0]).unwrap_or(&contents);
        if name.is_empty() {
            return Err(CudaError::INVALID_VALUE);
        }
        CString::new(name).map_err(|_| CudaError::INVALID_VALUE)
    }
}

/// Bulk data in one piece.
#[derive(Debug)]
pub struct Contents<'a> {
    bytes: Cow<'a, [u8]>,
    /// The charge for a copy.
    charge: Option<CopyCharge>,
}

impl<'a> Contents<'a> {
    /// Returns the bytes. A copy of them is no longer charged, so it must be short.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }
    /// Returns the bytes, and the share of host memory of a copy of them, which must be dropped after them.
    pub fn into_owned(self) -> (Vec<u8>, Option<CopyCharge>) {
        (self.bytes.into_owned(), self.charge)
    }
}

impl Deref for Contents<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bytes that the device writes.
#[derive(Debug)]
pub enum BulkOut {
    /// Room in the reply, and its bytes so far.
    Inline {
        /// Bytes that the guest has room for.
        room: usize,
        /// The bytes so far.
        bytes: Vec<u8>,
    },
    /// Room in the guest process.
    Pages(PageList),
}

impl BulkOut {
    /// Room for `room` bytes in the reply.
    pub fn inline(room: usize) -> Self {
        Self::Inline { room, bytes: Vec::new() }
    }
    /// Room in bytes.
    pub fn room(&self) -> u64 {
        match self {
            Self::Inline { room, .. } => *room as u64,
            Self::Pages(pages) => pages.bytes(),
        }
    }
    /// Puts `contents` in.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if they do not fit.
    pub fn put(&mut self, contents: &[u8]) -> CuResult<()> {
        if contents.len() as u64 > self.room() {
            return Err(CudaError::INVALID_VALUE);
        }
        match self {
            Self::Inline { bytes, .. } => contents.clone_into(bytes),
            Self::Pages(pages) => pages.write(contents),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_clean_or_refused() {
        assert_eq!(BulkIn::Inline(b"kernel\0").name().unwrap().as_bytes(), b"kernel");
        assert_eq!(BulkIn::Inline(b"kernel").name().unwrap().as_bytes(), b"kernel");
        for bad in [&b""[..], b"\0", b"a\0b", &[b'x'; MAX_NAME_BYTES as usize + 1]] {
            assert_eq!(BulkIn::Inline(bad).name(), Err(CudaError::INVALID_VALUE));
        }
    }

    #[test]
    fn more_than_the_room_is_refused() {
        let mut out = BulkOut::inline(3);
        assert!(out.put(b"four").is_err());
        out.put(b"abc").unwrap();
    }
}
