// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver API with kernels. The expected results are those of NVIDIA's driver 580 (CUDA 13.0) on an H200.

mod arrays;
mod devices;
mod faults;
mod ipc;
mod launches;
mod memory;
mod modules;
mod order;
mod output;
mod tensor_copies;
mod virtual_memory;

use cuda_emulator_testing::cu;
