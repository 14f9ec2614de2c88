// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The interface through which the worker passes files for the emulator. Not part of CUDA.

use core::ffi::c_int;

/// The argument of `cuda_emulator_set_courier`: functions of the program that has loaded the emulator. The emulator
/// calls them to pass files to other processes. A file's token is the number with which others request it.
///
/// `Context` is a pointer. Only the program knows the type of its target; the emulator passes the pointer on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Courier<Context> {
    /// The first argument of the functions.
    pub context: Context,
    /// Offers an open file and writes its token. Returns 0 on success.
    pub offer: unsafe extern "C" fn(Context, c_int, *mut [u8; 16]) -> c_int,
    /// Returns a new descriptor for the file of a token, or -1.
    pub fetch: unsafe extern "C" fn(Context, *const [u8; 16]) -> c_int,
    /// Ends an offer.
    pub withdraw: unsafe extern "C" fn(Context, *const [u8; 16]),
}

const _: () = assert!(size_of::<Courier<*const core::ffi::c_void>>() == 32);
