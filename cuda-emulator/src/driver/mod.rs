// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CUDA driver API of the emulated device: what `libcuda.so.1` exports.
//!
//! Each file ends with a table (`entries!`) of the C functions that it implements. Names without an implementation answer
//! CUDA_ERROR_NOT_SUPPORTED (`names`). A call never follows a handle, checks every address, and never unwinds into C.
//!
//! Environment: see `docs/emulator.md`; `model` reads what is about devices, `device` the rest.

mod allocation;
mod array;
mod array_api;
mod array_copy_api;
mod array_map;
mod attributes;
mod capture;
mod capture_api;
mod companion;
mod context;
mod context_api;
mod context_event_api;
mod copy;
mod copy_api;
mod copy_batch_api;
mod core_dump_api;
mod device;
mod device_api;
mod device_runtime;
mod event;
mod external;
mod external_api;
mod ffi;
mod function;
mod graph;
mod green;
mod handle;
mod host_memory;
mod image;
mod ipc;
mod launch;
mod launch_config;
mod library;
mod link;
mod logs_api;
mod managed;
mod mem_op;
mod model;
mod module;
mod names;
mod objects;
mod occupancy;
mod old_launch_api;
mod output;
mod place;
mod pointer;
mod pool;
mod pool_home;
mod proc_address;
mod profiler;
mod queue;
mod reference;
mod reference_api;
mod result;
mod shared_pool;
mod stream;
mod stream_attribute_api;
mod surface_api;
mod symbols;
mod tensor_map_api;
mod texture_api;
mod threads;
mod virtual_memory;
mod virtual_memory_api;

pub use result::CUresult;

#[cfg(test)]
mod driver_test;
