// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! The functions by which the worker passes files for the emulator. They are not part of CUDA.

use core::ffi::c_int;

/// The argument of `cuda_emulator_set_courier`: functions of the program that has loaded the emulator, by which the emulator
/// passes files to other processes. A file's token is a number by which others ask for it.
///
/// `Context` is a pointer. The program knows the type of its target; the emulator only passes the pointer on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Courier<Context> {
    /// The first argument of the functions.
    pub context: Context,
    /// Offers a file that is open and writes its token; 0 if that worked.
    pub offer: unsafe extern "C" fn(Context, c_int, *mut [u8; 16]) -> c_int,
    /// A new descriptor for the file of a token, or -1.
    pub fetch: unsafe extern "C" fn(Context, *const [u8; 16]) -> c_int,
    /// Ends an offer.
    pub withdraw: unsafe extern "C" fn(Context, *const [u8; 16]),
}

const _: () = assert!(size_of::<Courier<*const core::ffi::c_void>>() == 32);
