// SPDX-License-Identifier: GPL-2.0-only

//! A replacement for the kernel's `kernel` crate, for kernels without it (no `CONFIG_RUST`).
//!
//! It has the items that the driver uses, under the same paths and with the same meaning; Linux 7.2 is the reference.
//! All code that depends on the kernel's version, configuration or structures is C, compiled with the kernel's headers
//! (`../glue.c`). If Rust stores a kernel object by value it reserves room, and the C side checks at build time that
//! the room suffices (`bindings.rs`).

#![no_std]
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod alloc;
pub mod bindings;
pub mod device;
pub mod error;
pub mod ffi;
pub mod fs;
mod glue;
pub mod init;
pub mod mm;
pub mod module;
pub mod page;
pub mod prelude;
pub mod print;
pub mod str;
pub mod sync;
pub mod task;
pub mod time;
pub mod types;
pub mod uaccess;
pub mod workqueue;
pub mod xarray;

pub use module::{Module, ThisModule};
