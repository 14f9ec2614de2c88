// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's descriptions of external memory, with plain integers for enums. Sizes are compared with cudarc's.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys;

use super::RawArray;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: c_uint = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExternal {
    kind: c_uint,
    pad: c_uint,
    descriptor: c_int,
    handle_pad: [c_uint; 3],
    bytes: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
    tail_pad: c_uint,
}
const _: () = assert!(size_of::<RawExternal>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC>());

impl RawExternal {
    /// Memory that a file descriptor stands for.
    pub fn new(descriptor: c_int, bytes: u64) -> Self {
        Self {
            kind: OPAQUE_FD,
            pad: 0,
            descriptor,
            handle_pad: [0; 3],
            bytes,
            flags: 0,
            reserved: [0; 16],
            tail_pad: 0,
        }
    }
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExternalBuffer {
    offset: u64,
    bytes: u64,
    flags: c_uint,
    reserved: [c_uint; 16],
    tail_pad: c_uint,
}
const _: () = assert!(size_of::<RawExternalBuffer>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC>());

impl RawExternalBuffer {
    /// A part of external memory.
    pub fn new(offset: u64, bytes: u64) -> Self {
        Self { offset, bytes, flags: 0, reserved: [0; 16], tail_pad: 0 }
    }
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExternalArray {
    offset: u64,
    array: RawArray,
    levels: c_uint,
    reserved: [c_uint; 16],
    tail_pad: c_uint,
}
const _: () =
    assert!(size_of::<RawExternalArray>() == size_of::<sys::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>());

impl RawExternalArray {
    /// A mipmapped array from `offset` on.
    pub fn new(offset: u64, array: RawArray, levels: c_uint) -> Self {
        Self { offset, array, levels, reserved: [0; 16], tail_pad: 0 }
    }
}
