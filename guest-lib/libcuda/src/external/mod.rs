// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Objects that other APIs share with CUDA. Those APIs are not available in a guest. NVIDIA's driver also accepts the
//! file descriptor of a `cuMemCreate` allocation as external memory, and so does this library.

pub mod memory;
pub mod semaphore;
