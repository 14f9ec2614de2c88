// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory: allocation, copies, fills, variables, pools, pointer attributes.

use crate::abi::CUdeviceptr;

mod allocate;
mod array;
#[cfg(cuda_major = "13")]
mod batch;
mod copy;
mod copy2d;
mod copy3d;
mod host;
mod ipc;
mod managed;
mod peer;
mod pointer;
mod pool;
mod set;
mod symbol;

pub use array::{channel_desc_of, describe};
pub use copy3d::{from_driver, to_driver};
pub use symbol::{part as symbol_part, read_direction, write_direction};

/// Converts a pointer to the driver's address type.
pub fn address<T: ?Sized>(pointer: *const T) -> CUdeviceptr {
    pointer.cast::<u8>().expose_provenance() as CUdeviceptr
}
