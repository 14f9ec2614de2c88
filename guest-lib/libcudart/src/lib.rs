// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CUDA runtime API on top of the driver API: version 13.0, and 12.9 and 11.8 from the packages beside this
//! one.
//!
//! This crate does not depend on virtual machines. It opens `libcuda.so.1` at the first call that needs it and uses
//! that library's exported functions. That library may be this project's guest library, NVIDIA's driver or the CPU
//! emulator.
//!
//! * `api` wraps every exported function: exit state, panics, the thread's last error.
//! * `driver` is the table of libcuda's functions; `state` starts the driver, devices and contexts.
//! * `registry` and `module` hold the device code that compiled programs register from their constructors, and load it
//!   at the first use.
//! * The other modules are the API, area by area. `_ptsz` and `_ptds` variants are beside the function that they vary.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod abi;
#[macro_use]
mod api;
mod device;
#[cfg_attr(not(cuda_major = "13"), allow(dead_code, reason = "some functions serve calls that 13 added"))]
mod driver;
mod entry_point;
mod error;
mod event;
#[cfg(cuda_major = "13")]
mod execution;
mod external;
mod function;
mod graph;
mod graphics;
mod last_error;
#[cfg(cuda_major = "13")]
mod later;
mod launch;
mod library;
#[cfg(cuda_major = "13")]
mod logs;
mod memory;
mod module;
mod occupancy;
mod pointers;
mod registry;
mod state;
mod stream;
mod texture;
mod trace;
#[cfg(cuda_major = "11")]
mod v11;
#[cfg(not(cuda_major = "13"))]
mod v12;
mod version;
