// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CUDA driver API of the emulated device: what `libcuda.so.1` exports.
//!
//! Each file ends with a table (`entries!`) of the C functions that it implements. Names without an implementation answer
//! CUDA_ERROR_NOT_SUPPORTED (`names`). A call never follows a handle, checks every address, and never unwinds into C.
//!
//! A folder is an area of the API: its `mod.rs` has the objects, the files beside it the calls.
//!
//! Environment: see `docs/emulator.md`; `device::model` reads what is about devices, `device` the rest.

mod array;
mod capture;
mod companion;
mod context;
mod copy;
mod device;
mod event;
mod external;
mod ffi;
mod graph;
mod handle;
mod ipc;
mod launch;
mod link;
mod logs;
mod memory;
mod module;
mod names;
mod pool;
mod proc_address;
mod reference;
mod result;
mod stream;
mod symbols;
mod texture;
mod trace;
mod vmm;

pub use result::CUresult;

#[cfg(test)]
mod driver_test;
