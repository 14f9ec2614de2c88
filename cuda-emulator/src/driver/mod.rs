// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CUDA driver API of the emulated device: the exports of `libcuda.so.1`.
//!
//! Each file ends with a table (`entries!`) of the C functions that it implements. Names without an implementation
//! return CUDA_ERROR_NOT_SUPPORTED (`names`). A call never follows a handle, checks every address, and never unwinds
//! into C.
//!
//! A folder is an area of the API: its `mod.rs` has the objects, and the other files have the calls.
//!
//! Environment variables: see `docs/emulator.md`. `device::model` reads those about devices, `device` the others.

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
