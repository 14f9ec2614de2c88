// SPDX-License-Identifier: GPL-2.0-only

//! C strings.

use crate::ffi::{c_char, CStr};

/// Methods that the kernel crate adds to [`CStr`].
pub trait CStrExt {
    /// Returns a pointer for C.
    fn as_char_ptr(&self) -> *const c_char;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const c_char {
        self.as_ptr().cast()
    }
}

/// Converts a literal to a [`CStr`].
#[macro_export]
macro_rules! c_str {
    ($text:expr) => {{
        const TEXT: &::core::ffi::CStr =
            match ::core::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a NUL in a C string"),
            };
        TEXT
    }};
}
