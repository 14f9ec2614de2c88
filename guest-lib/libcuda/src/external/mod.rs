// SPDX-License-Identifier: Apache-2.0 OR MIT

//! What other APIs share with CUDA. They are not in a guest; but NVIDIA's driver takes the file descriptor of an allocation
//! of `cuMemCreate` for external memory, and so does this library.

pub mod memory;
pub mod semaphore;
mod table;

pub use table::{EXTERNAL, Externals};
