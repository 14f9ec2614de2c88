// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions by which the emulator passes files to other processes.

use std::ffi::c_int;

use crate::worker::sharing::Sharing;

use crate::exchange::Token;

/// As in `cuda-emulator/src/driver/ipc/files.rs`.
#[repr(C)]
#[derive(Debug)]
pub struct Courier {
    /// The first argument of the functions.
    pub context: &'static Sharing,
    /// Offers a file that is open; 0: its token is there.
    pub offer: unsafe extern "C" fn(&'static Sharing, c_int, *mut Token) -> c_int,
    /// A new descriptor for the file of a token, or -1.
    pub fetch: unsafe extern "C" fn(&'static Sharing, *const Token) -> c_int,
    /// Ends an offer.
    pub withdraw: unsafe extern "C" fn(&'static Sharing, *const Token),
}
