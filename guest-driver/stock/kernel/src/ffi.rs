// SPDX-License-Identifier: GPL-2.0-only

//! C's types, as the kernel's crate defines them: `char` is unsigned, `long` is as long as a pointer.

#![allow(missing_docs, non_camel_case_types)]

pub use core::ffi::{c_int, c_uint, c_void, CStr};

pub type c_char = u8;
pub type c_long = isize;
pub type c_ulong = usize;
